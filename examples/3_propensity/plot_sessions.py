"""
How many sessions until unbiased beats biased?
==============================================

**Claim.** User-aware IPS comes nearest to the skyline, from about 100 sessions per query on. The
straightforward estimator (each click over its own user's propensity) has no bias either, but so
much noise that it takes 100 sessions per query to come within .01 of IPS with one curve for all,
which is biased. Labels weigh by their examinations. With 2 sessions per query **the clicks as they
are beat everything that corrects them**: where noise dominates, less variance matters more than no
bias.

**Limit.** A small simulated world with examination known exactly, and three runs: differences
below 0.01 mean little. Where the curves cross depends on the learner and on the users, above all
on how steep the steepest are. Clicks are divided by propensities here, whatever their number. With
networks that divide instead of these trees, user-aware IPS passes IPS with one curve for all at
some 25 sessions per query, and the straightforward estimator does between 200 and 600.
"""

# %%
# The world of Niu et al. (2025) [1]_ on generated documents
# ----------------------------------------------------------
#
# Ten users, each with queries and an examination of their own, and a ranker that learned from 1 %
# of the labels. Trees learn from the debiased clicks; the rankers' own networks take longer and
# show much the same. Models are judged by nDCG@5 on queries outside the log.
import warnings

import matplotlib.pyplot as plt
import pandas as pd
from lightgbm import LGBMRanker

from skultr import UserAwareIPSRanker, aggregate_clicks
from skultr.datasets import make_ltr
from skultr.exceptions import AssumptionWarning, ClickDataWarning, UnstableWeightsWarning
from skultr.metrics import ndcg_score
from skultr.plotting import method_colors
from skultr.rankers import IPSRanker, NaiveRanker, PRSRanker
from skultr.simulation import UserPopulation, production_scores, simulate_clicks

N_TRAINING = 1000
SESSIONS = [2_000, 20_000, 100_000, 400_000]
TREES = LGBMRanker(
    objective="rank_xendcg",
    n_estimators=100,
    learning_rate=0.05,
    num_leaves=15,
    verbosity=-1,
    n_jobs=1,
)


def log_of(training, n_sessions, seed):
    """The log with propensities, its click rates, and the truth."""
    X, clicks, truth = simulate_clicks(
        training,
        n_sessions=n_sessions,
        user=UserPopulation(10),
        gain="linear",
        features=False,
        random_state=seed,
    )
    log, click_rate = aggregate_clicks(X.assign(click=clicks), training)
    log["propensity"] = truth.examination_table[log["user"], log["position"] - 1]
    return log, click_rate, truth


def fitted_rankers(log, click_rate, examination):
    """Rankers by name; those with one curve for all get the mean curve of the users."""
    plain = log.drop(columns="propensity")
    yield "naive", NaiveRanker(estimator=TREES).fit(plain, click_rate)
    one_curve = {"propensity": examination, "clip": None}
    yield "IPS", IPSRanker(estimator=TREES, **one_curve).fit(plain, click_rate)
    yield "PRS", PRSRanker(estimator=TREES, **one_curve).fit(plain, click_rate)
    yield "straightforward", IPSRanker(estimator=TREES, clip=None).fit(log, click_rate)
    yield "user-aware", UserAwareIPSRanker(estimator=TREES, clip=None).fit(log, click_rate)


# %%
# Five estimators and a skyline, from 2 to 400 sessions per query
# ---------------------------------------------------------------
#
# Three runs each. The skyline learns from the true P(relevant) of the documents. Besides nDCG@5,
# the error of what the trees were given to learn: the mean squared error of ``labels_`` against
# P(relevant).
rows = []
# With few sessions IPS rankers warn that a handful of clicks carry the weight, which is what this
# example shows. PRS warns that clicks contradict the propensities: its scores, which are wrong
# here, leave them to explain too much.
warnings.simplefilter("ignore", UnstableWeightsWarning)
warnings.simplefilter("ignore", ClickDataWarning)  # two sessions per query are few
warnings.simplefilter("ignore", AssumptionWarning)
for seed in range(3):
    documents = make_ltr(n_queries=2 * N_TRAINING, n_features=20, random_state=seed)
    asked = documents["qid"].rank(method="dense") <= N_TRAINING
    training, test = documents[asked], documents[~asked]

    def quality(scores, test=test):
        return ndcg_score(test["relevance"], scores, qid=test["qid"], k=5)

    scores = production_scores(training, candidates=test, random_state=seed)
    rows.append({"sessions": 0, "estimator": "production", "nDCG@5": quality(scores)})
    for n_sessions in SESSIONS:
        log, click_rate, truth = log_of(training, n_sessions, seed)
        relevance = pd.Series(truth.relevance_probability, training["doc"])
        for name, ranker in fitted_rankers(log, click_rate, truth.examination):
            row = {"sessions": n_sessions, "estimator": name, "seed": seed}
            row["nDCG@5"] = quality(ranker.predict(test))
            if hasattr(ranker, "labels_"):
                labels = ranker.labels_
                row["MSE"] = ((labels["label"] - labels["doc"].map(relevance)) ** 2).mean()
            rows.append(row)
    best = NaiveRanker(estimator=TREES).fit(
        log.drop(columns="propensity"), log["doc"].map(relevance)
    )
    rows.append({"sessions": 0, "estimator": "skyline", "nDCG@5": quality(best.predict(test))})
runs = pd.DataFrame(rows)
means = runs.pivot_table(index="estimator", columns="sessions", values="nDCG@5")
print(means.round(3).to_string(na_rep=""))

# %%
# The figure
# ----------
#
# Lines are means over the runs, dots the runs. IPS has one curve for all users.
COLORS = method_colors(["naive", "IPS", "straightforward", "user-aware"])
figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.6), layout="constrained")
for name, color in COLORS.items():
    part = runs[runs["estimator"] == name]
    for axes, measure in ((left, "nDCG@5"), (right, "MSE")):
        if part[measure].notna().any():
            axes.plot(part["sessions"], part[measure], "o", color=color, markersize=3, alpha=0.6)
            mean = part.groupby("sessions")[measure].mean()
            axes.plot(mean, color=color, label=name)
for name, style in {"skyline": "--", "production": ":"}.items():
    left.axhline(means.loc[name, 0], color="#3d3d3d", linestyle=style, linewidth=1, label=name)
left.set_ylabel("nDCG@5 on other queries")
right.set_ylabel("mean squared error of estimated relevance")
right.set_yscale("log")
left.legend(frameon=False, loc="lower right")
for axes in (left, right):
    axes.set_xscale("log")
    axes.set_xlabel(f"sessions (of {N_TRAINING:,} queries)")
    axes.spines[["top", "right"]].set_visible(False)
plt.show()

# %%
# The claim, checked
# ------------------
#
# Who is best, with few sessions and with many.
few, some, enough, many = (means[n_sessions].dropna() for n_sessions in SESSIONS)
assert few.idxmax() == "naive"
assert enough.idxmax() == many.idxmax() == "user-aware"
# Labels weigh by their examinations, so that rows which hardly anybody examined do little harm.
assert some["straightforward"] < some["IPS"] - 0.01
assert enough["straightforward"] > enough["IPS"] - 0.01
assert many["straightforward"] > many["IPS"] - 0.015
assert many["user-aware"] > means.loc["skyline", 0] - 0.01

# %%
# Right, why: the errors of the unbiased estimators are noise, which falls in proportion to the
# traffic; that of one curve for all ends at its bias. Propensity ratio scoring (PRS) is in the
# table only: it assumes that a document is relevant to everybody or to nobody, and ends far below
# where users find it relevant with some probability.
#
# .. [1] Niu, Mei, Yang, Zhao, Yan, Mao & Wen (2025). Addressing personalized bias for unbiased
#    learning to rank.
