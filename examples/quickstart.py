"""From a click log to an unbiased ranker.

Claim: a ranker trained on clicks as they are learns the old ranking. Dividing clicks by the
chance that a position is examined (IPS), or learning that chance along with relevance (dual
learning), recovers relevance from the same clicks. The ensemble weighs a naive ranker, corrected
ones and the production ranker by clicks of other queries.

Limit: the clicks here come from position-based users. Real ones also trust the order, compare
results, and leave. Try your own documents: ``python quickstart.py --data my_letor_file.txt``.
"""

import argparse
import time
import warnings
from pathlib import Path

import pandas as pd

from skultr import DLARanker, EnsembleRanker, aggregate_clicks
from skultr.datasets import load_letor, make_ltr
from skultr.evaluation import compare_rankers
from skultr.exceptions import NotIdentifiableWarning
from skultr.identifiability import IdentifiabilityGraph
from skultr.model_selection import train_test_queries
from skultr.rankers import IPSRanker, NaiveRanker
from skultr.simulation import (
    production_scores,
    relevance_probability,
    simulate_clicks,
)

# The printed verdict states what this warning is about: one fixed order links no positions. Here
# the features do, since they explain relevance; a real log cannot confirm that.
warnings.simplefilter("ignore", NotIdentifiableWarning)

CUTOFFS = [1, 3, 5, 10]
COLORS = {
    "production": "#9aa0a6",
    "naive": "#d1495b",
    "IPS": "#2e86ab",
    "DLA": "#1b998b",
    "ensemble": "#8338ec",
    "skyline": "#3d3d3d",
}


def run(documents, n_sessions, seed, *, verbose=False, **simulation):
    """Simulate clicks, train five rankers, evaluate on held-out queries.

    ``verbose`` prints what the log determines; further keywords go to ``simulate_clicks``.

    Returns
    -------
    scores : dict of str to ndarray
        Scores of the held-out documents, by ranker.
    test : DataFrame
        The held-out documents.
    examination : DataFrame
        True and learned examination by position, relative to the first.
    """
    max_grade = documents["relevance"].max()
    train, test = train_test_queries(documents, test_size=0.2, random_state=seed)
    # Production knows 1 % of the labels; it decided what was shown where.
    production = {"fraction": 0.01, "random_state": seed}
    shown_by = production_scores(train, **production)
    old = production_scores(train, **production, candidates=test)

    impressions, clicks, truth = simulate_clicks(
        train,
        n_sessions=n_sessions,
        scores=shown_by,
        max_grade=max_grade,
        features=False,
        random_state=seed,
        **simulation,
    )
    train, test = train.assign(production=shown_by), test.assign(production=old)
    served, click_rate = aggregate_clicks(impressions.assign(click=clicks), train)
    log = served.drop(columns="production")  # only the ensemble reads it
    if verbose:
        print(verdict(log, click_rate))

    # The skyline sees the same rows, with the truth in place of clicks.
    relevance = relevance_probability(log["relevance"], max_grade=max_grade)
    rankers = {
        "naive": NaiveRanker(random_state=seed).fit(log, click_rate),
        "IPS": IPSRanker(propensity=truth.examination, random_state=seed).fit(log, click_rate),
        "DLA": DLARanker(random_state=seed).fit(log, click_rate),
        "ensemble": EnsembleRanker(random_state=seed).fit(served, click_rate),
        "skyline": NaiveRanker(random_state=seed).fit(log, relevance),
    }
    scores = {"production": old}
    scores |= {name: ranker.predict(test) for name, ranker in rankers.items()}
    learned = rankers["DLA"].examination_["examination"]
    true = pd.Series(truth.examination, index=learned.index)
    examination = pd.DataFrame({"true": true / true.iloc[0], "DLA": learned})
    return scores, test, examination


def verdict(log, click_rate):
    """Whether the documents of the log link its positions, in a line."""
    graph = IdentifiabilityGraph.from_log(log, click=click_rate)
    line = f"The log alone: {graph.summary().splitlines()[0]}"
    if not graph.is_connected:
        line += (
            "\nNo document links them; what does is that similar features mean similar relevance."
        )
    return line


def agreement_with_old(scores, qid):
    """Rank correlation (Spearman) with the production ranker, mean over queries, by ranker."""
    ranks = pd.DataFrame(scores).groupby(qid).rank()
    by_query = ranks.groupby(qid).corr()["production"].unstack()
    return by_query.mean().to_dict()


def compare(scores, test, seed):
    """The rankers on held-out queries: nDCG at each cutoff, differences to the naive ranker."""
    return {
        k: compare_rankers(scores, test, k=k, baseline="naive", random_state=seed) for k in CUTOFFS
    }


def report(found, agreement, examination):
    """Print the table."""
    table = pd.DataFrame(
        {
            f"nDCG@{k}": [
                f"{row.value:.3f} [{row.lower:.3f}, {row.upper:.3f}]"
                for row in comparison.values.itertuples()
            ]
            for k, comparison in found.items()
        },
        index=list(agreement),
    )
    table["like production"] = [f"{value:.2f}" for value in agreement.values()]
    print("\nHeld-out queries, mean [95 % bootstrap interval]; last column: rank correlation")
    print(table.to_string())
    print(f"\n{found[10].summary()}")
    value = found[10].values["value"]
    gap = value["skyline"] - value["naive"]
    if gap > 0.01:
        share = ", ".join(f"{name} {(value[name] - value['naive']) / gap:.0%}"
                          for name in ("IPS", "DLA", "ensemble"))  # fmt: skip
        print(f"\nClicks taken at face value cost {gap:.3f} nDCG@10. Recovered of it: {share}.")
    else:
        print(
            f"\nEven the true labels give only {gap:+.3f} nDCG@10 over the naive ranker here: too "
            "few queries (or features that say too little) to tell the methods apart."
        )
    worst = (examination["DLA"] - examination["true"]).abs().max()
    print(f"Examination learned by DLA: largest error {worst:.3f} (relative to position 1).")


def draw(values, examination, path):
    """Bars and examination curves in one PNG."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.2), layout="constrained")
    error = [values["value"] - values["lower"], values["upper"] - values["value"]]
    colors = [COLORS[name] for name in values.index]
    left.bar(values.index, values["value"], yerr=error, capsize=4, color=colors)
    for place, row in enumerate(values.itertuples()):
        left.text(place, row.upper + 0.01, f"{row.value:.3f}", ha="center", va="bottom")
    left.set_ylim(0, 1.12 * values["upper"].max())
    left.set_ylabel("nDCG@10 on held-out queries\n(95 % bootstrap interval)")
    left.set_title("Ranking quality learned from the same clicks")
    right.plot(examination.index, examination["true"], "o-", color="black", label="true")
    right.plot(examination.index, examination["DLA"], "s--", color=COLORS["DLA"],
               label="learned by DLA")  # fmt: skip
    right.axhline(1.0, color=COLORS["naive"], linestyle=":", label="assumed by naive")
    right.set_xlabel("position")
    right.set_xticks(examination.index)
    right.set_ylabel("examination relative to position 1")
    right.set_ylim(0, 1.08)
    right.set_title("Examination curve")
    right.legend(frameon=False)
    for axis in (left, right):
        axis.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=130)
    plt.close(figure)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument(
        "--data",
        nargs="+",
        help="LETOR/svmlight file(s) with qid, or Parquet with qid, label and features, or the "
        "folder of a set (of one fold); default: generated documents",
    )
    parser.add_argument("--sessions", type=int, default=1_000_000, help="simulated sessions")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("quickstart.png"))
    args = parser.parse_args()

    start = time.perf_counter()
    if args.data:
        documents = load_letor(args.data if len(args.data) > 1 else args.data[0])
    else:
        documents = make_ltr(n_queries=2500, random_state=args.seed)
    print(
        f"{documents['qid'].nunique()} queries, {len(documents)} documents, "
        f"{args.sessions} sessions of at most 10 results"
    )
    scores, test, examination = run(documents, args.sessions, args.seed, verbose=True)
    found = compare(scores, test, args.seed)
    report(found, agreement_with_old(scores, test["qid"].to_numpy()), examination)
    draw(found[10].values, examination, args.out)
    print(f"Figure: {args.out}  ({time.perf_counter() - start:.0f} s)")


if __name__ == "__main__":
    main()
