"""More cases of ``test_advice.py``: rankers, click models, propensities and transformers."""

import pickle

import numpy as np
import pandas as pd
import polars as pl
from lightgbm import LGBMRanker
from sklearn.compose import make_column_transformer
from sklearn.linear_model import Ridge
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from skultr import UserAwareIPSRanker, aggregate_clicks
from skultr.click_models import CascadeModel, DBNModel, DCMModel, NCMModel, PBMModel, UBMModel
from skultr.identifiability import IdentifiabilityRepair
from skultr.metrics import ClickLikelihoodScorer, RankingScorer
from skultr.model_selection import QueryKFold
from skultr.preprocessing import OnFeatures
from skultr.propensity import (
    ContextualPropensity,
    DualLearningPropensity,
    InterventionHarvesting,
    RandomizedPropensity,
    RegressionEMPropensity,
    UserClusters,
    relevance_labels,
)
from skultr.rankers import (
    CLDRanker,
    DistilledRanker,
    EnsembleRanker,
    HeckmanRanker,
    IPSRanker,
    LambdaMARTRanker,
    NaiveRanker,
    PRSRanker,
    TwoTowerRanker,
    VectorizationRanker,
)

from ._advice_cases import (
    ARRAY,
    CLICKS,
    CURVE,
    DOCUMENTS,
    JUDGED,
    LAZY,
    LOG,
    LONG,
    N_PAGES,
    N_SHOWN,
    OUTCOME,
    ROLES_OF_ROWS,
    ROWS,
    SHORT,
    UNMOVED,
    USERS,
    X,
    case,
    fit,
    ranker,
)

ALIKE = LOG.assign(a=0.0, b=LOG["qid"] * 1.0)
#: Few clicks at the last position.
FEW_LAST = LOG.assign(
    click=LOG["click"].where(LOG["position"] < 5, (LOG["session"] % 50 == 0) * 1.0)
)

# Rankers
TABLE = {"relevance": "embedding"}
case(
    ("is the class", "expected an estimator. Call it"),
    lambda: IPSRanker(estimator=Ridge(), propensity=PBMModel).fit(LOG, "click"),
    lambda: IPSRanker(estimator=Ridge(), propensity=PBMModel()).fit(LOG, "click"),
)
case(
    ("No propensities given: X has no column 'propensity'", "or pass propensity="),
    lambda: relevance_labels(LOG, "click"),
    lambda: relevance_labels(LOG.assign(propensity=1 / LOG["position"]), "click"),
    lambda: relevance_labels(LOG, "click", propensity=CURVE),
    lambda: relevance_labels(LOG, "click", propensity=InterventionHarvesting(n_bootstrap=0)),
)
case(
    "propensity='column', but X has no column 'propensity'",
    lambda: IPSRanker(estimator=Ridge(), propensity="column").fit(LOG, "click"),
    lambda: IPSRanker(estimator=Ridge(), propensity="column").fit(
        LOG.assign(propensity=1 / LOG["position"]), "click"
    ),
    lambda: IPSRanker(estimator=Ridge(), propensity=CURVE).fit(LOG, "click"),
)
KNOWN = LOG.assign(propensity=1 / LOG["position"])
case(
    ("The log has the role 'propensity' and the parameter", "or set propensity='column'"),
    lambda: IPSRanker(estimator=Ridge(), propensity=CURVE).fit(KNOWN, "click"),
    lambda: IPSRanker(estimator=Ridge(), propensity=CURVE).fit(LOG, "click"),
    lambda: IPSRanker(estimator=Ridge(), propensity="column").fit(KNOWN, "click"),
)
SERVED = LOG.assign(production=-LOG["position"].to_numpy(dtype=float))
case(
    ("nothing weighs its correction against what was served", "X.drop(columns='production')"),
    lambda: IPSRanker(estimator=Ridge()).fit(SERVED, "click"),
    lambda: IPSRanker(estimator=Ridge()).fit(SERVED.drop(columns="production"), "click"),
    lambda: EnsembleRanker([("a", ranker()), ("b", ranker())]).fit(SERVED, "click"),
)
case(
    ("This log has the role 'propensity', and the first log had not", "X.drop(columns='prop"),
    lambda: IPSRanker(**SHORT).partial_fit(LOG, "click").partial_fit(KNOWN, "click"),
    lambda: (
        IPSRanker(**SHORT)
        .partial_fit(LOG, "click")
        .partial_fit(KNOWN.drop(columns="propensity"), "click")
    ),
)
case(
    "correction='offset' is a loss of the network",
    lambda: IPSRanker(estimator=Ridge(), correction="offset").fit(LOG, "click"),
    lambda: IPSRanker(estimator=Ridge(), correction="divide").fit(LOG, "click"),
    lambda: LambdaMARTRanker(n_estimators=2).fit(LOG, "click"),
)
case(
    "correction='offset' needs propensities that do not depend on the clicks",
    lambda: IPSRanker(propensity=DCMModel(), correction="offset", **SHORT).fit(LOG, "click"),
    lambda: IPSRanker(propensity=DCMModel(), correction="divide", **SHORT).fit(LOG, "click"),
    lambda: UserAwareIPSRanker(propensity=DCMModel(), **SHORT).fit(LOG, "click"),
)
case(
    "correction='doubly_robust' needs a model of relevance",
    lambda: IPSRanker(estimator=LGBMRanker(), correction="doubly_robust").fit(LOG, "click"),
    lambda: IPSRanker(estimator=Ridge(), correction="doubly_robust").fit(LOG, "click"),
    lambda: LambdaMARTRanker(correction="doubly_robust", n_estimators=2).fit(LOG, "click"),
)
case(
    "unconfounded=True and relevance='embedding'",
    lambda: DualLearningPropensity(unconfounded=True, relevance="embedding").fit(LOG, "click"),
    lambda: DualLearningPropensity(unconfounded=True, **SHORT).fit(LOG, "click"),
    lambda: DualLearningPropensity(relevance="embedding").fit(LOG, "click"),
)
case(
    "policy_weights=True and relevance='embedding'",
    lambda: TwoTowerRanker(policy_weights=True, relevance="embedding").fit(LOG, "click"),
    lambda: TwoTowerRanker(policy_weights=True, **SHORT).fit(LOG, "click"),
    lambda: TwoTowerRanker(relevance="embedding").fit(LOG, "click"),
)
case(
    "policy_weights=True and examination='table'",
    lambda: TwoTowerRanker(policy_weights=True, examination="table", **SHORT).fit(LOG, "click"),
    lambda: TwoTowerRanker(policy_weights=True, examination="network", **SHORT).fit(LOG, "click"),
    lambda: TwoTowerRanker(examination="table", **SHORT).fit(LOG, "click"),
)
FEW = LOG[LOG["qid"] < 1]
case(
    ("early_stopping needs validation queries", "n_estimators="),
    lambda: LambdaMARTRanker(n_estimators=2, debiasing="none").fit(FEW, "click"),
    lambda: LambdaMARTRanker(n_estimators=2, debiasing="none", early_stopping=False).fit(
        FEW, "click"
    ),
    lambda: LambdaMARTRanker(n_estimators=2, debiasing="none").fit(LOG, "click"),
)
case(
    ("early_stopping needs validation queries", "max_epochs="),
    lambda: NaiveRanker(early_stopping=True, **SHORT).fit(FEW, "click"),
    lambda: NaiveRanker(**SHORT).fit(FEW, "click"),
    lambda: NaiveRanker(early_stopping=True, **SHORT).fit(LOG, "click"),
)
LARGE = LOG.assign(a=LOG["a"] * 1e30, b=LOG["b"] * 1e30)
case(
    ("The estimator failed", "make_pipeline(OnFeatures(StandardScaler()), ranker)"),
    lambda: NaiveRanker(estimator=Ridge()).fit(LARGE, "click"),
    lambda: make_pipeline(OnFeatures(StandardScaler()), NaiveRanker(estimator=Ridge())).fit(
        LARGE.drop(columns="click"), CLICKS
    ),
)
case(
    "takes no validation with these parameters",
    lambda: LambdaMARTRanker(n_estimators=2).fit(LOG, "click", validation=LOG),
    lambda: NaiveRanker(**SHORT).fit(LOG, "click", validation=LOG),
)
case(
    ("score needs graded relevance, and y is None", "such as ClickLikelihoodScorer()"),
    lambda: fit(LOG).score(X),
    lambda: fit(LOG).score(JUDGED.drop(columns="position"), "relevance"),
    lambda: ClickLikelihoodScorer(propensity=CURVE)(fit(LOG), X, CLICKS),
)
case(
    ("score got a click log", "scoring=RankingScorer()", "ClickLikelihoodScorer(propensity=...)"),
    lambda: fit(LOG).score(JUDGED, "relevance"),
    lambda: fit(LOG).score(JUDGED.drop(columns="position"), "relevance"),
    lambda: GridSearchCV(
        ranker(), {"estimator__max_depth": [2, 3]}, cv=QueryKFold(2), scoring=RankingScorer()
    ).fit(X.assign(relevance=(LOG["b"] > 0) * 1), CLICKS),
    lambda: GridSearchCV(
        ranker(),
        {"estimator__max_depth": [2, 3]},
        cv=QueryKFold(2),
        scoring=ClickLikelihoodScorer(propensity=CURVE),
    ).fit(X, CLICKS),
)
case(
    "got no query ids: all rows count as ONE query",
    lambda: fit(LOG).rank(X.drop(columns="qid")),
    lambda: fit(LOG).rank(X),
    lambda: fit(LOG).rank(X.drop(columns="qid"), qid=X["qid"]),
)
case(
    "and would compare documents of different queries",
    lambda: fit(LONG).score(LONG[["a", "b"]].to_numpy(), LONG["click"].to_numpy()),
    lambda: fit(LONG).score(LONG[["qid", "a", "b"]], LONG["click"].to_numpy()),
    lambda: (
        ranker()
        .fit(ARRAY, CLICKS, **ROLES_OF_ROWS)
        .score(LONG[["a", "b"]].to_numpy(), LONG["click"].to_numpy(), qid=LONG["qid"].to_numpy())
    ),
)
case(
    ("y is another outcome than the click, and", "or learn from the outcome with another ranker"),
    lambda: VectorizationRanker(**SHORT).fit(OUTCOME, "outcome_x"),
    lambda: VectorizationRanker(**SHORT).fit(OUTCOME, "click"),
    lambda: IPSRanker(estimator=Ridge()).fit(OUTCOME, "outcome_x"),
)
case(
    "X has 0 feature columns, and this model came from a file",
    lambda: pickle.loads(pickle.dumps(fit(ROWS, documents=DOCUMENTS))).predict(ROWS),
    lambda: pickle.loads(pickle.dumps(fit(ROWS, documents=DOCUMENTS))).predict(
        ROWS.merge(DOCUMENTS, on=["qid", "doc"])
    ),
)
case(
    ("with relevance='embedding' a document is scored by its id", "use relevance='network'"),
    lambda: TwoTowerRanker(**TABLE, **SHORT).fit(LOG, "click").predict(X[["qid", "a", "b"]]),
    lambda: TwoTowerRanker(relevance="network", **SHORT).fit(LOG, "click").predict(X[["a", "b"]]),
    lambda: (
        DistilledRanker(TwoTowerRanker(**TABLE, **SHORT), Ridge())
        .fit(LOG, "click")
        .predict(X[["a", "b"]])
    ),
)
case(
    ("is the class", "expected an instance. Use"),
    lambda: EnsembleRanker([("a", NaiveRanker), ("b", ranker())]).fit(LOG, "click"),
    lambda: EnsembleRanker([("a", ranker()), ("b", ranker())]).fit(LOG, "click"),
)
case(
    ("expected at least one (name, ranker) pair", "[('ips', IPSRanker()), ('heckman'"),
    lambda: EnsembleRanker([]).fit(LOG, "click"),
    lambda: EnsembleRanker(
        [("ips", IPSRanker(estimator=Ridge())), ("heckman", HeckmanRanker())]
    ).fit(LOG, "click"),
)
case(
    ("The first log has the role 'propensity', and this log has not", "or pass propensity="),
    lambda: IPSRanker(**SHORT).partial_fit(KNOWN, "click").partial_fit(LOG, "click"),
    lambda: IPSRanker(**SHORT).partial_fit(KNOWN, "click").partial_fit(KNOWN, "click"),
    lambda: (
        IPSRanker(**SHORT)
        .partial_fit(KNOWN, "click")
        .partial_fit(LOG, "click", propensity=KNOWN["propensity"])
    ),
)
case(
    "is a form of the published losses, but loss is",
    lambda: CLDRanker(variant="program", loss="listwise", **SHORT).fit(LOG, "click"),
    lambda: CLDRanker(variant="program", loss="pairwise", **SHORT).fit(LOG, "click"),
    lambda: CLDRanker(variant="default", loss="listwise", **SHORT).fit(LOG, "click"),
)
case(
    ("components are arbitrary. Use n_components=",),
    lambda: VectorizationRanker(n_components=9, **SHORT).fit(LOG, "click"),
    lambda: VectorizationRanker(n_components=5, **SHORT).fit(LOG, "click"),
)

# Click models, propensities and transformers
case(
    "did not converge in max_iter=",
    lambda: DBNModel(max_iter=3).fit(LOG, "click"),
    lambda: DBNModel(max_iter=500).fit(LOG, "click"),
    lambda: DBNModel(max_iter=3, tol=10).fit(LOG, "click"),
)
case(
    ("needs the clicks y of X", "or conditional=False"),
    lambda: CascadeModel().fit(LOG, "click").predict_click(X),
    lambda: CascadeModel().fit(LOG, "click").predict_click(X, CLICKS),
    lambda: CascadeModel().fit(LOG, "click").predict_click(X, conditional=False),
)
case(
    ("a rate does not determine what was clicked together", "or conditional=False"),
    lambda: CascadeModel().fit(LOG, "click").predict_click(X, CLICKS / 2),
    lambda: CascadeModel().fit(LOG, "click").predict_click(X, CLICKS),
    lambda: CascadeModel().fit(LOG, "click").predict_click(X, CLICKS / 2, conditional=False),
)
case(
    ("Found documents that are not in the training log", "solver='gradient'"),
    lambda: PBMModel().fit(LOG, "click").predict(X.assign(doc=X["doc"] + 100)),
    lambda: (
        PBMModel(solver="gradient", **SHORT)
        .fit(LOG, "click")
        .predict(X.assign(doc=X["doc"] + 100))
    ),
    lambda: fit(LOG).predict(X.assign(doc=X["doc"] + 100)),
)
case(
    "nothing compares the factors",
    lambda: RegressionEMPropensity(**TABLE).fit(UNMOVED, "click"),
    lambda: RegressionEMPropensity(relevance="network", **SHORT).fit(UNMOVED, "click"),
    lambda: IdentifiabilityRepair(strategy="intervene").fit(UNMOVED, "click"),
)
case(
    ("No clicked document was shown under two", "or use RegressionEMPropensity()"),
    lambda: ContextualPropensity(**SHORT).fit(UNMOVED, "click"),
    lambda: RegressionEMPropensity(**SHORT).fit(UNMOVED, "click"),
    lambda: IdentifiabilityRepair(strategy="intervene").fit(UNMOVED, "click"),
)
case(
    ("DualLearningPropensity with a network has no curves of users", "Set relevance='embedding'"),
    lambda: DualLearningPropensity(user="user", relevance="network", **SHORT).fit(USERS, "click"),
    lambda: DualLearningPropensity(user="user", **TABLE, **SHORT).fit(USERS, "click"),
    lambda: RegressionEMPropensity(user="user", **TABLE).fit(USERS, "click"),
)
case(
    "interval=True needs user_aware=True",
    lambda: relevance_labels(LOG, "click", propensity=CURVE, interval=True, user_aware=False),
    lambda: relevance_labels(LOG, "click", propensity=CURVE, interval=True),
)
case(
    ("y is another outcome than the click, and interval=True", "or pass y='click'"),
    lambda: relevance_labels(OUTCOME, "outcome_x", propensity=CURVE, interval=True),
    lambda: relevance_labels(OUTCOME, "outcome_x", propensity=CURVE),
    lambda: relevance_labels(OUTCOME, "click", propensity=CURVE, interval=True),
)
case(
    "raises propensities, and a click model has none: drop it",
    lambda: relevance_labels(LOG, "click", propensity=PBMModel(), clip=0.1),
    lambda: relevance_labels(LOG, "click", propensity=PBMModel()),
)
case(
    ("have no intervals; expected UBMModel() or PBMModel()",),
    lambda: relevance_labels(LOG, "click", propensity=CascadeModel(), interval=True),
    lambda: relevance_labels(LOG, "click", propensity=UBMModel(), interval=True),
    lambda: relevance_labels(LOG, "click", propensity=PBMModel(), interval=True),
)
case(
    ("cluster widens the intervals", "expected interval=True and no click model"),
    lambda: relevance_labels(LOG, "click", propensity=CURVE, cluster="session"),
    lambda: relevance_labels(
        USERS, "click", propensity=CURVE, cluster=USERS["user"], interval=True
    ),
)
case(
    ("expected at least n_clusters=", "Lower n_clusters, or leave this step out"),
    lambda: UserClusters(n_clusters=9).fit(USERS, CLICKS),
    lambda: UserClusters(n_clusters=2).fit(USERS.drop(columns="click"), CLICKS),
    lambda: fit(USERS),
)
case(
    ("gave a sparse matrix, which a frame cannot hold", "or sparse_output=False"),
    lambda: OnFeatures(OneHotEncoder()).fit_transform(X[["qid", "doc"]].assign(a=X["doc"])),
    lambda: OnFeatures(OneHotEncoder(sparse_output=False)).fit_transform(
        X[["qid", "doc"]].assign(a=X["doc"])
    ),
    lambda: OnFeatures(
        make_column_transformer((OneHotEncoder(), ["a"]), sparse_threshold=0)
    ).fit_transform(X[["qid", "doc"]].assign(a=X["doc"])),
)
WORDS = X.assign(brand=np.where(X["doc"] > 3, "ant", "bee"))
case(
    ("cannot read the feature columns", "or a ColumnTransformer with an encoder"),
    lambda: OnFeatures(StandardScaler()).fit(WORDS),
    lambda: make_pipeline(OnFeatures(StandardScaler()), ranker()).fit(
        WORDS.drop(columns="brand"), CLICKS
    ),
    lambda: make_pipeline(
        OnFeatures(
            make_column_transformer(
                (OneHotEncoder(sparse_output=False), ["brand"]), remainder="passthrough"
            )
        ),
        ranker(),
    ).fit(WORDS, CLICKS),
)

# Fewer, and what needs more
case(
    ("the model is scored by P(click) not conditional on any click", "with clicks 0 or 1"),
    lambda: CascadeModel().fit(LOG, "click").score(X, CLICKS / 2),
    lambda: CascadeModel().fit(LOG, "click").score(X, CLICKS),
)
case(
    ("early_stopping needs validation sessions", "or set early_stopping=False"),
    lambda: NCMModel(**SHORT).fit(LOG[:N_SHOWN], "click"),
    lambda: NCMModel(early_stopping=False, **SHORT).fit(LOG[:N_SHOWN], "click"),
    lambda: NCMModel(**SHORT).fit(LOG, "click"),
)
case(
    ("the deepest of the training log", "Train on lists as long as those to predict"),
    lambda: NCMModel(**SHORT).fit(LOG.query("position < 4"), "click").predict_click(X, CLICKS),
    lambda: NCMModel(**SHORT).fit(LOG, "click").predict_click(X, CLICKS),
)
case(
    "does not estimate a curve for each user",
    lambda: UserClusters(2, propensity=RegressionEMPropensity(**TABLE)).fit(USERS, CLICKS),
    lambda: UserClusters(2, propensity=RegressionEMPropensity(user="user", **TABLE)).fit(
        USERS, CLICKS
    ),
)
LAZY_USERS = pl.from_pandas(USERS.assign(group=USERS["user"])).lazy()
case(
    ("and arm=None do not work with an engine", "or name a column of arms with arm="),
    lambda: RandomizedPropensity(user="group").fit(LAZY_USERS, "click"),
    lambda: RandomizedPropensity(user="user").fit(LAZY_USERS, "click"),
    lambda: RandomizedPropensity(user="group", arm="group").fit(LAZY_USERS, "click"),
)
RISING = LOG.sort_values(["session", "b"], ascending=[True, False]).assign(
    position=LOG["position"].to_numpy()
)
case(
    ("Not all orders look equally likely", "use InterventionHarvesting on its rows"),
    lambda: RandomizedPropensity().fit(RISING, "click"),
    lambda: RandomizedPropensity(arm="arm").fit(
        pd.concat(
            [
                RISING.assign(arm=None, session=RISING["session"] + N_PAGES),
                LOG.assign(arm="shuffled"),
            ]
        ),
        "click",
    ),
    lambda: InterventionHarvesting(n_bootstrap=0).fit(RISING, "click"),
    lambda: RegressionEMPropensity(**SHORT).fit(RISING, "click"),
)
case(
    ("reads more of a log than counts by document and bias factor", "relevance='embedding'"),
    lambda: relevance_labels(LAZY, "click", propensity=RegressionEMPropensity(**SHORT)),
    lambda: relevance_labels(*aggregate_clicks(LAZY), propensity=RegressionEMPropensity(**SHORT)),
    lambda: relevance_labels(LAZY, "click", propensity=RegressionEMPropensity(**TABLE)),
)
case(
    ("examination='table', but no clicked document connects", "or use examination='auto'"),
    lambda: TwoTowerRanker(examination="table", **SHORT).fit(UNMOVED, "click"),
    lambda: TwoTowerRanker(examination="auto", **SHORT).fit(UNMOVED, "click"),
    lambda: IdentifiabilityRepair(strategy="intervene").fit(UNMOVED, "click"),
)
case(
    ("student='only' ranks without base vectors", "Set student='average' or None"),
    lambda: _based("only"),
    lambda: _based("average"),
    lambda: _based(None),
)
case(
    ("reads the columns", "and give the member propensity='column'"),
    lambda: EnsembleRanker(
        [
            ("a", ranker()),
            ("b", IPSRanker(estimator=Ridge(), propensity=ContextualPropensity(context=["a"]))),
        ]
    ).fit(LOG, "click"),
    lambda: EnsembleRanker(
        [("a", ranker()), ("b", IPSRanker(estimator=Ridge(), propensity="column"))]
    ).fit(
        LOG.assign(
            propensity=ContextualPropensity(context=["a"], **SHORT).fit(LOG, "click").predict(LOG)
        ),
        "click",
    ),
)
RARE = np.array([1.0, 1.0, 1.0, 1.0, 1e-4])
case(
    ("The estimate depends on few clicks", "Set clip=0.3"),
    lambda: relevance_labels(FEW_LAST, "click", propensity=RARE, user_aware=False),
    lambda: relevance_labels(FEW_LAST, "click", propensity=RARE, user_aware=False, clip=0.3),
)
case(
    ("cannot learn from pairs of documents", "Leave estimator=None for a network"),
    lambda: PRSRanker(estimator=Ridge()).fit(LOG, "click"),
    lambda: PRSRanker(estimator=None, **SHORT).fit(LOG, "click"),
    lambda: PRSRanker(estimator=LGBMRanker(n_estimators=2, verbose=-1)).fit(LOG, "click"),
)
case(
    ("X names no documents, and row", "or pass doc="),
    lambda: PBMModel().fit(ALIKE, "click").predict(ALIKE.drop(columns=["doc", "click"])),
    lambda: PBMModel().fit(ALIKE, "click").predict(ALIKE.drop(columns="click")),
    lambda: (
        PBMModel()
        .fit(ALIKE, "click")
        .predict(ALIKE.drop(columns=["doc", "click"]), doc=ALIKE["doc"])
    ),
)
case(
    ("was loaded from a file, or came from a worker", "Fit it here"),
    lambda: pickle.loads(pickle.dumps(IdentifiabilityRepair().fit(X, CLICKS))).graph_,
    lambda: IdentifiabilityRepair().fit(X, CLICKS).graph_,
)


def _based(student):
    fitted = VectorizationRanker(student=student, **SHORT).fit(LOG, "click")
    return fitted.fit_base_vectors(X, X["doc"] % 3)
