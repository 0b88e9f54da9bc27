"""What a penalty on weights brings where clicks are few for so many features, and what it costs.

With ``weight_decay="auto"`` the loss of a network has the penalty of ridge regression: features
per click, less a hundredth (for CLD three times that), and a tenth at most. ``gain`` is nDCG@10 on
queries that are not in the log, less that of the same training without the penalty. ``top`` has
the logs of `cld_forms`, which show the first of all candidates (real documents need the files in
the folder SKULTR_DATA); ``whole`` has logs that show all ten documents of a page. ``clicks`` are
those per feature.
"""

from itertools import product

import numpy as np

from skultr import CLDRanker, DLARanker
from skultr._torch._thresholds import LARGEST_PENALTY
from skultr.metrics import ndcg_score
from skultr.rankers import HeckmanRanker, IPSRanker, NaiveRanker, RegressionEMRanker
from skultr.simulation import PlackettLucePolicy, simulate_clicks

from .._documents import feature_columns, split_documents
from .._study import Exhibit, Page, Study
from . import cld_forms

RANKERS = {
    "naive": NaiveRanker,
    "IPS": IPSRanker,
    "DLA": DLARanker,
    # The loss of its towers is a mean over impressions, those of the others one over clicks.
    "REM": RegressionEMRanker,
    "CLD": CLDRanker,
    "Heckman": HeckmanRanker,
}
#: Settings of those that are told the propensities.
TOLD = {"IPS": {}, "CLD": {}, "Heckman": {"debias": True}}
#: Times the penalty of the default.
STRENGTHS = {"none": 0.0, "a third": 1 / 3, "default": 1.0, "three times": 3.0}
#: The penalty of ridge regression at any number of clicks.
EVERYWHERE = "with many clicks, too"
ORDERS = {"one order": None, "varied order": PlackettLucePolicy(0.5)}
#: Seeds that the penalty was not chosen on.
FIRST_SEED = 200


# --------------------------------------------------------------------------------------
# Logs of whole pages
# --------------------------------------------------------------------------------------
def whole_pages(cell, settings, seed):
    """A log of pages of ten documents, as `cld_forms.world_of`; queries have one order or many."""
    n_queries = settings.size(full=270, quick=270, tiny=30)
    train, test = split_documents(
        settings, n_queries, 180, seed=seed, n_features=cell["features"], n_documents=10
    )
    policy = ORDERS[cell["order"]]
    X, clicks, truth = simulate_clicks(
        train,
        n_sessions=settings.sessions or cell["pages"],
        random_state=seed,
        **({} if policy is None else {"policy": policy}),
    )
    return X, clicks, train, test, truth.examination


# --------------------------------------------------------------------------------------
# Runs
# --------------------------------------------------------------------------------------
def gains_at_the_top(cell, settings, seed):
    """Gains of each ranker on a log of the top of all candidates."""
    shop = cld_forms.LOGS[cell["log"]]
    yield from gains(cld_forms.world_of(shop, settings, FIRST_SEED + seed))


def gains_of_whole_pages(cell, settings, seed):
    """Gains of each ranker on a log of whole pages."""
    yield from gains(whole_pages(cell, settings, FIRST_SEED + seed))


def gains(log):
    """A row for each ranker and penalty."""
    X, clicks, train, test, examination = log
    per_feature = np.sum(clicks) / len(feature_columns(train))
    for name, ranker in RANKERS.items():
        known = {"propensity": examination, **TOLD[name]} if name in TOLD else {}
        ndcg = {}
        for penalty in (*STRENGTHS, EVERYWHERE):
            trained = with_penalty(ranker, penalty)(random_state=0, **known)
            scores = trained.fit(X, clicks, documents=train).predict(test)
            ndcg[penalty] = ndcg_score(test["relevance"], scores, qid=test["qid"], k=10)
            gain = ndcg[penalty] - ndcg["none"]
            row = {"ranker": name, "penalty": penalty, "nDCG@10": ndcg[penalty], "gain": gain}
            yield {**row, "clicks": per_feature}


def with_penalty(ranker, penalty):
    """A class like that of a ranker, whose penalty is another one."""

    class Penalised(ranker):
        def _penalty(self, log, *, click_only, noise=1.0, **given):
            if penalty != EVERYWHERE:
                default = super()._penalty(log, click_only=click_only, noise=noise, **given)
                return STRENGTHS[penalty] * default
            n_clicks = log.clicks.sum()
            ridge = min(noise * log.features.shape[1] / n_clicks, LARGEST_PENALTY.value)
            return ridge if click_only else ridge * n_clicks / log.weight.sum()

    return Penalised


def cells_of_whole_pages(settings):
    """Few and many pages, features that are few and many, and both orders."""
    pages = settings.size(full=(500, 2_000, 5_000, 20_000), quick=(500, 5_000), tiny=(90,))
    n_features = settings.size(full=(30, 100), quick=(30, 100), tiny=(5,))
    return [
        {"pages": n_pages, "features": n, "order": order}
        for n_pages, n, order in product(pages, n_features, ORDERS)
    ]


TOP = Study(
    "top",
    gains_at_the_top,
    cld_forms.logs_of(cld_forms.LOGS, 3),
    quick_runs=1,
    full_runs=2,
    hours=0.3,
)
WHOLE = Study(
    "whole",
    gains_of_whole_pages,
    cells_of_whole_pages,
    quick_runs=1,
    full_runs=2,
    hours=0.1,
)
METRICS = ("nDCG@10", "gain", "clicks")
PAGE = Page(
    "studies/penalty",
    "A penalty on weights where clicks are few",
    (
        Exhibit(
            "top",
            "Logs of the top of all candidates",
            TOP,
            ("log", "ranker", "penalty"),
            METRICS,
        ),
        Exhibit(
            "whole",
            "Logs of whole pages",
            WHOLE,
            ("pages", "features", "order", "ranker", "penalty"),
            METRICS,
        ),
        Exhibit(
            "gains",
            "The gain of each ranker, over logs of the top",
            TOP,
            ("ranker", "penalty"),
            ("gain",),
        ),
    ),
)
