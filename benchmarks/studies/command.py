"""Does ``python -m skultr ubi`` advise to upload a model that is worse than the order served?

By hand: ``python -m benchmarks.studies.command [--seeds 3] [--sessions 2000 20000]``.

Shops of ``examples/7_engines/simulated_shop.py``: production trained on the annotation of 1 % or
10 % of the queries, or of all, and models that get all 16 features, 4 or 1 of them. The command
decides by held-out clicks; the truth is nDCG@10 of the model and of production on 80 queries that
are not in the log. 2 minutes of one core with 3 seeds.
"""

import argparse
import contextlib
import io
import itertools
import sys
import tempfile
import warnings
from pathlib import Path

from skultr.command._run import main as command
from skultr.metrics import ndcg_score
from skultr.serving import load_model

sys.path.insert(0, str(Path(__file__).parents[2] / "examples" / "7_engines"))
from simulated_shop import FEATURES, open_shop, serve, write_ndjson


def measure(seed, production, n_features, n_sessions):
    """Whether the command prefers the model, and by how much it is better in truth."""
    shop = open_shop(300, production=production, random_state=seed)
    words, names = shop["qid"].unique(), FEATURES[:n_features]
    new = shop[shop["qid"].isin(words[220:])]
    logged = shop[shop["qid"].isin(words[:220])]
    with tempfile.TemporaryDirectory() as folder:
        here = Path(folder)
        visits = serve(logged, n_sessions, temperature=0.2, random_state=seed)
        write_ndjson(visits, here / "ubi.ndjson")
        table = shop[["qid", "doc", *names]].rename(columns={"qid": "query"})
        table.to_parquet(here / "features.parquet")
        given = [
            "ubi",
            here / "ubi.ndjson",
            "--out",
            here,
            "--features",
            here / "features.parquet",
        ]
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            assert command([str(each) for each in given]) == 0
        scores = load_model(here / "model.zip").predict(new[["qid", "doc", *names]])
        report = (here / "report.html").read_text(encoding="utf-8")
    model, served = (
        ndcg_score(new["relevance"], by, qid=new["qid"], k=10)
        for by in (scores, new["production"])
    )
    return "prefer the model to the order served: upload" in report, model - served


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--sessions", type=int, nargs="+", default=[2_000, 20_000])
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    found = []
    for cell in itertools.product((0.01, 0.1, 1.0), (16, 4, 1), given.sessions):
        logs = [measure(seed, *cell) for seed in range(given.seeds)]
        found += logs
        text = "  ".join(f"{'upload' if up else 'keep':6} {gain:+.3f}" for up, gain in logs)
        print(
            f"production {cell[0]:<5} features {cell[1]:<3} sessions {cell[2]:<6} {text}",
            flush=True,
        )
    for is_better in (True, False):
        advice = [up for up, gain in found if (gain > 0) == is_better]
        print(
            f"model {'better' if is_better else 'worse'}: {sum(advice)} of {len(advice)} uploads"
        )


if __name__ == "__main__":
    main()
