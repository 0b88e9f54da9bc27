"""The clicks of real people: what the methods of the papers do on three public logs.

    python -m benchmarks studies/real_clicks [--data FOLDER] [--splits 4] [--out FOLDER]

FOLDER holds the logs (by default it is the one that the environment variable SKULTR_DATA names);
their licences do not let us pass them on. Nobody annotated Yandex and Sogou, no log has features,
and nobody knows where these users look. What can be asked all the same:

- *Layouts*: is the log identifiable if each query had kept its few commonest layouts (the ordered
  documents of a page), and what do merged positions predict?
- *Held-out layouts*: `LayoutSplit` holds out half of the pages of each query, by layout. Methods
  learn one number or vector per document, and predict the clicks on held-out pages where a
  document stands at a position at which training never showed it. The gain is in nats per click,
  over the position-based model (PBM).
- *Matched pairs*: of two documents of a query that held-out pages showed at the same position, is
  the one with the higher click rate there (at the level 5 %) scored higher?
- *CMIP*: among documents of one grade, do scores follow the logged position? TREC alone has
  grades.

Intervals are 95 % over queries, drawn again 2,000 times with all of their pages in all splits.
Where a method cannot be judged, its line has a dash. Four minutes of one core.
"""

import argparse
import os
import warnings
from pathlib import Path
from typing import NamedTuple

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.frozen import FrozenEstimator
from torch import nn

from skultr import IdentifiabilityRepair, VectorizationRanker
from skultr.click_models import DCTRModel, PBMModel
from skultr.identifiability import IdentifiabilityGraph
from skultr.metrics import cmip_score, matched_pairs_score
from skultr.model_selection import LayoutSplit
from skultr.propensity import RegressionEMPropensity, relevance_labels

DOCUMENT = ["qid", "doc"]
PAGE = ["qid", "session"]
COLUMNS = ["session", "qid", "doc", "position", "click"]
#: Probabilities have a logarithm, whatever a model says.
LEAST_CHANCE = 1e-6
#: What no log can judge, and what stands in tables in the place of a number.
DASH = "-"
N_DRAWS = 2_000
#: `IdentifiabilityRepair` refuses to merge more values of a column.
MOST_QUERIES = 256


class Source(NamedTuple):
    """A file, its column that tells users apart, and the least impressions of a matched pair."""

    file: str
    user: str | None
    least: int


SOURCES = {
    # Of its users the log tells only the region.
    "Yandex": Source("yandex_wscd_clicks.parquet", "region", 40),
    "Sogou": Source("sogou_deepclick_clicks.parquet", None, 10),
    "TREC": Source("trec2014_session_clicks.parquet", "user_session", 10),
}


#: Users clicked some 20 moved documents per split: intervals would hide those of other logs.
TOO_SPARSE = ("TREC",)


class Split(NamedTuple):
    """Pages to learn from, and rows of held-out pages whose document training showed."""

    train: pd.DataFrame
    test: pd.DataFrame
    moved: np.ndarray  # (n_test,) whether training never showed the document at the position


class Prediction(NamedTuple):
    """P(click) and the score of the document, by row of the held-out pages."""

    chance: np.ndarray
    score: np.ndarray


# --------------------------------------------------------------------------------------
# Methods
# --------------------------------------------------------------------------------------
def pages(log):
    """The log without its clicks and grades, as models take it."""
    return log.drop(columns=["click", "relevance"], errors="ignore")


def predicted(model, split):
    """What a click model learns from the training pages, and says of the others."""
    model.fit(pages(split.train), split.train["click"])
    held_out = pages(split.test)
    return Prediction(model.predict_click(held_out), model.predict(held_out))


def production(split):
    """Minus the mean position of the document."""
    return scored(split, -split.train.groupby(DOCUMENT)["position"].mean())


def scored(split, score, chance=np.nan):
    """The prediction by a score of each document, with P(click) by row."""
    score = score.reindex(pd.MultiIndex.from_frame(split.test[DOCUMENT])).to_numpy()
    return Prediction(np.broadcast_to(chance, len(score)), score)


def click_rate(split):
    """Naive: the click rate of the document, wherever it stands."""
    return predicted(DCTRModel(), split)


def coec(split):
    """Clicks over those that the click rates of its positions let one expect, with one of each."""
    rate = split.train.groupby("position")["click"].mean()
    expected = split.train["position"].map(rate)
    sums = split.train.assign(expected=expected).groupby(DOCUMENT)[["click", "expected"]].sum()
    label = (sums["click"] + 1) / (sums["expected"] + 1)
    found = scored(split, label)
    chance = found.score * split.test["position"].map(rate).to_numpy()
    return found._replace(chance=np.minimum(chance, 1.0))


def pbm(split):
    """Examination by position, learned from the documents that moved."""
    return predicted(PBMModel(), split)


def pbm_by_query(split):
    """A curve of examination for each query: nothing connects the queries."""
    if split.train["qid"].nunique() > MOST_QUERIES:
        return None
    factor = split.train["qid"].astype(str) + " " + split.train["position"].astype(str)
    codes = {value: code for code, value in enumerate(sorted(set(factor)))}
    known = split.test["qid"].astype(str) + " " + split.test["position"].astype(str)
    train = split.train.assign(bias=factor.map(codes))
    return predicted(PBMModel(), split._replace(train=train, test=_with_bias(split, known, codes)))


def _with_bias(split, factor, codes):
    """Held-out rows with the codes of their factors, which training must have shown."""
    bias = factor.map(codes)
    if bias.isna().any():
        raise ValueError(f"training shows no factor {factor[bias.isna()].iloc[0]!r}")
    return split.test.assign(bias=bias)


def pbm_merged(split):
    """The same after the repair: curves of queries are merged until all are connected."""
    if split.train["qid"].nunique() > MOST_QUERIES:
        return None
    # A query is a name: as text, all of them are equally far from each other.
    train = split.train.assign(query=split.train["qid"].astype(str))
    test = split.test.assign(query=split.test["qid"].astype(str))
    repair = IdentifiabilityRepair(bias=["position", "query"])
    repair.fit(pages(train), train["click"])
    return predicted(
        PBMModel(), split._replace(train=repair.transform(train), test=repair.transform(test))
    )


def user_aware(split):
    """Clicks per examination, with a curve of examination for each user."""
    if "user" not in split.train:
        return None
    X = pages(split.train)
    curves = RegressionEMPropensity(user="user", relevance="embedding")
    curves.fit(X, split.train["click"])
    labels = relevance_labels(
        X, split.train["click"], propensity=FrozenEstimator(curves), interval=True
    )
    found = scored(split, labels.set_index(DOCUMENT)["label"])
    examination = curves.predict(pages(split.test))
    return found._replace(chance=np.minimum(found.score * examination, 1.0))


class DocumentVectors(nn.Embedding):
    """A vector per document, whose feature is its number as a share of all."""

    def __init__(self, n_documents, n_components):
        super().__init__(n_documents, n_components)
        # Equal entries of a vector would stay equal.
        nn.init.normal_(self.weight, std=0.1)

    def forward(self, share):
        """Vectors (n_rows, n_components)."""
        number = (share[:, 0] * self.num_embeddings).round()
        return super().forward(number.long())


def vectors(n_components):
    """Products of a vector per document and one per position, trained by gradient descent.

    The score is the mean predicted click rate over positions: base vectors need features.
    """

    def predict(split):
        documents = split.train[DOCUMENT].drop_duplicates()
        share = np.arange(len(documents)) / len(documents)
        table = pd.Series(share, index=pd.MultiIndex.from_frame(documents))
        ranker = VectorizationRanker(
            n_components=n_components,
            link="probability",
            student=None,
            n_networks=1,
            module=lambda n_inputs: DocumentVectors(len(documents), n_components),
            scale_features=False,
            random_state=0,
        )
        ranker.fit(_with_share(split.train, table), split.train["click"])
        held_out = _with_share(split.test, table)
        mean = ranker.observation_embedding_.mean().to_numpy()
        score = ranker.relevance_embedding(held_out) @ mean
        return Prediction(ranker.predict_click(held_out), score)

    return predict


def _with_share(log, table):
    """Pages with the one feature that numbers the documents."""
    share = table.reindex(pd.MultiIndex.from_frame(log[DOCUMENT])).to_numpy()
    return pages(log).drop(columns="user", errors="ignore").assign(number=share)


#: The line that others are compared with.
BASE = "PBM"
METHODS = {
    "production": production,
    "click rate (naive)": click_rate,
    "COEC": coec,
    BASE: pbm,
    "PBM, a curve per query": pbm_by_query,
    "PBM, these merged": pbm_merged,
    "user-aware": user_aware,
    "vectors, d = 1": vectors(1),
    "vectors, d = 2": vectors(2),
    # What it corrects is in documents that no page showed, and these have no clicks to judge by.
    "CLD": lambda split: None,
}


# --------------------------------------------------------------------------------------
# Logs
# --------------------------------------------------------------------------------------
def read_logs(folder):
    """The logs whose files are in the folder."""
    return {
        name: read_log(folder / source.file, source.user)
        for name, source in SOURCES.items()
        if (folder / source.file).exists()
    }


def read_log(path, user):
    """A log with the roles of its columns."""
    log = pd.read_parquet(path)
    names = list(COLUMNS)
    if user is not None:
        log = log.rename(columns={user: "user"})
        names.append("user")
    if "label" in log:
        # Negative labels: not judged, or spam.
        log["relevance"] = log["label"].where(log["label"] >= 0).astype(float)
        names.append("relevance")
    return log[names].sort_values([*PAGE, "position"], ignore_index=True)


def splits_of(log, n_splits):
    """Random halves of the layouts of each query."""
    found = LayoutSplit(n_splits, random_state=0).split(pages(log))
    return [split_by(log.iloc[train], log.iloc[test]) for train, test in found]


def split_by(train, test):
    """A split whose held-out rows have a document that training showed."""
    test = test[is_among(test, train, DOCUMENT)]
    moved = ~is_among(test, train, [*DOCUMENT, "position"])
    return Split(train, test, moved)


def is_among(log, others, columns):
    """Whether the values of these columns occur in the other log, by row."""
    known = pd.MultiIndex.from_frame(others[columns].drop_duplicates())
    return pd.MultiIndex.from_frame(log[columns]).isin(known)


# --------------------------------------------------------------------------------------
# Held-out layouts and matched pairs
# --------------------------------------------------------------------------------------
def log_likelihood(clicks, chance):
    """Logarithm of the probability of what each row shows, in nats."""
    inside = np.clip(chance, LEAST_CHANCE, 1 - LEAST_CHANCE)
    return np.where(clicks > 0, np.log(inside), np.log1p(-inside))


def judge(split, least):
    """Sums by method and query: rows, clicks and log likelihood of moved documents; pairs."""
    found = {name: method(split) for name, method in METHODS.items()}
    parts = {}
    for name, prediction in found.items():
        if prediction is not None:
            parts[name] = judged(split, prediction, least)
    return pd.concat(parts, names=["method", "qid"])


def judged(split, prediction, least):
    """The sums of one method, by query."""
    moved = split.test[split.moved]
    clicks = moved["click"].to_numpy()
    chance = prediction.chance[split.moved]
    rows = pd.DataFrame(
        {
            "qid": moved["qid"].to_numpy(),
            "rows": 1,
            "clicks": clicks,
            "likelihood": log_likelihood(clicks, chance),
        }
    )
    sums = rows.groupby("qid").sum(min_count=1)
    pairs = matched_pairs_score(
        split.test["click"],
        prediction.score,
        **{name: split.test[name] for name in (*DOCUMENT, "position")},
        min_impressions=least,
        per_query=True,
    )
    right = (pairs["matched_pairs"] * pairs["n_pairs"]).rename("right")
    return sums.join(pd.DataFrame({"right": right, "pairs": pairs["n_pairs"]}), how="outer")


def compare(splits, least):
    """One line per method, from the sums over all splits."""
    sums = pd.concat([judge(split, least) for split in splits])
    sums = sums.groupby(level=["method", "qid"]).sum(min_count=1)
    base = sums.loc[BASE]
    lines = {}
    for name in METHODS:
        lines[name] = dict.fromkeys(COMPARED)
        if name in sums.index.get_level_values("method"):
            lines[name] = line(sums.loc[name].reindex(base.index), base)
    return pd.DataFrame.from_dict(lines, orient="index", columns=COMPARED)


COMPARED = [
    *("perplexity", "gain", "gain_low", "gain_high"),
    *("right", "right_low", "right_high", "lead", "lead_low", "lead_high"),
    *("rows", "clicks", "queries", "pairs", "queries_with_pairs"),
]


def line(sums, base):
    """What a method does, and what it gains over the base, with intervals over queries."""
    predicts = base.dropna(subset="rows")
    own = sums.loc[predicts.index]
    gain = own["likelihood"] - predicts["likelihood"]
    pairs = base.dropna(subset="pairs")
    right = sums.loc[pairs.index, "right"]
    mean = own["likelihood"].sum(min_count=1) / predicts["rows"].sum()
    values = [np.exp(-mean), *interval(gain, predicts["clicks"])]
    values += interval(right, pairs["pairs"])
    values += interval(right - pairs["right"], pairs["pairs"])
    values += [predicts["rows"].sum(), predicts["clicks"].sum(), len(predicts)]
    values += [pairs["pairs"].sum(), len(pairs)]
    return dict(zip(COMPARED, values, strict=True))


def interval(part, whole):
    """A ratio of sums over queries, and the ends of its interval as queries are drawn again."""
    part = part.to_numpy(dtype=float)
    whole = whole.to_numpy(dtype=float)
    n = len(part)
    if n == 0 or np.isnan(part).any() or whole.sum() == 0:
        return [np.nan] * 3
    drawn = np.random.default_rng(0).multinomial(n, np.full(n, 1 / n), size=N_DRAWS)
    totals = drawn @ whole
    # A draw may have no query with a click.
    ratios = (drawn @ part)[totals > 0] / totals[totals > 0]
    return [part.sum() / whole.sum(), *np.quantile(ratios, [0.025, 0.975])]


# --------------------------------------------------------------------------------------
# Few layouts
# --------------------------------------------------------------------------------------
#: How many of the commonest layouts of a query are kept; infinity keeps all.
KEPT = (1, 2, 3, 5, 10, np.inf)


def layouts(log):
    """Place of the layout of each row among those of its query, 0 for the commonest."""
    served = log.groupby(PAGE, sort=False)["doc"].agg(tuple).reset_index(name="layout")
    count = served.groupby(["qid", "layout"]).size().reset_index(name="pages")
    count = count.sort_values(["qid", "pages"], ascending=[True, False], kind="stable")
    count["place"] = count.groupby("qid").cumcount()
    served = served.merge(count, on=["qid", "layout"])
    return log.merge(served[[*PAGE, "place"]], on=PAGE, how="left")["place"].to_numpy()


def merged_positions(split):
    """PBM after the repair: positions are merged until all are connected."""
    repair = IdentifiabilityRepair().fit(pages(split.train), split.train["click"])
    train = repair.transform(split.train)
    test = repair.transform(split.test)
    return predicted(PBMModel(), split._replace(train=train, test=test))


FORMS = {"click rate": click_rate, BASE: pbm, "PBM, merged": merged_positions}


def few_layouts(splits):
    """One line per number of layouts and form: components, and gain over PBM on all layouts.

    All are judged on the same rows: documents that the commonest training layout shows, at
    positions where no training page shows them.
    """
    parts = [pd.concat(_with_few_layouts(split)) for split in splits]
    table = pd.concat(parts, names=["split", None], keys=range(len(parts)))
    components = table.groupby(["kept", "split"])["components"].first().groupby("kept").mean()
    sums = table.groupby(["kept", "form", "qid"])[["likelihood", "clicks"]].sum()
    base = sums.loc[np.inf, BASE]
    lines = []
    for kept, form in sums.index.droplevel("qid").unique():
        own = sums.loc[kept, form]
        gain, low, high = interval(own["likelihood"] - base["likelihood"], base["clicks"])
        line = {"kept": kept, "form": form, "components": components[kept]}
        lines.append(line | {"gain": gain, "low": low, "high": high})
    return pd.DataFrame(lines)


def _with_few_layouts(split):
    """Sums by query of each form, for each number of layouts."""
    place = layouts(split.train)
    is_judged = split.moved & is_among(split.test, split.train[place == 0], DOCUMENT)
    test = split.test[is_judged]
    clicks = test["click"].to_numpy()
    for kept in KEPT:
        part = Split(split.train[place < kept], test, np.ones(len(test), bool))
        n_components = IdentifiabilityGraph.from_log(pages(part.train)).n_components
        found = {}
        for form, method in FORMS.items():
            # The repair of a log in one component changes nothing.
            is_same = method is merged_positions and n_components == 1
            found[form] = found[BASE] if is_same else method(part)
            likelihood = log_likelihood(clicks, found[form].chance)
            rows = {"qid": test["qid"].to_numpy(), "likelihood": likelihood, "clicks": clicks}
            sums = pd.DataFrame(rows).groupby("qid", as_index=False).sum()
            yield sums.assign(kept=kept, form=form, components=n_components)


# --------------------------------------------------------------------------------------
# CMIP
# --------------------------------------------------------------------------------------
def dependence(log):
    """CMIP of each method's scores of the graded documents; None without grades.

    Scores are learned from all pages.
    """
    if "relevance" not in log:
        return None
    documents = log.groupby(DOCUMENT).agg(
        position=("position", "mean"), relevance=("relevance", "mean")
    )
    graded = documents.dropna(subset="relevance").reset_index()
    # To score them, each stands on a page of its own.
    rows = graded.assign(session=np.arange(len(graded)), click=0)
    rows["position"] = rows["position"].round().astype(int)
    if "user" in log:
        rows["user"] = log["user"].iloc[0]
    split = Split(log, rows, np.ones(len(rows), bool))
    lines = {}
    for name, method in METHODS.items():
        found = method(split)
        lines[name] = dict.fromkeys(("CMIP", "p"))
        if found is not None:
            value = cmip_score(
                found.score,
                graded["position"],
                graded["relevance"],
                qid=graded["qid"],
                random_state=0,
                return_result=True,
            )
            lines[name] = {"CMIP": value.value, "p": value.p_value}
    return pd.DataFrame(lines).T.astype(float).assign(documents=len(graded))


# --------------------------------------------------------------------------------------
# Tables and figure
# --------------------------------------------------------------------------------------
def study(logs, n_splits):
    """Lines by log of the comparison, of few layouts, and CMIP."""
    compared = {}
    few = {}
    for name, log in logs.items():
        splits = splits_of(log, n_splits)
        compared[name] = compare(splits, SOURCES[name].least)
        few[name] = few_layouts(splits)
        found = dependence(log)
        for column in ("CMIP", "p", "documents"):
            compared[name][column] = np.nan if found is None else found[column]
        print(f"{name} done", flush=True)
    names = ["log", "method"]
    return pd.concat(compared, names=names), pd.concat(few, names=["log", None])


def readable(table):
    """The comparison as text, with a dash where a method cannot be judged."""
    text = pd.DataFrame(index=table.index)
    text["perplexity"] = [_number(value) for value in table["perplexity"]]
    text["gain per click"] = _with_ends(table, "gain")
    text["pairs right"] = _with_ends(table, "right")
    text["pairs, over PBM"] = _with_ends(table, "lead")
    text["CMIP"] = [_number(value) for value in table["CMIP"]]
    text["p"] = [_number(value) for value in table["p"]]
    return text


def _with_ends(table, name):
    columns = [name, f"{name}_low", f"{name}_high"]
    found = []
    for value, low, high in table[columns].to_numpy(dtype=float):
        ends = "" if np.isnan(value) or low == high else f" [{_number(low)}, {_number(high)}]"
        found.append(_number(value) + ends)
    return found


def _number(value):
    return DASH if pd.isna(value) else f"{float(value):.3f}"


COLORS = {"Yandex": "#7251b5", "Sogou": "#bc6c25", "TREC": "#3a7d44"}


def draw(compared, few):
    """Few layouts; gains on held-out layouts; matched pairs."""
    figure, (layouts_, gains, pairs) = plt.subplots(
        1, 3, figsize=(14, 4.6), layout="constrained", width_ratios=[1, 1.15, 1.15]
    )
    logs = compared.index.get_level_values("log").unique()
    shown = [name for name in logs if name not in TOO_SPARSE] or list(logs)
    draw_layouts(layouts_, few.loc[shown])
    draw_methods(gains, compared.loc[shown], "gain", without=("production",))
    draw_methods(pairs, compared.loc[shown], "right")
    gains.axvline(0, color="0.7", linewidth=1, zorder=0)
    gains.set(title="Clicks on held-out layouts", xlabel="gain over PBM, nats per click")
    pairs.axvline(0.5, color="0.7", linewidth=1, zorder=0)
    pairs.set(title="Matched pairs", xlabel="share in the order of click rates", xlim=(0, 1))
    return figure


def draw_layouts(axes, few):
    """Gain over PBM on all layouts, by the number of layouts that each query kept."""
    styles = {"PBM": "o-", "PBM, merged": "s:", "click rate": "^--"}
    places = np.arange(len(KEPT))
    for (name, form), lines in few.groupby(["log", "form"], sort=False):
        values = lines.sort_values("kept")
        label = f"{name}, {form}"
        axes.plot(places, values["gain"], styles[form], color=COLORS[name], label=label, ms=4)
        ends = values[["low", "high"]].to_numpy(dtype=float).T
        axes.fill_between(places, *ends, color=COLORS[name], alpha=0.08, linewidth=0)
    axes.axhline(0, color="0.7", linewidth=1, zorder=0)
    axes.set_xticks(places, ["all" if kept == np.inf else kept for kept in KEPT])
    axes.set(
        title="Few layouts",
        xlabel="commonest layouts kept per query",
        ylabel="gain over PBM on all layouts, nats per click",
    )
    axes.legend(frameon=False, fontsize=8)
    axes.spines[["top", "right"]].set_visible(False)


def draw_methods(axes, compared, metric, without=()):
    """A line for each method, a point with its interval for each log."""
    names = [name for name in METHODS if name not in without]
    logs = compared.index.get_level_values("log").unique()
    for number, log in enumerate(logs):
        table = compared.loc[log].reindex(names)
        columns = [metric, f"{metric}_low", f"{metric}_high"]
        shift = 0.18 * (number - (len(logs) - 1) / 2)
        for row, (value, low, high) in enumerate(table[columns].to_numpy(dtype=float)):
            place = len(names) - 1 - row - shift
            if np.isnan(value):
                axes.annotate(
                    DASH,
                    (0.02 + 0.03 * number, place),
                    xycoords=("axes fraction", "data"),
                    color=COLORS[log],
                    va="center",
                )
                continue
            errors = [[value - low], [high - value]]
            label = log if row == names.index(BASE) else None
            axes.errorbar(
                value, place, xerr=errors, fmt="o", color=COLORS[log], capsize=3, ms=4, label=label
            )
    axes.set_yticks(range(len(names) - 1, -1, -1), names)
    axes.set_ylim(-0.6, len(names) - 0.4)
    axes.legend(frameon=False, fontsize=8)
    axes.spines[["top", "right"]].set_visible(False)


def main(argv):
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--data",
        type=Path,
        default=Path(os.environ.get("SKULTR_DATA", "no folder")),
        help="the folder of the logs (SKULTR_DATA)",
    )
    parser.add_argument("--splits", type=int, default=4, help="halves of the layouts (4)")
    parser.add_argument("--out", type=Path, help="also write tables and figure there")
    args = parser.parse_args(argv)
    logs = read_logs(args.data)
    if not logs:
        files = ", ".join(source.file for source in SOURCES.values())
        print(
            f"Skipped: none of {files} is in {args.data}. Name their folder by --data, or in the "
            "environment variable SKULTR_DATA."
        )
        return
    # Of documents with few clicks, and of curves that nothing determines: that is the question.
    warnings.simplefilter("ignore")
    compared, few = study(logs, args.splits)
    print(readable(compared).to_string())
    print(few.round(3).to_string())
    if args.out is not None:
        args.out.mkdir(parents=True, exist_ok=True)
        compared.to_csv(args.out / "methods.csv", float_format="%.5g")
        few.reset_index("log").to_csv(args.out / "layouts.csv", index=False, float_format="%.5g")
        for name, table in readable(compared).groupby(level="log", sort=False):
            table.droplevel("log").to_csv(args.out / f"{name}.csv", index_label="method")
        figure = draw(compared, few)
        figure.savefig(args.out / "real_clicks.png", dpi=120, bbox_inches="tight")
