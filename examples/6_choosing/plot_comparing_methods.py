"""
Methods compared in many simulated worlds
=========================================

**Claim.** One method, several verdicts. Where users follow the curve that it is given and
production was weak, IPS is not behind clicks as they are, as far as five seeds can tell. Where
users leave when they are satisfied and production was strong, it is more than .05 of nDCG@10
behind, and further among all candidates than among the ten documents that production shows. And
two methods that are nearly level are told apart better in pairs, on the same logs, than by means.

**Limit.** One kind of made documents, two users, two production rankers and five seeds: twenty
logs. Five seeds show a direction, not a size. A table for a paper takes more seeds, real
documents and more sessions.
"""

# %%
# The worlds
# ----------
#
# Two users, and two production rankers that have learned the labels of 1 % or of half of the
# training queries. A production ranker is a function of the training documents, the candidates
# to score and the seed.
import tempfile
import time
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from lightgbm import LGBMRanker
from scipy import stats

from skultr.datasets import make_ltr
from skultr.evaluation import run_comparison
from skultr.rankers import IPSRanker, LambdaMARTRanker, NaiveRanker
from skultr.simulation import DBNUser, PositionBasedUser, production_scores


def weak(train, candidates, seed):
    return production_scores(train, fraction=0.01, candidates=candidates, random_state=seed)


def strong(train, candidates, seed):
    return production_scores(train, fraction=0.5, candidates=candidates, random_state=seed)


def documents(seed):
    return make_ltr(n_queries=300, n_features=20, random_state=seed)


# %%
# The methods
# -----------
#
# All columns of a table have one learner, so that it compares corrections and not learners:
# LightGBM's trees. The curve of IPS, 1 / k, is that of the first user. LambdaMART learns its curve
# from the log, and half of its loss takes clicks as they are.
def trees():
    return LGBMRanker(objective="rank_xendcg", n_estimators=60, n_jobs=1, verbosity=-1)


SETTINGS = {
    "documents": documents,
    "rankers": {
        "naive": NaiveRanker(estimator=trees()),
        "IPS": IPSRanker(estimator=trees(), propensity=1 / np.arange(1, 11)),
        "LambdaMART": LambdaMARTRanker(naive_weight=0.5),
    },
    "users": {"position-based": PositionBasedUser(1.0), "satisfied": DBNUser()},
    "production": {"weak": weak, "strong": strong},
    "n_sessions": 10_000,
}

# %%
# The run
# -------
#
# Each finished cell (one method on one log) is in the file at once. The second call has
# more seeds, and fits nothing for the two that are there.
path = Path(tempfile.mkdtemp()) / "comparison.jsonl"
for seeds in (2, 5):
    start = time.perf_counter()
    comparison = run_comparison(**SETTINGS, seeds=seeds, path=path)
    print(f"{seeds} seeds: {len(comparison.cells_)} cells, {time.perf_counter() - start:.0f} s")

# %%
# All logs
# --------
#
# Filled marks: all candidates. Hollow marks: the documents that production shows. Lines are 95 %
# intervals of the mean difference over seeds, small dots are logs.
comparison.plot(baseline="naive")
plt.show()
columns = ["method", "ndcg", "difference", "lower", "upper", "difference_shown", "n_pairs"]
print(comparison.table(baseline="naive")[columns].round(3).to_string(index=False))

# %%
# By world
# --------
#
# The mean over all worlds hides that the sign of the difference depends on the world.
by_world = comparison.table(baseline="naive", by=["user", "production"])
print(by_world[["user", "production", *columns]].round(3).to_string(index=False))

# %%
# What pairs are worth
# --------------------
#
# The half width of the interval of LambdaMART, and what it would be if the two methods had met
# on the logs of different seeds: logs differ more than these methods do.
table = comparison.table(baseline="naive").set_index("method")
paired = (table["upper"] - table["lower"])["LambdaMART"] / 2
means = comparison.cells_.pivot_table(index="seed", columns="method", values="ndcg")
error = np.sqrt((means["LambdaMART"].var() + means["naive"].var()) / len(means))
unpaired = stats.t.ppf(0.975, 2 * len(means) - 2) * error
print(f"paired: {paired:.3f}, unpaired: {unpaired:.3f}")

# %%
# The claim, checked
# ------------------
worlds = by_world[by_world["method"] == "IPS"].set_index(["user", "production"])
at_home, abroad = worlds.loc["position-based", "weak"], worlds.loc["satisfied", "strong"]
assert at_home["upper"] > 0
assert at_home["difference"] > abroad["difference"] + 0.05
assert abroad["difference"] < -0.05
assert abroad["difference"] < abroad["difference_shown"] < 0
assert paired < unpaired
