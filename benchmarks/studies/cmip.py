"""CMIP against known answers: error by dependence and size, time, and the test's level.

``python -m benchmarks.studies.cmip [PART ...]``, of answers, coverage, small, ties, times and
level; all by default.

Documents have five grades of unequal size; within each, score and logged position are normal with
correlation rho, whose information is -log(1 - rho^2) / 2. Of 200 documents (and now and then of
500) the smallest grades have fewer than 20. For comparison, a published
implementation (LightGBM as it comes, one split for all repetitions, odds clipped at 1e-8) gave at
5,000 / 50,000 documents -.274 / -.026 for 0, and .172 / .459 for .511 (rho = .8).
"""

import sys
import time
import warnings

import numpy as np
import pandas as pd
from scipy.stats import kstest

from skultr.metrics import cmip_score

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


def answers(n_seeds=12):
    """Mean error ± spread of single values, over seeds, one repetition each."""
    rows = []
    for n in (200, 500, 2_000, 5_000, 20_000):
        for rho in (0.0, 0.3, 0.6, 0.8, 0.9):
            row = {"documents": n, "rho": rho, "truth": round(truth(rho), 3)}
            for estimator in (*ESTIMATORS, "published"):
                row[estimator] = errors(
                    lambda seed, n=n, rho=rho: normal_documents(n, rho, seed),
                    truth(rho),
                    estimator,
                    n_seeds,
                )
            rows.append(row)
    print(pd.DataFrame(rows).to_string(index=False), flush=True)


def of_correlations(*rhos):
    """Documents with one correlation per grade, grades of equal share."""

    def documents(n, seed):
        rng = np.random.default_rng(seed)
        grade = rng.integers(0, len(rhos), n)
        rho = np.array(rhos)[grade]
        x, noise = rng.normal(size=(2, n))
        return x, rho * x + np.sqrt(1 - rho**2) * noise, grade

    return documents, np.mean([truth(rho) for rho in rhos])


def parabola(n, seed):
    rng = np.random.default_rng(seed)
    x, noise = rng.normal(size=(2, n))
    return x, x**2 + 0.5 * noise, rng.integers(0, 3, n)


def coverage(n_seeds=100):
    """Error, spread, standard error, and how often 1.96 of them hold the truth."""
    worlds = {
        "independent": of_correlations(0, 0, 0),
        "0, .3, .6, .9": of_correlations(0, 0.3, 0.6, 0.9),
        "+.8, -.8": of_correlations(0.8, -0.8),
        ".6 in five grades": of_correlations(*[0.6] * 5),
        "five unequal grades, .3": (lambda n, seed: normal_documents(n, 0.3, seed), truth(0.3)),
        "five unequal grades, .9": (lambda n, seed: normal_documents(n, 0.9, seed), truth(0.9)),
        "parabola": (parabola, 0.801),  # by neighbours, 200,000 documents
    }
    for world, (documents, expected) in worlds.items():
        for n in (500, 2_000):
            for estimator in ESTIMATORS:
                results = [
                    cmip_score(
                        *documents(n, seed),
                        estimator=estimator,
                        n_repeats=3,
                        n_permutations=1,
                        random_state=seed,
                        return_result=True,
                    )
                    for seed in range(n_seeds)
                ]
                error = np.array([result.value for result in results]) - expected
                reported = np.array([result.standard_error for result in results])
                print(
                    f"coverage, {world}, {n} documents, {estimator}: {error.mean():+.4f} ± "
                    f"{error.std():.4f} of {expected:.3f}, standard error {reported.mean():.4f}, "
                    f"{np.mean(abs(error) <= 1.96 * reported):.2f} of intervals",
                    flush=True,
                )


def small(n_seeds=30):
    """Grades of fewer than 20 documents, in which model and logger both rank by grade."""
    for sizes in ([15] * 5, [5] * 5, [5] * 40, [2] * 100, [100, 50, 30, 14, 6]):
        for rho in (0.0, 0.6, 0.9):

            def documents(seed, sizes=sizes, rho=rho):
                rng = np.random.default_rng(seed)
                grade = np.repeat(np.arange(len(sizes)), sizes)
                x, noise = rng.normal(size=(2, len(grade)))
                return x + grade, rho * x + np.sqrt(1 - rho**2) * noise - 2 * grade, grade

            found = errors(documents, truth(rho), "knn", n_seeds)
            name = f"{len(sizes)} grades of {min(sizes)} to {max(sizes)}"
            print(f"small, {name}, truth {truth(rho):.3f}: {found}", flush=True)


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


def level(n_seeds=400):
    """Distribution of the p-value under independence, and its power; grades differ in both."""
    for n_grades, n_a_grade in ((5, 15), (5, 5), (3, 25), (3, 200)):
        for rho in (0.0, 0.1, 0.3, 0.8):
            p_values = []
            for seed in range(n_seeds):
                rng = np.random.default_rng(seed)
                grade = np.repeat(np.arange(n_grades), n_a_grade)
                x, noise = rng.normal(size=(2, len(grade)))
                y = rho * x + np.sqrt(1 - rho**2) * noise
                result = cmip_score(
                    grade + 0.5 * x,
                    0.5 * y - grade,
                    grade,
                    estimator="knn",
                    n_repeats=1,
                    random_state=seed,
                    return_result=True,
                )
                p_values.append(result.p_value)
            uniform = kstest(p_values, "uniform").pvalue
            below = np.mean(np.array(p_values) <= 0.05)
            print(
                f"level, {n_grades} grades of {n_a_grade}, rho {rho}: {below:.3f} at or below "
                f".05; Kolmogorov-Smirnov p {uniform:.3f}",
                flush=True,
            )


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    parts = {part.__name__: part for part in (answers, coverage, small, ties, times, level)}
    for name in sys.argv[1:] or parts:
        parts[name]()
