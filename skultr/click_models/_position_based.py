"""Clicks as relevance times examination: by position, or by position and last click."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import pandas as pd

from .._log._cells import Cells
from .._log._segments import TINY
from .._models._browsing import (
    draw_ubm_clicks,
    pbm_click_probability,
    ubm_click_probability,
    ubm_conditional_click_probability,
)
from .._models._document_posterior import document_posterior, logged_places
from .._models._table_curve import table_curve
from .._sklearn import StrOptions
from ..identifiability._not_identifiable import warn_unless_identifiable
from ._em import WEAK, fit_em, weak_priors
from ._gradient import GradientClickModel
from ._known_factors import KnownFactors, count_cells, warn_about_unknown
from ._patterns import last_clicks
from ._priors import given_prior
from ._products import expected_counts, factor_groups, start_tables

__all__ = ["PBMModel", "UBMModel"]


#: Deepest rank of the user browsing model, which has one parameter per pair of ranks.
_MAX_RANK = 2_000


#: Weight of a prior in impressions: of the distance on a (rank, last click) pair, and of the group
#: on a rare rank.
_PRIOR_WEIGHT = 20.0


#: Neighbouring ranks are joined until a group has so many impressions.
_GROUP_IMPRESSIONS = 100.0


#: Where no document moved, examination is taken to fall with this power of the position: half way,
#: in logarithms, from no bias at all to 1 / position.
_UNKNOWN_SLOPE = 0.5


class _ProductModel(GradientClickModel):
    """Models of P(click) as relevance times examination, with one examination per factor."""

    def _known_relevance(self, log, task):
        """Relevance by document if a network was trained; EM keeps it fixed."""
        return self._train_towers(log, task) if self.solver == "gradient" else {}

    def _solve_cells(self, log, cells, examination, prior, known):
        """Examination relative to the first factor, shape (n_factors,); sets ``documents_``."""
        start = {**start_tables(cells), "examination": examination}
        fit, means = self._solve(
            log,
            lambda tables: expected_counts(cells, **known, **tables),
            {name: of for name, of in start.items() if name not in known},
            {"examination": prior},
            () if known else ("relevance",),
        )
        examination = fit.tables["examination"]
        # Clicks determine the product only: relevance is scaled to P(click) at the first position.
        self._scale = first = examination[0]
        relevance = {**known, **fit.tables}["relevance"] * first
        prior_mean = {"relevance": means.get("relevance", np.nan) * first}
        self._remember_documents(log, prior_mean, relevance=relevance)
        return examination / first

    def _pooled_examination(self, log, cells, group, known):
        """Examination by factor, the same for all factors of a ``group``."""
        factor, n_groups = group[cells.factor], group.max() + 1
        pooled = Cells.from_rows(
            cells.doc, factor, cells.clicks, cells.weight, cells.n_docs, n_groups
        )
        start = {**start_tables(pooled), **known}

        def expect(tables):
            return expected_counts(pooled, **known, **tables)

        priors = {"examination": WEAK}
        if not known:
            weak = weak_priors(expect(start)[0], ("relevance",))
            priors["relevance"] = given_prior(self.prior) or weak["relevance"]
        fit = fit_em(
            expect,
            {name: of for name, of in start.items() if name not in known},
            priors,
            tol=10 * self.tol * float(log.weight[log.shown].sum()),
            max_iter=self.max_iter,
        )
        return fit.tables["examination"][group]

    def _row_parameters(self, X, qid, doc):
        parameters = super()._row_parameters(X, qid, doc)
        if self.solver == "gradient":
            parameters["relevance"] = parameters["relevance"] * self._scale
        return parameters


@dataclass(kw_only=True, eq=False, repr=False)
class PBMModel(_ProductModel):
    r"""Position-based model: P(click) is relevance times examination of the position.

    .. math:: P(c = 1) = r_d \, o_k

    By default examination comes from the same documents at several positions
    (:class:`~skultr.rankers.RegressionEMRanker` with ``relevance="embedding"`` does the same), and
    the relevance of a document from its clicks and from where production put it. A document with
    few clicks is then as relevant as others of its query that stood as high, and one with many is
    what its clicks say. Where no document moved, examination is taken to be
    :math:`1 / \sqrt{k}`, with a warning.

    Parameters
    ----------
    prior : {"logged", "empirical"} or (float, float), default="logged"
        What is known of a document before its clicks are counted.

        - ``"logged"``: a gamma distribution whose mean falls with the place that production gave
          the document, times a factor of its query; both, and how firmly they hold, are learned
          from the log. The place is the role ``production`` if the log has it, less the mean of
          the query, else the mean position in the lists of the query.
        - ``"empirical"``: one Beta distribution for all documents, by maximum likelihood.
          Documents that were always at the bottom are pulled toward the average document, and
          examination of their positions is underestimated. Examination of a position with few
          impressions is pulled, with the weight of 20 impressions, toward that of its group:
          neighbouring positions with 100 impressions together.
        - (float, float): pseudo-counts of clicks and of skips of an examined document.

        With ``solver="gradient"`` only examination has a prior, that of ``"empirical"``.
    tol : float, default=1e-8
        Least gain of the log posterior in a round, divided by the number of impressions; EM stops
        below it.
    max_iter : int, default=1000
        Largest number of EM steps.
    solver : {"em", "gradient"}, default="em"
        A table of parameters, one row per document, fitted by EM; or a network of the features,
        which also ranks documents that are not in the log.

    Other Parameters
    ----------------
    hidden_layer_sizes, dropout, normalization, module, scale_features
        The network and its input with ``solver="gradient"``; shared by all neural estimators, see
        :ref:`network_parameters`.
    learning_rate, max_epochs, batch_size, weight_decay, optimizer, net_params
        Training of the network.
    traffic_exponent
        Exponent of the weight of frequent queries in training.
    early_stopping, validation_fraction, n_iter_no_change
        Early stopping over held-out queries, by the cross-entropy of their clicks.
    device, random_state, verbose
        Where the network is trained, the seed, and what is printed.

    Attributes
    ----------
    documents_ : DataFrame
        ``relevance`` by ``doc`` (by number where the log has no such column): P(click) at the
        first position. With ``prior="logged"`` it is the posterior mean, with the ends ``lower``
        and ``upper`` of the 95 % interval given the examination, ``effective_sample``, the number
        of impressions at the first position that would have been examined as often, and
        ``prior_mean``.
    examination_ : DataFrame
        One row per bias factor (index ``bias``; the position, unless the log has a column
        ``bias``): ``examination`` relative to the first factor, ``impressions`` and ``clicks``.
    log_posterior_ : ndarray of shape (n_rounds,)
        Log likelihood plus log prior after each round of EM; it never falls. With
        ``solver="gradient"``, of the EM over the parameters that all documents share. Not with
        ``prior="logged"``, which needs no EM.
    n_iter_ : int
        Number of EM steps; with ``prior="logged"``, of Newton steps for examination; with
        ``solver="gradient"``, of epochs.
    network_, net_, history_
        Only with ``solver="gradient"``: scaling and network, the skorch net that trained it, and
        the learning curves by epoch.
    prior_ : dict of str to (float, float)
        Pseudo-counts of each parameter of documents; empty with ``prior="logged"`` and with
        ``solver="gradient"``.
    n_features_in_ : int
    feature_names_in_ : ndarray of shape (`n_features_in_`,)
        Only from frames with text column names.

    Warns
    -----
    NotIdentifiableWarning
        If the log does not determine relevance.

    See Also
    --------
    skultr.rankers.TwoTowerRanker : The same model as a ranker, without a prior.

    References
    ----------
    Richardson, Dominowska & Ragno (2007). Predicting clicks: estimating the click-through rate
    for new ads. WWW.

    Examples
    --------
    >>> from skultr.click_models import PBMModel
    >>> from skultr.datasets import make_ltr
    >>> from skultr.simulation import PositionBasedUser, UniformPolicy, simulate_clicks
    >>> log, clicks, truth = simulate_clicks(
    ...     make_ltr(5, 6, random_state=0),
    ...     n_sessions=2_000,
    ...     policy=UniformPolicy(),
    ...     user=PositionBasedUser(1.0),
    ...     random_state=0,
    ... )
    >>> model = PBMModel().fit(log, clicks)
    >>> model.examination_.columns.tolist()
    ['examination', 'impressions', 'clicks']
    """

    prior: Literal["logged", "empirical"] | Sequence[float] = "logged"

    _parameter_constraints = {
        **_ProductModel._parameter_constraints,
        "prior": [StrOptions({"logged", "empirical"}), "array-like"],
    }
    _reads_clicks = False
    _reads_production = True

    def _fit(self, log, task):
        # With a prior every log has an estimate, but a prior is not evidence.
        warn_unless_identifiable(log, network=self.solver == "gradient")
        self._factors = KnownFactors.of_log(log)
        cells = count_cells(log)
        if self.solver == "em" and isinstance(self.prior, str) and self.prior == "logged":
            examination = self._solve_logged(log, cells)
        else:
            known = self._known_relevance(log, task)
            prior = self._rank_prior(log, cells, known)
            start = start_tables(cells)["examination"]
            examination = self._solve_cells(log, cells, start, prior, known)
        self.examination_ = pd.DataFrame(
            {
                "examination": examination,
                "impressions": cells.by_factor(cells.weight),
                "clicks": cells.by_factor(cells.clicks),
            },
            index=pd.Index(log.bias_values, name="bias"),
        )

    def _solve_logged(self, log, cells):
        """Examination relative to the first factor, shape (n_factors,); sets ``documents_``."""
        examination, error = self._compared_examination(log, cells)
        query, place = logged_places(log).of_documents(cells.n_docs)
        found = document_posterior(
            cells.doc,
            cells.clicks,
            cells.weight,
            examination[cells.factor],
            query=query,
            place=place,
            error=error[cells.factor],
        )
        first = examination[0]
        rows = log.shown_rows
        tables = {
            "relevance": found.mean * first,
            "lower": found.lower * first,
            "upper": found.upper * first,
            "effective_sample": found.effective_sample / first,
            "prior_mean": found.prior_mean * first,
        }
        shown = np.bincount(log.doc[rows], minlength=cells.n_docs) > 0
        unseen = {name: of[shown].mean() for name, of in tables.items()}
        self._remember_documents(log, unseen, **tables)
        return examination / first

    def _compared_examination(self, log, cells):
        """Examination by factor, the highest 1, and standard errors of its logarithm.

        From the same documents under several factors. The errors are relative to the first factor.
        """
        weight = cells.by_factor(cells.weight)
        group = np.arange(cells.n_factors)
        if self._factors.are_positions:
            # A rare rank is examined like its neighbours.
            group = factor_groups(weight, min(_GROUP_IMPRESSIONS, weight.max() / 2))
        rows, n_groups = log.shown_rows, group.max() + 1
        table = table_curve(replace(log, bias=group[log.bias], bias_values=np.arange(n_groups)))
        self.n_iter_, self.prior_ = table.fit.n_iter, {}
        depth = np.bincount(group[log.bias[rows]], log.weight[rows] * log.position[rows], n_groups)
        depth = np.maximum(depth / np.maximum(np.bincount(group, weight), TINY), 1.0)
        log_examination, error = table.with_prior(
            -_UNKNOWN_SLOPE * np.log(depth), _UNKNOWN_SLOPE * np.log1p(depth)
        )
        return np.exp(log_examination - log_examination.max())[group], error[group]

    def _rank_prior(self, log, cells, known):
        """Pseudo-counts (a, b) of each rank: of a rare rank, by the examination of its group."""
        group = factor_groups(cells.by_factor(cells.weight), _GROUP_IMPRESSIONS)
        if not self._factors.are_positions or group[-1] == cells.n_factors - 1:
            return WEAK
        mean = np.clip(self._pooled_examination(log, cells, group, known), 1e-4, 1 - 1e-4)
        strength = np.where(np.bincount(group)[group] > 1, _PRIOR_WEIGHT, sum(WEAK))
        return strength * mean, strength * (1 - mean)

    def _probability(self, parameters, position, bias, clicks):
        codes = self._factors.codes(bias, parameters["relevance"] > 0)
        examination = self.examination_["examination"].to_numpy()[codes]
        return np.minimum(pbm_click_probability(parameters["relevance"], examination), 1.0)

    def _draw(self, parameters, position, bias, rng):
        chance = self._probability(parameters, position, bias, None)
        return rng.random(chance.shape) < chance


@dataclass(kw_only=True, eq=False, repr=False)
class UBMModel(_ProductModel):
    r"""User browsing model: examination depends on the rank and the rank of the last click above.

    .. math:: P(c_k = 1 \mid c_1, \dots, c_{k-1}) = r_d \, \gamma_{k, l}

    with :math:`l` the rank of the last click above rank :math:`k`, 0 if there is none.

    Parameters
    ----------
    prior : "empirical" or (float, float), default="empirical"
        Pseudo-counts of clicks and of skips of an examined document; by default those of their
        Beta distribution over documents, by maximum likelihood (empirical Bayes).
    tol : float, default=1e-8
        Least gain of the log posterior in a round, divided by the number of impressions; EM stops
        below it.
    max_iter : int, default=1000
        Largest number of EM steps.
    solver : {"em", "gradient"}, default="em"
        A table of parameters, one row per document, fitted by EM; or a network of the features,
        which also ranks documents that are not in the log.

    Other Parameters
    ----------------
    hidden_layer_sizes, dropout, normalization, module, scale_features
        The network and its input with ``solver="gradient"``; shared by all neural estimators, see
        :ref:`network_parameters`.
    learning_rate, max_epochs, batch_size, weight_decay, optimizer, net_params
        Training of the network.
    traffic_exponent
        Exponent of the weight of frequent queries in training.
    early_stopping, validation_fraction, n_iter_no_change
        Early stopping over held-out queries, by the cross-entropy of their clicks.
    device, random_state, verbose
        Where the network is trained, the seed, and what is printed.

    Attributes
    ----------
    documents_ : DataFrame
        ``relevance`` by ``doc`` (by number where the log has no such column): P(click) at the
        first rank.
    examination_ : DataFrame
        One row per ``rank`` and ``last_click`` (index): ``examination`` relative to the first
        rank, ``impressions`` and ``clicks``.
    log_posterior_ : ndarray of shape (n_rounds,)
        Log likelihood plus log prior after each round of EM; it never falls. With
        ``solver="gradient"``, of the EM over the parameters that all documents share.
    n_iter_ : int
        Number of EM steps; with ``solver="gradient"``, of epochs.
    network_, net_, history_
        Only with ``solver="gradient"``: scaling and network, the skorch net that trained it, and
        the learning curves by epoch.
    prior_ : dict of str to (float, float)
        Pseudo-counts of each parameter of documents; empty with ``solver="gradient"``.
    n_features_in_ : int
    feature_names_in_ : ndarray of shape (`n_features_in_`,)
        Only from frames with text column names.

    Notes
    -----
    Long lists have many pairs of ranks, most of them rare. The model is fitted first with one
    parameter per rank for rows without a click above, and one per distance :math:`k - l` for
    others; neighbours with fewer than 100 impressions share a parameter. The examination of each
    pair is then pulled toward its parameter with the weight of 20 impressions. A rank below the
    training lists gets the examination of their last rank at the same distance from the last
    click, with a warning.

    References
    ----------
    Dupret & Piwowarski (2008). A user browsing model to predict search engine click data from
    past observations. SIGIR.

    Examples
    --------
    >>> import pandas as pd
    >>> from skultr.click_models import UBMModel
    >>> log = pd.DataFrame({"qid": 1, "session": [1, 1, 2, 2], "doc": ["a", "b"] * 2,
    ...                     "position": [1, 2] * 2})
    >>> model = UBMModel(prior=(1, 1)).fit(log, [1, 1, 0, 1])
    >>> model.examination_.index.tolist()
    [(1, 0), (2, 0), (2, 1)]
    """

    def _before_folding(self, log):
        log = super()._before_folding(log)
        n_ranks = int(log.position.max())
        _check_depth(n_ranks)
        last = np.concatenate([_last_positions(part) for part in log.chunks()])
        return replace(
            log, bias=(log.position - 1) * n_ranks + last, bias_values=np.arange(n_ranks**2)
        )

    def _fit(self, log, task):
        n_ranks = int(log.position.max())
        cells = Cells.from_rows(
            log.doc, log.bias, log.clicks, log.weight, len(log.features), n_ranks**2
        )
        known = self._known_relevance(log, task)
        prior = self._distance_prior(log, cells, n_ranks, known)
        start = prior[0] / _PRIOR_WEIGHT
        examination = self._solve_cells(log, cells, start, prior, known)
        self._examination = np.tril(examination.reshape(n_ranks, n_ranks))
        self.examination_ = _pairs_table(self._examination, cells)

    def _distance_prior(self, log, cells, n_ranks, known):
        """Pseudo-counts (a, b) of each (rank, last click), from a model by rank or distance."""
        group = _groups(n_ranks)
        weight = np.bincount(group[cells.factor], cells.weight, minlength=2 * n_ranks)
        by_rank, by_distance = (
            factor_groups(of, _GROUP_IMPRESSIONS) for of in np.split(weight, 2)
        )
        # Without any click that has a row below it, the curve by rank stands for that by distance.
        first = by_rank[-1] + 1 if weight[n_ranks:].any() else 0
        joined = np.concatenate([by_rank, first + by_distance if first else by_rank])
        curve = self._pooled_examination(log, cells, joined[group], known)
        mean = np.clip(curve, 1e-4, 1 - 1e-4)
        return _PRIOR_WEIGHT * mean, _PRIOR_WEIGHT * (1 - mean)

    def _probability(self, parameters, position, bias, clicks):
        grid, place = self._grid(parameters["relevance"], position)
        examination = self._examination_at(position, parameters["relevance"] > 0)
        if clicks is None:
            chance = ubm_click_probability(grid, examination)
        else:
            seen = np.zeros(grid.shape, dtype=bool)
            np.put_along_axis(seen, place, clicks, axis=1)
            chance = ubm_conditional_click_probability(grid, examination, seen)
        return np.minimum(np.take_along_axis(chance, place, axis=1), 1.0)

    def _draw(self, parameters, position, bias, rng):
        grid, place = self._grid(parameters["relevance"], position)
        examination = self._examination_at(position, parameters["relevance"] > 0)
        return np.take_along_axis(draw_ubm_clicks(grid, examination, rng), place, axis=1)

    def _grid(self, relevance, position):
        """Relevance by rank, 0 at ranks without a row, and the column of each row there."""
        inside = relevance > 0
        n_ranks = int(position[inside].max(initial=1))
        _check_depth(n_ranks)
        # Padding goes to an additional column that is not read.
        place = np.where(inside, position - 1, n_ranks)
        grid = np.zeros((len(relevance), n_ranks + 1))
        np.put_along_axis(grid, place, relevance, axis=1)
        return grid, place

    def _examination_at(self, position, inside):
        """Examination for ranks 1 to the deepest in X, and for an additional one of padding."""
        known = len(self._examination)
        n_ranks = int(position[inside].max(initial=1)) + 1
        warn_about_unknown(inside & (position > known), position)
        rank, last = np.indices((n_ranks, n_ranks))
        near = np.minimum(rank, known - 1)
        # The same distance from the last click, if there is a click.
        moved = np.clip(last - (rank - near), np.minimum(last, 1), near)
        return self._examination[near, moved]


def _check_depth(n_ranks):
    if n_ranks > _MAX_RANK:
        raise ValueError(
            f"Found a row at position {n_ranks}; UBMModel has one parameter per pair of ranks and "
            f"takes lists of up to {_MAX_RANK}. Cut the lists, or use PBMModel or DBNModel."
        )


def _last_positions(log):
    """Position of the last click above each row, 0 if there is none."""
    place, _ = last_clicks(log)
    starts = np.repeat(log.offsets[:-1], np.diff(log.offsets))
    row = np.arange(log.n_rows)
    last = np.maximum.accumulate(np.where(log.clicks > 0, row, -1))
    above = np.append(-1, last[:-1])
    return np.where(above >= starts, log.position[above], 0) * (place > 1)


def _groups(n_ranks):
    """Group of each (rank, last click): by rank without a click above, else by distance."""
    rank, last = np.indices((n_ranks, n_ranks))
    distance = np.clip(rank + 1 - last, 1, n_ranks - 1 if n_ranks > 1 else 1)
    return np.where(last == 0, rank, n_ranks + distance - 1).ravel()


def _pairs_table(examination, cells):
    n_ranks = len(examination)
    rank, last = np.tril_indices(n_ranks)
    index = pd.MultiIndex.from_arrays([rank + 1, last], names=["rank", "last_click"])
    cell = rank * n_ranks + last
    return pd.DataFrame(
        {
            "examination": examination[rank, last],
            "impressions": cells.by_factor(cells.weight)[cell],
            "clicks": cells.by_factor(cells.clicks)[cell],
        },
        index=index,
    )
