"""Methods of later papers, each beside the ranker that it changes.

`doubly_robust`: IPS, user-aware IPS, dual learning and trees on doubly robust labels, less the
same ranker that divides by the same bounded propensities. Production is weak. Users who examine
position k with probability 1 / k² hardly see the bottom of a page of ten, so that the bound of a
tenth decides what is known of it. With 1 / √k no propensity is below the bound: labels are the
same.

`unconfounded`: IPS on the curve of dual learning, with and without the adjustment for what the
logging policy thinks of a document (Luo et al. 2023), behind production that has learned all
labels of the training queries, 2 % of them, or that adds to the latter a signal which the features
lack. ``error`` is the root mean square of log examination less the truth, both relative to the
first position, for users who examine position k with probability 1 / k.

`policy_weights`: two towers with and without weights by the inverse of the logging policy (Hager
et al. 2025), whose relevance is linear, which the documents are not, or a network, behind the
first two of these. Both towers are trained together, as published.

`policy_aware`: trees by mean propensities over the pages that showed a document, over all pages of
its query (Oosterhuis & de Rijke 2020), and doubly robust with the latter (Oosterhuis 2023). Pages
show 5 of 20 candidates, drawn near the order of production or nearly at random; users examine
position k with probability 1 / k.

Differences of nDCG@10 on queries that were not in the log are paired by seed.
"""

import warnings

import numpy as np
from sklearn.frozen import FrozenEstimator

from skultr import DLARanker, UserAwareIPSRanker
from skultr.datasets import make_ltr
from skultr.metrics import ndcg_score
from skultr.model_selection import train_test_queries
from skultr.propensity import DualLearningPropensity
from skultr.rankers import IPSRanker, LambdaMARTRanker, TwoTowerRanker
from skultr.simulation import (
    PlackettLucePolicy,
    PositionBasedUser,
    hidden_signal_scores,
    production_scores,
    simulate_clicks,
)

from .._study import Page, measured

N_POSITIONS = 10
POSITIONS = np.arange(1, N_POSITIONS + 1)


def weak(train, seed):
    """Scores of a production ranker that has learned 2 % of the labels."""
    return production_scores(train, fraction=0.02, random_state=seed)


def served(seed, *, eta, sessions, scores=weak, temperature=0.3, n_positions=N_POSITIONS):
    """A log with its clicks, and the documents of other queries."""
    documents = make_ltr(n_queries=500, n_features=15, random_state=seed)
    train, test = train_test_queries(documents, test_size=250, random_state=seed)
    log, clicks, _ = simulate_clicks(
        train,
        n_sessions=sessions,
        n_positions=n_positions,
        policy=PlackettLucePolicy(temperature=temperature),
        user=PositionBasedUser(eta),
        scores=scores(train, seed),
        random_state=seed,
    )
    return log, clicks, test


def ndcg(ranker, log, clicks, test, seed):
    """nDCG@10 on the other queries of a ranker that is fitted to the log."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of few clicks, and of curves that nothing determines
        ranker.set_params(random_state=seed).fit(log, clicks)
    return ndcg_score(test["relevance"], ranker.predict(test), qid=test["qid"], k=10)


# The doubly robust correction -----------------------------------------------------------
#: Kind of log -> exponent of 1 / k in examination, and sessions.
DEEP = {
    "1 / k², 100 sessions per query": (2.0, 25_000),
    "1 / k², 8 sessions per query": (2.0, 2_000),
    "1 / √k, 8 sessions per query": (0.5, 2_000),
}
#: Ranker in the table -> the ranker on a curve of examination.
CORRECTED = {
    "IPS": lambda curve: IPSRanker(propensity=curve),
    "user-aware IPS": lambda curve: UserAwareIPSRanker(propensity=curve),
    "DLA": lambda curve: DLARanker(),
    "LambdaMART": lambda curve: LambdaMARTRanker(propensity=curve),
}


def doubly_robust(cell, settings, seed):
    """One row for each ranker: nDCG@10 by division, and what doubly robust labels add."""
    eta, sessions = DEEP[cell["log"]]
    world = served(seed, eta=eta, sessions=settings.size(quick=sessions, full=sessions, tiny=500))
    curve = 1 / POSITIONS**eta
    for name, make in CORRECTED.items():
        divided = ndcg(make(curve).set_params(correction="divide"), *world, seed)
        robust = ndcg(make(curve).set_params(correction="doubly_robust"), *world, seed)
        yield {
            "ranker": name,
            "divided": divided,
            "doubly robust": robust,
            "gain": robust - divided,
        }


# Examination behind a strong logging policy ---------------------------------------------
def strong(train, seed):
    """Scores of a production ranker that has learned all labels."""
    return production_scores(train, fraction=1.0, random_state=seed)


def hidden(train, seed):
    """Scores of the weak ranker, with a signal that the features lack."""
    return hidden_signal_scores(weak(train, seed), train["relevance"], random_state=seed)


#: What production has learned -> its scores of documents.
SERVED_BY = {
    "all labels": strong,
    "2 % of the labels": weak,
    "a hidden signal": hidden,
}


def error_of_curve(estimator):
    """Root mean square of the log of examination over the true 1 / k."""
    examination = estimator.examination_["examination"].to_numpy()
    return float(np.sqrt(np.mean(np.log(examination * POSITIONS) ** 2)))


def both_forms(error, value, changed):
    """The row of a study: errors of both curves, nDCG@10 of both, and what the change gains."""
    return {
        "error": error["plain"],
        f"error, {changed}": error[changed],
        "less error": error["plain"] - error[changed],
        "nDCG@10": value["plain"],
        changed: value[changed],
        "gain": value[changed] - value["plain"],
    }


def unconfounded(cell, settings, seed):
    """Error of both curves, nDCG@10 with them, and what the adjustment gains."""
    sessions = settings.size(quick=10_000, full=10_000, tiny=500)
    log, clicks, test = served(
        seed,
        eta=1.0,
        sessions=sessions,
        scores=SERVED_BY[cell["production"]],
        temperature=0.1,
    )
    error = {}
    value = {}
    for name, is_adjusted in {"plain": False, "adjusted": True}.items():
        propensity = DualLearningPropensity(unconfounded=is_adjusted, random_state=seed)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of bias factors that no document connects
            propensity.fit(log, clicks)
        error[name] = error_of_curve(propensity)
        ranker = IPSRanker(propensity=FrozenEstimator(propensity))
        value[name] = ndcg(ranker, log, clicks, test, seed)
    yield both_forms(error, value, "adjusted")


# Two towers, weighted by the logging policy ---------------------------------------------
#: Tower of relevance -> its hidden layers.
TOWERS = {"linear": (), "network": (64, 32)}


def policy_weights(cell, settings, seed):
    """Error of both curves, nDCG@10 of both, and what the weights gain."""
    sessions = settings.size(quick=10_000, full=10_000, tiny=500)
    log, clicks, test = served(
        seed, eta=1.0, sessions=sessions, scores=SERVED_BY[cell["production"]]
    )
    error = {}
    value = {}
    for name, is_weighted in {"plain": False, "weighted": True}.items():
        ranker = TwoTowerRanker(
            hidden_layer_sizes=TOWERS[cell["tower"]],
            examination="network",
            policy_weights=is_weighted,
        )
        value[name] = ndcg(ranker, log, clicks, test, seed)
        error[name] = error_of_curve(ranker)
    yield both_forms(error, value, "weighted")


# Pages that show a few of the candidates -----------------------------------------------
#: Kind of log -> temperature of the policy, and sessions.
TOP_5 = {
    "near production, 100 sessions per query": (0.3, 25_000),
    "near production, 8 sessions per query": (0.3, 2_000),
    "nearly random, 8 sessions per query": (3.0, 2_000),
}
#: Column of the table -> parameters of the trees.
DEBIASED = {
    "user-aware": {},
    "policy-aware": {"debiasing": "policy-aware"},
    "doubly robust": {"debiasing": "policy-aware", "correction": "doubly_robust"},
}


def policy_aware(cell, settings, seed):
    """nDCG@10 of trees by each propensity, and what two of them gain over the user-aware one."""
    temperature, sessions = TOP_5[cell["log"]]
    log, clicks, test = served(
        seed,
        eta=1.0,
        sessions=settings.size(quick=sessions, full=sessions, tiny=500),
        temperature=temperature,
        n_positions=5,
    )
    value = {}
    for name, parameters in DEBIASED.items():
        ranker = LambdaMARTRanker(propensity=1 / POSITIONS[:5], **parameters)
        value[name] = ndcg(ranker, log, clicks, test, seed)
    base = value["user-aware"]
    yield {
        **value,
        "gain": value["policy-aware"] - base,
        "gain, doubly robust": value["doubly robust"] - base,
    }


PAGE = Page(
    "studies/rivals",
    "Rivals of later papers",
    (
        measured(
            doubly_robust,
            "nDCG@10 by division, by doubly robust labels, and the difference",
            ("divided", "doubly robust", "gain"),
            over={"log": DEEP},
            by=("ranker",),
            runs=20,
        ),
        measured(
            unconfounded,
            "Dual learning, and what the adjustment for the logging policy changes",
            ("error", "error, adjusted", "less error", "nDCG@10", "adjusted", "gain"),
            over={"production": SERVED_BY},
            runs=20,
        ),
        measured(
            policy_weights,
            "Two towers, and what weights by the logging policy change",
            ("error", "error, weighted", "less error", "nDCG@10", "weighted", "gain"),
            over={"production": ("all labels", "2 % of the labels"), "tower": TOWERS},
            runs=20,
        ),
        measured(
            policy_aware,
            "Trees by propensities over all pages of a query",
            (*DEBIASED, "gain", "gain, doubly robust"),
            over={"log": TOP_5},
            runs=20,
        ),
    ),
)
