"""NCM and CACM: sessions a second, and held-out perplexity in and out of distribution.

``python tests/benchmarks/bench_neural_click_models.py [n_sessions]``

Rankings of a noisy oracle, tested on new sessions and on uniform rankings. Throughput is training
sessions times epochs over CPU seconds, and predicted sessions over CPU seconds; with the machine
to itself that is wall time on one core.
"""

import sys
import time
import warnings

import numpy as np

from skultr.click_models import CACMModel, NCMModel
from skultr.datasets import make_ltr
from skultr.simulation import DBNUser, PositionBasedUser, noisy_oracle_scores, simulate_shift


def perplexity(probability, clicks):
    p = np.clip(probability, 1e-9, 1 - 1e-9)
    loss = -(clicks * np.log2(p) + (1 - clicks) * np.log2(1 - p)).reshape(-1, 10)
    return np.mean(2 ** loss.mean(axis=0))


def timed(function, *args, **params):
    start = time.process_time()
    result = function(*args, **params)
    return result, time.process_time() - start


def main(n_sessions):
    documents = make_ltr(50, 10, random_state=0)
    scores = noisy_oracle_scores(documents, random_state=0)
    for user in (PositionBasedUser(1.0), DBNUser()):
        train, same, shifted = simulate_shift(
            documents, n_sessions=n_sessions, n_test_sessions=2_000, scores=scores, user=user,
            random_state=0,
        )  # fmt: skip
        for model in (NCMModel(random_state=0), CACMModel(random_state=0)):
            _, fit_s = timed(model.fit, train.X, train.clicks)
            _, given_s = timed(model.predict_click, same.X, same.clicks)
            _, before_s = timed(model.predict_click, same.X, conditional=False)
            agree = np.corrcoef(model.predict(documents), train.truth.relevance_probability)[0, 1]
            print(
                f"{type(user).__name__:18} {type(model).__name__:10} {model.n_iter_:3d} epochs, "
                f"train {n_sessions * model.n_iter_ / fit_s:,.0f} sessions/s, "
                f"predict {2_000 / given_s:,.0f} sessions/s given clicks, "
                f"{2_000 / before_s:,.0f} before any; perplexity "
                f"{perplexity(model.predict_click(same.X, same.clicks), same.clicks):.4f} in and "
                f"{perplexity(model.predict_click(shifted.X, shifted.clicks), shifted.clicks):.4f}"
                f" out of distribution, correlation of relevance {agree:.3f}",
                flush=True,
            )


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 20_000)
