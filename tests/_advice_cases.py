"""What messages say to do, and the logs that raise them: the cases of ``test_advice.py``."""

import re
from typing import NamedTuple

import numpy as np
import pandas as pd
import polars as pl
from sklearn.impute import SimpleImputer
from sklearn.linear_model import Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeRegressor

from skultr import aggregate_clicks
from skultr.click_models import PBMModel
from skultr.evaluation import compare_rankers
from skultr.metrics import CMIPScorer, RankingScorer
from skultr.model_selection import QueryKFold
from skultr.preprocessing import OnFeatures
from skultr.propensity import (
    relevance_labels,
)
from skultr.rankers import (
    IPSRanker,
    LambdaMARTRanker,
    NaiveRanker,
)

from ._worlds import pages_by_chance

N_PAGES, N_QUERIES, N_DOCS, N_SHOWN = 300, 30, 8, 5
CURVE = [1.0, 0.5, 0.33, 0.25, 0.2]
SHORT = {"max_epochs": 1, "random_state": 0}


def _log():
    """Pages of 30 queries in orders by chance, with clicks of a position-based model."""
    log = pages_by_chance(np.random.default_rng(0), N_PAGES, n_queries=N_QUERIES, n_docs=N_DOCS)
    return log.assign(click=log["click"].astype(float))


LOG = _log()
RNG = np.random.default_rng(1)
CLICKS, X = LOG["click"].to_numpy(), LOG.drop(columns="click")
#: In one order for all users: no document moved.
FIXED = LOG.assign(position=LOG.groupby("session")["doc"].rank().astype(int)).sort_values(
    ["session", "position"], ignore_index=True
)
#: Documents of a query at one position each.
UNMOVED = LOG.assign(position=LOG["doc"] + 1)
USERS = LOG.assign(user=LOG["session"] % 3)
COUNTS, RATES = aggregate_clicks(LOG)


def ranker():
    return NaiveRanker(estimator=DecisionTreeRegressor(max_depth=3, random_state=0))


def fit(log, y="click", **given):
    return ranker().fit(log, y, **given)


def first(column, value, n_rows=5):
    """The log with a value in the first rows of a column."""
    values = LOG[column].astype(object if isinstance(value, str) else float)
    return LOG.assign(**{column: [value] * n_rows + values.tolist()[n_rows:]})


# Cases ------------------------------------------------------------------------------------
class Case(NamedTuple):
    says: tuple  # parts of the message, as the code has them
    wrong: object
    do: tuple


CASES = []


def case(says, wrong, *do):
    """A message that ``wrong()`` raises, and what it says to do, each to its end."""
    CASES.append(Case((says,) if isinstance(says, str) else says, wrong, do))


# The table of faults
for role in ("qid", "session", "doc", "user"):
    base = LOG["session"] if role == "user" else LOG[role]
    for start, dtype in (("2,048", "float16"), ("16,777,216", "float32"), ("9,007,", "float64")):
        floor = int(re.sub(r"\D", "", {"9,007,": "9007199254740992"}.get(start, start)))
        case(
            (f"The role '{role}' holds whole numbers as floats", f"from {start}"),
            lambda role=role, base=base, floor=floor, dtype=dtype: fit(
                LOG.assign(**{role: (base + floor).astype(dtype)})
            ),
            # Read as whole numbers, of which some miss.
            lambda role=role, base=base, floor=floor: fit(
                LOG.assign(**{role: (base + floor).astype("Int64")})
            ),
        )
for role in ("qid", "session", "doc"):
    case(
        f"The role '{role}' is missing",
        lambda role=role: fit(first(role, np.nan)),
        lambda role=role: fit(first(role, np.nan).dropna(subset=[role])),
        lambda role=role: fit(first(role, np.nan).fillna({role: 1_000})),
    )
case(
    "The role 'user' is missing",
    lambda: fit(LOG.assign(user=[np.nan] + [1.0] * (len(LOG) - 1))),
    lambda: fit(LOG.assign(user=np.nan).drop(columns=["user"])),
    lambda: fit(LOG.assign(user=[np.nan] * 5 + [1.0] * (len(LOG) - 5)).fillna({"user": 0})),
)
for role in ("qid", "doc", "user"):
    name = {"qid": "session"}.get(role, "doc")
    case(
        (f"The role '{role}' holds ", "expected ids, which are text"),
        lambda role=role, name=name: fit(LOG.assign(**{role: LOG[name] / 7})),
        lambda role=role, name=name: fit(
            LOG.assign(**{role: LOG[name] / 7})
            .rename(columns={role: f"{role}_feature"})
            # The role itself is a column of another name.
            .assign(**({role: LOG[role]} if role in LOG else {}))
        ),
        lambda: make_pipeline(OnFeatures(StandardScaler()), ranker()).fit(X, CLICKS),
    )
for role in ("qid", "session", "doc", "user"):
    case(
        f"The role '{role}' is -1",
        lambda role=role: fit(USERS.assign(**{role: USERS[role].replace(0, -1)})),
        lambda role=role: fit(
            USERS.assign(**{role: USERS[role].replace(0, -1)}).query(f"{role} != -1")
        ),
    )
case(
    "contains NaN or infinity: found",
    lambda: fit(first("click", np.nan)),
    lambda: fit(
        first("click", np.nan)
        .assign(position=LOG["position"].where(first("click", np.nan)["click"].notna()))
        .fillna({"click": 0})
    ),
)
case(
    "holds negative values: found",
    lambda: fit(LOG.assign(click=2 * LOG["click"] - 1)),
    lambda: fit(LOG.assign(click=(2 * LOG["click"] - 1).clip(lower=0))),
)
case(
    "position must be a whole number from 1",
    lambda: fit(LOG.assign(position=LOG["position"] - 1)),
    lambda: fit(LOG.assign(position=LOG["position"] - 1 + 1)),
)
case(
    "position must be a whole number from 1, or missing where a row was not shown",
    lambda: fit(LOG.assign(position=-1, click=0)),
    lambda: fit(
        LOG.assign(position=LOG["position"].where(LOG["position"] < 5)).assign(
            click=LOG["click"].where(LOG["position"] < 5, 0)
        )
    ),
)
case(
    "{column} must be finite and at least 0",
    lambda: fit(LOG.assign(impressions=-1)),
    lambda: fit(LOG.assign(impressions=1)),
)
case(
    ("is missing, or is not between 0 and 'impressions'", "Count the impressions again"),
    lambda: fit(LOG.assign(impressions=1, click=LOG["click"] * 3)),
    # Only impressions without a click were counted: the clicks are added to them.
    lambda: fit(LOG.assign(impressions=1 + 3 * LOG["click"], click=LOG["click"] * 3)),
    # The values are grades.
    lambda: fit(X, CLICKS * 3),
)
case(
    "relevance must be finite and at least 0",
    lambda: RankingScorer()(fit(LOG), LOG.assign(relevance=LOG["doc"] % 3 - 1)),
    lambda: RankingScorer()(fit(LOG), LOG.assign(relevance=(LOG["doc"] % 3 - 1).clip(lower=0))),
    lambda: RankingScorer()(fit(LOG), LOG.assign(relevance=LOG["doc"] % 3)),
)
case(
    "expected outcomes: finite numbers of at least 0",
    lambda: fit(first("a", np.nan).rename(columns={"a": "outcome_cart"}), "outcome_cart"),
    lambda: fit(
        LOG.assign(outcome_cart=LOG["click"].where(LOG["doc"] > 3)).fillna({"outcome_cart": 0}),
        "outcome_cart",
    ),
)
case(
    "bias is missing",
    lambda: fit(LOG.assign(bias=LOG["position"].where(LOG["position"] > 1))),
    lambda: fit(LOG.assign(bias=LOG["position"].where(LOG["position"] > 1).fillna(0))),
)
case(
    "bias must hold whole numbers below 2**53",
    lambda: fit(LOG.assign(bias=LOG["position"] / 2)),
    lambda: fit(LOG.assign(bias=pd.factorize(LOG["position"] / 2)[0])),
)
case(
    "propensity must lie in [0, 1]",
    lambda: fit(LOG.assign(propensity=(1 / LOG["position"]).where(LOG["position"] < 5))),
    lambda: fit(
        LOG.assign(
            propensity=(1 / LOG["position"]).where(LOG["position"] < 5),
            position=LOG["position"].where(LOG["position"] < 5),
            click=LOG["click"].where(LOG["position"] < 5, 0),
        )
    ),
)
case(
    "propensity is 0 in",
    lambda: IPSRanker(estimator=Ridge()).fit(LOG.assign(propensity=LOG["position"] % 2), "click"),
    lambda: IPSRanker(estimator=Ridge()).fit(LOG.assign(propensity=1 / LOG["position"]), "click"),
    lambda: IPSRanker(estimator=Ridge()).fit(LOG, "click"),
)
case(
    "production must be a finite score",
    lambda: _labels(LOG.assign(production=np.inf)),
    lambda: _labels(LOG.assign(production=-LOG["position"])),
    lambda: _labels(LOG),
    lambda: _labels(LOG.assign(production=np.inf).rename(columns={"production": "x"})),
)
case(
    ("a click but no position or 0 impressions", "Check the positions"),
    lambda: fit(LOG.assign(position=LOG["position"].where(LOG["position"] < 5))),
    lambda: fit(LOG),
)
case("X has no rows", lambda: fit(LOG[:0]), lambda: fit(LOG))
case(
    "X has no column 'qid' and no qid was passed: all rows",
    lambda: fit(LOG.rename(columns={"qid": "query"})),
    lambda: fit(LOG.rename(columns={"qid": "query"}).rename(columns={"query": "qid"})),
    lambda: fit(LOG.drop(columns="qid"), qid=LOG["qid"]),
)
LONG = pd.concat([LOG.assign(session=LOG["session"] + N_PAGES * i) for i in range(2)])
case(
    "so that one result page has",
    lambda: ranker().fit(LONG[["a", "b"]].to_numpy(), LONG["click"].to_numpy()),
    lambda: ranker().fit(
        LONG[["a", "b"]].to_numpy(),
        LONG["click"].to_numpy(),
        **{name: LONG[name].to_numpy() for name in ("qid", "session", "doc", "position")},
    ),
    lambda: make_pipeline(OnFeatures(StandardScaler()), ranker()).fit(
        LONG.drop(columns="click"), LONG["click"].to_numpy()
    ),
)
case(
    "X has no column 'position' (nor 'bias')",
    lambda: fit(LOG.drop(columns="position")),
    lambda: fit(LOG),
    lambda: fit(LOG.drop(columns="position"), position=LOG["position"]),
)
case("No row was shown", lambda: fit(LOG.assign(position=np.nan, click=0)), lambda: fit(LOG))
case("The log has no click", lambda: fit(X, 0 * CLICKS), lambda: fit(X, CLICKS))
case(
    "Every shown row is clicked",
    lambda: fit(LOG.assign(session=np.arange(len(LOG))).query("click == 1")),
    lambda: fit(LOG.assign(session=np.arange(len(LOG)))),
)
case(
    "has values above 1 (up to",
    lambda: fit(X, CLICKS * 3),
    lambda: fit(X.assign(impressions=10), CLICKS * 3),
    lambda: fit(X, CLICKS * 3, impressions=np.full(len(X), 10)),
)
case(
    "these are neither numbers of clicks nor click rates",
    lambda: fit(X.assign(impressions=10), CLICKS * 3.5),
    lambda: fit(X.assign(impressions=10), CLICKS * 35 / 100),  # percentages
    lambda: fit(X.assign(impressions=10), CLICKS * 3.5 / 10),  # weighted clicks
    lambda: fit(X, CLICKS * 3.5),  # grades
)
case(
    "it is read as counts, so that 1 is one click",
    lambda: fit(X.assign(impressions=1 + X["doc"] % 3), CLICKS),
    lambda: fit(X.assign(impressions=1 + X["doc"] % 3), CLICKS * (1 + X["doc"] % 3)),
    lambda: fit(X.assign(impressions=1 + X["doc"] % 3), CLICKS / (1 + X["doc"] % 3)),
)
case(
    ("it is read as click rates", "pass y / impressions"),
    lambda: fit(X.assign(impressions=4), CLICKS),
    lambda: fit(X.assign(impressions=4), CLICKS * 4),
    lambda: fit(X.assign(impressions=4), CLICKS / 4),
)
case(
    ("Two rows of one list are at position", "name each result page in a column 'session'"),
    lambda: fit(LOG.drop(columns="session")),
    lambda: fit(LOG.rename(columns={"session": "page"}).rename(columns={"page": "session"})),
    lambda: fit(LOG.drop(columns="session"), session=LOG["session"]),
    lambda: fit(*aggregate_clicks(LOG.drop(columns="session"))),
)
case(
    "its pages are not known",
    lambda: fit(*aggregate_clicks(LOG.drop(columns="session"))),
    lambda: fit(*aggregate_clicks(LOG)),
)
case(
    "Some sessions have rows of several users",
    lambda: aggregate_clicks(LOG.assign(user=LOG["position"] % 2)),
    lambda: fit(
        *aggregate_clicks(
            LOG.assign(user=LOG["position"] % 2, session=2 * LOG["session"] + LOG["position"] % 2)
        )
    ),
)


def _labels(log):
    return relevance_labels(log, "click", propensity=CURVE, interval=True)


# The table of units
case("y grows with the position", lambda: fit(X, LOG["position"]), lambda: fit(X, CLICKS))
case(
    "it holds where rows were shown, and nothing of the documents",
    lambda: fit(X, 1 / LOG["position"]),
    lambda: fit(X, CLICKS),
)
PLACES = LOG.groupby("session")["b"].rank(ascending=False)
case(
    "y holds different whole numbers from",
    lambda: fit(X, PLACES),
    lambda: fit(X, CLICKS),
    lambda: fit(X, 1 / PLACES),
)
case(
    ("this looks like the probability with which a policy chose", "drop the column"),
    lambda: fit(LOG.assign(propensity=1 / N_DOCS)),
    lambda: fit(LOG.assign(propensity=1 / LOG["position"])),
    lambda: fit(LOG.assign(propensity=1 / N_DOCS).drop(columns="propensity")),
)
UNRELATED = RNG.random(len(LOG))
#: A log of pages in one order, because a score that orders no page may have served shuffled ones.
MOST = RNG.integers(2, 60, size=len(LOG))
MISNAMED = {
    "propensity": ("has nothing to do with the position", UNRELATED, CLICKS),
    "bias": ("has nothing to do with the position", RNG.integers(9, size=len(LOG)), CLICKS),
    "user": ("varies within result pages", RNG.integers(9, size=len(LOG)), CLICKS),
    "impressions": ("holds fractions although", UNRELATED, CLICKS),
    "impressions ": ("and yet every row was clicked in all or in none", MOST, CLICKS * MOST),
    "relevance": ("is a role, which is not read here", 100 + UNRELATED, CLICKS),
    "production": ("is a role, which is not read here", UNRELATED, FIXED["click"].to_numpy()),
    "click": ("is a role, which is not read here", UNRELATED, CLICKS),
}
for name, (words, values, y) in MISNAMED.items():
    role = name.strip()
    data = (FIXED if role == "production" else LOG).drop(columns="click").assign(**{role: values})
    case(
        (f"The column '{role}' is", words),
        lambda data=data, y=y: fit(data, y),
        lambda data=data, role=role: fit(data.rename(columns={role: f"{role}_feature"}), CLICKS),
        lambda data=data, role=role: fit(data.drop(columns=role), CLICKS),
    )
TWICE = LOG.assign(doc=LOG["doc"].where(LOG["position"] != 2, LOG["doc"].shift(fill_value=0)))
case(
    "show a document that an earlier row of the same page shows",
    lambda: fit(TWICE),
    lambda: fit(TWICE.drop_duplicates(["qid", "session", "doc"])),
)
case(
    ("The feature 'seen' looks like", "Drop the column; of a time, make an age"),
    lambda: fit(LOG.assign(seen=1.7e9 + LOG["session"] * 60)),
    lambda: fit(LOG),
    lambda: fit(LOG.assign(age=LOG["doc"] * 7 % 5)),
)
BLANK = LOG.assign(**{name: LOG[name].where(LOG["doc"] > 0) for name in "ab"})
case(
    "as where a join finds no features",
    lambda: LambdaMARTRanker(n_estimators=2).fit(BLANK, "click"),
    lambda: LambdaMARTRanker(n_estimators=2).fit(LOG, "click"),
)
case(
    "equals y in every row",
    lambda: fit(LOG.assign(bought=CLICKS), CLICKS),
    lambda: fit(LOG.assign(bought=CLICKS).drop(columns="bought"), CLICKS),
    lambda: fit(X.assign(bought=CLICKS), "bought"),
)
case(
    "has one value on nearly every row that was not clicked",
    lambda: fit(LOG.assign(cart=CLICKS * (1 + UNRELATED))),
    lambda: fit(
        LOG.assign(cart=CLICKS * (1 + UNRELATED)).rename(columns={"cart": "outcome_cart"})
    ),
    lambda: fit(LOG),
)
case("features are constant", lambda: fit(LOG.assign(a=0, b=1)), lambda: fit(LOG))
JUDGED = LOG.drop_duplicates(["qid", "doc"]).assign(relevance=lambda log: (log["b"] > 0) * 1.0)
case(
    ("gives all documents of each of the", "a constant is no ranking"),
    lambda: compare_rankers({"a": "a", "b": np.zeros(len(JUDGED))}, JUDGED),
    lambda: compare_rankers({"a": "a", "b": "b"}, JUDGED),
)
case(
    ("gives all documents of a query the same score", "what is measured there is chance"),
    lambda: compare_rankers({"a": "a", "b": JUDGED["b"].where(JUDGED["qid"] > 9, 0)}, JUDGED),
    lambda: compare_rankers({"a": "a", "b": "b"}, JUDGED),
)
case(
    ("nothing that orders them was learned", "such as min_child_samples"),
    lambda: LambdaMARTRanker(n_estimators=2, min_child_samples=5000, debiasing="none").fit(
        LOG, "click"
    ),
    lambda: LambdaMARTRanker(n_estimators=2, min_child_samples=5, debiasing="none").fit(
        LOG, "click"
    ),
)

# Messages that print code or a parameter: the doors of the log
LAZY = pl.from_pandas(LOG).lazy()
ARRAY, ROLES_OF_ROWS = (
    X[["a", "b"]].to_numpy(),
    {name: X[name].to_numpy() for name in ("qid", "session", "doc", "position")},
)
DOCUMENTS = LOG.drop_duplicates(["qid", "doc"])[["qid", "doc", "a", "b"]]
ROWS = LOG.drop(columns=["a", "b"])
case(
    "which cannot be added up over impressions",
    lambda: aggregate_clicks(ROWS.assign(relevance=1)),
    lambda: fit(*aggregate_clicks(ROWS, DOCUMENTS.assign(relevance=1))),
)
case(
    "whose names are no text",
    lambda: aggregate_clicks(LOG.rename(columns={"a": 0, "b": 1})),
    lambda: fit(*aggregate_clicks(LOG.rename(columns={"a": 0, "b": 1}).rename(columns=str))),
)
case(
    "expects the name of the column of clicks, as in fit(X, 'click')",
    lambda: PBMModel().fit(LAZY, CLICKS),
    lambda: PBMModel().fit(LAZY, "click"),
    lambda: PBMModel().fit(*aggregate_clicks(LAZY)),
)
case(
    ("in which clicks are counted, and y=", "or pass the column of clicks"),
    lambda: PBMModel().fit(LAZY.with_columns(outcome_x=pl.col("click")), "outcome_x"),
    lambda: PBMModel().fit(LAZY.with_columns(outcome_x=pl.col("click")), "click"),
)
case(
    ("got an array of", "Add them as columns (a sample weight multiplies 'impressions')"),
    lambda: PBMModel().fit(LAZY, "click", qid=CLICKS),
    lambda: PBMModel().fit(LAZY, "click"),
    lambda: PBMModel().fit(*aggregate_clicks(LAZY)),
)
case(
    ("expected a frame in memory", "Reduce it first with skultr.aggregate_clicks(X)"),
    lambda: fit(LAZY),
    lambda: fit(*aggregate_clicks(LAZY)),
    lambda: fit(LAZY.collect()),
)
case(
    ("X has no column 'qid' and no qid was passed, but some ids", "or pass qid="),
    lambda: PBMModel().fit(LOG, "click").predict(X.drop(columns="qid")),
    lambda: PBMModel().fit(LOG, "click").predict(X),
)
case(
    "documents= was passed, but X has no column 'doc'",
    lambda: fit(ROWS.drop(columns="doc"), documents=DOCUMENTS),
    lambda: fit(ROWS, documents=DOCUMENTS),
)
case(
    "documents= was passed, and X is an array",
    lambda: ranker().fit(ARRAY, CLICKS, documents=DOCUMENTS, **ROLES_OF_ROWS),
    lambda: fit(ROWS, documents=DOCUMENTS),
)
case(
    "there are no queries to keep whole",
    lambda: [*QueryKFold(3).split(X.drop(columns="qid"))],
    lambda: [*QueryKFold(3).split(X)],
    lambda: [*QueryKFold(3).split(X.drop(columns="qid"), groups=X["qid"])],
)
case(
    ("needs clicks, and y is another outcome", "Pass y='click'"),
    lambda: CMIPScorer(estimator="knn")(fit(LOG), LOG, "outcome_x"),
    lambda: CMIPScorer(estimator="knn")(fit(LOG), LOG.assign(relevance=LOG["doc"] % 3), "click"),
)
OUTCOME = LOG.assign(outcome_x=CLICKS * (LOG["doc"] > 3))
case(
    ("y is another outcome than the click, ", "pass its values: y=X[name]"),
    lambda: fit(OUTCOME.drop(columns="click"), "outcome_x"),
    lambda: fit(OUTCOME, "outcome_x"),
    lambda: fit(OUTCOME.drop(columns="click"), OUTCOME["outcome_x"]),
)
case(
    ("y weighs the columns", "because others would be features. Rename them"),
    lambda: fit(OUTCOME.rename(columns={"outcome_x": "cart"}), {"click": 1, "cart": 2}),
    lambda: fit(OUTCOME, {"click": 1, "outcome_x": 2}),
)
TURNED = LOG["click"][::-1]
case(
    ("y has the row labels of X in another order", "otherwise y.to_numpy()"),
    lambda: fit(X, TURNED),
    lambda: fit(X, TURNED.loc[X.index]),
    lambda: fit(X, TURNED.to_numpy()),
)
case(
    ("X has no column ", "needs it", "Rename the column of X that holds it to"),
    lambda: CMIPScorer(estimator="knn")(fit(LOG), X, CLICKS),
    lambda: CMIPScorer(estimator="knn")(
        fit(LOG), X.assign(grade=X["doc"] % 3).rename(columns={"grade": "relevance"}), CLICKS
    ),
)
case(
    "Make columns of the index: X = X.reset_index(",
    lambda: fit(LOG.set_index(["qid", "doc"])),
    lambda: fit(LOG.set_index(["qid", "doc"]).reset_index(["qid", "doc"])),
)
case(
    "OnFeatures(SimpleImputer(add_indicator=True))",
    lambda: NaiveRanker(estimator=Ridge()).fit(BLANK, "click"),
    lambda: make_pipeline(
        OnFeatures(SimpleImputer(add_indicator=True)), NaiveRanker(estimator=Ridge())
    ).fit(BLANK.drop(columns="click"), CLICKS),
)
case(
    "Make a frame of it first: pandas.DataFrame(X).",
    lambda: fit(LOG.to_dict("list")),
    lambda: fit(pd.DataFrame(LOG.to_dict("list"))),
    lambda: fit(pd.DataFrame(LOG.to_dict("records"))),
)
case(
    "Fill them, for example with X.filled(0)",
    lambda: ranker().fit(np.ma.masked_greater(ARRAY, 1), CLICKS, **ROLES_OF_ROWS),
    lambda: ranker().fit(np.ma.masked_greater(ARRAY, 1).filled(0), CLICKS, **ROLES_OF_ROWS),
)
case(
    ("which has no names of columns", "Make a frame of it first: pandas.DataFrame(X, columns="),
    lambda: aggregate_clicks(LOG.to_numpy()),
    lambda: fit(*aggregate_clicks(pd.DataFrame(LOG.to_numpy(), columns=[*LOG]))),
)
LEVELS = pd.concat({"log": LOG}, axis=1)
case(
    "X has columns of several levels",
    lambda: fit(LEVELS),
    lambda: fit(LEVELS.set_axis([f"{name}" for _, name in LEVELS.columns], axis=1)),
)
PREFIXED = X.set_axis([f"scaler__{name}" for name in X], axis=1)
case(
    ("are roles that a transformer renamed", "OnFeatures(transformer), from skultr.preprocessing"),
    lambda: fit(PREFIXED, CLICKS),
    lambda: make_pipeline(OnFeatures(StandardScaler()), ranker()).fit(X, CLICKS),
    lambda: fit(PREFIXED.rename(columns=lambda name: name.replace("__", "_")), CLICKS),
)
