"""
More clicks do not help a ranker that takes them at face value
==============================================================

**Claim.** A ranker that takes clicks as labels learns where documents stood as well as how
relevant they are. More sessions do not help: its quality stays flat. Rankers that correct for
known examination (IPS), or learn examination along with relevance (dual learning, DLA), improve
with the number of sessions. With 300,000 sessions IPS is level with a ranker that knows the truth,
and DLA has closed four fifths of the distance to it.

**Limit.** The documents are generated, and the users click as a position-based model assumes, as
both corrections do, so they are well specified here. IPS is given the true examination, which
nobody has for a real log. The ranker in production never varies its order, so dual learning
separates attention from relevance by the features alone (see :ref:`identifiability`). With 3,000
sessions all three are level: there is too little to learn a correction from.
"""

# %%
# The documents, and the ranker in production
# -------------------------------------------
#
# Half of the queries are in the log, the other half are for the test. The ranker in production
# has seen the labels of 2 % of the training queries; it decides which document stands where.
import warnings

import matplotlib.pyplot as plt
import pandas as pd

from skultr import DLARanker, aggregate_clicks
from skultr.datasets import make_ltr
from skultr.exceptions import NotIdentifiableWarning
from skultr.metrics import ndcg_score
from skultr.model_selection import train_test_queries
from skultr.plotting import method_colors
from skultr.rankers import IPSRanker, NaiveRanker
from skultr.simulation import production_scores, relevance_probability, simulate_clicks

# One fixed order links no positions. The features do, because they explain relevance here, but the
# log cannot confirm it, and fit would warn.
warnings.simplefilter("ignore", NotIdentifiableWarning)

N_SESSIONS = [3_000, 30_000, 300_000]


def measure(seed):
    """nDCG@10 on held-out queries, one row per (ranker, number of sessions)."""
    documents = make_ltr(n_queries=1000, n_features=30, random_state=seed)
    train, test = train_test_queries(documents, test_size=0.5, random_state=seed)
    production = {"fraction": 0.02, "random_state": seed}
    shown_by = production_scores(train, **production)
    old = production_scores(train, **production, candidates=test)
    rows = []
    for n_sessions in N_SESSIONS:
        impressions, clicks, truth = simulate_clicks(
            train, n_sessions=n_sessions, scores=shown_by, features=False, random_state=seed
        )
        log, click_rate = aggregate_clicks(impressions.assign(click=clicks), train)
        ips = IPSRanker(propensity=truth.examination, random_state=seed)
        dla = DLARanker(random_state=seed)
        scores = {
            "production": old,
            "naive": NaiveRanker(random_state=seed).fit(log, click_rate).predict(test),
            "IPS": ips.fit(log, click_rate).predict(test),
            "DLA": dla.fit(log, click_rate).predict(test),
        }
        for ranker, score in scores.items():
            ndcg = ndcg_score(test["relevance"], score, qid=test["qid"], k=10)
            rows.append({"ranker": ranker, "sessions": n_sessions, "nDCG@10": ndcg})
    # The skyline reads the truth where the others read clicks.
    skyline = NaiveRanker(random_state=seed).fit(log, relevance_probability(log["relevance"]))
    best = ndcg_score(test["relevance"], skyline.predict(test), qid=test["qid"], k=10)
    rows += [{"ranker": "skyline", "sessions": n, "nDCG@10": best} for n in N_SESSIONS]
    return pd.DataFrame(rows)


# %%
# Three worlds
# ------------
#
# Each seed makes other documents, another production ranker and other users.
runs = pd.concat([measure(seed).assign(seed=seed) for seed in range(3)])
print(runs.groupby(["ranker", "sessions"])["nDCG@10"].mean().unstack().round(3).to_string())

# %%
# The figure
# ----------
#
# Some worlds are easier than others, so each ranker is compared with the skyline of its own world.
# Lines are means over the three worlds, shaded areas reach from the worst to the best of them.
values = runs.set_index(["ranker", "seed", "sessions"])["nDCG@10"].unstack("ranker")
behind = values.sub(values["skyline"], axis=0).groupby("sessions").agg(["mean", "min", "max"])
LINES = {"IPS": "-", "DLA": "--", "naive": "-", "production": ":"}
COLORS = method_colors([*LINES, "skyline"])
figure, axes = plt.subplots(figsize=(7.5, 4.5), layout="constrained")
axes.axhline(0, color=COLORS["skyline"])
axes.text(N_SESSIONS[0], 0.004, "skyline: trained on the truth", color=COLORS["skyline"])
for ranker, line in LINES.items():
    curve, color = behind[ranker], COLORS[ranker]
    axes.plot(curve.index, curve["mean"], line, color=color, marker="o", markersize=4)
    if ranker != "production":
        axes.fill_between(curve.index, curve["min"], curve["max"], color=color, alpha=0.12, lw=0)
    axes.annotate(
        ranker,
        (N_SESSIONS[-1], curve["mean"].iloc[-1]),
        (8, {"IPS": 2, "DLA": -9}.get(ranker, -3)),  # the two end close to each other
        textcoords="offset points",
        color=color,
    )
axes.set_xscale("log")
axes.set_ylim(top=0.02)
axes.set_xlabel("simulated sessions")
axes.set_ylabel("nDCG@10 on held-out queries,\nminus that of the skyline")
axes.set_title("Mean of three worlds; shaded: worst to best")
axes.spines[["top", "right"]].set_visible(False)
plt.show()

# %%
# The claim, checked
# ------------------
#
# From 3,000 to 300,000 sessions the naive ranker gains next to nothing, and the other two make up
# most of their distance to the skyline.
gap = -behind.xs("mean", axis=1, level=1)
first, last = gap.loc[N_SESSIONS[0]], gap.loc[N_SESSIONS[-1]]
assert abs(first["naive"] - last["naive"]) < 0.015
assert last["IPS"] < 0.25 * last["naive"]
assert last["DLA"] < 0.3 * last["naive"]

# %%
# What to take from it
# --------------------
#
# - On the right, the distance between the naive line and the others is bias, not noise.
# - On the left, the weights of few clicks at deep positions would cost more than they gain. By
#   default ``IPSRanker`` compares four ways of using the propensities by the clicks of held-out
#   queries, no correction among them, and is level with the naive ranker. ``correction="divide",
#   clip=None`` is literal division (see :ref:`corrections`).
# - Which ranker is best depends on the number of clicks. Begin with
#   :class:`~skultr.EnsembleRanker`: :ref:`an example
#   <sphx_glr_auto_examples_1_start_plot_never_worse.py>`.
# - The skyline is the best that these features and this network can do, not a perfect ranking.
