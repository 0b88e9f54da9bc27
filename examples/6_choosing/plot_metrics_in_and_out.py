"""
Seven click models, in and out of distribution
==============================================

**Claim.** On new sessions of the ranker that collected the log, seven click models hardly differ
in perplexity. On documents in random order they do, and the model that is worst there, the
click-through rate of a document (DCTR), has an nDCG that only the two right models exceed. CMIP
reveals it: DCTR has by far the largest, and the second worst model has the next largest. The
position-based model (PBM), which describes these users exactly, and the user browsing model (UBM),
which contains it, predict best in both orders.

**Limit.** One log of one kind of user. CMIP singles out the worst models; it does not sort the
others, nor does it find the best: those of PBM and UBM are in the middle, because documents with
few clicks are estimated by where production put them.
"""

# %%
# One log, three tests
# --------------------
#
# NoisyOracle, the labels plus noise, ranks in the log and in the first test log. In the second one
# the order is random. Users examine position k with probability 1/k.
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from skultr import CMIPScorer
from skultr.click_models import (
    CACMModel,
    DBNModel,
    DCTRModel,
    NCMModel,
    PBMModel,
    RDCTRModel,
    UBMModel,
)
from skultr.datasets import make_ltr
from skultr.metrics import PerplexityScorer, RankingScorer
from skultr.simulation import PositionBasedUser, noisy_oracle_scores, simulate_shift

documents = make_ltr(n_queries=80, n_documents=10, n_features=5, random_state=0)
train, same, shifted = simulate_shift(
    documents,
    n_sessions=24_000,
    scores=noisy_oracle_scores(documents, random_state=0),
    user=PositionBasedUser(1.0),
    features=False,
    random_state=0,
)
labels = documents.set_index("doc")["relevance"]
log = train.X.assign(relevance=train.X["doc"].map(labels))

# %%
# Seven models
# ------------
#
# 800 annotated documents are few for a classifier: CMIP by nearest neighbours.
models = {
    "DCTR": DCTRModel(),
    "RDCTR": RDCTRModel(),
    "PBM": PBMModel(),
    "UBM": UBMModel(),
    "DBN": DBNModel(),
    "NCM": NCMModel(batch_size=512, random_state=0),
    "CACM": CACMModel(batch_size=512, random_state=0),
}
perplexity, cmip, rows = PerplexityScorer(), CMIPScorer(estimator="knn"), {}
for name, model in models.items():
    model.fit(train.X, train.clicks)
    rows[name] = {
        "perplexity, same ranker": -perplexity(model, same.X, same.clicks),
        "nDCG@10": RankingScorer()(model, log),
        "CMIP": -cmip(model, log),
        "perplexity, random order": -perplexity(model, shifted.X, shifted.clicks),
    }
table = pd.DataFrame(rows).T
print(table.round(3).to_string())

# %%
# The figure
# ----------
#
# Three panels that a practitioner can draw, and on the right what they would need. A model that
# knows every click has the perplexity 1.
figure, panels = plt.subplots(1, 4, figsize=(12.5, 4.2), sharey=True, layout="constrained")
place = np.arange(len(table))[::-1]
for axes, column in zip(panels, table, strict=True):
    values = table[column]
    best = values.idxmax() if column == "nDCG@10" else values.idxmin()
    colors = ["#7251b5" if name == best else "#c9ccd1" for name in table.index]
    axes.barh(place, values, color=colors, height=0.7)
    for at, value in zip(place, values, strict=True):
        axes.text(value, at, f" {value:.3f}", va="center", fontsize=9)
    lowest, highest = (1, 1.3) if column.startswith("perplexity") else (0, values.max())
    axes.set_xlim(lowest, lowest + 1.28 * (highest - lowest))
    axes.set_title(
        column + ("\n(more is better)" if column == "nDCG@10" else "\n(less is better)")
    )
    axes.spines[["top", "right"]].set_visible(False)
panels[0].set_yticks(place, table.index)
plt.show()

# %%
# The claim, checked
# ------------------
#
# The models differ by the order in which they are tested, DCTR is last in random order with an
# nDCG that two exceed, and CMIP puts the two worst first.
same_ranker, random = table["perplexity, same ranker"], table["perplexity, random order"]
assert np.ptp(random) > 5 * np.ptp(same_ranker)
assert set(random.nsmallest(2).index) == {"PBM", "UBM"}
assert set(table.index[table["nDCG@10"] > table.loc["DCTR", "nDCG@10"]]) == {"PBM", "UBM"}
assert list(table["CMIP"].nlargest(2).index) == list(random.nlargest(2).index)
