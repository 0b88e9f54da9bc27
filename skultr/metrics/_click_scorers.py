"""Scorers of models of clicks: perplexity, likelihood, and dependence on the logging policy."""

from __future__ import annotations

import inspect
from dataclasses import KW_ONLY, dataclass
from typing import Literal, overload

import numpy as np
import pandas as pd
from scipy.special import xlogy

from .._base._sklearn import validate_params
from .._base._typing import Column, Floats, Predictor, RandomState, Scope, Table
from .._log._dataset import ClickDataset
from .._log._lost_roles import refuse_lost_queries
from .._log._reader import read, take_clicks
from .._log._roles import FIT_ROLES, read_column, read_role
from .._log._segments import encode
from ..exceptions import ClickDataWarning, warn_user
from ._click_dependence import elementary_polynomials
from ._dependence import CMIP_CONSTRAINTS, CMIPEstimator, cmip_by_clicks, cmip_score
from ._query_means import ratio_of_sums
from ._ranking import as_numbers, check_ids, flat_columns, refuse_where
from ._scorers import AnnotatedDocuments, Scorer, describes_a_scorer, model_and_input, one_per_row
from ._thresholds import BLIND


@dataclass(eq=False, repr=False)
class CMIPScorer(Scorer):
    """Score how little a model copies the logged ranking beyond what relevance explains (−CMIP).

    CMIP is the mutual information of scores and logging policy, given relevance. The scorer
    returns minus :func:`cmip_score` of ``estimator.predict(X)``, over documents whose relevance is
    known in one of two ways:

    - by annotation. Some rows of the log X have a ``relevance``, which is missing in the others.
      Clicks (``y``) do not change the value;
    - by clicks, with ``arm``. Some lists of the log were shuffled, and the clicks on these take
      the place of annotation.

    CMIP does not measure quality: random scores have a CMIP of 0. In a search, put quality first,
    with ``refit=OffPolicySelection()`` (see the example), and never choose by this scorer alone.

    A document counts once, however often the log shows it, at its mean position over all its
    shown rows; an annotation in one of its rows is enough. Documents that are not annotated or
    were never shown do not count.

    Roles are columns of X, or keyword metadata, which the scorer requests from scikit-learn by
    default (``enable_metadata_routing=True``). Without ``doc``, rows of a query with equal
    features are one document.

    Parameters
    ----------
    logging : str, default=None
        Column of X with the score of the document by the logging policy, missing where there is
        none. By default the mean logged ``position`` of the document over its impressions.
    arm : str, default=None
        Column of X that is given in the rows of lists in random order, and missing (or ``""``)
        in the others (False is a value): the column ``"arm"`` that
        :class:`~skultr.simulation.ShufflePolicy` writes, and that
        :class:`~skultr.propensity.RandomizedPropensity` reads. The clicks of these rows take the
        place of ``relevance``; the estimator must not be trained on them. The positions of the
        other rows are those of the logging policy; with ``logging`` they are not needed.

        This needs the role ``doc`` and about 50 impressions of each of 1,000 documents (see
        :func:`cmip_score`, ``impressions``). It assumes position-based users; if users stop once
        satisfied, unbiased models are rejected too often. ``estimator`` and ``n_repeats`` are not
        used.

        With the role ``propensity``, the examination of each row, the order need not be random.
        Swaps are enough, or all rows of documents that moved, if the curve is right.
    estimator : {"classifier", "knn", "published"}, default="classifier"
        See :func:`cmip_score`. Classifiers need 200 annotated documents in each fold; with fewer,
        ``"knn"`` is used, with a warning. All candidates of a search are compared by the same
        estimator, because the choice depends on the documents of the fold alone.
    n_repeats : int, default=5
        See :func:`cmip_score`.
    random_state : int, RandomState instance or None, default=0
        With an int, all candidates of a search are compared on the same splits.

    Raises
    ------
    ValueError
        By the constructor: if a parameter has a wrong type or value. When called, if

        - X has no ``qid``, no ``relevance``, or neither ``position`` nor the column ``logging``;
        - no row is annotated, or no two annotated documents that were shown share a grade;
        - the estimator does not predict one score per row.

        With ``arm``, if

        - a click is missing, or there are none;
        - no row has an arm, or one has False;
        - a query has several arms and there is no ``propensity``;
        - :func:`cmip_score` with ``impressions`` raises an error.

    Warns
    -----
    ClickDataWarning
        If the scores explain the clicks no better than position alone: given one click rate per
        position, clicks go with the scores by less than one standard error (a score test by
        query). Without clicks, or with ``logging``, this is not tested. On folds of 50 queries
        and 1,000 sessions the warning reached 86 % of the networks that learned less than a
        quarter of what the best one did, and 7 % of the good ones; but 34 % of these where the
        production ranker memorised the grades and users trust positions. Otherwise as
        :func:`cmip_score`.

    See Also
    --------
    cmip_score : The metric, also with standard error and p-value.
    skultr.model_selection.OffPolicySelection : Selection by several scorers.

    Notes
    -----
    A column named by ``logging`` or ``arm`` has no role, so that rankers use it as a feature. Keep
    it out of the model with a step that drops it, such as ``OnFeatures(ColumnTransformer(...))``.

    Scores are compared across queries. If the scores of a ranker are comparable within a query
    only, a per-query offset masks part of the dependence, equally for all such rankers.

    References
    ----------
    Deffayet, Hager, Renders and de Rijke (2023). An offline metric for the debiasedness of click
    models. SIGIR.

    Examples
    --------
    >>> import numpy as np
    >>> import pandas as pd
    >>> from skultr.metrics import CMIPScorer
    >>> rng = np.random.default_rng(0)
    >>> X = pd.DataFrame({"qid": np.repeat(np.arange(50), 10)})
    >>> X["doc"], X["position"] = np.arange(500), np.tile(np.arange(1, 11), 50)
    >>> X["relevance"] = rng.integers(0, 2, 500)
    >>> X["old_score"] = -X["position"] + rng.normal(size=500)
    >>> copies = -X["position"].to_numpy()  # scores of a ranking, or a fitted ranker
    >>> CMIPScorer(estimator="knn")(copies, X) < -0.5
    True

    A search among networks: of those within one standard error of the best nDCG and perplexity,
    the one that copies the old ranking least. The second one learns nothing.

    >>> import warnings
    >>> from sklearn.model_selection import GridSearchCV
    >>> from skultr import DLARanker
    >>> from skultr.datasets import make_ltr
    >>> from skultr.metrics import PerplexityScorer, RankingScorer
    >>> from skultr.model_selection import OffPolicySelection, QueryKFold
    >>> from skultr.simulation import PlackettLucePolicy, simulate_clicks
    >>> documents = make_ltr(100, n_documents=10, random_state=0)
    >>> documents["relevance"] = documents["relevance"].clip(upper=2)
    >>> policy = PlackettLucePolicy(1.0)
    >>> log = simulate_clicks(documents, n_sessions=1_000, policy=policy, random_state=0)
    >>> search = GridSearchCV(
    ...     DLARanker(examination="network", max_epochs=3, random_state=0),
    ...     {"weight_decay": [0.0, 1000.0]},
    ...     cv=QueryKFold(3),
    ...     scoring={
    ...         "cmip": CMIPScorer(estimator="knn"),
    ...         "ndcg": RankingScorer(k=5),
    ...         "perplexity": PerplexityScorer(),
    ...     },
    ...     refit=OffPolicySelection(),
    ... )
    >>> with warnings.catch_warnings(record=True) as told:
    ...     warnings.simplefilter("always")
    ...     search = search.fit(log.X, log.clicks)
    >>> search.best_params_
    {'weight_decay': 0.0}
    >>> any("no better than position alone" in str(warning.message) for warning in told)
    True
    """

    _: KW_ONLY
    logging: str | None = None
    arm: str | None = None
    estimator: CMIPEstimator = "classifier"
    n_repeats: int = 5
    random_state: RandomState = 0

    _constraints = CMIP_CONSTRAINTS | {"logging": [str, None], "arm": [str, None]}
    _roles = ("qid", "relevance", "doc", "position", "propensity", "impressions", "sample_weight")

    @describes_a_scorer
    def __call__(
        self,
        estimator: Predictor | Column | str,
        X: Table,
        y: Column | None = None,
        sample_weight: Column | None = None,
        *,
        qid: Column | None = None,
        relevance: Column | None = None,
        doc: Column | None = None,
        position: Column | None = None,
        propensity: Column | None = None,
        impressions: Column | None = None,
    ) -> float:
        """−CMIP of the estimator's predictions in nats; greater is better, 0 is debiased.

        Parameters
        ----------
        {estimator}
        X : frame, array-like or sparse matrix of shape (n_rows, n_columns)
        y : array-like of shape (n_rows,), default=None
            Clicks or click rates: in the place of grades with ``arm``, else for the warning alone.
        sample_weight : array-like of shape (n_rows,), default=None
            Multiplies ``impressions``, the weights of the positions of a document.
        qid, relevance, doc, position, propensity, impressions : array-like of shape (n_rows,), \
default=None
            Roles as keywords; they take precedence over columns.

        Returns
        -------
        score : float
            In nats.
        """
        # `sample_weight`, the last one, is no role.
        roles = {name: value for name, value in locals().items() if name in self._roles[:-1]}
        if y is not None:
            X, y, _ = take_clicks(X, y, "CMIPScorer", roles)
        if self.arm is not None:
            found = _by_clicks(estimator, X, y, sample_weight, self.arm, self.logging, roles)
            return -found.value
        documents = annotated_documents(
            "CMIPScorer", estimator, X, y, sample_weight, logging=self.logging, **roles
        )
        return -cmip_score(
            *documents,
            estimator=self.estimator,
            n_repeats=self.n_repeats,
            random_state=self.random_state,
        )


@dataclass(eq=False, repr=False)
class PerplexityScorer(Scorer):
    """Score how well a model predicts held-out clicks: minus their perplexity.

    The value is minus :func:`perplexity_score` of ``estimator.predict_click`` on the shown rows of
    X, averaged over positions; rows are weighted by impressions. Of a
    :class:`~sklearn.pipeline.Pipeline`, the first steps transform X and the last one predicts; of
    a fitted search, the best estimator predicts.

    Parameters
    ----------
    conditional : bool, default=True
        If True, click models predict each row given the clicks above it, which tests whether they
        model how users read a list. If False, they predict without the clicks of the list, as
        they must for a new ranking. Models that do not use other clicks (rankers, PBM) predict
        the same in both cases.

    Raises
    ------
    TypeError
        If the estimator has no ``predict_click``.
    ValueError
        If y is None, X has no ``position``, no row was shown, or the estimator does not predict
        one probability per row.

    See Also
    --------
    perplexity_score : The metric, also by position.

    Notes
    -----
    Perplexity is evaluated on the logged ranking. A model can have the best perplexity and fail
    as soon as documents are ranked differently; see :class:`CMIPScorer`.

    Roles are columns of X, or keyword metadata, which the scorer requests from scikit-learn by
    default (``enable_metadata_routing=True``).

    Examples
    --------
    >>> import pandas as pd
    >>> from skultr.metrics import PerplexityScorer
    >>> class Coin:
    ...     def predict_click(self, X):
    ...         return [0.5] * len(X)
    >>> X = pd.DataFrame({"qid": [1, 1], "position": [1, 2], "bm25": [0.3, 0.1]})
    >>> PerplexityScorer()(Coin(), X, [1, 0])
    -2.0
    """

    _: KW_ONLY
    conditional: bool = True

    _constraints = {"conditional": ["boolean"]}

    @describes_a_scorer
    def __call__(
        self,
        estimator: Predictor,
        X: Table | ClickDataset,
        y: Column | None = None,
        sample_weight: Column | None = None,
        *,
        qid: Column | None = None,
        session: Column | None = None,
        doc: Column | None = None,
        position: Column | None = None,
        bias: Column | None = None,
        user: Column | None = None,
        propensity: Column | None = None,
        impressions: Column | None = None,
        doc_scope: Scope | None = None,
    ) -> float:
        """Minus the perplexity; greater is better, -1 is perfect, -2 that of a coin.

        Parameters
        ----------
        estimator : object
            With a method ``predict_click``: a ranker that models clicks, or a click model.
        X : frame, array-like, sparse matrix of shape (n_rows, n_columns) or ClickDataset
            Held-out rows of the log. A dataset has its own clicks and roles.
        y : array-like of shape (n_rows,)
            Clicks or click rates.
        {sample_weight}
        {roles}

        Returns
        -------
        score : float
        """
        roles = {name: value for name, value in locals().items() if name in FIT_ROLES}
        X, y, _ = take_clicks(X, y, "PerplexityScorer", roles)
        rows = read(
            X,
            y,
            sample_weight,
            roles,
            reads=("position", "bias", "impressions"),
            need={"position": "to average over positions"},
            caller="PerplexityScorer",
        )
        shown = rows.shown
        predicted = _predict_click(estimator, X, rows.rate, self.conditional, roles)
        probability = one_per_row(predicted, rows.n_rows, "predict_click")
        return -perplexity_score(
            rows.rate[shown],
            probability[shown],
            position=rows.position[shown],
            sample_weight=rows.weight[shown],
        )


def annotated_documents(
    caller: str,
    estimator: Predictor | Column | str,
    X: Table,
    y: Floats | None = None,
    sample_weight: Column | None = None,
    *,
    logging: str | None = None,
    **roles: Column | None,
) -> tuple[Floats, Floats, Floats]:
    """Score, mean logged position (or logging score) and grade of each annotated document.

    A document is annotated if one of its rows is; its position is the mean over its shown rows.
    With clicks ``y`` and positions, it warns of scores that explain no clicks.
    """
    # A score by the logging policy takes the place of positions.
    unread = {"sample_weight", "propensity"}
    if logging:
        unread.add("position")
    given = {role: roles.get(role) for role in CMIPScorer._roles if role not in unread}
    documents = AnnotatedDocuments(X, given, caller=caller, sample_weight=sample_weight)
    logged, weight = _logged(X, logging, documents.read)
    mean = documents.mean(logged, weight)
    ranked = ~np.isnan(mean)
    if not ranked.any():
        raise ValueError(
            f"None of the {len(mean)} annotated documents was ranked by the logging policy: "
            "they have no position (or no value in the column of logging=). Annotate "
            "documents of the log."
        )
    scores = documents.scores(estimator, "the estimator")
    if y is not None and logging is None:
        _warn_if_blind(type(estimator).__name__, documents.read, documents.row_scores, y)
    return scores[ranked], mean[ranked], documents.relevance[ranked]


def _by_clicks(estimator, X, y, sample_weight, arm, logging, roles):
    """CMIP of the documents that the rows with an arm show, by the clicks there."""
    if y is None:
        raise ValueError("CMIPScorer(arm=) needs y: the clicks, which take the place of grades.")
    refuse_where(np.isnan(y), "y is missing", "expected a click or click rate in every row.")
    arms, chosen = _rows_with_an_arm(X, arm)
    # The documents are those of the rows with an arm, whatever is annotated.
    given = roles | {"relevance": np.where(chosen, 0.0, np.nan)}
    if logging is not None and read_role(X, "position", roles.get("position")) is None:
        # With a score by the logging policy no position is needed.
        given.pop("position", None)
    documents = AnnotatedDocuments(X, given, caller="CMIPScorer", sample_weight=sample_weight)
    rows = documents.read
    # Clicks count in the rows with an arm; positions, unless `logging` replaces them, in others.
    weight = np.where(chosen & rows.shown, rows.weight, 0.0)
    examination = _examination_of_arms(rows, arms.where(chosen), arm)
    logged, logged_weight = _logged(X, logging, rows)
    if not logging:
        logged_weight = np.where(chosen, 0.0, logged_weight)
    mean = documents.mean(logged, logged_weight)
    examined = documents.of_rows(elementary_polynomials, weight, examination)
    scores = documents.scores(estimator, "the estimator")
    clicks = documents.total(weight * y)
    shown = documents.total(weight)
    used = ~np.isnan(mean) & (shown > 0)
    if not used.any():
        raise ValueError(
            f"The documents with a value of {arm!r} have no position in lists without an arm; "
            "expected lists in production's order beside the random ones, or logging=; and ids in "
            "the column 'doc', because by features a document differs from itself in its arm."
        )
    query, _ = encode(documents.qid[used])
    return cmip_by_clicks(
        scores[used], mean[used], clicks[used], examined[:, used], shown[used], query
    )


def _rows_with_an_arm(X, arm):
    """The column of arms, and the mask of the rows that have one."""
    arms = pd.Series(read_column(X, arm))
    # Text has no other missing value than "".
    chosen = (arms.notna() & (arms != "")).to_numpy(dtype=bool)
    # False is a value, so that the lists of production would count as shuffled.
    is_flag = pd.api.types.infer_dtype(arms, skipna=True) == "boolean"
    if is_flag and not arms[chosen].all():
        raise ValueError(
            f"The column {arm!r} holds False, which is a value; expected it to be missing in the "
            f"lists of production. Make it missing: X[{arm!r}].where(X[{arm!r}])."
        )
    if not chosen.any():
        raise ValueError(
            f"The column {arm!r} is missing in all {len(arms)} rows; expected a value in the rows "
            "of lists in random order."
        )
    return arms, chosen


def _examination_of_arms(rows, arms, arm):
    """Examination of each row: the role, or one constant where the order was random."""
    if rows["propensity"] is not None:
        return rows["propensity"]
    if arms.groupby(rows.query).nunique().max() > 1:
        raise ValueError(
            f"A query has several arms in the column {arm!r}: its documents were not shown at "
            "the same positions. Add the column 'propensity', the examination of each row."
        )
    return np.ones(rows.n_rows)


def _logged(X, logging, rows):
    """Position (or score by the logging policy) of each row, and the weight of the row."""
    if logging is None:
        weight = np.where(rows.shown, rows.weight, 0.0)
        return rows.position.astype(float), weight
    values = as_numbers(read_column(X, logging), f"The column {logging!r}")
    # A document may have a score by the logging policy although it was never shown.
    missing = np.isnan(values)
    weight = (~missing).astype(float)
    return np.where(missing, 0.0, values), weight


def _warn_if_blind(name, rows, scores, y):
    """Score test, clustered by query, of the scores beside one click rate per position."""
    shown = rows.shown & ~np.isnan(scores)
    query, _ = encode(rows.query[shown])
    position, _ = encode(rows.position[shown])
    weight = rows.weight[shown]

    def centered(values, code):
        mean = np.bincount(code, weight * values) / np.bincount(code, weight)
        return values - mean[code]

    # The score statistic is the covariance of what position leaves of clicks and of scores.
    surprise = centered(y[shown], position)
    within = centered(centered(scores[shown], query), position)
    value, error = ratio_of_sums(weight * surprise * within, weight, query)
    # Constant scores have 0 of both.
    if not value > BLIND.value * error:
        warn_user(
            f"The scores of {name} explain the clicks no better than position alone: its CMIP may "
            "be near 0 because nothing was learned. Compare quality first, with "
            "refit=OffPolicySelection() in a search.",
            ClickDataWarning,
        )


def _predict_click(estimator, X, y, conditional, roles):
    """P(click) of each row, by the ``predict_click`` inside pipelines, searches and wrappers."""
    refuse_lost_queries(estimator, read_role(X, "qid", roles.get("qid")))
    estimator, X = model_and_input(estimator, X)
    predict_click = getattr(estimator, "predict_click", None)
    if predict_click is None:
        raise TypeError(
            f"{type(estimator).__name__} has no predict_click: PerplexityScorer needs P(click) of "
            "each row. Expected a click model (skultr.click_models) or a ranker that explains "
            "clicks, such as TwoTowerRanker or RegressionEMRanker; score other rankers with "
            "RankingScorer or IPSScorer."
        )
    # Rankers that explain clicks read fewer roles than click models.
    takes = inspect.signature(predict_click).parameters
    given = {name: value for name, value in roles.items() if value is not None and name in takes}
    if "conditional" in takes:
        return predict_click(X, y, conditional=conditional, **given)
    return predict_click(X, **given)


#: Constraints of clicks and their predictions.
_CLICKS = {
    "y_true": ["array-like"],
    "y_prob": ["array-like"],
    "sample_weight": ["array-like", None],
}


@overload
def perplexity_score(
    y_true: Column,
    y_prob: Column,
    *,
    position: Column | None = ...,
    sample_weight: Column | None = ...,
    per_position: Literal[False] = ...,
) -> float: ...
@overload
def perplexity_score(
    y_true: Column,
    y_prob: Column,
    *,
    position: Column,
    sample_weight: Column | None = ...,
    per_position: Literal[True],
) -> pd.DataFrame: ...
@validate_params(
    _CLICKS | {"position": ["array-like", None], "per_position": ["boolean"]},
    prefer_skip_nested_validation=True,
)
def perplexity_score(
    y_true: Column,
    y_prob: Column,
    *,
    position: Column | None = None,
    sample_weight: Column | None = None,
    per_position: bool = False,
) -> float | pd.DataFrame:
    r"""Perplexity of clicks under predicted click probabilities; smaller is better.

    .. math::
        \mathrm{PPL}@k = 2^{-\frac{1}{N_k} \sum [c \log_2 \hat c + (1 - c) \log_2 (1 - \hat c)]},
        \qquad \mathrm{PPL} = \frac{1}{K} \sum_k \mathrm{PPL}@k

    with the sum over the rows at position :math:`k`. It is 1 for perfect predictions and 2 for
    :math:`\hat c = 1/2` everywhere.

    Parameters
    ----------
    y_true : array-like of shape (n_rows,)
        Clicks, or click rates in [0, 1] of rows that count several impressions.
    y_prob : array-like of shape (n_rows,)
        Predicted click probabilities in [0, 1], clipped to [1e-10, 1 - 1e-10].
    position : array-like of shape (n_rows,), default=None
        Rank of each row. Every position has the same weight in the mean, however many rows it
        has. Without positions, one perplexity of all rows.
    sample_weight : array-like of shape (n_rows,), default=None
        For example the impressions of each row. Rows of weight 0 do not count.
    per_position : bool, default=False
        Whether to return the perplexity at each position.

    Returns
    -------
    score : float or pandas.DataFrame
        At least 1 for clicks in {0, 1}. With ``per_position``, a frame indexed by ``position``
        with the columns ``"perplexity"`` and ``"weight"`` (rows, or the sum of their weights).

    Raises
    ------
    ValueError
        If inputs are empty, differ in length, are outside [0, 1] or hold NaN or infinity, or if
        ``per_position`` is True without ``position``.

    Warns
    -----
    ClickDataWarning
        If clicks have probability 0. Each costs 33 bits, so that perplexity says little more than
        how many there are. A search scores this candidate all the same, but it cannot be compared
        with others.

    See Also
    --------
    PerplexityScorer : The same as a scorer, for searches.

    Notes
    -----
    Perplexity is conditional if ``y_prob`` are probabilities given the clicks above in the list,
    and unconditional if they are probabilities without these clicks. Click models predict both
    (``predict_click(X, conditional=False)``). Do not compare one with the other.

    References
    ----------
    Dupret and Piwowarski (2008). A user browsing model to predict search engine click data from
    past observations. SIGIR.

    Examples
    --------
    >>> from skultr.metrics import perplexity_score
    >>> clicks, probability = [1, 0, 0, 0], [0.5, 0.5, 0.25, 0.25]
    >>> round(perplexity_score(clicks, probability, position=[1, 1, 2, 2]), 3)
    1.667
    >>> perplexity_score(clicks, probability, position=[1, 1, 2, 2], per_position=True)
              perplexity  weight
    position
    1           2.000000     2.0
    2           1.333333     2.0
    """
    clicks, probability, weight = check_weighted(
        sample_weight, bounded=True, y_true=y_true, y_prob=y_prob
    )
    _warn_of_the_impossible(clicks * weight, probability)
    if position is None and per_position:
        raise ValueError("per_position=True needs position=: pass the rank of each row.")
    if position is None:
        position = np.zeros(len(clicks))
    codes, values = encode(check_ids(position, "position", len(clicks)))
    # Perplexity of each position: 2 to the mean of the bits.
    mass = np.bincount(codes, weight)
    loss = -weight * _log_likelihood(clicks, probability)
    bits = np.bincount(codes, loss) / np.log(2)
    # Positions whose rows have no weight do not count.
    counted = mass > 0
    perplexity = np.exp2(bits[counted] / mass[counted])
    if not per_position:
        return float(perplexity.mean())
    return pd.DataFrame(
        {"perplexity": perplexity, "weight": mass[counted]},
        index=pd.Index(values[counted], name="position"),
    )


@validate_params(
    _CLICKS | {"session": ["array-like", None]},
    prefer_skip_nested_validation=True,
)
def click_log_likelihood(
    y_true: Column,
    y_prob: Column,
    *,
    session: Column | None = None,
    sample_weight: Column | None = None,
) -> float:
    r"""Mean log-likelihood of clicks under predicted click probabilities; greater is better.

    The log-likelihood of a session is the sum over its rows of
    :math:`c \log \hat c + (1 - c) \log (1 - \hat c)`, in nats. With probabilities given the
    clicks above, it is the log-likelihood of all clicks of the session.

    Parameters
    ----------
    y_true : array-like of shape (n_rows,)
        Clicks, or click rates in [0, 1] of rows that count several impressions.
    y_prob : array-like of shape (n_rows,)
        Predicted click probabilities in [0, 1], clipped to [1e-10, 1 - 1e-10].
    session : array-like of shape (n_rows,), default=None
        The served list of each row. The mean is over sessions if given, else over rows.
    sample_weight : array-like of shape (n_rows,), default=None
        For example the impressions of each row. The weight of a session is the mean over its
        rows.

    Returns
    -------
    score : float
        At most 0 (up to the clipping).

    Raises
    ------
    ValueError
        If inputs are empty, differ in length, are outside [0, 1] or hold NaN or infinity.

    Examples
    --------
    >>> from skultr.metrics import click_log_likelihood
    >>> clicks, probability = [1, 0, 0, 0], [0.5, 0.5, 0.5, 0.5]
    >>> round(click_log_likelihood(clicks, probability), 3)
    -0.693
    >>> round(click_log_likelihood(clicks, probability, session=["a", "a", "b", "b"]), 3)
    -1.386
    """
    clicks, probability, weight = check_weighted(
        sample_weight, bounded=True, y_true=y_true, y_prob=y_prob
    )
    total = weight @ _log_likelihood(clicks, probability)
    if session is None:
        return float(total / weight.sum())
    # A session counts by the mean weight of its rows.
    codes, _ = encode(check_ids(session, "session", len(clicks)))
    weight_of_session = np.bincount(codes, weight) / np.bincount(codes)
    return float(total / weight_of_session.sum())


def _log_likelihood(clicks, probability):
    # A click that was predicted impossible costs 33 bits instead of infinitely many.
    probability = np.clip(probability, 1e-10, 1 - 1e-10)
    return xlogy(clicks, probability) + (1 - clicks) * np.log1p(-probability)


def _warn_of_the_impossible(clicks, probability):
    impossible = float(clicks[probability == 0].sum())
    if impossible > 0:
        warn_user(
            f"The predictions hold {impossible:g} of {float(clicks.sum()):g} clicks impossible "
            "(probability 0): each counts as 33 bits, and perplexity says little else. Expected "
            "probabilities above 0 where there are clicks. CascadeModel allows one click per "
            "list: leave it out where lists have more, or compare it by another metric.",
            ClickDataWarning,
        )


def check_weighted(
    sample_weight: Column | None, *, bounded: bool, **given: Column
) -> list[Floats]:
    """The given columns and the weights of their rows, after checks: finite, and in [0, 1] where
    ``bounded``."""
    if sample_weight is None:
        sample_weight = np.ones(np.shape(next(iter(given.values()))))
    columns = flat_columns(**given, sample_weight=sample_weight)
    *columns, weight = (column.astype(float) for column in columns)
    for name, values in zip(given, columns, strict=True):
        if bounded:
            refuse_where(
                ~((values >= 0) & (values <= 1)),
                f"{name} must be in [0, 1]; it is not",
                "expected probabilities, or clicks or their rates.",
                values,
            )
        else:
            refuse_where(
                ~np.isfinite(values),
                f"{name} must be finite; it is not",
                "expected numbers.",
                values,
            )
    refuse_where(
        ~((weight >= 0) & np.isfinite(weight)),
        "sample_weight must be finite and at least 0; it is not",
        "expected impressions or the like.",
        weight,
    )
    if not weight.any():
        raise ValueError("sample_weight is 0 in every row; expected some rows to count.")
    return [*columns, weight]
