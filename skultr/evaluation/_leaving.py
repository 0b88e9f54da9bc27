r"""Which clicks end the visit of a page: users who leave after a good result.

A user who is still on the page at a row looks at it with the probability o of its position and
clicks if they look and it is relevant, with the relevance r of the document. After a click they
leave with the probability :math:`λ_0 (1 - r) + λ_1 r`, and else go on with the probability g of
the position. Users of a position-based model have λ = 0 and g = 1; dynamic Bayesian networks have
o = 1 and λ_0 = 0; users of a cascade have λ = 1. What tells these apart are the clicks of a page
beside each other: o alone leaves them independent, g makes them go together, and λ makes those
above replace those below.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from .._base._typing import Floats, Ints
from .._log._segments import TINY, offsets_from_counts, rectangles
from .._models._hidden_events import fit_em
from .._models._solve import gram
from ._logged_pages import LoggedPages, sums_above

#: Pseudo-counts of what all documents share: half a success, half a failure.
_WEAK = 0.5
#: What is nearer to 0 or 1 has the errors of these: by its clicks alone it would have none.
_INSIDE = (0.02, 0.98)


class Leaving(NamedTuple):
    """P(leave after a click), and the relevance and looks that it depends on."""

    chance: Floats  # λ_0 and λ_1
    relevance: Floats  # of each pair, P(click) on top of a page
    square: Floats  # of the relevance, without the chance of the clicks that tell it
    look: Floats  # of each place
    kept: Floats  # P(gone on to each place if no click ends the visit)
    influence: Floats  # of each page on the chance

    def stay(
        self, relevance: Floats, square: Floats, place: Ints, page: Ints, chance: Floats
    ) -> Floats:
        """P(no click above ended the visit) at each row of pages whose rows are sorted."""
        leave = self.look[place] * (chance[0] * (relevance - square) + chance[1] * square)
        leave = np.minimum(leave, 0.999)  # what nobody reaches has a logarithm, too
        return np.exp(sums_above(np.log1p(-leave), page))


def fit_leaving(log: LoggedPages, place: Ints) -> Leaving | None:
    """Fit the users of whole pages; ``place`` is that of each row. None without whole pages."""
    if not log.has_pages or not np.isin(log.rate, (0, 1)).all():
        return None
    pages = _Pages(log, place)
    tables = pages.start()
    for _ in range(30):
        # The prior of relevance by the hidden events of these tables, and tables by EM with it.
        counts, _ = pages.expect(tables)
        priors = pages.priors(*counts["relevance"])
        leave_before = tables["leave"]
        tol = 1e-5 * pages.n_pages  # of the log posterior
        fit = fit_em(pages.expect, tables, priors, tol=tol, max_iter=500)
        tables = fit.tables
        # The prior has settled where it moves P(leave) by far less than its standard error.
        move = np.abs(tables["leave"] - leave_before).max()
        if fit.converged and move < 0.02:
            break
    else:
        # Users who do not settle count as unknown.
        return None
    relevance = tables["relevance"]
    kept = np.append(1.0, np.cumprod(tables["on"][:-1]))
    return Leaving(
        chance=tables["leave"],
        relevance=relevance,
        square=relevance**2,
        look=tables["look"],
        kept=kept,
        influence=pages.influence(tables),
    )


class _Pages:
    """Whole pages, in blocks of similar length with one column per page."""

    def __init__(self, log, place):
        # The rows of each page, from the top.
        order = np.lexsort((log.slot, log.rows.choice[log.row]))
        lists = log.rows.choice[log.row][order]
        offsets = offsets_from_counts(np.bincount(lists))
        pair = log.pair[log.row][order]
        place = place[order]
        clicked = log.rate[order] > 0
        weight = log.weight[order]
        page = log.page[log.row][order]
        self.n_pairs = len(log.pair_query)
        self.n_places = place.max() + 1
        self.n_lists = len(log.page_query)
        self.n_pages = log.page_weight.sum()
        # Pages of similar length side by side: an array per block, a column per page.
        self.blocks = []
        for _, rows in rectangles(offsets):
            rows = np.ascontiguousarray(rows.T)
            inside = rows >= 0
            pairs = np.where(inside, pair[rows], self.n_pairs)
            places = np.where(inside, place[rows], 0)
            clicks = inside & clicked[rows]
            self.blocks.append((pairs, places, clicks, weight[rows[0]], page[rows[0]]))
        self.shown = np.bincount(pair, weight, self.n_pairs)
        self.clicks = np.bincount(pair, weight * clicked, self.n_pairs)
        # What the prior and the start are read from.
        usual = np.bincount(pair, weight * place, self.n_pairs) / np.maximum(self.shown, TINY)
        self.usual = np.rint(usual).astype(int)
        rates = np.bincount(place, weight * clicked) / np.bincount(place, weight)
        #: Click rate of each place, relative to the best.
        self.fall = np.clip(rates / max(rates.max(), TINY), *_INSIDE)

    def start(self):
        """Where EM begins: a part of the fall of click rates is looks, a smaller one leaving.

        On four logs of 5,000 pages four other starts moved P(leave) by 0.02 at most.
        """
        # One click in five looks: documents with few clicks begin as typical ones.
        looked = self.shown * np.sqrt(self.fall)[self.usual]
        relevance = (self.clicks + 1) / (looked + 5)
        look = self.fall**0.25
        look[0] = 1.0  # by definition: relevance is P(click) on top
        on = 0.97 * self.fall**0.1
        # No table begins at 0 or 1, where EM would stay.
        return {
            "relevance": np.clip(relevance, 0.02, 0.9),
            "look": look,
            "on": on,
            "leave": np.array([0.2, 0.3]),
        }

    def priors(self, relevant, trials):
        """Pseudo-counts: of relevance by the usual place of a document, by moments."""
        relevant_of_place = np.bincount(self.usual, relevant, self.n_places) + TINY
        trials_of_place = np.bincount(self.usual, trials, self.n_places) + TINY
        # No mean of 0 or 1, which no click could move.
        mean_of_place = np.clip(relevant_of_place / trials_of_place, 0.005, 0.95)
        mean = mean_of_place[self.usual]
        # How much documents differ beyond chance: the share of the variance m (1 - m) that is
        # between them, and the strength a + b of the beta distribution that has it.
        known = trials > 2  # fewer tell nothing of the variance
        n = trials[known]
        variance = (mean * (1 - mean))[known]
        weight = n / (1 + n / 10)  # documents of many trials weigh alike
        beyond = (relevant[known] / n - mean[known]) ** 2 - variance / n
        share = weight @ beyond / max(weight @ (variance * (1 - 1 / n)), TINY)
        # Documents are neither all alike nor of a relevance of 0 or 1 each.
        strength = 1 / np.clip(share, 1e-3, 0.9) - 1
        weak = np.full(self.n_places, _WEAK)
        # Looks on top are certain, by definition.
        is_top = np.arange(self.n_places) == 0
        looks = np.where(is_top, 1e12, weak)
        no_looks = np.where(is_top, 0.0, weak)
        return {
            "relevance": (mean * strength, (1 - mean) * strength),
            "look": (looks, no_looks),
            "on": (weak, weak),
            "leave": (weak[:1], weak[:1]),
        }

    def expect(self, tables):
        """Expected successes and trials of each table, and the log-likelihood."""
        counts = {name: np.zeros((2, len(table))) for name, table in tables.items()}
        counts["relevance"] = np.zeros((2, self.n_pairs + 1))  # the last is the pair of no row
        value = 0.0
        for pairs, places, clicks, weight, _ in self.blocks:
            events, log_chance = _events(tables, pairs, places, clicks)
            value += weight @ log_chance
            for name, codes, successes, trials in events:
                codes = codes.ravel()
                for total, values in zip(counts[name], (successes, trials), strict=True):
                    weighted = (values * weight).ravel()
                    total += np.bincount(codes, weighted, len(total))
        counts["relevance"] = counts["relevance"][:, :-1]
        return {name: tuple(sums) for name, sums in counts.items()}, float(value)

    def influence(self, tables):
        """Influence of each page on P(leave), by the scores of all that documents share."""
        # In the order of `_events`, whose first are those of single documents.
        shared = {name: np.clip(tables[name], *_INSIDE) for name in ("look", "on", "leave")}
        p = np.concatenate(list(shared.values()))
        blocks = []
        # The prior's, and of the clicks page by page: of a few queries it would be far too small.
        information = np.diag(_WEAK / p**2 + _WEAK / (1 - p) ** 2)
        for pairs, places, clicks, weight, page in self.blocks:
            events, _ = _events(tables, pairs, places, clicks)
            columns = []
            for name, codes, successes, trials in events[1:]:
                p = shared[name]
                score = (successes - trials * p[codes]) / (p * (1 - p))[codes]
                # Sums by page and parameter.
                key = (codes + len(p) * np.arange(len(page))).ravel()
                sums = np.bincount(key, score.ravel(), len(p) * len(page))
                columns.append(sums.reshape(-1, len(p)))
            scores = np.hstack(columns)
            blocks.append((page, weight, scores))
            information += gram(scores, weight)
        influence = np.zeros((self.n_lists, 2))
        effect = np.linalg.inv(information)[:, -2:]
        for page, weight, scores in blocks:
            influence[page] = weight[:, None] * (scores @ effect)
        return influence


def _events(tables, pair, place, clicked):
    """Expected hidden events of pages, as (table, codes, successes, trials), and their log P.

    ``rest`` is P(clicks from here on | still on the page at this row), and ``here`` is
    P(still on the page at this row | all clicks).
    """
    low, high = tables["leave"]
    # Places behind the end of a page are of a pair that nobody clicks.
    r = np.append(tables["relevance"], 0.0)[pair]
    look = tables["look"][place]
    on = tables["on"][place]
    # Chances of one row, whether or not it was clicked.
    leave = low * (1 - r) + high * r
    both = look * r  # P(looks and finds it relevant), that is P(click)
    stay = np.where(clicked, 1 - leave, 1.0) * on
    # Up each page: rest is P(clicks below), with users who stay and with those who go.
    clicks_from_here = np.cumsum(clicked[::-1], axis=0)[::-1]
    none_below = clicks_from_here == clicked
    stays = np.empty_like(r)
    goes = (1 - stay) * none_below
    rest = np.ones(r.shape[1])
    for k in range(len(r) - 1, -1, -1):
        stays[k] = stay[k] * rest
        rest = np.where(clicked[k], both[k], 1 - both[k]) * (stays[k] + goes[k])
    # Down each page: here is P(still there), given all clicks.
    here = np.ones((len(r) + 1, r.shape[1]))
    np.cumprod(stays / np.maximum(stays + goes, TINY), axis=0, out=here[1:])
    inside = pair < len(tables["relevance"])
    below = np.vstack([inside[1:], np.zeros_like(inside[:1])])
    still = here[:-1] * inside
    next_ = here[1:] * below
    # Hidden events of each row: looked, relevant, gone on.
    unclicked = still / np.maximum(1 - both, TINY)
    looked = np.where(clicked, 1.0, look * (1 - r) * unclicked)
    relevant = np.where(clicked, 1.0, r * (1 - look) * unclicked)
    # Of clicked rows with a row below: left by the click, not by the position; and whether the
    # click was a relevant one.
    open_end = clicked & below
    gone = leave + (1 - leave) * (1 - on)  # P(not on the next row), for either reason
    left = open_end * (1 - next_) * leave / np.maximum(gone, TINY)
    kept = open_end - left
    left_relevant = left * high * r / np.maximum(leave, TINY)
    kept_relevant = kept * (1 - high) * r / np.maximum(1 - leave, TINY)
    left_by = _by_relevance(left, left_relevant)
    kept_by = _by_relevance(kept, kept_relevant)
    # Whoever did not leave by a click could go on or not.
    could_go_on = still * below * ~clicked + kept
    # λ_0 and λ_1 of each page.
    leave_codes = np.repeat([[0], [1]], r.shape[1], axis=1)
    events = (
        ("relevance", pair, relevant, still),
        ("look", place, looked, still),
        ("on", place, next_, could_go_on),
        ("leave", leave_codes, left_by, left_by + kept_by),
    )
    return events, np.log(np.maximum(rest, TINY))


def _by_relevance(whole, relevant):
    """Sums over each page of events without and with a relevant click, in two lines."""
    return np.stack([(whole - relevant).sum(axis=0), relevant.sum(axis=0)])
