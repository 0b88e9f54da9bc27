"""Which rule chooses among networks of a grid, by how well those chosen rank; and when CMIP warns.

A grid of weight decays and learning rates, of which the large ones learn nothing, is searched by
three folds of 150 queries. What a candidate is worth is the nDCG@5 of the networks of its folds on
1,000 other queries; the loss of a choice is what the best candidate of the grid has more. Rules
see annotation of 25, 75 or all 150 queries.
"""

import warnings

import numpy as np
from lightgbm import LGBMRegressor
from sklearn.model_selection import GridSearchCV

from skultr import CMIPScorer, DLARanker
from skultr.datasets import make_ltr
from skultr.metrics import PerplexityScorer, RankingScorer, ndcg_score
from skultr.model_selection import OffPolicySelection, QueryKFold, train_test_queries
from skultr.simulation import (
    PlackettLucePolicy,
    PositionBasedUser,
    TrustBiasUser,
    UniformPolicy,
    production_scores,
    simulate_clicks,
)

from .._study import Exhibit, Page, Study

GRID = {
    "weight_decay": [0.0, 0.01, 0.1, 1.0, 10.0, 1000.0],
    "learning_rate": [0.001, 0.005, 0.02],
}
USERS = {"1/k": PositionBasedUser(1.0), "trust": TrustBiasUser()}
#: Labels of queries that production learned from, and leaves of its trees.
PRODUCTION = {"strong": (0.5, 15), "memorised": (1.0, 63)}
CELLS = [
    {"production": production, "user": user, "sessions": n_sessions}
    for user in USERS
    for production in ("default", "strong", "memorised", "random")
    for n_sessions in ((3_000, 20_000) if (production, user) == ("default", "1/k") else (3_000,))
]
ANNOTATED = (25, 75, 150)
RULES = {
    "CMIP": OffPolicySelection({}, by="cmip"),
    "perplexity of the best 4 by CMIP": OffPolicySelection({"cmip": 4}, by="perplexity"),
    "the paper's": OffPolicySelection({"cmip": 4, "perplexity": 4}, by="ndcg"),
    "CMIP within 1 SE by perplexity": OffPolicySelection({"perplexity": "1se"}, by="cmip"),
    "CMIP within 1 SE by nDCG": OffPolicySelection({"ndcg": "1se"}, by="cmip"),
    "CMIP within 1 SE by nDCG, then perplexity": OffPolicySelection(),
    "CMIP within 1 SE by perplexity, then nDCG": OffPolicySelection(
        {"perplexity": "1se", "ndcg": "1se"}, by="cmip"
    ),
    "nDCG within 1 SE by perplexity": OffPolicySelection({"perplexity": "1se"}, by="ndcg"),
    "perplexity within 1 SE by nDCG": OffPolicySelection({"ndcg": "1se"}, by="perplexity"),
    "perplexity": OffPolicySelection({}, by="perplexity"),
    "nDCG of clicks": OffPolicySelection({}, by="ndcg of clicks"),
    "nDCG": OffPolicySelection({}, by="ndcg"),
}
#: Share of what the best candidate of a fold has above random scores, from which on one is good.
QUALITY = {"nothing learned": -np.inf, "a quarter": 0.25, "half": 0.5, "good": 0.9}


def world(cell, seed):
    """The log and its clicks, and documents to test on."""
    documents = make_ltr(1_150, n_documents=10, n_features=12, random_state=200 + seed)
    train, test = train_test_queries(documents, test_size=1_000, random_state=seed)
    policy, scores = PlackettLucePolicy(), None
    if cell["production"] == "random":
        policy = UniformPolicy()
    elif cell["production"] in PRODUCTION:
        fraction, leaves = PRODUCTION[cell["production"]]
        trees = LGBMRegressor(
            n_estimators=300, num_leaves=leaves, min_child_samples=1, verbosity=-1, n_jobs=1
        )
        scores = production_scores(train, fraction=fraction, estimator=trees, random_state=seed)
        policy, scores = PlackettLucePolicy(0.3), scores / scores.std()
    log = simulate_clicks(
        train,
        n_sessions=cell["sessions"],
        policy=policy,
        scores=scores,
        user=USERS[cell["user"]],
        random_state=seed,
    )
    return log.X, log.clicks, test


class Scores:
    """The scoring of the search: a candidate on a fold, by all that rules and tables read."""

    def __init__(self, X, test, seed):
        queries = np.random.default_rng(seed).permutation(X["qid"].unique())
        self.annotated = {n: queries[:n] for n in ANNOTATED}
        self.test, self.features = test, test.drop(columns="relevance")

    def __call__(self, ranker, X, y):
        found = {
            "true": self.ndcg(ranker.predict(self.features)),
            "perplexity": PerplexityScorer()(ranker, X, y),
            "ndcg of clicks": ndcg_score(y, ranker.predict(X), qid=X["session"], k=5),
        }
        for n, queries in self.annotated.items():
            known = X.assign(relevance=X["relevance"].where(X["qid"].isin(queries)))
            found[f"{n} ndcg"] = RankingScorer(k=5)(ranker, known)
            with warnings.catch_warnings(record=True) as said:
                warnings.simplefilter("always")
                found[f"{n} cmip"] = CMIPScorer(estimator="knn")(ranker, known, y)
            found["told"] = any("explain the clicks no better" in str(w.message) for w in said)
        return found

    def ndcg(self, scores):
        return float(ndcg_score(self.test["relevance"], scores, qid=self.test["qid"], k=5))


def search(cell, settings, seed):
    """Rows of the rules, and of the candidates' warnings by what the candidates learned."""
    X, y, test = world(cell, seed)
    scoring = Scores(X, test, seed)
    ranker = DLARanker(
        examination="network",
        max_epochs=settings.size(quick=8, full=8, tiny=1),
        batch_size=64 if len(X) < 100_000 else 256,
        random_state=0,
    )
    found = GridSearchCV(ranker, GRID, cv=QueryKFold(3), scoring=scoring, refit=False)
    found = found.fit(X, y).cv_results_
    true = found["mean_test_true"]
    for n in ANNOTATED:
        of_n = {key.replace(f"test_{n} ", "test_"): values for key, values in found.items()}
        for name, rule in RULES.items():
            loss = float(true.max() - true[rule(of_n)])
            yield {"annotated": n, "rule": name, "loss": loss, "within .01": float(loss <= 0.01)}
    random = scoring.ndcg(np.zeros(len(test)))
    for fold in range(3):
        gain = found[f"split{fold}_test_true"] - random
        quality = np.searchsorted([*QUALITY.values()][1:], gain / gain.max(), side="right")
        for name, told in zip(
            np.array([*QUALITY])[quality], found[f"split{fold}_test_told"], strict=True
        ):
            yield {"learned": str(name), "told": float(told)}


def of_rules(rows):
    """With the worst loss of each rule."""
    rows = rows[rows["rule"].notna()].astype({"annotated": int})
    return rows.assign(worst=rows.groupby(["annotated", "rule"])["loss"].transform("max"))


def of_candidates(rows):
    """In the order of what they learned."""
    rows = rows[rows["learned"].notna()]
    return rows.sort_values("learned", key=lambda names: names.map([*QUALITY].index))


STUDY = Study("selection", search, lambda settings: CELLS, quick_runs=1, full_runs=4, hours=0.2)
PAGE = Page(
    "studies/selection",
    "Rules that choose among networks of a grid",
    (
        Exhibit(
            "rules",
            "nDCG@5 lost against the best of the grid",
            STUDY,
            ("annotated", "rule"),
            ("within .01", "loss", "worst"),
            keep=of_rules,
        ),
        Exhibit(
            "warnings",
            "Share of candidates of which CMIPScorer says that they explain no clicks",
            STUDY,
            ("learned",),
            ("told",),
            keep=of_candidates,
        ),
        Exhibit(
            "production",
            "Share of good candidates of which CMIPScorer says so",
            STUDY,
            ("production", "user", "sessions"),
            ("told",),
            keep=lambda rows: rows[rows["learned"] == "good"],
        ),
    ),
)
