"""Does a change keep what the package computes? ``python .ci/same.py REVISION`` compares.

Fits every public ranker, click model and propensity estimator, and estimates what a ranking is
worth, by the code of the working tree and by that of an earlier revision; then prints how far
predictions and estimates differ, relative to the largest of each. A change that only moves code
has 0. A few minutes on one core.
"""

import os
import pickle
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path

import numpy as np

HERE = Path(__file__).resolve().parents[1]
#: Differences beyond this, relative to the largest value of an array, are named.
NEAR = 1e-9
N_LOGS = 50


def main():
    """Compare the working tree with the revision that was named."""
    revision = sys.argv[1]
    with tempfile.TemporaryDirectory() as folder:
        earlier = Path(folder) / "tree"
        archive = subprocess.run(
            ["git", "archive", revision], cwd=HERE, check=True, capture_output=True
        )
        earlier.mkdir()
        subprocess.run(["tar", "x", "-C", earlier], input=archive.stdout, check=True)
        then = computed_by(earlier, Path(folder) / "then.pkl")
        now = computed_by(HERE, Path(folder) / "now.pkl")
    sys.exit(compare(then, now))


def computed_by(tree, file):
    """What the code in a tree computes, by name; it runs in a process of its own."""
    command = [sys.executable, __file__, "--write", str(file)]
    subprocess.run(command, cwd=tree, env={**os.environ, "PYTHONPATH": str(tree)}, check=True)
    return pickle.loads(file.read_bytes())


def compare(then, now):
    """Print how far two tables of arrays differ; 1 if any pair does beyond ``NEAR``."""
    common = sorted(then.keys() & now.keys())
    far = {name: gap for name in common if (gap := distance(then[name], now[name])) > NEAR}
    print(f"{len(common)} arrays, {len(common) - len(far)} of them equal to {NEAR:g}.")
    for name, gap in sorted(far.items(), key=lambda each: -each[1]):
        print(f"  {name}: differs by {gap:.1e}")
    for title, names in (("then", then.keys() - now.keys()), ("now", now.keys() - then.keys())):
        if names:
            print(f"Only {title}: {', '.join(sorted(names))}")
    return int(bool(far))


def distance(then, now):
    """The largest difference of two arrays, relative to the largest value; or inf."""
    if isinstance(then, str) or isinstance(now, str):  # what was raised
        return 0.0 if then == now else np.inf
    if then.shape != now.shape:
        return np.inf
    if not then.size:
        return 0.0
    if (np.isnan(then) != np.isnan(now)).any():
        return np.inf
    return float(np.nanmax(np.abs(then - now)) / max(np.nanmax(np.abs(then)), 1e-300))


def write(file):
    """Pickle what the package that Python finds first computes."""
    sys.path.insert(0, os.getcwd())  # the tests of the same tree know its estimators
    warnings.simplefilter("ignore")
    found = {**predictions(), **estimates()}
    Path(file).write_bytes(pickle.dumps(found))


def predictions():
    """Scores and examination of each estimator, fitted to several logs."""
    from tests._discovery import public_click_models, public_propensities, public_rankers

    found = {}
    for world, (documents, log, clicks) in worlds().items():
        for estimator in [*public_rankers(), *public_click_models(), *public_propensities()]:
            name = f"{estimator} on {world}".replace("\n", "")
            seed = {"random_state": 0} if "random_state" in estimator.get_params() else {}
            try:
                fitted = estimator.set_params(**seed).fit(log, clicks)
                asked = log if hasattr(fitted, "examination_") else documents
                found[name] = np.asarray(fitted.predict(asked), float)
            except ValueError as error:  # a log that an estimator refuses, with the same reason
                found[name] = type(error).__name__
    return found


def worlds():
    """Documents, log and clicks: one order, shuffles, users who trust, never-shown documents."""
    from skultr.datasets import make_ltr
    from skultr.simulation import (
        PlackettLucePolicy,
        TrustBiasUser,
        UserPopulation,
        simulate_clicks,
    )

    settings = {
        "one order": {},
        "shuffles": {"policy": PlackettLucePolicy(0.5)},
        "trust": {"policy": PlackettLucePolicy(0.5), "user": TrustBiasUser()},
        "never shown": {"policy": PlackettLucePolicy(0.5), "n_positions": 5, "candidates": True},
        "two users": {"policy": PlackettLucePolicy(0.5), "user": UserPopulation([1.0, 2.0])},
    }
    documents = make_ltr(n_queries=40, n_features=5, random_state=0)
    found = {}
    for name, world in settings.items():
        log, clicks, _ = simulate_clicks(documents, n_sessions=2_000, random_state=0, **world)
        found[name] = (documents, log, clicks)
    return found


def estimates():
    """What a ranking is worth, and where users look, from logs that differ in their seed."""
    from skultr.datasets import make_ltr
    from skultr.evaluation import policy_value
    from skultr.propensity import InterventionHarvesting
    from skultr.simulation import PlackettLucePolicy, simulate_clicks

    found = {}
    documents = make_ltr(n_queries=30, n_features=5, random_state=0)
    for seed in range(N_LOGS):
        log, clicks, _ = simulate_clicks(
            documents, n_sessions=1_000, policy=PlackettLucePolicy(0.5), random_state=seed
        )
        curve = InterventionHarvesting().fit(log, clicks)
        values = [
            policy_value(log, clicks, log["feature_000"], **settings)
            for settings in ({}, {"method": "pbm", "propensity": curve})
        ]
        found[f"log {seed}"] = np.r_[
            curve.examination_["examination"],
            [value.value for value in values],
            [value.standard_error for value in values],
        ]
    return found


if __name__ == "__main__":
    if sys.argv[1] == "--write":
        write(sys.argv[2])
    else:
        main()
