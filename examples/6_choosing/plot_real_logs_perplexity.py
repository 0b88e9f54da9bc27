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
the last rows of a page without one *must* have it. Nothing was tuned.
"""

# %%
# The logs
# --------
#
# Yandex (relevance prediction challenge, sessions of 20 frequent queries; 12,000 of its 35,000
# sessions, which keeps this page quick) and Sogou, in the folder named by the environment variable
# ``SKULTR_DATA``. Their licences do not let us pass them on: where the folder is absent, the
# figure shows the numbers that this script found in them. A simulated log of users of the dynamic
# Bayesian network (DBN) is measured in any case. A fifth of the sessions is held out.
import io
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
#: Held-out perplexity by position.
MEASURED = """\
log,model,1,2,3,4,5,6,7,8,9,10
Yandex,DCTR,1.621,1.687,1.533,1.500,1.397,1.300,1.282,1.221,1.232,1.198
Yandex,RDCTR,1.614,1.680,1.528,1.501,1.396,1.308,1.284,1.224,1.235,1.196
Yandex,PBM,1.612,1.679,1.527,1.497,1.391,1.300,1.281,1.222,1.231,1.191
Yandex,UBM,1.613,1.672,1.511,1.485,1.373,1.269,1.235,1.178,1.184,1.150
Yandex,DBN,1.612,1.685,1.517,1.481,1.373,1.268,1.242,1.180,1.189,1.151
Yandex,NCM,1.614,1.667,1.512,1.499,1.370,1.256,1.238,1.185,1.192,1.162
Yandex,CACM,1.619,1.675,1.512,1.489,1.377,1.257,1.240,1.187,1.188,1.159
Sogou,DCTR,1.779,2.011,2.001,1.811,1.673,1.522,1.464,1.442,1.339,1.393
Sogou,RDCTR,1.679,1.917,1.936,1.782,1.648,1.505,1.436,1.409,1.301,1.347
Sogou,PBM,1.723,1.923,1.942,1.791,1.649,1.507,1.436,1.410,1.300,1.350
Sogou,UBM,1.705,1.921,1.933,1.763,1.622,1.479,1.413,1.375,1.278,1.315
Sogou,DBN,1.711,1.951,1.940,1.766,1.649,1.505,1.436,1.391,1.307,1.328
Sogou,NCM,1.920,1.983,1.972,1.855,1.704,1.548,1.452,1.421,1.316,1.352
Sogou,CACM,1.887,1.990,2.032,1.865,1.708,1.518,1.441,1.415,1.294,1.358
"""


def read_logs():
    """Real logs by name, as far as the folder has them."""
    folder = Path(os.environ.get("SKULTR_DATA", "no such folder"))
    paths = {name: folder / file for name, file in FILES.items()}
    return {
        name: pd.read_parquet(path, columns=COLUMNS)
        for name, path in paths.items()
        if path.exists()
    }


def simulated_log():
    X, clicks, _ = simulate_clicks(
        make_ltr(n_queries=50, n_documents=15, n_features=5, random_state=0),
        n_sessions=8_000,
        policy=PlackettLucePolicy(temperature=0.3),
        user=DBNUser(),
        features=False,
        random_state=0,
    )
    return X.assign(click=clicks)[COLUMNS]


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


def measure(log):
    """Perplexity on held-out sessions, one row per model and one column per position."""
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
    return pd.DataFrame(by_rank).T


measured = pd.read_csv(io.StringIO(MEASURED), index_col=["log", "model"]).rename(columns=int)
found = {name: measured.loc[name] for name in FILES}
for name, log in read_logs().items():
    assert np.allclose(measure(log), found[name], atol=0.01)
found["simulated (DBN)"] = measure(simulated_log())
for name, table in found.items():
    print(f"{name}\n{table.assign(mean=table.mean(axis=1)).round(3).to_string()}")

# %%
# The figure
# ----------
#
# Against the position-based model, position by position: below 0 a model predicts better.
LINES = ["s:", "D:", "k-", "o-", "^-", "v--", "P--"]
STYLES = dict(zip(measured.loc["Yandex"].index, LINES, strict=True))
figure, panels = plt.subplots(1, 3, figsize=(13, 4.4), layout="constrained")
for axes, (name, table) in zip(panels, found.items(), strict=True):
    for label, style in STYLES.items():
        axes.plot(table.columns, table.loc[label] - table.loc["PBM"], style, ms=4, label=label)
    axes.set_xticks(table.columns)
    axes.set(xlabel="position", title=name)
    axes.spines[["top", "right"]].set_visible(False)
panels[0].set_ylabel("held-out perplexity minus that of PBM")
panels[1].legend(frameon=False, ncols=2)
plt.show()

# %%
# The claim, checked
# ------------------
#
# UBM is best on both engines' logs. On Yandex what reads the clicks above is ahead of what does
# not; on Sogou the networks are not ahead of DCTR; and the simulated users' own model wins there.
mean = {name: table.mean(axis=1) for name, table in found.items()}
assert mean["Yandex"].idxmin() == mean["Sogou"].idxmin() == "UBM"
reads_above = ["UBM", "DBN", "NCM", "CACM"]
assert mean["Yandex"][reads_above].max() < mean["Yandex"].drop(reads_above).min()
assert mean["Sogou"][["NCM", "CACM"]].min() > mean["Sogou"]["DCTR"]
assert mean["simulated (DBN)"].idxmin() == "DBN"
