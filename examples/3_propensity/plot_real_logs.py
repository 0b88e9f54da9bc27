"""
Examination on the logs of real search engines
==============================================

**Claim.** Two estimators, one comparing documents with themselves at other positions and one
explaining every click, give nearly the same curve on each of three public logs. The intervals show
the precision: Yandex determines its curve within a few hundredths, Sogou only its shape, and TREC
hardly anything, although all three have thousands of result pages.

**Limit.** Nobody knows the truth of these logs; agreement of two methods that both assume
position-based users is no proof. The log of Sogou has only sessions with a click, which lifts the
lower positions. Intervals cover noise, not errors of the model: users who stop reading once
satisfied make lower positions look less examined than they were.
"""

# %%
# The logs
# --------
#
# Yandex (relevance prediction challenge, sessions of 20 frequent queries), Sogou, and the TREC
# 2014 Session Track, in the folder named by the environment variable ``SKULTR_DATA``. Where it is
# absent, as on the machine that built these pages, a simulated log replaces them, with its truth.
import os
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from skultr.datasets import make_ltr
from skultr.plotting import ExaminationDisplay
from skultr.propensity import InterventionHarvesting, RegressionEMPropensity
from skultr.simulation import PlackettLucePolicy, simulate_clicks

FILES = {
    "Yandex": "yandex_wscd_clicks.parquet",
    "Sogou": "sogou_deepclick_clicks.parquet",
    "TREC 2014": "trec2014_session_clicks.parquet",
}
COLUMNS = ["session", "qid", "doc", "position", "click"]


def read_logs():
    """Logs by name, each with the truth if it is known."""
    folder = Path(os.environ.get("SKULTR_DATA", "no such folder"))
    paths = {name: folder / file for name, file in FILES.items()}
    logs = {
        name: (pd.read_parquet(path, columns=COLUMNS), None)
        for name, path in paths.items()
        if path.exists()
    }
    if not logs:
        X, clicks, truth = simulate_clicks(
            make_ltr(n_queries=100, n_documents=15, n_features=10, random_state=0),
            n_sessions=15_000,
            policy=PlackettLucePolicy(temperature=0.1),
            query_weights=1 / np.arange(1, 101),
            features=False,
            random_state=0,
        )
        made = X.assign(click=clicks)[COLUMNS]
        logs["SKULTR_DATA is not set: a simulated stand-in"] = made, truth.examination
    return logs


# %%
# Two estimates each
# ------------------
#
# No features are needed: both read which document was shown where, and what was clicked.
logs, fitted = read_logs(), {}
for name, (log, _) in logs.items():
    X, clicks = log.drop(columns="click"), log["click"].astype(float)
    fitted[name] = {
        "harvesting": InterventionHarvesting(random_state=0),
        "regression-EM": RegressionEMPropensity(relevance="embedding"),
    }
    for estimator in fitted[name].values():
        estimator.fit(X, clicks)

# %%
# The figure
# ----------
figure, panels = plt.subplots(
    1,
    len(logs),
    figsize=(4 * max(len(logs), 1.6), 4.6),
    sharey=True,
    squeeze=False,
    layout="constrained",
)
handles = {}
for axes, (name, (log, truth)) in zip(panels[0], logs.items(), strict=True):
    ExaminationDisplay.from_estimators(fitted[name], truth=truth, ax=axes)
    rate = log.groupby("position")["click"].mean()
    axes.plot(rate / rate[1], ":", color="#9aa0a6", label="click rate")
    pages = log[["session", "qid"]].drop_duplicates()
    axes.set_title(f"{name}\n{len(pages):,} result pages", fontsize=11)
    axes.get_legend().remove()
    found, labels = axes.get_legend_handles_labels()
    handles |= dict(zip(labels, found, strict=True))
for axes in panels[0, 1:]:
    axes.set_ylabel("")
panels[0, 0].set_ylim(0, 1.5)
figure.legend(handles.values(), handles, loc="outside lower center", ncols=5, frameon=False)
plt.show()

# %%
# In numbers
# ----------
#
# ``component`` is the same for positions that documents link.
for name, estimators in fitted.items():
    tables = {
        label: estimator.examination_[["examination", "lower", "upper"]]
        for label, estimator in estimators.items()
    }
    print(f"--- {name}\n{pd.concat(tables, axis=1).round(2).to_string()}\n")
