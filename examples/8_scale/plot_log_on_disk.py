"""
A log larger than memory
========================

**Claim.** :class:`~skultr.ClickDataset` keeps a click log on disk. A ranker that is trained from
it gives the same scores as one trained from a frame, to the last bit, and needs a seventh of the
memory.

**Limit.** What grows with the log is small, but not nothing: some numbers per list, and the parts
of the files that were read. Rankers that estimate examination also hold up to two million rows in
memory, which is 400 MiB for :class:`~skultr.DLARanker`. Making the dataset takes time and memory
as well (:ref:`one_machine` has figures), and some estimators bring all rows into memory
(:ref:`dataset` names them). If your log fits into memory twice and you fit once, a frame is
simpler.
"""

# %%
# Logs of growing size, in Parquet
# --------------------------------
#
# Documents have 40 features. Lists of ten are shown in random order, so that hardly two lists are
# equal and nothing can be merged. The features of the documents have a file of their own.
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from skultr import ClickDataset
from skultr.datasets import make_ltr
from skultr.simulation import UniformPolicy, simulate_clicks

SIZES, N_FEATURES = [100_000, 400_000, 1_500_000, 4_000_000], 40
temporary = tempfile.TemporaryDirectory()
folder = Path(temporary.name)
documents = make_ltr(n_queries=500, n_documents=20, n_features=N_FEATURES, random_state=0)
log, clicks, _ = simulate_clicks(
    documents,
    n_sessions=SIZES[-1] // 10,
    policy=UniformPolicy(),
    features=False,
    random_state=0,
)
log = log[["qid", "session", "doc", "position"]].assign(click=clicks.astype(np.int8))
features = documents.filter(like="feature").astype(np.float32)
documents[["qid", "doc"]].join(features).to_parquet(folder / "documents.parquet")
for size in SIZES:
    log.head(size).to_parquet(folder / f"{size}.parquet")
del log, clicks

# %%
# The log on disk
# ---------------
#
# Making a dataset reads the files once, checks the rows, and merges equal lists. Every later fit
# opens the folder.
for size in SIZES:
    dataset = ClickDataset.from_parquet(
        folder / f"{size}.parquet", folder / "documents.parquet", path=folder / f"{size}"
    )
print(dataset)

# %%
# The same ranker, from a frame and from a dataset
# ------------------------------------------------
#
# Each way has a process of its own, which fits the smallest log first. After each fit we read the
# largest memory of the process so far, beyond that after imports. Parts of files that are mapped
# into memory count, although the system takes them back when memory is short. We stop the frame
# before the largest log.
MEASURE = """
import json, re, sys
from pathlib import Path

import numpy as np
import pandas as pd
from skultr import ClickDataset
from skultr.rankers import NaiveRanker

way, folder, sizes = sys.argv[1], Path(sys.argv[2]), json.loads(sys.argv[3])
documents = pd.read_parquet(folder / "documents.parquet")
ranker = NaiveRanker(max_epochs=1, batch_size=512, random_state=0)


def fit_frame(size):
    log = pd.read_parquet(folder / f"{size}.parquet").merge(documents, on=["qid", "doc"])
    return ranker.fit(log, "click")


def fit_dataset(size):
    return ranker.fit(ClickDataset(folder / f"{size}"))


def peak():  # MiB
    try:
        status = Path("/proc/self/status").read_text()
        return int(re.search(r"VmHWM:\\s*(\\d+)", status).group(1)) / 2**10
    except OSError:  # not Linux
        import resource

        unit = 1 if sys.platform == "darwin" else 2**10
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 2**20


fit = {"frame": fit_frame, "dataset": fit_dataset}[way]
start, peaks = peak(), []
for size in sizes:
    scores = fit(size).predict(documents)
    peaks.append(peak() - start)
    np.save(folder / f"{way}-{size}.npy", scores)
print(json.dumps(peaks))
"""
sizes = {"frame": SIZES[:-1], "dataset": SIZES}
runs = {
    way: subprocess.Popen(
        [sys.executable, "-c", MEASURE, way, str(folder), json.dumps(of_way)],
        stdout=subprocess.PIPE,
    )
    for way, of_way in sizes.items()
}
peaks = {way: json.loads(run.communicate()[0]) for way, run in runs.items()}
for way, of_way in peaks.items():
    print(way, "MiB:", [round(each) for each in of_way])

# %%
# The figure
# ----------
#
# The grey line is a copy of the features of all rows as float32, the least that a frame needs.


def draw(x, y, label, **style):
    """A line with its name at the end."""
    (line,) = ax.plot(x, y, **style)
    place = {"xytext": (10, 0), "textcoords": "offset points", "va": "center"}
    ax.annotate(label, (x[-1], y[-1]), color=line.get_color(), **place)


fig, ax = plt.subplots(figsize=(7.5, 4.4), layout="constrained")
for way, color in {"frame": "tab:orange", "dataset": "tab:blue"}.items():
    label = f"fit({way})\n{peaks[way][-1]:,.0f} MiB"
    draw(sizes[way], peaks[way], label, color=color, marker="o", linewidth=2)
copy = [size * N_FEATURES * 4 / 2**20 for size in SIZES]
draw(SIZES, copy, "features of\nall rows, once", color="tab:gray", linestyle=":")
ax.set(
    xscale="log",
    yscale="log",
    ylim=(10, 2000),
    xlabel="impressions in the log",
    ylabel="peak memory beyond imports [MiB]",
    title="The same scores, in a fraction of the memory",
)
ax.set_xticks(SIZES, ["100,000", "400,000", "1.5 million", "4 million"])
ax.set_yticks([10, 30, 100, 300, 1000], ["10", "30", "100", "300", "1,000"])
ax.minorticks_off()
ax.grid(alpha=0.3)
ax.spines[["top", "right"]].set_visible(False)
plt.show()

# %%
# The workers of a search open the path as well, so that none of them holds a copy of the log. The
# page :ref:`one_machine` has figures of 100 million impressions.

# %%
# The claim, checked
# ------------------
#
# The scores are equal to the last bit, and the largest log that both took needs about a seventh.
for size in sizes["frame"]:
    by_way = [np.load(folder / f"{way}-{size}.npy") for way in peaks]
    assert np.array_equal(*by_way)
assert peaks["dataset"][2] < peaks["frame"][2] / 4
assert peaks["dataset"][2] - peaks["dataset"][0] < (peaks["frame"][2] - peaks["frame"][0]) / 4
temporary.cleanup()
