"""Does ``python -m skultr ubi`` advise to upload a model that is worse than the order served?

Shops of ``examples/7_engines/simulated_shop.py``: production trained on the annotation of 1 % or
10 % of the queries, or of all, and models that get all 16 features, 4 or 1 of them. The command
decides by held-out clicks; the truth is nDCG@10 of the model and of production on 80 queries that
are not in the log.
"""

import contextlib
import io
import sys
import tempfile
from pathlib import Path

from skultr.command._run import main as command
from skultr.metrics import ndcg_score
from skultr.serving import load_model

from .._study import Page, measured

sys.path.insert(0, str(Path(__file__).parents[2] / "examples" / "7_engines"))
from simulated_shop import FEATURES, open_shop, serve, write_ndjson


def uploads(cell, settings, seed):
    """Whether the command prefers the model, and by how much it is better in truth."""
    shop = open_shop(300, production=cell["production"], random_state=seed)
    words, names = shop["qid"].unique(), FEATURES[: cell["features"]]
    new = shop[shop["qid"].isin(words[220:])]
    logged = shop[shop["qid"].isin(words[:220])]
    with tempfile.TemporaryDirectory() as folder:
        here = Path(folder)
        visits = serve(logged, cell["sessions"], temperature=0.2, random_state=seed)
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
    advised = "prefer the model to the order served: upload" in report
    better = model > served
    return [
        {
            "gain": model - served,
            "uploads": float(advised),
            "uploads of better": float(advised) if better else None,
            "uploads of worse": None if better else float(advised),
        }
    ]


PAGE = Page(
    "studies/command",
    "Does the command advise to upload what is worse?",
    (
        measured(
            uploads,
            "Gain of the model, and the share of uploads",
            ("gain", "uploads", "uploads of better", "uploads of worse"),
            over={
                "production": (0.01, 0.1, 1.0),
                "features": (16, 4, 1),
                "sessions": (2_000, 20_000),
            },
            runs=3,
        ),
    ),
)
