"""More cases of ``test_advice.py``: judgments beside clicks, in training and in comparisons."""

import io

import numpy as np
import pandas as pd
from sklearn.linear_model import LinearRegression

from skultr import EnsembleRanker
from skultr.click_models import UBMModel
from skultr.datasets import make_ltr
from skultr.evaluation import compare_judgments, compare_rankers
from skultr.metrics import RankingScorer
from skultr.serving import click_judgments, export_judgments, read_judgments

from ._advice_cases import CURVE, LOG, N_DOCS, X, case, ranker

#: What people said of the documents of most queries.
PAIRS = LOG[["qid", "doc"]].drop_duplicates(ignore_index=True)
PEOPLE = PAIRS.assign(relevance=PAIRS["doc"] % 3)
BOTH = {"people": PEOPLE, "model": PAIRS.assign(relevance=PAIRS["doc"] % 2)}
#: Documents of the log, and one that it never showed.
UNSHOWN = PEOPLE.iloc[:1].assign(doc=N_DOCS)


def taught(judgments):
    return EnsembleRanker([("naive", ranker())], random_state=0).fit(
        LOG, "click", judgments=judgments
    )


def compared(**given):
    return compare_judgments(BOTH, X, LOG["click"], propensity=CURVE, n_resamples=9, **given)


# In training ------------------------------------------------------------------------------
TWICE = PEOPLE.merge(PEOPLE.assign(relevance=1), how="outer")
case(
    ("of qid and doc with several grades", "Choose a judge, or take means"),
    lambda: taught(TWICE),
    lambda: taught(PEOPLE),
    lambda: taught(TWICE.groupby(["qid", "doc"], as_index=False)["relevance"].mean()),
)
ELSEWHERE = PEOPLE.assign(qid=PEOPLE["qid"] + 1000)
case(
    ("of qid and doc is in the log, such as", "Give both the same ids"),
    lambda: taught(ELSEWHERE),
    lambda: taught(PEOPLE),
    lambda: taught(ELSEWHERE.assign(a=ELSEWHERE["doc"] * 1.0, b=0.0)),
)
case(
    ("are neither in the log nor in documents=", "or as columns of judgments"),
    lambda: taught(PEOPLE.merge(UNSHOWN, how="outer")),
    lambda: taught(PEOPLE.merge(UNSHOWN, how="outer").assign(a=PEOPLE["doc"] * 1.0, b=0.0)),
)
case(
    ("Queries of judgments with features and with documents of different", "Judge more queries"),
    lambda: taught(PEOPLE[PEOPLE["qid"] < 3]),
    lambda: taught(PEOPLE),
    lambda: taught(None),
)

TAUGHT = taught(PEOPLE[PEOPLE["qid"] < 20])
case(
    ("annotated queries, so that its metric is too high", "Leave these queries out of judgments="),
    lambda: RankingScorer()(TAUGHT, X.assign(relevance=X["doc"] % 3)),
    lambda: RankingScorer()(TAUGHT, X.assign(relevance=X["doc"] % 3)[X["qid"] >= 20]),
)

# In comparisons ---------------------------------------------------------------------------
case(
    ("baseline=", "is none of the judgments; expected one of"),
    lambda: compared(baseline="nobody"),
    lambda: compared(baseline="people"),
)
case(
    ("names a column of X, which is no frame here", "expected a mapping from qid to kind"),
    lambda: compare_judgments(BOTH, by="kind", n_resamples=9),
    lambda: compare_judgments(BOTH, by=dict.fromkeys(PAIRS["qid"], "few"), n_resamples=9),
)
case(
    ("propensity is there, and X is not", "or leave propensity out"),
    lambda: compare_judgments(BOTH, propensity=CURVE),
    lambda: compare_judgments(BOTH, X, LOG["click"], propensity=CURVE, n_resamples=9),
    lambda: compare_judgments(BOTH, n_resamples=9),
)
CLICKED = click_judgments(LOG, "click", propensity=CURVE)
case(
    ("has the column 'prior_share'", "if these are, drop the column 'prior_share'"),
    lambda: compare_judgments(CLICKED, X, LOG["click"], propensity=CURVE, n_resamples=9),
    lambda: compare_judgments(PEOPLE, X, LOG["click"], propensity=CURVE, n_resamples=9),
)
KINDS = X.assign(outcome_kind=np.arange(len(X)) % 2)
case(
    ("is missing or has several values in the query", "expected one value in all rows of a query"),
    lambda: compare_judgments(
        BOTH, KINDS, LOG["click"], propensity=CURVE, by="outcome_kind", n_resamples=9
    ),
    lambda: compare_judgments(
        BOTH,
        KINDS.assign(outcome_kind=KINDS["qid"] % 2),
        LOG["click"],
        propensity=CURVE,
        by="outcome_kind",
        n_resamples=9,
    ),
)

#: 200 queries, of which people labelled each fifth, and the judge no others.
MANY = make_ltr(n_queries=200, n_documents=8, n_features=2, random_state=0)
FEW = MANY["relevance"].where(MANY["qid"] % 5 == 0)


def ranked(judge):
    rankers = {"old": MANY["feature_000"], "new": MANY["feature_001"]}
    return compare_rankers(rankers, MANY, FEW, judge=judge, n_resamples=99, random_state=0)


case(
    ("were missing labels filled with 0?", "missing values where there are none"),
    lambda: ranked(FEW.fillna(0)),
    lambda: ranked(FEW),
    lambda: ranked(MANY["relevance"].clip(upper=3)),
)
ANNOTATED = MANY.assign(relevance=FEW, outcome_llm=MANY["relevance"].clip(upper=3))
LEARNED = LinearRegression().fit(ANNOTATED[["feature_000", "outcome_llm"]], MANY["relevance"])
IGNORANT = LinearRegression().fit(ANNOTATED[["feature_000"]], MANY["relevance"])
case(
    ("learned from the column", "pass its values as the metadata 'judge'"),
    lambda: RankingScorer(judge="outcome_llm")(LEARNED, ANNOTATED),
    lambda: RankingScorer()(
        IGNORANT,
        ANNOTATED[["feature_000"]],
        qid=ANNOTATED["qid"],
        relevance=ANNOTATED["relevance"],
        doc=np.arange(len(ANNOTATED)),
        judge=ANNOTATED["outcome_llm"],
    ),
)

# From clicks ------------------------------------------------------------------------------
BOUGHT = X.assign(outcome_bought=1.0, click=LOG["click"])
case(
    ("y is another outcome than the click, and", "relevance_labels takes other outcomes"),
    lambda: click_judgments(BOUGHT, "outcome_bought", propensity=CURVE),
    lambda: click_judgments(BOUGHT, "click", propensity=CURVE),
)

case(
    ("the name of another role, and", "or the name that the column of clicks has"),
    lambda: click_judgments(LOG.assign(relevance=1), "relevance", propensity=CURVE),
    lambda: click_judgments(LOG.assign(relevance=1), "click", propensity=CURVE),
    lambda: click_judgments(LOG.rename(columns={"click": "opened"}), "opened", propensity=CURVE),
)
TRUST = {"alpha": CURVE, "beta": [0.1, 0.05, 0.0, 0.0, 0.0]}
case(
    ("trust is given, and propensity learns examination by", "alpha and beta of trust_"),
    lambda: click_judgments(LOG, "click", propensity=UBMModel(), trust=TRUST["beta"]),
    lambda: click_judgments(LOG, "click", propensity=TRUST["alpha"], trust=TRUST["beta"]),
    lambda: click_judgments(LOG, "click", propensity=UBMModel()),
)

# Labels that clicks have made.
LABELS = click_judgments(LOG, "click", propensity=CURVE)
case(
    ("beside them they prove nothing", "drop the column"),
    lambda: taught(LABELS),
    lambda: taught(PEOPLE),
    lambda: taught(PEOPLE.assign(prior_share=0.0).drop(columns="prior_share")),
)

# To files ---------------------------------------------------------------------------------
SCALE = "pass a mapping from the lowest rating of each grade"
case(
    ("whose limits are found for judgments from clicks", SCALE),
    lambda: export_judgments(PEOPLE, "trec", grades=(0, 1)),
    lambda: export_judgments(PEOPLE, "trec"),
    lambda: export_judgments(PEOPLE, "trec", grades={0: 0, 1: 1, 10: 2, 100: 3}),
)
BELOW = PEOPLE.assign(relevance=PEOPLE["relevance"] - 1)
case(
    ("below 0 it is read as not judged", "or give pairs that nobody judged no rating"),
    lambda: export_judgments(BELOW, "trec"),
    lambda: export_judgments(BELOW, "trec", grades={-1: 0, 0: 1, 1: 2}),
    lambda: export_judgments(
        BELOW.assign(relevance=BELOW["relevance"].where(BELOW["relevance"] >= 0)), "trec"
    ),
)

# From files -------------------------------------------------------------------------------
BOOK = "query,docid,Ann,Bob\nred tent,B01,3,2\nred tent,B02,0,1\n"
ANN = pd.read_csv(io.StringIO(BOOK), dtype=str, keep_default_na=False)
case(
    ("it has no column 'rating' but", "as a book of Quepid has for its raters"),
    lambda: read_judgments(BOOK, "quepid"),
    lambda: read_judgments(ANN.rename(columns={"Ann": "rating"}).to_csv(index=False), "quepid"),
)
LISTED = "3 qid:12 # B01 red tent\n1 qid:13 # B03 mat\n"
case(
    ("may be that of the query, or a title", "read its CSV with format='quepid'"),
    lambda: read_judgments(LISTED, "ranklib"),
    lambda: read_judgments("query,docid,rating\nred tent,B01,3\nmat,B03,1\n", format="quepid"),
    lambda: read_judgments(f"# qid:12: red tent\n# qid:13: mat\n{LISTED}", "ranklib"),
)
