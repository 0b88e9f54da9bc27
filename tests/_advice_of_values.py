"""More cases of ``test_advice.py``: values of rankings, selection, serving, and repair."""

import atexit
import warnings
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pandas as pd
from sklearn.linear_model import Ridge
from sklearn.model_selection import GridSearchCV

from skultr.click_models import PBMModel
from skultr.datasets import make_ltr
from skultr.evaluation import compare_rankers, plan_experiment, policy_value, run_comparison
from skultr.identifiability import IdentifiabilityGraph, IdentifiabilityRepair, feature_overlap
from skultr.metrics import (
    ClickLikelihoodScorer,
    CMIPScorer,
    IPSScorer,
    PerplexityScorer,
    RankingScorer,
    cmip_score,
    err_score,
    ndcg_score,
    perplexity_score,
)
from skultr.model_selection import OffPolicySelection, QueryKFold
from skultr.propensity import RegressionEMPropensity, relevance_labels
from skultr.rankers import (
    DistilledRanker,
    LambdaMARTRanker,
    NaiveRanker,
    TwoTowerRanker,
)
from skultr.serving import (
    click_judgments,
    export_judgments,
    export_model,
    read_judgments,
    save_model,
)

from ._advice_cases import (
    CLICKS,
    CURVE,
    DOCUMENTS,
    JUDGED,
    LOG,
    N_DOCS,
    RNG,
    SHORT,
    UNMOVED,
    X,
    case,
    fit,
    ranker,
)

# Values of rankings -----------------------------------------------------------------------
GRADED = X.assign(relevance=(X["b"] > 0) * 1 + (X["a"] > 0))
#: A ranking, and a better one.
BOTH = {"old": "a", "new": "b"}
COMPARE = {"n_resamples": 99, "random_state": 0}
case(
    ("With n_resamples=", "expected at least"),
    lambda: compare_rankers(BOTH, JUDGED, n_resamples=9, random_state=0),
    lambda: compare_rankers(BOTH, JUDGED, n_resamples=19, random_state=0),
)
UNGRADED = JUDGED.assign(relevance=0)
case(
    ("is undefined in all", "or pass no_relevant=0"),
    lambda: compare_rankers(BOTH, UNGRADED, **COMPARE),
    lambda: compare_rankers(BOTH, JUDGED, **COMPARE),
    lambda: compare_rankers(BOTH, UNGRADED, no_relevant=0, **COMPARE),
)
case(
    ("baseline=", "is none of the rankers"),
    lambda: compare_rankers(BOTH, JUDGED, baseline="production", **COMPARE),
    lambda: compare_rankers(BOTH, JUDGED, baseline="old", **COMPARE),
)
PRICES = X.assign(price=X["b"] + RNG.random(len(X)))
case(
    ("has different scores for one document", ".transform('last')", "pass it as context="),
    lambda: policy_value(PRICES, CLICKS, "price"),
    lambda: policy_value(
        PRICES, CLICKS, PRICES["price"].groupby([X["qid"], X["doc"]]).transform("last")
    ),
)
DEVICES = X.assign(device=X["session"] % 2, score=X["a"] + X["session"] % 2 * X["b"])
case(
    ("has different scores for one document", "pass it as context="),
    lambda: policy_value(DEVICES, CLICKS, "score"),
    lambda: policy_value(DEVICES, CLICKS, "score", context="device"),
)
PLAN = {"propensity": CURVE}
case(
    ("No plan of", "Pass a larger half_width, or more sessions="),
    lambda: plan_experiment(X, CLICKS, half_width=0.01, sessions=100, **PLAN),
    lambda: plan_experiment(X, CLICKS, half_width=2.0, sessions=100, **PLAN),
    lambda: plan_experiment(X, CLICKS, half_width=0.01, sessions=1e9, **PLAN),
)
case(
    ("With target=", "of scores_a and scores_b"),
    lambda: plan_experiment(X, CLICKS, half_width=0.1, target="difference", **PLAN),
    lambda: plan_experiment(
        X, CLICKS, half_width=0.3, target="difference", scores_a="a", scores_b="b", **PLAN
    ),
)
case(
    ("No experiment reaches half_width=", "Pass a larger half_width"),
    lambda: plan_experiment(
        X, CLICKS, half_width=1e-6, target="difference", scores_a="a", scores_b="b", **PLAN
    ),
    lambda: plan_experiment(
        X, CLICKS, half_width=1.0, target="difference", scores_a="a", scores_b="b", **PLAN
    ),
)
GAP = X.assign(position=X["position"].where(X["position"] < 4, X["position"] + 1))
case(
    ("The log has the positions", "Pass k= to plan for the first ones that it has"),
    lambda: plan_experiment(GAP, CLICKS, half_width=0.3, propensity=[*CURVE, 0.1]),
    lambda: plan_experiment(GAP, CLICKS, half_width=0.3, k=3, propensity=[*CURVE, 0.1]),
)
case(
    ("method='pbm' needs propensities", "or use method='dr'"),
    lambda: policy_value(X, CLICKS, "b", method="pbm"),
    lambda: policy_value(X, CLICKS, "b", method="pbm", propensity=CURVE),
    lambda: policy_value(
        X, CLICKS, "b", method="pbm", propensity=RegressionEMPropensity(relevance="embedding")
    ),
    lambda: policy_value(X.assign(propensity=1 / X["position"]), CLICKS, "b", method="pbm"),
    lambda: policy_value(X, CLICKS, "b", method="dr"),
)
case(
    ("but the log has positions", "Pass k in this range"),
    lambda: policy_value(X, CLICKS, "b", k=9),
    lambda: policy_value(X, CLICKS, "b", k=5),
)
case(
    ("method=", "pass what it reads, and nothing else"),
    lambda: policy_value(X, CLICKS, "b", method="dr", propensity=CURVE),
    lambda: policy_value(X, CLICKS, "b", method="dr"),
)
case(
    ("method=", "(a click model)"),
    lambda: policy_value(X, CLICKS, "b", method="direct"),
    lambda: policy_value(X, CLICKS, "b", method="direct", model=PBMModel().fit(X, CLICKS)),
)

# Scorers
KNN = CMIPScorer(estimator="knn", n_repeats=1)
UNRANKED = GRADED.assign(relevance=GRADED["relevance"].where(GRADED["doc"] > 5))
case(
    ("annotated documents was ranked by the logging policy", "Annotate documents of the log"),
    lambda: KNN(
        fit(LOG), UNRANKED.assign(position=X["position"].where(X["doc"] <= 5)), np.zeros(len(X))
    ),
    lambda: KNN(
        fit(LOG), GRADED.assign(position=X["position"].where(X["doc"] <= 5)), np.zeros(len(X))
    ),
)
#: All documents of all queries, with grades of 0, 1 and 2.
GRADES_OF_ALL = pd.DataFrame({"qid": np.repeat(range(30), N_DOCS), "doc": [*range(N_DOCS)] * 30})
GRADES_OF_ALL["b"] = RNG.normal(size=len(GRADES_OF_ALL))
GRADES_OF_ALL["a"] = RNG.normal(size=len(GRADES_OF_ALL))
GRADES_OF_ALL["relevance"] = (GRADES_OF_ALL["b"] > 0) * 1.0 + (GRADES_OF_ALL["a"] > 0)
RANDOMISED = GRADES_OF_ALL["b"], GRADES_OF_ALL["doc"], GRADES_OF_ALL["relevance"] / 4
#: Counted rows of production's order, and of an order by chance: clicks follow relevance.
ARMS = pd.concat(
    [
        GRADES_OF_ALL.assign(position=GRADES_OF_ALL["doc"] + 1, arm=np.nan, click=0.0),
        GRADES_OF_ALL.assign(position=1, arm=1.0, click=GRADES_OF_ALL["relevance"] / 4),
    ],
    ignore_index=True,
).assign(impressions=400.0, session=lambda log: log.index)
ARM_CLICKS = ARMS.pop("click").to_numpy()
ARMED = CMIPScorer(arm="arm", estimator="knn", n_repeats=1)
ARMED_RANKER = fit(ARMS, ARM_CLICKS)
case(
    "CMIPScorer(arm=) needs y: the clicks",
    lambda: ARMED(ARMED_RANKER, ARMS),
    lambda: ARMED(ARMED_RANKER, ARMS, ARM_CLICKS),
)
case(
    ("have no position in lists without an arm", "or logging=", "ids in the column 'doc'"),
    lambda: ARMED(ARMED_RANKER, ARMS.assign(arm=1.0), ARM_CLICKS),
    lambda: ARMED(ARMED_RANKER, ARMS, ARM_CLICKS),
    lambda: CMIPScorer(arm="arm", logging="a", estimator="knn", n_repeats=1)(
        ARMED_RANKER, ARMS.assign(arm=1.0), ARM_CLICKS
    ),
)
case(
    ("has no predict_click", "score other rankers with RankingScorer or IPSScorer"),
    lambda: PerplexityScorer()(fit(LOG), X, CLICKS),
    lambda: PerplexityScorer()(PBMModel().fit(X, CLICKS), X, CLICKS),
    lambda: PerplexityScorer()(TwoTowerRanker(**SHORT).fit(X, CLICKS), X, CLICKS),
    lambda: RankingScorer()(fit(LOG), GRADED),
    lambda: IPSScorer(propensity=CURVE)(fit(LOG), X, CLICKS),
)
case(
    "per_position=True needs position=",
    lambda: perplexity_score(CLICKS, np.full(len(X), 0.3), per_position=True),
    lambda: perplexity_score(
        CLICKS, np.full(len(X), 0.3), per_position=True, position=X["position"]
    ),
)
case(
    ("explain the clicks no better than position alone", "with refit=OffPolicySelection()"),
    lambda: KNN(fit(LOG.assign(a=RNG.random(len(X)), b=0.0)), GRADED.assign(b=0.0), CLICKS),
    lambda: GridSearchCV(
        ranker(),
        {"estimator__max_depth": [2, 3]},
        cv=QueryKFold(2),
        scoring={"ndcg": RankingScorer(), "cmip": KNN},
        refit=OffPolicySelection({"ndcg": "1se"}),
    ).fit(GRADED, CLICKS),
)
FEW_GRADES = JUDGED[:60]
case(
    ("CMIP by a classifier has only", "ask for estimator='knn' throughout"),
    lambda: cmip_score(*(FEW_GRADES[name] for name in ("b", "position", "relevance"))),
    lambda: cmip_score(
        *(FEW_GRADES[name] for name in ("b", "position", "relevance")), estimator="knn"
    ),
    lambda: cmip_score(*(JUDGED[name] for name in ("b", "position", "relevance")), random_state=0),
)
case(
    "impressions= needs qid=",
    lambda: cmip_score(*RANDOMISED, impressions=np.full(len(GRADES_OF_ALL), 400)),
    lambda: cmip_score(
        *RANDOMISED,
        impressions=np.full(len(GRADES_OF_ALL), 400),
        qid=GRADES_OF_ALL["qid"],
    ),
)
case(
    ("needs propensities, and an assumed curve would decide which model", "Pass propensity="),
    lambda: ClickLikelihoodScorer()(fit(LOG), X, CLICKS),
    lambda: ClickLikelihoodScorer(propensity=CURVE)(fit(LOG), X, CLICKS),
    lambda: ClickLikelihoodScorer(propensity=RegressionEMPropensity(relevance="embedding"))(
        fit(LOG), X, CLICKS
    ),
    lambda: ClickLikelihoodScorer()(fit(LOG), X.assign(propensity=1 / X["position"]), CLICKS),
)
PERCENT = JUDGED["relevance"] * 10_000
case(
    ("too large for the exponential gain", "Rescale the relevance, or use gain='linear'"),
    lambda: ndcg_score(PERCENT, JUDGED["b"], qid=JUDGED["qid"]),
    lambda: ndcg_score(PERCENT / 2_500, JUDGED["b"], qid=JUDGED["qid"]),
    lambda: ndcg_score(PERCENT, JUDGED["b"], qid=JUDGED["qid"], gain="linear"),
)
case(
    ("above max_grade=", "expected the largest grade of the scale"),
    lambda: err_score(JUDGED["relevance"] * 4, JUDGED["b"], qid=JUDGED["qid"], max_grade=3),
    lambda: err_score(JUDGED["relevance"] * 4, JUDGED["b"], qid=JUDGED["qid"], max_grade=4),
)
case(
    ("is undefined: none of the", "or pass no_relevant=0 or 1"),
    lambda: ndcg_score(UNGRADED["relevance"], JUDGED["b"], qid=JUDGED["qid"]),
    lambda: ndcg_score(UNGRADED["relevance"], JUDGED["b"], qid=JUDGED["qid"], no_relevant=0),
    lambda: ndcg_score(UNGRADED["relevance"], JUDGED["b"], qid=JUDGED["qid"], no_relevant=1),
    lambda: ndcg_score(JUDGED["relevance"], JUDGED["b"], qid=JUDGED["qid"]),
)
case(
    ("A scorer returns one number", "Use several scorers: scoring={"),
    lambda: RankingScorer(k=[5, 10])(fit(LOG), GRADED),
    lambda: GridSearchCV(
        ranker(),
        {"estimator__max_depth": [2, 3]},
        cv=QueryKFold(2),
        scoring={"ndcg@5": RankingScorer(k=5), "ndcg@10": RankingScorer()},
        refit="ndcg@10",
    ).fit(GRADED, CLICKS),
)
#: Judgments of queries as they were typed, which the log has in lower case.
TYPED = LOG.assign(qid="query " + LOG["qid"].astype(str)).drop(columns="click")
RATED = "".join(f"Query\u00a0{query} 0 {doc} 1\n" for query in range(5) for doc in range(2))
NAMED = {f"topic{query}": f"query {query}" for query in range(5)}


def _merged(judgments):
    judged = judgments.astype({"doc": int})[["qid", "doc", "relevance"]]
    return RankingScorer()(fit(LOG), TYPED.merge(judged, on=["qid", "doc"], how="left"))


def _topics(first="Query"):
    """Judgments as a file of TREC, by number of the topic."""
    return "".join(f"{query} 0 {doc} {doc}\n" for query in range(5) for doc in range(2))


case(
    ("rows is annotated: 'relevance' is missing throughout", "read_judgments(..., queries=)"),
    lambda: _merged(read_judgments(_topics(), "trec")),
    lambda: _merged(
        read_judgments(_topics(), "trec", queries={f"query {query}": query for query in range(5)})
    ),
    lambda: IPSScorer(propensity=CURVE)(fit(LOG), X, CLICKS),
)

# Searches ---------------------------------------------------------------------------------
DEPTHS = {"estimator__max_depth": [2, 3]}


def search(refit, X=GRADED, **scoring):
    scoring = scoring or {"ndcg": RankingScorer(), "cmip": KNN}
    found = GridSearchCV(ranker(), DEPTHS, cv=QueryKFold(2), scoring=scoring, refit=refit)
    return found.fit(X, CLICKS)


case(
    ("The search has no scorer", "Add it to scoring={...}, or select by one of these"),
    lambda: search(OffPolicySelection({"perplexity": "1se"})),
    lambda: search(OffPolicySelection({"ndcg": "1se"})),
    lambda: search(
        OffPolicySelection({"likelihood": "1se"}),
        cmip=KNN,
        likelihood=ClickLikelihoodScorer(propensity=CURVE),
    ),
)
case(
    ("Cannot split", "Use fewer folds or more queries"),
    lambda: [*QueryKFold(40).split(X, CLICKS)],
    lambda: [*QueryKFold(5).split(X, CLICKS)],
)
case(
    ("keep must be a dict from scorers", "got keep="),
    lambda: OffPolicySelection("ndcg"),
    lambda: search(OffPolicySelection({"ndcg": "1se"}, by="cmip")),
)
ONE_FOLD = [next(iter(QueryKFold(2).split(X, CLICKS)))]
case(
    ("'1se' needs at least 2 to know a standard error", "Use cv=QueryKFold(5)"),
    lambda: GridSearchCV(
        ranker(),
        DEPTHS,
        cv=ONE_FOLD,
        scoring={"ndcg": RankingScorer(), "cmip": KNN},
        refit=OffPolicySelection({"ndcg": "1se"}),
    ).fit(GRADED, CLICKS),
    lambda: GridSearchCV(
        ranker(),
        DEPTHS,
        cv=QueryKFold(5),
        scoring={"ndcg": RankingScorer(), "cmip": KNN},
        refit=OffPolicySelection({"ndcg": "1se"}),
    ).fit(GRADED, CLICKS),
)
#: What a search leaves in which one candidate failed in a fold.
SOME_FAILED = {
    "params": [{}, {}],
    "split0_test_ndcg": np.array([0.5, np.nan]),
    "split1_test_ndcg": np.array([0.6, 0.5]),
    "mean_test_ndcg": np.array([0.55, np.nan]),
    "mean_test_cmip": np.array([-0.1, -0.2]),
}
ONE_QUERY = GRADED.assign(relevance=GRADED["relevance"].where(GRADED["qid"] == 0))
case(
    ("no candidate can be selected by it", "give each fold some, or run the search with"),
    lambda: search(OffPolicySelection({"ndcg": "1se"}), ONE_QUERY),
    lambda: search(OffPolicySelection({"ndcg": "1se"}), GRADED),
)
case(
    ("it cannot keep or select them", "Run the search with error_score='raise'"),
    lambda: OffPolicySelection({"ndcg": "1se"}, by="cmip")(SOME_FAILED),
    lambda: search(OffPolicySelection({"ndcg": "1se"})),
)

# Serving ----------------------------------------------------------------------------------
RATED = click_judgments(LOG, "click", propensity=CURVE)
case(
    ("judgments has no", "expected the table of click_judgments"),
    lambda: export_judgments(RATED.rename(columns={"doc": "sku"}), "trec"),
    lambda: export_judgments(RATED, "trec"),
    lambda: export_judgments(JUDGED[["qid", "doc", "relevance"]], "trec"),
)
LABELS = relevance_labels(LOG, "click", propensity=CURVE)
case(
    ("labels of relevance_labels are to train by", "Compare by skultr.serving.click_judgments"),
    lambda: export_judgments(LABELS, "quepid"),
    lambda: export_judgments(LABELS.rename(columns={"label": "relevance"}), "quepid"),
    lambda: export_judgments(RATED, "quepid"),
)
SPACED = RATED.assign(qid="query " + RATED["qid"].astype(str))
NUMBERS = {f"query {query}": query for query in range(40)}
case(
    ("qrels cannot hold", "(number topics with queries={qid: number}, rename documents)"),
    lambda: export_judgments(SPACED, "trec"),
    lambda: export_judgments(SPACED, "trec", queries=NUMBERS),
)
case(
    ("no topic and no document may contain a space", "pass queries={qid: number}"),
    lambda: read_judgments("query 1 0 7 1\n", "trec"),
    lambda: read_judgments("1 0 7 1\n", "trec", queries={"query 1": 1}),
)
FOLDER = TemporaryDirectory()
atexit.register(FOLDER.cleanup)
MODEL = f"{FOLDER.name}/model.zip"
BY_ID = TwoTowerRanker(relevance="embedding", **SHORT)
case(
    ("is a table of ids of documents, and a saved model holds none", "save a DistilledRanker"),
    lambda: save_model(BY_ID.fit(LOG, "click"), MODEL),
    lambda: save_model(DistilledRanker(BY_ID, Ridge()).fit(LOG, "click"), MODEL),
)
case(
    ("scores documents by their ids, and an engine has to score by features", "Export Distilled"),
    lambda: export_model(BY_ID.fit(LOG, "click"), "lightgbm"),
    lambda: export_model(DistilledRanker(BY_ID, Ridge()).fit(LOG, "click"), "solr"),
    lambda: export_model(TwoTowerRanker(relevance="network", **SHORT).fit(LOG, "click"), "onnx"),
)
TREES = LambdaMARTRanker(n_estimators=2, debiasing="none", random_state=0)
case(
    ("Vespa cannot read the feature name", "Rename it by feature_names"),
    lambda: export_model(TREES.fit(LOG.rename(columns={"a": "text score"}), "click"), "lightgbm"),
    lambda: export_model(
        TREES.fit(LOG.rename(columns={"a": "text score"}), "click"),
        "lightgbm",
        {"text score": "bm25(title)"},
    ),
)


# Identifiability --------------------------------------------------------------------------
APART = UNMOVED
case(
    ("X has neither a column 'position' nor 'bias'", "or name columns in bias="),
    lambda: feature_overlap(X.drop(columns="position")),
    lambda: feature_overlap(
        X.rename(columns={"position": "slot"}).rename(columns={"slot": "position"})
    ),
    lambda: feature_overlap(X.rename(columns={"position": "slot"}), bias="slot"),
)
case(
    ("The log does not determine relevance", "or filter NotIdentifiableWarning"),
    lambda: PBMModel().fit(APART, "click"),
    lambda: IdentifiabilityGraph.from_log(APART).summary(),
    lambda: PBMModel().fit(IdentifiabilityRepair().fit_transform(APART, "click"), "click"),
)
case(
    ("IdentifiabilityRepair repairs nothing", "or name the bias columns in bias="),
    lambda: IdentifiabilityRepair().fit(X.drop(columns="position"), CLICKS),
    lambda: IdentifiabilityRepair().fit(X, CLICKS),
    lambda: IdentifiabilityRepair(bias="slot").fit(X.rename(columns={"position": "slot"}), CLICKS),
)


#: Each page was shown on a kind of device of its own, by name and by number.
MANY_KINDS = UNMOVED.assign(number=LOG["session"])
MANY_KINDS["kind"] = "kind " + MANY_KINDS["number"].astype(str)
BY_NUMBER = ["position", "number"]


def repair(log, **options):
    return IdentifiabilityRepair(**options).fit_transform(log, "click")


case(
    ("Merging needs to know which bias factors are similar", "or group rare values"),
    lambda: repair(MANY_KINDS, bias=["position", "kind"]),
    lambda: repair(
        MANY_KINDS,
        bias=["position", "kind"],
        bias_features=lambda factors: np.column_stack(
            [factors["position"], factors["kind"].str.split().str[1].astype(float)]
        ),
    ),
    lambda: repair(
        MANY_KINDS,
        bias=["position", "kind"],
        bias_features={
            (position, f"kind {number}"): [position, number]
            for position in sorted({*MANY_KINDS["position"]})
            for number in range(300)
        },
    ),
    lambda: repair(MANY_KINDS, bias=["position", "kind"], bias_features=BY_NUMBER),
    lambda: repair(
        MANY_KINDS.assign(kind=(MANY_KINDS["number"] // 100).astype(str)),
        bias=["position", "kind"],
    ),
)
FEW_KINDS = LOG.assign(number=LOG["qid"])
case(
    ("Merging ids joins factors that need not be similar", "Else say which are similar"),
    lambda: repair(FEW_KINDS, bias=BY_NUMBER),
    lambda: repair(FEW_KINDS, bias=BY_NUMBER, bias_features=["number"]),
    lambda: repair(
        FEW_KINDS, bias=BY_NUMBER, bias_features=lambda factors: factors[["number"]].to_numpy()
    ),
)
case(
    ("because all of their", "or serve the swaps of strategy='intervene'"),
    lambda: repair(APART),
    lambda: repair(LOG),
    lambda: IdentifiabilityRepair(strategy="intervene").fit(APART, "click").intervened_lists_,
)
case(
    ("strategy='intervene' merges nothing", "append their clicks to the log and fit again"),
    lambda: repair(APART, strategy="intervene"),
    lambda: repair(SWAPPED, strategy="intervene"),
)


def _with_swaps_served():
    """The log, and the lists that its repair asks for, served and clicked."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        lists = IdentifiabilityRepair(strategy="intervene").fit(APART, "click").intervened_lists_
    served = lists.rename(columns={"intervention": "session"}).merge(DOCUMENTS, on=["qid", "doc"])
    served = served.assign(session=-1 - served["session"], click=1.0)
    return pd.concat([APART, served[APART.columns]], ignore_index=True)


SWAPPED = _with_swaps_served()


BY_DOC = dict.fromkeys(range(N_DOCS), 0.3)
case(
    ("relevance= is given by document, but X has no column 'doc'", "estimated from y"),
    lambda: IdentifiabilityRepair(strategy="intervene", relevance=BY_DOC).fit(
        APART.drop(columns=["doc", "click"]), CLICKS
    ),
    lambda: IdentifiabilityRepair(strategy="intervene").fit(
        APART.drop(columns=["doc", "click"]), CLICKS
    ),
)
case(
    ("strategy='intervene' needs the clicks", "or cost='random'"),
    lambda: IdentifiabilityRepair(strategy="intervene").fit(APART.drop(columns="click")),
    lambda: IdentifiabilityRepair(strategy="intervene").fit(
        APART.drop(columns="click"), APART["click"]
    ),
    lambda: IdentifiabilityRepair(strategy="intervene", cost="random").fit(
        APART.drop(columns="click")
    ),
)


# Simulated comparisons ----------------------------------------------------------------------
def compared(name="up", file="comparison.jsonl", estimator=None, **settings):
    ranker = NaiveRanker(estimator=estimator or Ridge())
    path = f"{FOLDER.name}/{file}"
    documents = make_ltr(20, n_features=3, random_state=0)
    settings = {"n_sessions": 50, "seeds": 1} | settings
    return run_comparison(documents, {name: ranker}, path=path, **settings)


def compared_with_other_settings(**change):
    compared()
    return compared(**change)


def compared_in_a_file_of_something_else():
    Path(FOLDER.name, "mine.csv").write_text("seed,ndcg\n")
    return compared(file="mine.csv")


case(
    ("holds a comparison with other settings", "can join under a new name"),
    lambda: compared_with_other_settings(estimator=Ridge(alpha=2.0)),
    lambda: compared_with_other_settings(estimator=Ridge(alpha=2.0), file="another.jsonl"),
    lambda: compared_with_other_settings(),
    lambda: compared_with_other_settings(estimator=Ridge(alpha=2.0), name="another"),
)
case(
    ("is a file that run_comparison did not write", "Pass the path of a new file"),
    compared_in_a_file_of_something_else,
    lambda: compared(file="new.jsonl"),
)
case(
    ("baseline=", "is no method; expected one of"),
    lambda: compared().table("naive"),
    lambda: compared().table("up"),
)
case(
    ("by=", "is not among", "each at most once"),
    lambda: compared().table(by=["user", "user"]),
    lambda: compared().table(by=["user"]),
)
case(
    ("unit=", "is unknown; expected one of"),
    lambda: compared().table(unit="query"),
    lambda: compared().table(unit="log"),
)
