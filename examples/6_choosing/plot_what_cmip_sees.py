"""
What CMIP sees
==============

**Claim.** Labels hardly distinguish the wrong model from the right one here. Click-through rates
of documents (DCTR) have an nDCG of .95, because production was good and they copy it: within each
grade they fall with the logged position. The position-based model corrects for position, and its
lines are nearly flat. CMIP, in the titles, measures this: .9 for DCTR, below .1 for the
position-based model. The perplexity on rankings in random order confirms which of the two
describes how users click.

**Limit.** The position-based model describes these users exactly. CMIP is about copying and about
nothing else: scores drawn at random would have none.
"""

# %%
# A log of a good ranker
# ----------------------
#
# NoisyOracle: the labels plus noise, so that position and relevance nearly coincide. Users examine
# position k with probability 1/k.
import matplotlib.pyplot as plt
import pandas as pd

from skultr.click_models import DCTRModel, PBMModel
from skultr.datasets import make_ltr
from skultr.metrics import CMIPScorer, PerplexityScorer, RankingScorer
from skultr.plotting import DebiasednessDisplay
from skultr.simulation import PositionBasedUser, noisy_oracle_scores, simulate_shift

documents = make_ltr(n_queries=150, n_documents=10, n_features=5, random_state=0)
train, same, shifted = simulate_shift(
    documents,
    n_sessions=150_000,
    scores=noisy_oracle_scores(documents, random_state=0),
    user=PositionBasedUser(1.0),
    features=False,
    random_state=0,
)
labels = documents.set_index("doc")["relevance"]
log = train.X.assign(relevance=train.X["doc"].map(labels))

# %%
# Two models of the same clicks
# -----------------------------
models = {
    "DCTR": DCTRModel().fit(train.X, train.clicks),
    "PBM": PBMModel().fit(train.X, train.clicks),
}
figure, panels = plt.subplots(1, 2, figsize=(11.5, 4.6), layout="constrained")
displays = {
    name: DebiasednessDisplay.from_estimator(model, log, ax=axes, name=name)
    for axes, (name, model) in zip(panels, models.items(), strict=True)
}
panels[0].set_ylabel("click-through rate")
panels[1].set_ylabel("relevance, P(click) at the first position")
plt.show()

# %%
# In numbers
# ----------
#
# Perplexity on new sessions of production, and of rankings in random order; 1 is a
# perfect prediction.
perplexity = PerplexityScorer()
numbers = {
    name: {
        "nDCG": RankingScorer()(model, log),
        "perplexity, same ranker": -perplexity(model, same.X, same.clicks),
        "perplexity, random order": -perplexity(model, shifted.X, shifted.clicks),
        "CMIP": displays[name].cmip,
    }
    for name, model in models.items()
}
found = pd.DataFrame(numbers).T
print(found.round(3).to_string())

# %%
# Why the lines of the position-based model are flat: examination comes from the same documents at
# several positions, so that no opinion on relevance enters it.
examination = models["PBM"].examination_[["examination"]]
print(examination.assign(true=1 / examination.index).round(3).T.to_string())

# %%
# Without labels
# --------------
#
# Labels cost money. If some pages were served in random order, their clicks can take the place of
# the labels: name the column that marks these pages as ``arm``. The values are lower than those
# from labels, and are compared with each other alone.
shuffled = shifted.X.assign(arm="random", session=shifted.X["session"] + len(train.X))
both = pd.concat([train.X, shuffled], ignore_index=True)
clicks = [*train.clicks, *shifted.clicks]
by_clicks = pd.Series(
    {name: -CMIPScorer(arm="arm")(model, both, clicks) for name, model in models.items()}
)
print(by_clicks.round(2).to_string())

# %%
# The claim, checked
# ------------------
#
# nDCG hardly tells the models apart; CMIP does, from labels and from clicks, and so does another
# order of the documents.
assert found["nDCG"].min() > 0.93
assert found.loc["PBM", "CMIP"] < 0.15 < 0.7 < found.loc["DCTR", "CMIP"]
assert by_clicks["PBM"] < 0.1 < 0.4 < by_clicks["DCTR"]
random = found["perplexity, random order"]
assert random["PBM"] < random["DCTR"] - 0.05
