"""CMIP against known answers: error by dependence and size, time, and the test's level.

``python tests/benchmarks/bench_cmip.py [answers] [ties] [clips] [times] [level]``; all by default.

Documents have five grades of unequal size; within each, score and logged position are normal with
correlation rho, whose information is -log(1 - rho^2) / 2. Of 200 documents (and now and then of
500) the smallest grades are merged. For comparison, a published
implementation (LightGBM as it comes, one split for all repetitions, odds clipped at 1e-8) gave at
5,000 / 50,000 documents -.274 / -.026 for 0, and .172 / .459 for .511 (rho = .8).
"""

import sys
import time
import warnings

import numpy as np
import pandas as pd
from scipy.stats import kstest

from skultr.metrics import _information, cmip_score

SHARES = [0.5, 0.2, 0.15, 0.1, 0.05]
ESTIMATORS = ("knn", "classifier")


def normal_documents(n, rho, seed):
    rng = np.random.default_rng(seed)
    grade = rng.choice(len(SHARES), n, p=SHARES)
    x, noise = rng.normal(size=(2, n))
    return x + grade, rho * x + np.sqrt(1 - rho**2) * noise - 2 * grade, grade


def truth(rho):
    return -0.5 * np.log(1 - rho**2)


def errors(documents, expected, estimator, n_seeds):
    values = [
        cmip_score(*documents(seed), estimator=estimator, n_repeats=1, random_state=seed)
        for seed in range(n_seeds)
    ]
    return f"{np.mean(values) - expected:+.3f} ± {np.std(values):.3f}"


def answers(n_seeds=4):
    """Mean error ± spread of single values, over seeds, one repetition each."""
    rows = []
    for n in (200, 500, 2_000, 5_000, 20_000, 50_000):
        for rho in (0.0, 0.3, 0.6, 0.8, 0.9):
            row = {"documents": n, "rho": rho, "truth": round(truth(rho), 3)}
            for estimator in ESTIMATORS:
                row[estimator] = errors(
                    lambda seed, n=n, rho=rho: normal_documents(n, rho, seed),
                    truth(rho),
                    estimator,
                    n_seeds,
                )
            rows.append(row)
    print(pd.DataFrame(rows).to_string(index=False), flush=True)


def ties(n_seeds=4):
    """Scores of two values, positions of five: the information of their table."""
    table = np.array([[0.18, 0.14, 0.10, 0.06, 0.02], [0.02, 0.06, 0.10, 0.14, 0.18]])
    independent = table.sum(axis=1, keepdims=True) * table.sum(axis=0)
    expected = (table * np.log(table / independent)).sum()

    def documents(seed, n):
        rng = np.random.default_rng(seed)
        cell = rng.choice(10, n, p=table.ravel())
        return cell // 5, cell % 5, rng.integers(0, 3, n)

    for n in (500, 5_000, 50_000):
        found = {
            estimator: errors(lambda seed, n=n: documents(seed, n), expected, estimator, n_seeds)
            for estimator in ESTIMATORS
        }
        print(f"ties, {n} documents, truth {expected:.3f}: {found}", flush=True)


def clips(n_seeds=4):
    """Where the odds of the classifier are cut off."""
    for n in (5_000, 20_000):
        for rho in (0.0, 0.6, 0.9, 0.97):
            found = {}
            for clip in (0.01, 0.001, 1e-8):
                _information._LARGEST_LOG_ODDS = np.log(1 / clip - 1)
                found[clip] = errors(
                    lambda seed, n=n, rho=rho: normal_documents(n, rho, seed),
                    truth(rho),
                    "classifier",
                    n_seeds,
                )
            print(f"clips, {n} documents, truth {truth(rho):.3f}: {found}", flush=True)
    _information._LARGEST_LOG_ODDS = np.log(1 / 0.01 - 1)


def times():
    """One call with its test, as it comes; process time beside wall time."""
    for n in (5_000, 20_000, 50_000):
        for estimator in ESTIMATORS:
            for rho in (0.0, 0.9):
                documents = normal_documents(n, rho, 0)
                wall, cpu = time.perf_counter(), time.process_time()
                result = cmip_score(
                    *documents, estimator=estimator, random_state=0, return_result=True
                )
                wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
                print(
                    f"times, {n} documents, rho {rho}, {estimator}: {wall:.1f} s wall, "
                    f"{cpu:.1f} s CPU; error {result.value - truth(rho):+.3f}, standard error "
                    f"{result.standard_error:.3f}",
                    flush=True,
                )


def level(n_seeds=200):
    """Distribution of the p-value under independence, and its power."""
    for n in (600, 2_000):  # no grade so small that it is merged
        for rho in (0.0, 0.1, 0.3):
            p_values = [
                cmip_score(
                    *normal_documents(n, rho, seed),
                    estimator="knn",
                    random_state=seed,
                    return_result=True,
                ).p_value
                for seed in range(n_seeds)
            ]
            uniform = kstest(p_values, "uniform").pvalue
            below = np.mean(np.array(p_values) <= 0.05)
            print(
                f"level, {n} documents, rho {rho}: {below:.3f} at or below .05; "
                f"Kolmogorov-Smirnov p {uniform:.3f}",
                flush=True,
            )


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    parts = {"answers": answers, "ties": ties, "clips": clips, "times": times, "level": level}
    for name in sys.argv[1:] or parts:
        parts[name]()
