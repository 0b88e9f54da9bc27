"""
May a language model's labels stand in for people's?
====================================================

**Claim.** Kappa does not say so. Two simulated judges have about the same kappa with people. One
errs in each document on its own, and may not stand in for people: it keeps too little of their
agreement with clicks. The errors of the other are correlated: it misreads some queries as a whole,
and likes a feature that does not matter to users. The clicks name the misread queries, and once
people have judged these few again, it may stand in.

**Limit.** Judges, people and clicks are simulated, and examination is known: on your log the
answers are as good as your propensities. The judge is repaired by one log and judged by the next,
because labels that were chosen by clicks agree with the same clicks by construction.
"""

# %%
# A log, people and two judges
# ----------------------------
#
# 300 queries, of which 45 have half of the traffic. People rate with some errors of their own.
import matplotlib.pyplot as plt
import numpy as np

from skultr.datasets import make_ltr
from skultr.evaluation import compare_judgments
from skultr.simulation import PlackettLucePolicy, PositionBasedUser, simulate_clicks

rng = np.random.default_rng(0)
n_queries = 300
shop = make_ltr(n_queries, n_documents=12, n_features=5, random_state=0)
examination = 1 / np.arange(1, 13)


def month(seed):
    """Pages and clicks of a month."""
    log, clicks, _ = simulate_clicks(
        shop,
        n_sessions=60_000,
        policy=PlackettLucePolicy(),
        user=PositionBasedUser(examination),
        query_weights=1 / np.arange(10, n_queries + 10),
        features=False,
        random_state=seed,
    )
    return log, clicks


def rated(values):
    """Grades 0 to 4 of all documents, as files of judgments have them."""
    return shop[["qid", "doc"]].assign(relevance=np.clip(np.round(values), 0, 4))


def noise(size):
    """Errors of each document on its own."""
    return size * rng.normal(size=len(shop))


grade = shop["relevance"].to_numpy()
# Errors that are correlated: upside down in a seventh of the queries, and by a feature.
is_misread = np.isin(np.arange(n_queries), rng.choice(n_queries, 42, replace=False))
understood = np.where(is_misread[shop["qid"]], 4 - grade, grade)
liked = shop["feature_004"].rank(pct=True) - 0.5
judges = {
    "people": rated(grade + noise(0.4)),
    "careless": rated(grade + noise(1.4)),
    "fooled": rated(understood + liked + noise(0.2)),
}

# %%
# The first month
# ---------------
#
# Do they agree with clicks, where do they contradict them, and who may stand in for people?
log, clicks = month(seed=1)
settings = {"propensity": examination, "baseline": "people", "random_state": 0}
first = compare_judgments(judges, log, clicks, **settings)
print(first.summary())

# %%
# Judged again
# ------------
#
# People judge the queries where clicks contradict the fooled judge once more. The next month tells
# whether that was enough.
fooled = first.per_query[
    (first.per_query["judge"] == "fooled") & (first.per_query["reference"] == "clicks")
]
queue = fooled.loc[fooled["verdict"] == "contradict", "qid"].astype(int)
repaired = judges["fooled"].copy()
is_again = repaired["qid"].isin(queue)
repaired.loc[is_again, "relevance"] = judges["people"].loc[is_again, "relevance"]
log, clicks = month(seed=2)
second = compare_judgments(judges | {"repaired": repaired}, log, clicks, **settings)
print(second.stand_ins.round(2).to_string())

# %%
# Agreement, contradictions and verdicts
# --------------------------------------
#
# The intervals of the fooled judge are the widest: correlated errors make queries differ more than
# documents do, and intervals over documents would be too narrow.
colors = {"people": "0.3", "careless": "#b5838d", "fooled": "#c1440e", "repaired": "#7251b5"}
figure, (left, middle, right) = plt.subplots(1, 3, figsize=(12, 4.2), layout="constrained")
table = second.table[second.table["reference"] == "clicks"].set_index(["judge", "kind"])
for shift, name in zip((-0.21, -0.07, 0.07, 0.21), colors, strict=True):
    part = table.loc[name].loc[["frequent", "rare"]]
    error = [part["agreement"] - part["lower"], part["upper"] - part["agreement"]]
    left.errorbar(
        np.arange(2) + shift, part["agreement"], error, fmt="o", color=colors[name], label=name
    )
others = table.loc["people", "by_clicks"].loc[["frequent", "rare"]]
left.hlines(others, [-0.3, 0.7], [0.3, 1.3], color="0.5", label="clicks of other users")
left.axhline(0.5, color="k", linewidth=0.8)
left.annotate("chance", (-0.45, 0.5), xytext=(0, 4), textcoords="offset points")
left.set(xticks=[0, 1], xticklabels=["frequent queries", "rare queries"], xlim=(-0.5, 1.5))
left.set(title="agreement with clicks", ylabel="share of clicks on the preferred of two")
left.legend(frameon=False, fontsize="small", loc="lower right", bbox_to_anchor=(1, 0.07))

rank = np.arange(1, len(fooled) + 1)
wrong = is_misread[fooled["qid"].astype(int)]
middle.bar(rank[~wrong], fooled["z"][~wrong], width=1, color="0.75", label="understood")
middle.bar(rank[wrong], fooled["z"][wrong], width=1, color=colors["fooled"], label="misread")
middle.axvline(len(queue) + 0.5, color="k", linewidth=0.8)
middle.annotate(
    f"{len(queue)} queries\njudged again",
    (len(queue), fooled["z"].max() * 0.6),
    xytext=(5, 0),
    textcoords="offset points",
)
middle.set(xlabel="queries of the fooled judge, most contradicting first", ylabel="z")
middle.set_title("contradictions, first month")
middle.legend(frameon=False, loc="lower right")

verdicts = second.stand_ins[second.stand_ins["kind"] == "all"].set_index("judge")
for place, name in enumerate([*colors][1:]):
    row = verdicts.loc[name]
    right.plot([row["lower"], row["upper"]], [place, place], color=colors[name], linewidth=3)
    right.plot(row["kept"], place, "o", color=colors[name])
    right.annotate(
        f"{name}: {row['verdict']}",
        (row["kept"], place),
        xytext=(0, 9),
        textcoords="offset points",
        ha="center",
    )
right.axvline(0.8, color="k", linewidth=0.8)
right.set(xlim=(0, 1.25), ylim=(2.6, -0.6), yticks=[], xlabel="kept of the agreement of people")
right.set_title("in place of people, second month")
for axes in (left, middle, right):
    axes.spines[["top", "right"]].set_visible(False)
plt.show()

# %%
# The claim, checked
# ------------------
kappa = first.table[first.table["kind"] == "all"].set_index(["judge", "reference"])["kappa"]
kappas = kappa["careless", "people"], kappa["fooled", "people"]
print(np.round(kappas, 2), len(queue), is_misread.sum())
assert abs(kappas[0] - kappas[1]) < 0.1
assert wrong[: len(queue)].mean() > 0.85
assert verdicts.loc["careless", "verdict"] == "may not"
assert verdicts.loc["fooled", "verdict"] != "may stand in"
assert verdicts.loc["repaired", "verdict"] == "may stand in"
