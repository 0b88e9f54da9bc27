"""What an installation can do without the checkout: ``python -W error installed.py EXTRA``."""

import importlib
import json
import pickle
import pkgutil
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import warnings

import skultr

assert "torch" not in sys.modules, "import skultr must not import torch"
below = (each.name for each in pkgutil.walk_packages(skultr.__path__, "skultr."))
for module in ("skultr", *(name for name in below if "._" not in name)):
    home = importlib.import_module(module)
    for name in getattr(home, "__all__", ()):
        getattr(home, name)

from skultr.datasets import make_ltr  # noqa: E402
from skultr.simulation import PlackettLucePolicy, simulate_clicks  # noqa: E402

extra = sys.argv[1]
# Few clicks confirm nothing.
warnings.simplefilter("ignore", skultr.exceptions.ClickDataWarning)
documents = make_ltr(n_queries=50, n_features=20, random_state=0)
log, clicks, _ = simulate_clicks(
    documents, n_sessions=500, policy=PlackettLucePolicy(), random_state=0
)
ranker = skultr.DLARanker(max_epochs=2, random_state=0).fit(log, clicks)
scores = ranker.predict(documents)

# Windows deletes no file that is still mapped into memory.
with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
    if extra in ("serving", "test"):
        from skultr.serving import load_model, save_model

        save_model(ranker, f"{folder}/model.zip")
        loaded = load_model(f"{folder}/model.zip")
    else:
        loaded = pickle.loads(pickle.dumps(ranker))
    assert (loaded.predict(documents) == scores).all()

    log["click"] = clicks
    file = f"{folder}/clicks.parquet"
    log.to_parquet(file)
    skultr.ClickDataset.from_parquet(file, path=f"{folder}/log")
    command = shutil.which("skultr", path=sysconfig.get_path("scripts"))
    # The exit status is the verdict, which may be "with care"; a crash prints no JSON.
    said = subprocess.run([command, "check", file, "--json"], capture_output=True, text=True)
    assert said.stdout, said.stderr
    assert json.loads(said.stdout)["n_rows"] == len(log)

if extra in ("plot", "test"):
    from skultr.plotting import ExaminationDisplay

    ExaminationDisplay.from_estimator(ranker)
