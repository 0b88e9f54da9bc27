"""
By rows or by pairs, lines or networks
======================================

**Claim.** CLD by rows, the default, is ahead of CLD by pairs in the mean, linear or network. Where
production also used a hidden signal, it is ahead of inverse propensities of the same model.

**Limit.** Where production used the features alone, linear CLD is behind. Networks differ by 0.03
or more from run to run. Three runs of 600 queries and 30 features, one ``gamma`` (0.2).
"""

# %%
# Two worlds
# ----------
#
# The top 5 of 20 candidates are shown. In one world production ranked by the features; in the
# other also by a signal that correlates 0.5 with relevance. In the paper's names, CLD-L and CLD-N
# learn by rows, linear and by networks; CLDpair-L and CLDpair-N by pairs.
import matplotlib.pyplot as plt
import pandas as pd

from skultr import CLDRanker, aggregate_clicks
from skultr.datasets import make_ltr
from skultr.metrics import ndcg_score
from skultr.rankers import IPSRanker
from skultr.simulation import (
    PositionBasedUser,
    hidden_signal_scores,
    production_scores,
    simulate_clicks,
)

N_QUERIES = 600
WORLDS = {"by the features": 0.0, "also by a hidden signal": 1.0}
MODELS = {"linear": (), "network": (64, 32)}


def top_5_log(training, strength, seed):
    """The log with the candidates that were not shown, its click rates, and the examination."""
    scores = hidden_signal_scores(
        production_scores(training, random_state=seed),
        training["relevance"],
        strength=strength,
        random_state=seed,
    )
    X, clicks, truth = simulate_clicks(
        training,
        n_sessions=30_000,
        n_positions=5,
        scores=scores,
        user=PositionBasedUser(1.0),
        gain="binary",
        candidates=True,
        features=False,
        random_state=seed,
    )
    return *aggregate_clicks(X.assign(click=clicks), training), truth.examination


def rankers(layers, examination):
    """Inverse propensities (which learn by lists), and both published losses of CLD.

    CLD divides clicks by propensities. So IPSRanker is set to do the same, and not to choose.
    """
    common = {"propensity": examination, "hidden_layer_sizes": layers, "random_state": 0}
    return {
        "IPS": IPSRanker(**common, correction="divide", clip=None),
        "CLD by rows": CLDRanker(**common, loss="pointwise"),
        "CLD by pairs": CLDRanker(**common, loss="pairwise"),
    }


# %%
# nDCG@3 on queries that nobody asked
# -----------------------------------
rows = []
for seed in range(3):
    documents = make_ltr(2 * N_QUERIES, n_features=30, random_state=seed)
    asked = documents["qid"] < N_QUERIES
    training, test = documents[asked], documents[~asked]
    relevant = (test["relevance"] > 2).astype(int)
    for world, strength in WORLDS.items():
        log, click_rate, examination = top_5_log(training, strength, seed)
        for model, layers in MODELS.items():
            for name, ranker in rankers(layers, examination).items():
                scores = ranker.fit(log, click_rate).predict(test)
                value = ndcg_score(relevant, scores, qid=test["qid"], k=3)
                row = {"run": seed, "world": world, "model": model, "ranker": name}
                rows.append({**row, "nDCG@3": value})
runs = pd.DataFrame(rows)
means = runs.pivot_table(index=["model", "ranker"], columns="world", values="nDCG@3", sort=False)
print(means.round(3).to_string())

# %%
# The figure
# ----------
#
# Large marks are means over three runs, small ones the runs. Documents of one run are easier than
# those of another, for all rankers: that difference is subtracted.
of_run = runs.groupby(["world", "run"])["nDCG@3"].transform("mean")
runs["less its run"] = runs["nDCG@3"] - of_run + runs.groupby("world")["nDCG@3"].transform("mean")
COLORS = {"linear": "#7251b5", "network": "#bc6c25"}
names = list(runs["ranker"].unique())
figure, panels = plt.subplots(
    1, 2, figsize=(10, 3.4), layout="constrained", sharey=True, sharex=True
)
for axes, world in zip(panels, WORLDS, strict=True):
    for offset, (model, color) in zip((0.14, -0.14), COLORS.items(), strict=True):
        part = runs[(runs["world"] == world) & (runs["model"] == model)]
        height = part["ranker"].map(lambda name: len(names) - 1 - names.index(name)) + offset
        axes.plot(part["less its run"], height, "o", color=color, markersize=3, alpha=0.5)
        mean = part.groupby(height)["nDCG@3"].mean()
        axes.plot(mean, mean.index, "D", color=color, markersize=7, label=model)
    axes.set_title(f"Production ranked {world}")
    axes.set_xlabel("nDCG@3 on other queries")
    axes.grid(axis="x", alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
panels[0].set_yticks(range(len(names)), names[::-1])
panels[0].legend(frameon=False)
plt.show()

# %%
# The claim, checked
# ------------------
#
# By rows CLD is ahead of CLD by pairs; with a hidden signal it is ahead of inverse propensities
# (IPS) of the same model, and without one linear CLD is behind.
means = runs.pivot_table(index=["world", "model"], columns="ranker", values="nDCG@3")
hidden, features = means.loc["also by a hidden signal"], means.loc["by the features"]
assert (means["CLD by rows"] > means["CLD by pairs"]).all()
assert (hidden["CLD by rows"] > hidden["IPS"]).all()
assert features.loc["linear", "CLD by rows"] < features.loc["linear", "IPS"]
