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
# 2014 Session Track, in the folder named by the environment variable ``SKULTR_DATA``. Their
# licences do not let us pass them on: where the folder is absent, the figure shows the numbers
# that this script found in them. A simulated log, with its truth, is measured in any case.
import io
import os
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from skultr.datasets import make_ltr
from skultr.propensity import InterventionHarvesting, RegressionEMPropensity
from skultr.simulation import PlackettLucePolicy, simulate_clicks

FILES = {
    "Yandex": "yandex_wscd_clicks.parquet",
    "Sogou": "sogou_deepclick_clicks.parquet",
    "TREC 2014": "trec2014_session_clicks.parquet",
}
COLUMNS = ["session", "qid", "doc", "position", "click"]
#: Examination relative to position 1, and 95 % intervals.
MEASURED = """\
log,position,harvesting,lower,upper,regression-EM,lower,upper
Yandex,1,1.00,1.00,1.00,1.00,1.00,1.00
Yandex,2,0.73,0.66,0.80,0.74,0.70,0.77
Yandex,3,0.60,0.55,0.66,0.61,0.58,0.64
Yandex,4,0.49,0.45,0.54,0.51,0.48,0.54
Yandex,5,0.37,0.33,0.41,0.38,0.36,0.41
Yandex,6,0.33,0.28,0.37,0.34,0.32,0.36
Yandex,7,0.30,0.27,0.34,0.32,0.29,0.34
Yandex,8,0.24,0.21,0.27,0.26,0.24,0.28
Yandex,9,0.25,0.22,0.28,0.27,0.25,0.29
Yandex,10,0.24,0.20,0.28,0.25,0.23,0.27
Sogou,1,1.00,1.00,1.00,1.00,1.00,1.00
Sogou,2,1.29,0.70,2.38,1.15,0.96,1.37
Sogou,3,1.07,0.49,2.35,0.96,0.78,1.17
Sogou,4,0.79,0.34,1.82,0.72,0.58,0.90
Sogou,5,0.56,0.28,1.12,0.54,0.42,0.68
Sogou,6,0.46,0.23,0.94,0.45,0.35,0.58
Sogou,7,0.36,0.16,0.78,0.35,0.26,0.46
Sogou,8,0.37,0.16,0.86,0.35,0.27,0.47
Sogou,9,0.29,0.14,0.61,0.29,0.22,0.40
Sogou,10,0.29,0.15,0.59,0.29,0.21,0.40
TREC 2014,1,1.00,1.00,1.00,1.00,1.00,1.00
TREC 2014,2,0.48,0.19,1.20,0.51,0.17,1.57
TREC 2014,3,0.30,0.06,1.49,0.29,0.07,1.23
TREC 2014,4,0.33,0.07,1.61,0.33,0.06,1.84
TREC 2014,5,0.12,0.04,0.34,0.87,0.00,inf
TREC 2014,6,0.20,0.04,0.89,0.21,0.03,1.50
TREC 2014,7,0.32,0.09,1.12,0.31,0.01,8.75
TREC 2014,8,0.09,0.02,0.42,0.78,0.00,inf
TREC 2014,9,0.21,0.05,0.84,0.16,0.02,1.13
TREC 2014,10,0.11,0.01,1.39,0.10,0.01,1.35
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


# %%
# Two estimates each
# ------------------
#
# No features are needed: both read which document was shown where, and what was clicked.
def measure(log):
    """Examination by both estimators, with intervals, one row per position."""
    X, clicks = log.drop(columns="click"), log["click"].astype(float)
    estimators = {
        "harvesting": InterventionHarvesting(random_state=0),
        "regression-EM": RegressionEMPropensity(relevance="embedding"),
    }
    ends = ["examination", "lower", "upper"]
    tables = [estimator.fit(X, clicks).examination_[ends] for estimator in estimators.values()]
    return pd.concat(tables, axis=1, keys=estimators).rename_axis("position")


def read_measured():
    """The numbers of the real logs, by log."""
    table = pd.read_csv(io.StringIO(MEASURED), index_col=["log", "position"])
    ends = ["examination", "lower", "upper"]
    table.columns = pd.MultiIndex.from_product([["harvesting", "regression-EM"], ends])
    return {name: table.loc[name] for name in FILES}


X, clicks, truth = simulate_clicks(
    make_ltr(n_queries=100, n_documents=15, n_features=10, random_state=0),
    n_sessions=15_000,
    policy=PlackettLucePolicy(temperature=0.1),
    query_weights=1 / np.arange(1, 101),
    features=False,
    random_state=0,
)
found = read_measured()
for name, log in read_logs().items():
    assert np.allclose(measure(log), found[name], rtol=0.02, atol=0.02)
found["simulated"] = measure(X.assign(click=clicks)[COLUMNS])
for name, table in found.items():
    print(f"--- {name}\n{table.round(2).to_string()}\n")

# %%
# The figure
# ----------
#
# Bars are 95 % intervals. They are cut at the top of the panel where a log says nothing.
STYLES = {"harvesting": (-0.12, "o", "#7251b5"), "regression-EM": (0.12, "s", "#bc6c25")}
figure, panels = plt.subplots(1, 4, figsize=(13, 4.2), sharey=True, layout="constrained")
for axes, (name, table) in zip(panels, found.items(), strict=True):
    for label, (shift, marker, color) in STYLES.items():
        curve = table[label]
        value = curve["examination"]
        errors = [value - curve["lower"], curve["upper"].clip(upper=9) - value]
        style = {"fmt": marker, "markersize": 4, "color": color, "label": label}
        axes.errorbar(table.index + shift, value, errors, **style)
    axes.set_title(name)
    axes.set_xlabel("position")
    axes.set_xticks(range(1, 11))
    axes.spines[["top", "right"]].set_visible(False)
panels[3].plot(range(1, 11), truth.examination / truth.examination[0], "k--", label="truth")
panels[0].set_ylim(0, 1.5)
panels[0].set_ylabel("examination relative to position 1")
panels[3].legend(frameon=False)
plt.show()

# %%
# The claim, checked
# ------------------
#
# The intervals of both estimators overlap everywhere, and what they can say differs from log to
# log.
width = {}
for name, table in found.items():
    harvesting, em = table["harvesting"], table["regression-EM"]
    assert (harvesting["lower"] <= em["upper"]).all()
    assert (em["lower"] <= harvesting["upper"]).all()
    width[name] = (harvesting["upper"] - harvesting["lower"]).iloc[1:].median()
assert width["Yandex"] < 0.12 < 0.5 < width["Sogou"] < width["TREC 2014"]
