"""User browsing model: examination by rank and last click."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
from scipy.sparse import csr_array

from .._log._cells import Cells
from .._log._segments import pair_codes
from .._models._browsing import (
    draw_ubm_clicks,
    ubm_click_probability,
    ubm_conditional_click_probability,
)
from .._models._table_curve import pair_curve
from ..identifiability._graph import warn_unless_identifiable
from ._em import WEAK
from ._model import by_position, warn_about_unknown
from ._position_based import ProductModel, factor_groups, start_tables, unknown_curve
from ._thresholds import GROUP_IMPRESSIONS, MOST_RANKS, PRIOR_WEIGHT


@dataclass(kw_only=True, eq=False, repr=False)
class UBMModel(ProductModel):
    r"""User browsing model: examination depends on the rank and the rank of the last click above.

    .. math:: P(c_k = 1 \mid c_1, \dots, c_{k-1}) = r_d \, \gamma_{k, l}

    with :math:`l` the rank of the last click above rank :math:`k`, 0 if there is none.

    Parameters
    ----------
    prior : {"logged", "empirical"}, (float, float) or None, default="logged"
        What is known of a document before its clicks are counted.

        - ``"logged"``: a gamma distribution whose mean falls with the place of the document in
          the logged ranking, as in :class:`PBMModel`. Examination comes from the same documents at
          several pairs of rank and last click, and the prior does not change it.
        - ``"empirical"``: one Beta distribution for all documents, by maximum likelihood. Poor
          documents are shown deep, and this prior blames examination for part of their few clicks.
        - (float, float): pseudo-counts of clicks and of skips of an examined document.
        - None: as in :class:`PBMModel`.

        With ``solver="gradient"`` documents have no prior.
    {steps}
    {variant}
    {solver}

    Attributes
    ----------
    documents_ : DataFrame
        ``relevance`` by ``doc`` (by number where the log has no such column): P(click) at the
        first rank; with ``prior="logged"`` also ``lower``, ``upper``, ``effective_sample`` and
        ``prior_mean``, as in :class:`PBMModel`.
    examination_ : DataFrame
        One row per ``rank`` and ``last_click`` (index) of the log: ``examination`` relative to
        the first rank, ``impressions`` and ``clicks``.
    log_posterior_ : ndarray of shape (n_rounds,)
        Log likelihood plus log prior after each round of EM; it never falls. With
        ``solver="gradient"`` this is the EM over the parameters that all documents share. With
        ``prior="logged"`` there is no EM, and no such attribute.
    n_iter_ : int
        Number of EM steps. With ``prior="logged"`` it counts Newton steps for examination, and
        with ``solver="gradient"`` epochs.
    network_, net_, history_
        Only with ``solver="gradient"``: scaling and network, the skorch net that trained it
        (which pickles leave out), and the learning curves by epoch.
    prior_ : dict of str to (float, float)
        Pseudo-counts of each parameter of documents; empty with ``prior="logged"`` and with
        ``solver="gradient"``.
    n_features_in_ : int
    feature_names_in_ : ndarray of shape (`n_features_in_`,)
        Only from frames with text column names.

    Warns
    -----
    NotIdentifiableWarning
        If no documents compare the ranks. Examination is then an assumption, which falls with the
        root of the rank by default.
    ConvergenceWarning
        If the estimate of examination did not converge.

    Notes
    -----
    Long lists have many pairs of ranks, most of them rare. With ``prior="logged"`` log examination
    is the sum of

    - an effect of the rank,
    - an effect of the distance :math:`k - l`, if a row above was clicked, and
    - a deviation of the pair, whose usual size is learned, too.

    They maximise the conditional likelihood of where the clicks of each document fell.

    With other priors EM fits one parameter per rank for rows without a click above, and one per
    distance for others. It then pulls each pair toward this parameter with the weight of 20
    impressions. Neighbours with fewer than 100 impressions share their parameters.

    A rank below the training lists gets the examination of their last rank at the same distance
    from the last click, with a warning.

    References
    ----------
    Dupret & Piwowarski (2008). A user browsing model to predict search engine click data from
    past observations. SIGIR.

    Examples
    --------
    >>> import pandas as pd
    >>> from skultr.click_models import UBMModel
    >>> log = pd.DataFrame({"qid": 1, "session": [1, 1, 2, 2], "doc": ["a", "b", "b", "a"],
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
        pair = pair_codes(log.position - 1, last, n_ranks)
        # The pairs that occur are the bias factors, and the first rank is one in any case.
        pairs, bias = np.unique(np.append(pair, 0), return_inverse=True)
        return replace(log, bias=bias[:-1], bias_values=pairs)

    def _fit(self, log, task):
        # Ranks are connected by documents that moved; last clicks alone do not compare them.
        warn_unless_identifiable(by_position(log), network=self.solver == "gradient")
        self._pairs = log.bias_values
        self._n_ranks = int(log.position.max())
        n_pairs = len(self._pairs)
        cells = Cells.from_rows(log.doc, log.bias, log.clicks, log.weight, log.n_docs, n_pairs)
        self._examination, _ = self._solve_product(log, cells, task)
        if not self._reads_places:
            # Relative to the first rank, as the pairs of the log.
            alone, later, after = self._unseen
            self._unseen = alone / self._scale, later, after / self._scale
        rank, last = np.divmod(self._pairs, self._n_ranks)
        index = pd.MultiIndex.from_arrays([rank + 1, last], names=["rank", "last_click"])
        columns = {
            "examination": self._examination,
            "impressions": cells.weight_of_factors,
            "clicks": cells.clicks_of_factors,
        }
        self.examination_ = pd.DataFrame(columns, index)

    def _compared_examination(self, log, cells):
        n_pairs = cells.n_factors
        n_ranks = self._n_ranks
        by_rank, by_distance, distance = self._groups(cells)
        # Beside the pairs: each rank without a click above, and each distance at the first rank.
        zeros = np.zeros(n_ranks, int)
        rank = np.concatenate([self._pairs // n_ranks, np.arange(n_ranks), zeros])
        distance = np.concatenate([distance, zeros, np.arange(n_ranks)])
        # Effects: first those of ranks, then those of distances.
        n_groups = by_rank[-1] + 1
        clicked = np.flatnonzero(distance)
        row = np.append(np.arange(len(rank)), clicked)
        column = np.append(by_rank[rank], n_groups + by_distance[distance[clicked] - 1])
        n_effects = n_groups + int(by_distance.max(initial=-1)) + 1
        effects = csr_array((np.ones(len(row)), (row, column)), (len(rank), n_effects))
        # Their prior: a curve by the mean rank of a group, and no effect of the distance.
        ranks = np.bincount(by_rank, np.arange(1, n_ranks + 1))
        # Where no document moved, this prior is all that is known.
        mean, depth = unknown_curve(ranks / np.bincount(by_rank))
        # Standard deviation, a priori, of the effect of the distance from the last click on log
        # examination: hardly a restriction.
        spread = np.append(depth, np.full(n_effects - n_groups, 1.0))
        curve = pair_curve(cells, effects, mean[by_rank[rank]], spread)
        self.n_iter_ = curve.n_iter
        error = curve.standard_error[:n_pairs]
        log_examination = curve.log_examination - curve.log_examination[0]
        # A rare pair is not more examined than any other surely is: a click would be certain.
        most = max(np.max(log_examination[:n_pairs] - 2 * error), 0.0)
        examination = np.exp(np.minimum(log_examination, most))
        found, alone, after = np.split(examination, [n_pairs, n_pairs + n_ranks])
        self._unseen = alone, alone / alone[0], after
        return found, error

    def _fitted_prior(self, log, cells, known):
        """Each pair has a prior: examination by rank or by distance."""
        ones = np.ones(self._n_ranks)
        if self.prior is None:
            self._unseen = 0.5 * ones, ones, 0.5 * ones
            return start_tables(cells)["examination"], WEAK
        by_rank, by_distance, distance = self._groups(cells)
        # Without any click that has a row below it, the curve by rank stands for that by distance.
        beside = by_rank[-1] + 1 + np.append(0, by_distance)
        after = beside if distance.any() else np.append(0, by_rank[:-1])
        rank = self._pairs // self._n_ranks
        group = np.where(distance, after[distance], by_rank[rank])
        mean = self._pooled_examination(log, cells, group, known)
        by_group = np.zeros(max(by_rank[-1], after[-1]) + 1)
        by_group[group] = mean
        self._unseen = by_group[by_rank], ones, by_group[after]
        strength = PRIOR_WEIGHT.value
        return mean, (strength * mean, strength * (1 - mean))

    def _groups(self, cells):
        """Groups of ranks and of distances from the last click above, where few rows have
        neighbours as company, and the distance of each pair, 0 without such a click."""
        rank, last = np.divmod(self._pairs, self._n_ranks)
        distance = np.where(last > 0, rank + 1 - last, 0)
        weight = cells.weight_of_factors
        impressions_at = np.bincount(rank, weight, self._n_ranks)
        impressions_after = np.bincount(distance, weight, self._n_ranks)[1:]
        by_rank = factor_groups(impressions_at, GROUP_IMPRESSIONS.value)
        by_distance = factor_groups(impressions_after, GROUP_IMPRESSIONS.value)
        return by_rank, by_distance, distance

    def _probability(self, parameters, position, bias, clicks):
        # Lists may have gaps between ranks: a grid has a column for each rank.
        grid, examination, place = self._grid(parameters["relevance"], position)
        if clicks is None:
            chance = ubm_click_probability(grid, examination)
        else:
            seen = np.zeros(grid.shape, dtype=bool)
            np.put_along_axis(seen, place, clicks, axis=1)
            chance = ubm_conditional_click_probability(grid, examination, seen)
        # Relevance times examination may exceed 1 where both are estimates.
        return np.minimum(np.take_along_axis(chance, place, axis=1), 1.0)

    def _draw(self, parameters, position, bias, rng):
        grid, examination, place = self._grid(parameters["relevance"], position)
        clicks = draw_ubm_clicks(grid, examination, rng)
        return np.take_along_axis(clicks, place, axis=1)

    def _grid(self, relevance, position):
        """Relevance by rank, 0 at ranks without a row; examination; and the column of each row."""
        inside = relevance > 0
        n_ranks = int(position[inside].max(initial=1))
        _check_depth(n_ranks)
        # Padding goes to an additional column that is not read.
        place = np.where(inside, position - 1, n_ranks)
        grid = np.zeros((len(relevance), n_ranks + 1))
        np.put_along_axis(grid, place, relevance, axis=1)
        warn_about_unknown(inside & (position > self._n_ranks), position)
        return grid, self._examination_to(n_ranks + 1), place

    def _examination_to(self, n_ranks):
        """Examination by rank and last click, to any depth."""
        known = self._n_ranks
        alone, later, after = self._unseen
        rank, last = np.indices((n_ranks, n_ranks))
        near = np.minimum(rank, known - 1)
        # The same distance from the last click, if there is a click.
        last = np.clip(last - (rank - near), np.minimum(last, 1), near)
        distance = np.where(last > 0, near + 1 - last, 0)
        unseen = np.where(last, later[near] * after[distance], alone[near])
        # A pair of the log has its own estimate; others are not above all of these.
        pair = near * known + last
        place = np.searchsorted(self._pairs, pair).clip(max=len(self._pairs) - 1)
        seen = self._pairs[place] == pair
        most = self._examination.max()
        return np.where(seen, self._examination[place], np.minimum(unseen, most))


def _check_depth(n_ranks):
    if n_ranks > MOST_RANKS.value:
        raise ValueError(
            f"Found a row at position {n_ranks}; UBMModel has one parameter per pair of ranks and "
            f"takes lists of up to {MOST_RANKS.value}. Cut the lists, or use PBMModel or DBNModel."
        )


def _last_positions(log):
    """Position of the last click above each row, 0 if there is none."""
    starts = np.repeat(log.offsets[:-1], np.diff(log.offsets))
    clicked = np.where(log.clicks > 0, np.arange(log.n_rows), -1)
    last = np.maximum.accumulate(clicked)
    above = np.append(-1, last[:-1])
    # A click of an earlier list is none of this one.
    return np.where(above >= starts, log.position[above], 0)
