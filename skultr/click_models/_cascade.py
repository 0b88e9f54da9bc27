"""Cascade, dependent click and click chain models: users scan down and may stop."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pandas as pd

from .._log._segments import encode, rectangles
from .._models._browsing import (
    chain_click_probability,
    chain_conditional_click_probability,
    draw_chain_clicks,
)
from ..exceptions import ClickDataWarning, warn_user
from ._em import WEAK
from ._em_model import EMClickModel
from ._known_factors import known_codes
from ._model import TableClickModel
from ._patterns import last_clicks
from ._priors import PRIOR_CONSTRAINT, empirical_beta, given_prior, posterior_mean
from ._tails import count_chain


class ChainMixin:
    """P(click) of users who scan down, from three probabilities per row.

    Subclasses write ``_transitions(parameters, position)``: attraction, and P(next row examined)
    after a skip and after a click.
    """

    def _probability(self, parameters, position, bias, clicks):
        chances = self._transitions(parameters, position)
        if clicks is None:
            return chain_click_probability(*chances)
        return chain_conditional_click_probability(*chances, clicks)

    def _draw(self, parameters, position, bias, rng):
        return draw_chain_clicks(*self._transitions(parameters, position), rng)

    def _examination_table(self, log, tables):
        """P(examined) per position, not conditional on any click, from tables by document code."""
        sums = [sums_by_position(part, self._examined(part, tables)) for part in log.chunks()]
        return examination_by_position(sums)

    def _examined(self, log, tables):
        examined = np.empty(log.n_rows)
        for _, place in rectangles(log.offsets):
            inside = place >= 0
            doc = log.doc[place]
            block = {name: np.where(inside, of[doc], 0.0) for name, of in tables.items()}
            attraction, *chances = self._transitions(block, log.position[place])
            click = chain_click_probability(attraction, *chances)
            examined[place[inside]] = click[inside] / attraction[inside]
        return examined


def start_attraction(counts):
    """Initial attraction, shape (n_docs,): clicks over clicks plus skips above a click."""
    shown = counts.clicks + counts.skips
    mean = counts.clicks.sum() / max(shown.sum(), 1e-9)
    return np.clip((counts.clicks + mean) / (shown + 1.0), 0.02, 0.9)


@dataclass(kw_only=True, eq=False, repr=False)
class CascadeModel(ChainMixin, TableClickModel):
    """Cascade model: the user scans down, clicks the first relevant document and leaves.

    Relevance is clicks over impressions, counted down to the first click, so that no EM is
    needed. The model has at most one click per list: a second one has probability 0.

    Use it only for logs of at most one click per list. Elsewhere its perplexity, conditional on
    the clicks above, is not comparable with that of other models: each second click counts as 33
    bits, with a warning from :func:`~skultr.metrics.perplexity_score`, so that a single one in a
    thousand rows can decide a search.

    Parameters
    ----------
    prior : "empirical" or (float, float), default="empirical"
        Pseudo-counts of clicks and of skips of a document; by default their Beta distribution
        over documents, by maximum likelihood (empirical Bayes).

    Attributes
    ----------
    documents_ : DataFrame
        ``relevance`` (P(click | examined)) by ``doc`` (by number where the log has no such
        column).
    examination_ : DataFrame
        Share of impressions that were examined (``examination``) per position (index), with
        ``impressions`` and ``clicks``.
    prior_ : tuple of (float, float)
    n_features_in_ : int
    feature_names_in_ : ndarray of shape (`n_features_in_`,)
        Only from frames with text column names.

    Warns
    -----
    ClickDataWarning
        If lists have more than one click: the model cannot explain them and uses the first.

    References
    ----------
    Craswell, Zoeter, Taylor & Ramsey (2008). An experimental comparison of click position-bias
    models. WSDM.

    Examples
    --------
    >>> import pandas as pd
    >>> from skultr.click_models import CascadeModel
    >>> log = pd.DataFrame({"qid": 1, "session": [1, 1, 2, 2], "doc": ["a", "b"] * 2,
    ...                     "position": [1, 2] * 2})
    >>> clicks = [1, 0, 0, 1]
    >>> model = CascadeModel(prior=(1, 1)).fit(log, clicks)
    >>> model.predict_click(log, clicks).round(2)
    array([0.5 , 0.  , 0.5 , 0.67])
    """

    prior: Literal["empirical"] | Sequence[float] = "empirical"

    _parameter_constraints = {"prior": PRIOR_CONSTRAINT}

    def _fit(self, log, task):
        clicks, shown = np.zeros((2, log.n_docs))
        sums = []
        for part in log.chunks():
            examined = _down_to_first_click(part)
            clicks += np.bincount(part.doc, part.clicks * examined, minlength=len(clicks))
            shown += np.bincount(part.doc, part.weight * examined, minlength=len(shown))
            sums.append(sums_by_position(part, examined))
        total, read = log.clicks.sum(), clicks.sum()
        if total - read > 1e-9 * total:
            warn_user(
                f"Found {total - read:g} of {total:g} clicks below another click of the same "
                "list: the cascade model has at most one click per list and does not use them. In "
                "DCMModel and DBNModel, users may continue after a click.",
                ClickDataWarning,
            )
        self.prior_ = given_prior(self.prior) or empirical_beta(clicks, shown)
        self._remember_documents(
            log,
            {"relevance": posterior_mean(0.0, 0.0, self.prior_)},
            relevance=posterior_mean(clicks, shown, self.prior_),
        )
        self.examination_ = examination_by_position(sums)

    def _transitions(self, parameters, position):
        return parameters["relevance"], 1.0, 0.0


def _down_to_first_click(log):
    place, _ = last_clicks(log)
    first = np.where(log.clicks > 0, place, log.n_rows + 1)
    first = np.minimum.reduceat(first, log.offsets[:-1])
    return place <= np.repeat(first, np.diff(log.offsets))


def examination_by_position(sums):
    """Mean examination per position, from :func:`sums_by_position` of parts of a log."""
    sums = pd.concat(sums).groupby(level=0).sum()
    return sums.assign(examination=sums["examination"] / sums["impressions"])


def sums_by_position(log, examined):
    """Sums of ``examined``, impressions and clicks per position."""
    codes, positions = encode(log.position)
    count = {
        name: np.bincount(codes, values)
        for name, values in (
            ("examination", examined * log.weight),
            ("impressions", log.weight),
            ("clicks", log.clicks),
        )
    }
    return pd.DataFrame(count, index=pd.Index(positions, name="position"))


@dataclass(kw_only=True, eq=False, repr=False)
class DCMModel(ChainMixin, EMClickModel):
    r"""Dependent click model: P(continue) after a click depends on the position.

    The user scans down. After a skip they always continue with the next row; after a click at
    rank k they continue with probability :math:`\lambda_k`:

    .. math:: P(e_{k+1} = 1 \mid e_k = 1, c_k) = 1 - c_k (1 - \lambda_k), \qquad
              P(c_k = 1 \mid e_k = 1) = r_d.

    Parameters
    ----------
    prior : "empirical", (float, float) or None, default="empirical"
        Pseudo-counts of clicks and of skips of an examined document; by default those of their
        Beta distribution over documents, by maximum likelihood (empirical Bayes). None: maximum
        likelihood of the documents too, as in :class:`PBMModel`.
    tol : float, default=1e-8
        Least gain of the log posterior in a round, divided by the number of impressions; EM stops
        below it.
    max_iter : int, default=1000
        Largest number of EM steps.

    Attributes
    ----------
    documents_ : DataFrame
        ``relevance`` (P(click | examined)) by ``doc`` (by number where the log has no such
        column).
    continuation_ : Series
        :math:`\lambda` by position. Positions without a click that has a row below it, such as
        the deepest, get the value of the nearest position above with one.
    examination_ : DataFrame
        Mean ``examination`` per position (index), not conditional on any click, with
        ``impressions`` and ``clicks``.
    log_posterior_ : ndarray of shape (n_rounds,)
        Log likelihood plus log prior after each round of EM; it never falls.
    n_iter_ : int
        Number of EM steps.
    prior_ : dict of str to (float, float)
    n_features_in_ : int
    feature_names_in_ : ndarray of shape (`n_features_in_`,)
        Only from frames with text column names.

    Notes
    -----
    The published estimate assumes that no row below the last click was examined, which
    overestimates relevance and underestimates :math:`\lambda`. Here whether the user continued is
    summed out.

    References
    ----------
    Guo, Liu & Wang (2009). Efficient multiple-click models in web search. WSDM.

    Examples
    --------
    >>> import pandas as pd
    >>> from skultr.click_models import DCMModel
    >>> log = pd.DataFrame({"qid": 1, "session": [1, 1, 2, 2], "doc": ["a", "b"] * 2,
    ...                     "position": [1, 2] * 2})
    >>> model = DCMModel(prior=(1, 1)).fit(log, [1, 1, 0, 1])
    >>> model.predict(log[:2]).round(2)
    array([0.5 , 0.75])
    """

    def _fit(self, log, task):
        self._positions = np.unique(log.position)
        counts = count_chain(
            log,
            key=lambda part: np.searchsorted(self._positions, part.position),
            n_keys=len(self._positions),
        )

        def expect(tables):
            a, on = tables["relevance"], tables["continuation"]
            seen = counts.visit(a, 1.0, on)
            value = counts.clicks @ np.log(a) + counts.skips @ np.log1p(-a)
            value += counts.clicks_above @ np.log(on) + seen.log_likelihood
            examined = counts.clicks + counts.skips + seen.examined
            open_end = counts.clicks_above + counts.last_clicks
            return {
                "relevance": (
                    counts.clicks,
                    examined,
                    seen.examined_variance / (1 - a) ** 2,
                    (counts.clicks, counts.skips),
                ),
                "continuation": (counts.clicks_above + seen.went_on, open_end),
            }, value

        start = {
            "relevance": start_attraction(counts),
            "continuation": np.full(len(self._positions), 0.5),
        }
        priors = {"continuation": WEAK}
        fit, means = self._solve(log, expect, start, priors, ("relevance",))
        index = pd.Index(self._positions, name="position")
        on = _carried_down(fit.tables["continuation"], counts.clicks_above + counts.last_clicks)
        self.continuation_ = pd.Series(on, index, name="continuation")
        self._remember_documents(log, means, relevance=fit.tables["relevance"])
        self.examination_ = self._examination_table(log, {"relevance": fit.tables["relevance"]})

    def _transitions(self, parameters, position):
        relevance = parameters["relevance"]
        codes = known_codes(self._positions, position, relevance > 0)
        return relevance, 1.0, self.continuation_.to_numpy()[codes]


def _carried_down(values, support):
    """Values, with those without support replaced by the nearest ones above with support."""
    known = np.where(support > 0, np.arange(len(values)), 0)
    return values[np.maximum.accumulate(known)]


@dataclass(kw_only=True, eq=False, repr=False)
class CCMModel(ChainMixin, EMClickModel):
    r"""Click chain model: P(continue) depends on whether a clicked document was relevant.

    .. math:: P(e_{k+1} = 1 \mid e_k = 1, c_k = 0) = \tau_1, \qquad
              P(e_{k+1} = 1 \mid c_k = 1) = \tau_2 (1 - r_d) + \tau_3 r_d, \qquad
              P(c_k = 1 \mid e_k = 1) = r_d.

    Parameters
    ----------
    prior : "empirical", (float, float) or None, default="empirical"
        Pseudo-counts of clicks and of skips of an examined document; by default those of their
        Beta distribution over documents, by maximum likelihood (empirical Bayes). None: maximum
        likelihood of the documents too, as in :class:`PBMModel`.
    tol : float, default=1e-8
        Least gain of the log posterior in a round, divided by the number of impressions; EM stops
        below it.
    max_iter : int, default=1000
        Largest number of EM steps.

    Attributes
    ----------
    documents_ : DataFrame
        ``relevance`` (P(click | examined)) by ``doc`` (by number where the log has no such
        column).
    continuation_ : Series
        ``after_skip`` (:math:`\tau_1`), ``after_irrelevant`` (:math:`\tau_2`) and
        ``after_relevant`` (:math:`\tau_3`).
    examination_ : DataFrame
        Mean ``examination`` per position (index), not conditional on any click, with
        ``impressions`` and ``clicks``.
    log_posterior_ : ndarray of shape (n_rounds,)
        Log likelihood plus log prior after each round of EM; it never falls.
    n_iter_ : int
        Number of EM steps.
    prior_ : dict of str to (float, float)
    n_features_in_ : int
    feature_names_in_ : ndarray of shape (`n_features_in_`,)
        Only from frames with text column names.

    Notes
    -----
    The paper has a uniform prior on every relevance and keeps the whole posterior. Here relevance
    is one number per document, as in the other models, and examination below the last click is
    summed out exactly.

    References
    ----------
    Guo, Liu, Kannan, Minka, Taylor, Wang & Faloutsos (2009). Click chain model in web search.
    WWW.

    Examples
    --------
    >>> import pandas as pd
    >>> from skultr.click_models import CCMModel
    >>> log = pd.DataFrame({"qid": 1, "session": [1, 1, 2, 2], "doc": ["a", "b"] * 2,
    ...                     "position": [1, 2] * 2})
    >>> model = CCMModel(prior=(1, 1)).fit(log, [1, 1, 0, 1])
    >>> model.continuation_.index.tolist()
    ['after_skip', 'after_irrelevant', 'after_relevant']
    """

    def _fit(self, log, task):
        counts = count_chain(log)

        def expect(tables):
            return _ccm_counts(counts, tables["relevance"], tables["continuation"])

        start = {
            "relevance": start_attraction(counts),
            "continuation": np.array([0.8, 0.6, 0.4]),
        }
        priors = {"continuation": WEAK}
        fit, means = self._solve(log, expect, start, priors, ("relevance",))
        names = ["after_skip", "after_irrelevant", "after_relevant"]
        self.continuation_ = pd.Series(fit.tables["continuation"], names, name="continuation")
        self._remember_documents(log, means, relevance=fit.tables["relevance"])
        self.examination_ = self._examination_table(log, {"relevance": fit.tables["relevance"]})

    def _transitions(self, parameters, position):
        r = parameters["relevance"]
        after_skip, after_irrelevant, after_relevant = self.continuation_
        return r, after_skip, after_irrelevant * (1 - r) + after_relevant * r


def _ccm_counts(counts, r, tau):
    """E-step of the click chain model.

    Whether the user finds a clicked document relevant is a hidden event of its own, independent of
    the click, with the same probability r.
    """
    on = tau[1] * (1 - r) + tau[2] * r
    seen = counts.visit(r, tau[0], on)
    skips = counts.skips.sum()
    value = counts.clicks @ np.log(r) + counts.skips @ np.log1p(-r) + skips * np.log(tau[0])
    value += counts.clicks_above @ np.log(on) + seen.log_likelihood
    open_end = counts.clicks_above + counts.last_clicks
    went_on = counts.clicks_above + seen.went_on
    # P(relevant | clicked) of users who continued, and of users who did not.
    if_on, if_off = r * tau[2] / on, r * (1 - tau[2]) / (1 - on)
    relevant_on = went_on * if_on
    relevant = relevant_on + (open_end - went_on) * if_off
    hidden = counts.variance_after_last(seen, if_on, if_off)
    hidden += counts.clicks_above * if_on * (1 - if_on)
    missing = hidden / (r * (1 - r)) ** 2 + seen.examined_variance / (1 - r) ** 2
    examined = counts.clicks + counts.skips + seen.examined
    after = (
        skips + seen.went_on_after_skip,
        (went_on - relevant_on).sum(),
        relevant_on.sum(),
    )
    chances = (skips + seen.skips, (open_end - relevant).sum(), relevant.sum())
    return {
        "relevance": (
            counts.clicks + relevant,
            examined + open_end,
            missing,
            (counts.clicks, counts.skips),
        ),
        "continuation": (np.array(after), np.array(chances)),
    }, value
