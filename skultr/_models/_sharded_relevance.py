"""Examination and relevance as :class:`PBMModel` estimates them, over shards of documents."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from .._log._clicklog import ClickLog
from .._log._shards import CellShards, ShardedLog
from .._typing import Floats, Ints
from ._document_posterior import DocumentPosterior, Exposures, logged_places, posterior_of
from ._sharded_table import fit_shards, prepared
from ._table_curve import TableCurve, relative_errors
from ._tabular import TabularFit


class ShownAt(NamedTuple):
    """Where the rows of a log were shown.

    Parameters
    ----------
    bias_values : ndarray of shape (n_factors,)
    are_positions : bool
        Whether the bias factors are the positions.
    positions : ndarray of shape (n_factors,)
        Sum of the positions over the impressions of each factor.
    place : ndarray of shape (n_docs,) or None
        Where production put each document, if it was asked for.
    """

    bias_values: NDArray
    are_positions: bool
    positions: Floats
    place: Floats | None

    @classmethod
    def of(cls, log: ClickLog | ShardedLog, *, places: bool = False) -> ShownAt:
        """That of the shown rows of a log; shards keep theirs."""
        if isinstance(log, ShardedLog):
            return cls._of_shards(log)
        rows = log.shown_rows
        bias, position = log.bias[rows], log.position[rows]
        place = logged_places(log).of_documents(log.n_docs)[1] if places else None
        return cls(
            log.bias_values,
            bool((log.bias_values[bias] == position).all()),
            np.bincount(bias, log.weight[rows] * position, minlength=len(log.bias_values)),
            place,
        )

    @classmethod
    def _of_shards(cls, log):
        parts: list[ShownAt] = log.kept
        positions = np.zeros(len(log.bias_values))
        for part in parts:
            positions[np.searchsorted(log.bias_values, part.bias_values)] += part.positions
        place = None
        if parts[0].place is not None:
            place = log.cells.joined(part.place for part in parts)
        are_positions = all(part.are_positions for part in parts)
        return cls(log.bias_values, are_positions, positions, place)


def curve_of_shards(
    shards: CellShards, mean: Floats, spread: Floats
) -> tuple[Floats, Floats, int]:
    """As ``table_of_cells(cells).with_prior(mean, spread)``, and the number of Newton steps."""
    start = np.full(shards.n_factors, 0.5)
    fit = fit_shards(shards, "poisson", start=start)
    b, total, joint = fit.factor_logits, 0.0, 0.0
    rest = fit.n_iter, fit.converged, "poisson", "product"
    none = np.empty(0, dtype=bool)
    for own, cells in zip(fit.doc_logits, prepared(shards, "poisson"), strict=True):
        table = TabularFit(own, b, *rest, cells, none, none)
        of_total, of_joint = TableCurve(table).information_parts
        total, joint = total + of_total, joint + of_joint
    precision = spread**-2.0
    covariance = np.linalg.inv(np.diag(total + precision) - joint)
    aim = total * b - joint @ b + precision * mean
    return covariance @ aim, relative_errors(covariance, 0), fit.n_iter


def posterior_of_shards(
    log: ShardedLog, examination: Floats, error: Floats, place: Floats
) -> DocumentPosterior:
    """As :func:`document_posterior`, with one examination and error per bias factor.

    A sum over the rows of a document is one over a shard, and all else is by document.
    """
    if not log.has_whole_queries:
        raise ValueError(
            "The cells of the log do not fit into memory, and its documents belong to several "
            "queries (doc_scope='global', or no column 'qid'): shards of documents do not tell "
            "where production put them within a query, which prior='logged' reads. Set "
            "prior='empirical' or prior=None."
        )
    shards = log.cells

    def parts():
        for cells in shards:
            yield Exposures.of_rows(
                cells.doc,
                cells.clicks,
                cells.weight,
                examination[cells.factor],
                cells.n_docs,
                error[cells.factor],
            )

    def per_skip(relevance):
        return shards.joined(
            part.per_skip(relevance[docs]) for docs, part in zip(shards.docs, parts(), strict=True)
        )

    sums = [np.stack([part.clicks, part.examinations, part.error], axis=1) for part in parts()]
    clicks, examinations, off = shards.joined(sums).T
    query: Ints = log.doc_ids.codes[0]
    found = Exposures(clicks, examinations, off, per_skip)
    return posterior_of(found, query=query, place=place)
