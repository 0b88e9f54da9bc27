"""What followers of the papers compare with, each beside the ranker that it changes.

`doubly_robust`: IPS, user-aware IPS, dual learning and trees on doubly robust labels, less the
same ranker that divides by the same bounded propensities. Production is weak. Users who examine
position k with probability 1 / k² hardly see the bottom of a page of ten, so that the bound of a
tenth decides what is known of it: many clicks then show its bias, and few do not. With 1 / √k no
propensity is below the bound, and labels are the same but for those of dual learning, whose curve
may be.

Differences of nDCG@10 on queries that were not in the log are paired by seed.
"""

import warnings

import numpy as np

from skultr import DLARanker, UserAwareIPSRanker
from skultr.datasets import make_ltr
from skultr.metrics import ndcg_score
from skultr.model_selection import train_test_queries
from skultr.rankers import IPSRanker, LambdaMARTRanker
from skultr.simulation import (
    PlackettLucePolicy,
    PositionBasedUser,
    production_scores,
    simulate_clicks,
)

from .._study import Page, measured

N_POSITIONS = 10
POSITIONS = np.arange(1, N_POSITIONS + 1)


def served(seed, *, eta, sessions, fraction=0.02, temperature=0.3):
    """A log with its clicks, and the documents of other queries."""
    documents = make_ltr(n_queries=500, n_features=15, random_state=seed)
    train, test = train_test_queries(documents, test_size=250, random_state=seed)
    log, clicks, _ = simulate_clicks(
        train,
        n_sessions=sessions,
        n_positions=N_POSITIONS,
        policy=PlackettLucePolicy(temperature=temperature),
        user=PositionBasedUser(eta),
        scores=production_scores(train, fraction=fraction, random_state=seed),
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
#: Kind of log -> steepness of examination, and sessions (quick, full).
DEEP = {
    "1 / k², 100 sessions per query": (2.0, 25_000),
    "1 / k², 8 sessions per query": (2.0, 2_000),
    "1 / √k, 100 sessions per query": (0.5, 25_000),
}
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


PAGE = Page(
    "studies/rivals",
    "Rivals that followers compare with",
    (
        measured(
            doubly_robust,
            "nDCG@10 by division, by doubly robust labels, and the difference",
            ("divided", "doubly robust", "gain"),
            over={"log": DEEP},
            by=("ranker",),
            runs=20,
        ),
    ),
)
