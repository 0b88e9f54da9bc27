"""
Click models on the logs of real search engines
===============================================

**Claim.** Of seven click models the user browsing model (UBM) predicts the held-out clicks of two
public logs best. On Yandex all four models that read the clicks above are ahead of the three that
do not, most of all at the bottom of the page; at the first position there is nothing above. On
Sogou, where training shows a document five times on average, the two networks are no better than
the click-through rate of the document (DCTR).

**Limit.** Held-out sessions come from the rankings of the same engine. No perplexity here can show
which of these models holds up under another ranking, and the logs have no annotations for CMIP.
The log of Sogou has sessions with a click only: a model that reads the clicks above can learn that
the last rows of a page without one *must* have it. Nothing was tuned. Without the data this page
shows a simulated log, of users of the dynamic Bayesian network (DBN), which then is the best.
"""

# %%
# The logs
# --------
#
# Yandex (relevance prediction challenge, sessions of 20 frequent queries; 12,000 of its 35,000
# sessions, which keeps this page quick) and Sogou, in the folder named by the environment variable
# ``SKULTR_DATA``. Where it is absent, as on the machine that built these pages, a simulated log
# replaces them. A fifth of the sessions is held out.
import os
import warnings
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

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
from skultr.exceptions import AssumptionWarning
from skultr.metrics import perplexity_score
from skultr.simulation import DBNUser, PlackettLucePolicy, simulate_clicks

FILES = {"Yandex": "yandex_wscd_clicks.parquet", "Sogou": "sogou_deepclick_clicks.parquet"}
COLUMNS = ["session", "qid", "doc", "position", "click"]
MOST_SESSIONS = 12_000


def read_logs():
    folder = Path(os.environ.get("SKULTR_DATA", "no such folder"))
    paths = {name: folder / file for name, file in FILES.items()}
    logs = {
        name: pd.read_parquet(path, columns=COLUMNS)
        for name, path in paths.items()
        if path.exists()
    }
    if not logs:
        X, clicks, _ = simulate_clicks(
            make_ltr(n_queries=50, n_documents=15, n_features=5, random_state=0),
            n_sessions=8_000,
            policy=PlackettLucePolicy(temperature=0.3),
            user=DBNUser(),
            features=False,
            random_state=0,
        )
        logs["SKULTR_DATA is not set: a simulated stand-in"] = X.assign(click=clicks)[COLUMNS]
    return logs


def split_sessions(log):
    sessions = np.random.default_rng(0).permutation(log["session"].unique())[:MOST_SESSIONS]
    held_out = sessions[: len(sessions) // 5]
    test = log["session"].isin(held_out)
    train = log["session"].isin(sessions) & ~test
    # For documents that training did not show, every model predicts the mean.
    document = log.groupby(["qid", "doc"]).ngroup()
    known = document.isin(document[train])
    print(
        f"{len(held_out):,} sessions held out; training shows a document "
        f"{train.sum() / document[train].nunique():.0f} times on average, and "
        f"{known[test].mean():.1%} of the held-out rows a document that it shows"
    )
    return log[train], log[test]


# %%
# Seven models
# ------------
#
# Conditional perplexity, each click given those above. Rows of documents that training did not
# show count too; models warn about them.
warnings.simplefilter("ignore", AssumptionWarning)
found = {}
for name, log in read_logs().items():
    print(name)
    train, test = split_sessions(log)
    models = {
        "DCTR": DCTRModel(),
        "RDCTR": RDCTRModel(),
        "PBM": PBMModel(),
        "UBM": UBMModel(),
        "DBN": DBNModel(),
        "NCM": NCMModel(batch_size=512, random_state=0),
        "CACM": CACMModel(batch_size=512, random_state=0),
    }
    by_rank = {}
    for label, model in models.items():
        model.fit(train.drop(columns="click"), train["click"])
        chance = model.predict_click(test.drop(columns="click"), test["click"])
        by_rank[label] = perplexity_score(
            test["click"], chance, position=test["position"], per_position=True
        )["perplexity"]
    found[name] = pd.DataFrame(by_rank)
    print(found[name].T.assign(mean=found[name].mean()).round(3).to_string())

# %%
# The figure
# ----------
#
# Against the position-based model, position by position: below 0 a model predicts better.
COLORS = ["#d1495b", "#edae49", "#9aa0a6", "#2e86ab", "#1b998b", "#6d597a", "#c77dba"]
figure, panels = plt.subplots(
    1, len(found), figsize=(5.6 * max(len(found), 1.3), 4.6), squeeze=False, layout="constrained"
)
for axes, (name, table) in zip(panels[0], found.items(), strict=True):
    for label, color in zip(table.columns, COLORS, strict=True):
        axes.plot(table.index, table[label] - table["PBM"], "o-", ms=4, color=color, label=label)
    axes.set_xticks(table.index)
    axes.set(xlabel="position", title=name)
    axes.spines[["top", "right"]].set_visible(False)
panels[0, 0].set_ylabel("held-out perplexity minus that of PBM")
panels[0, -1].legend(frameon=False, ncols=2)
plt.show()
