"""Clicks predicted better, documents ranked no better: the table of Baidu-ULTR, from its files.

    python -m benchmarks studies/baidu FOLDER                       # all parts, lexical features
    python -m benchmarks studies/baidu FOLDER --embeddings --pages 200000 --out table.csv

Hager, Deffayet, Renders, Zoeter & de Rijke (2024), "Unbiased learning to rank meets reality",
found that corrections for position bias predict clicks better, and rank annotated documents hardly
better. FOLDER holds what they published as ``philipphager/baidu-ultr_uva-mlm-ctr`` on Hugging Face
(CC BY-NC 4.0): ``part-1_split-0.feather``, ... with clicks, and ``validation.feather`` with the
grades of experts. Pages are divided at random: most train, ``--held-out`` of them tell how well
clicks are predicted. By row:

- ``dcg@1`` to ``ndcg@10``: of the annotated queries; ``- naive`` and ``verdict``: nDCG@10 less
  that of the listwise naive ranker, with a paired test over queries;
- ``perplexity``: of clicks on held-out pages, of models that predict clicks (less is better);
- ``click log-likelihood``: of where the clicks of held-out pages fell, given the scores and one
  examination curve for all (more is better).

What differs from their study: networks on the published features, no language model is trained;
a query that several pages show is one query of the log; epochs follow from the log.
"""

import argparse
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
from pyarrow import feather

from skultr import DLARanker
from skultr.datasets import load_baidu_ultr
from skultr.evaluation import compare_rankers
from skultr.metrics import ClickLikelihoodScorer, dcg_score, ndcg_score, perplexity_score
from skultr.propensity import InterventionHarvesting
from skultr.rankers import IPSRanker, LambdaMARTRanker, NaiveRanker, TwoTowerRanker

ANNOTATIONS = "validation.feather"
EMBEDDING = "query_document_embedding"
BASELINE = "naive, listwise"
CUTOFFS = (1, 3, 5, 10)


def rankers(seed):
    """The methods of the table, each with its name there."""
    curve = examination()
    return {
        "naive, pointwise": NaiveRanker(loss="bce", random_state=seed),
        BASELINE: NaiveRanker(random_state=seed),
        "IPS, pointwise": IPSRanker(propensity=curve, loss="bce", random_state=seed),
        "IPS, listwise": IPSRanker(propensity=curve, random_state=seed),
        "two towers": TwoTowerRanker(random_state=seed),
        "DLA": DLARanker(random_state=seed),
        "LambdaMART, naive": LambdaMARTRanker(naive_weight=1.0, random_state=seed),
        "LambdaMART, corrected": LambdaMARTRanker(propensity=curve, random_state=seed),
    }


def examination():
    """The paper's propensities, from all pairs of positions that one document was shown at."""
    return InterventionHarvesting(method="all-pairs")


def read_clicks(folder, embeddings):
    """The pages of all parts in a folder."""
    parts = sorted(str(path) for path in folder.glob("part-*.feather"))
    if not parts:
        raise SystemExit(
            f"There is no part-*.feather in {folder}. Download those of "
            "philipphager/baidu-ultr_uva-mlm-ctr from Hugging Face."
        )
    log = load_baidu_ultr(parts, embeddings=embeddings)
    # The annotated documents have no kind of result, so that it cannot be a feature.
    return _flat(log.drop(columns="media_type"))


def read_annotations(folder, features):
    """Annotated documents with the features that the clicks have."""
    table = feather.read_table(folder / ANNOTATIONS).to_pandas(ignore_metadata=True)
    table = _flat(table).rename(columns={"query_id": "qid", "label": "relevance"})
    lacking = sorted({"qid", "relevance", *features}.difference(table.columns))
    if lacking:
        raise SystemExit(
            f"{folder / ANNOTATIONS} has no column {', '.join(lacking)}, which the parts with "
            "clicks have; take both from one release."
        )
    return table[["qid", "relevance", *features]].assign(doc=np.arange(len(table)))


def _flat(table):
    """A table whose vectors became one column for each number."""
    if EMBEDDING not in table:
        return table
    vectors = np.stack(table[EMBEDDING].to_numpy()).astype(np.float32)
    names = [f"embedding_{i:03d}" for i in range(vectors.shape[1])]
    numbers = pd.DataFrame(vectors, columns=names, index=table.index)
    return table.drop(columns=EMBEDDING).join(numbers)


def divide(log, share, n_pages, seed):
    """Pages to train by and pages to predict, at random."""
    pages = np.random.default_rng(seed).permutation(log["session"].unique())[:n_pages]
    n_held_out = max(1, round(share * len(pages)))
    is_held_out = log["session"].isin(pages[:n_held_out])
    is_kept = log["session"].isin(pages[n_held_out:])
    return log[is_kept], log[is_held_out]


def perplexity_of(ranker, log, clicks):
    """Perplexity of clicks by a model that predicts them; NaN for others."""
    if hasattr(ranker, "predict_click"):
        return perplexity_score(clicks, ranker.predict_click(log), position=log["position"])
    if isinstance(ranker, NaiveRanker) and ranker.loss == "bce":
        # Its score is the logit of a click, wherever the document stands.
        chance = 1 / (1 + np.exp(-ranker.predict(log)))
        return perplexity_score(clicks, chance, position=log["position"])
    return np.nan


def tabulate(train, held_out, annotated, seed):
    """One row for each method."""
    clicks = held_out["click"].to_numpy(float)
    pages = held_out.drop(columns="click")
    judge = ClickLikelihoodScorer(propensity=examination())
    rows = {}
    scores = {}
    for name, ranker in rankers(seed).items():
        ranker.fit(train.drop(columns="click"), train["click"])
        scores[name] = ranker.predict(annotated.drop(columns="relevance"))
        grades = annotated["relevance"]
        query = annotated["qid"]
        dcg = dcg_score(grades, scores[name], qid=query, k=CUTOFFS)
        row = {f"dcg@{k}": value for k, value in zip(CUTOFFS, dcg, strict=True)}
        row["ndcg@10"] = ndcg_score(grades, scores[name], qid=query, k=10)
        row["perplexity"] = perplexity_of(ranker, pages, clicks)
        row["click log-likelihood"] = judge(ranker, pages, clicks)
        rows[name] = row
    found = compare_rankers(scores, annotated, baseline=BASELINE, random_state=seed)
    against = found.table.set_index("ranker")[["difference", "verdict"]]
    table = pd.DataFrame(rows).T
    return table.join(against.rename(columns={"difference": "- naive"}))


def main(argv):
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, help="part-*.feather and validation.feather")
    parser.add_argument("--embeddings", action="store_true", help="768 numbers more per row")
    parser.add_argument("--pages", type=int, help="so many pages at random; by default all")
    parser.add_argument("--held-out", type=float, default=0.2, help="share of the pages")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, help="also write the table there (CSV)")
    args = parser.parse_args(argv)
    # Of what a log of so few positions cannot tell: the table compares methods on it all the same.
    warnings.simplefilter("ignore")
    log = read_clicks(args.folder, args.embeddings)
    features = log.columns.difference(["session", "qid", "doc", "position", "click"], sort=False)
    annotated = read_annotations(args.folder, features)
    train, held_out = divide(log, args.held_out, args.pages, args.seed)
    table = tabulate(train, held_out, annotated, args.seed)
    n_queries = annotated["qid"].nunique()
    print(f"{train['session'].nunique():,d} pages, {n_queries:,d} annotated queries")
    print(table.round(4).to_string(na_rep=""))
    if args.out is not None:
        table.to_csv(args.out, index_label="method")
