"""Labels and click models against what practice uses, the click rate and clicks over expected
clicks (COEC), on layouts that they did not see."""

import os
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from skultr.click_models import PBMModel, UBMModel
from skultr.metrics import matched_pairs_score
from skultr.model_selection import LayoutSplit
from skultr.propensity import InterventionHarvesting, relevance_labels
from skultr.simulation import PositionBasedUser

DOCUMENT = ["qid", "doc"]
ROLES = ["session", *DOCUMENT, "position"]


def rivals(train):
    """Click rate and COEC, with one click added to both sides, by document."""
    expected = train.groupby("position")["click"].transform("mean")
    table = train.assign(expected=expected).groupby(DOCUMENT)
    table = table.agg(clicks=("click", "sum"), n=("click", "size"), expected=("expected", "sum"))
    coec = (table["clicks"] + 1) / (table["expected"] + 1)
    return {"click rate": table["clicks"] / table["n"], "COEC": coec}


def estimates(train):
    """Labels of skultr by document."""
    X, clicks = train[ROLES], train["click"]
    documents = X[DOCUMENT].drop_duplicates()
    index = pd.MultiIndex.from_frame(documents)
    models = {"PBM": PBMModel(), "UBM": UBMModel()}
    found = {
        name: pd.Series(model.fit(X, clicks).predict(documents), index)
        for name, model in models.items()
    }
    curve = InterventionHarvesting(n_bootstrap=0)
    labels = relevance_labels(X, clicks, propensity=curve, interval=True)
    return {**found, "labels": labels.set_index(DOCUMENT)["label"]}


def pairs_right(log, splitter, least=40):
    """Share of pairs in the right order, over all splits, by method."""
    right, n_pairs = {}, 0
    for train, test in splitter.split(log[ROLES]):
        train, test = log.iloc[train], log.iloc[test]
        known = pd.MultiIndex.from_frame(train[DOCUMENT].drop_duplicates())
        test = test[pd.MultiIndex.from_frame(test[DOCUMENT]).isin(known)]
        columns = {name: test[name] for name in (*DOCUMENT, "position")}
        for name, label in {**rivals(train), **estimates(train)}.items():
            score = label.reindex(pd.MultiIndex.from_frame(test[DOCUMENT])).to_numpy()
            table = matched_pairs_score(
                test["click"], score, **columns, min_impressions=least, per_query=True
            )
            right[name] = right.get(name, 0) + table["matched_pairs"] @ table["n_pairs"]
        n_pairs += table["n_pairs"].sum()
    return pd.Series(right) / n_pairs


def draw_log(noise, temperature, seed, n_queries=20, n_documents=8, n_pages=16_000):
    """Pages by a production ranker whose scores are the log odds of relevance plus noise."""
    rng = np.random.default_rng(seed)
    relevance = rng.beta(1, 2, size=(n_queries, n_documents))
    scores = np.log(relevance / (1 - relevance)) + noise * rng.normal(size=relevance.shape)
    query = rng.integers(n_queries, size=n_pages)
    chance = temperature * rng.gumbel(size=(n_pages, n_documents))
    order = np.argsort(-scores[query] - chance, axis=1)
    clicked = PositionBasedUser(1.0).click(relevance[query[:, None], order], rng)
    return pd.DataFrame(
        {
            "session": np.repeat(np.arange(n_pages), n_documents),
            "qid": np.repeat(query, n_documents),
            "doc": order.ravel(),
            "position": np.tile(np.arange(1, n_documents + 1), n_pages),
            "click": clicked.ravel().astype(int),
        }
    )


@pytest.mark.parametrize(
    ("noise", "temperature", "n_logs", "lead", "behind"),
    # Behind a strong production ranker that moves documents little, COEC expects too many clicks
    # where good documents stand; behind a weak one, or one that moves them much, it loses little.
    # The first has few matched pairs: in a log the lead over COEC is .14 with a standard deviation
    # of .1, and that over the click rate 0 with one of .045. Three standard errors are allowed.
    [
        (0.3, 0.3, 6, 0.02, 0.055),
        (1.0, 0.3, 3, 0.005, 0.005),
        (3.0, 1.0, 3, -0.005, 0.005),
        (1.0, 3.0, 3, -0.005, 0.005),
    ],
)
def test_ahead_of_rivals_or_level_with_them(noise, temperature, n_logs, lead, behind):
    found = [
        pairs_right(draw_log(noise, temperature, seed), LayoutSplit(1, random_state=seed))
        for seed in range(10, 10 + n_logs)
    ]
    mean = pd.concat(found, axis=1).mean(axis=1)
    ours = mean[["PBM", "UBM", "labels"]]
    assert (ours > mean["COEC"] + lead).all(), mean
    assert (ours > mean["click rate"] - behind).all(), mean


def _read(name):
    folder = os.environ.get("SKULTR_DATA")
    if folder is None or not (Path(folder) / f"{name}.parquet").exists():
        pytest.skip(f"{name}.parquet is not in the folder that SKULTR_DATA names ({folder})")
    return pd.read_parquet(Path(folder) / f"{name}.parquet", columns=[*ROLES, "click"])


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
# Some pages of Sogou show a document twice.
@pytest.mark.filterwarnings("ignore:[0-9]+ rows of [0-9]+ result pages show:UserWarning")
@pytest.mark.parametrize(
    ("name", "least", "held_out", "lead"),
    # What 4 splits tell apart: a pair of Sogou is worth .01 to .08 of a split.
    [
        ("yandex_wscd_clicks", 40, "random", 0.0),
        ("yandex_wscd_clicks", 40, "far", -0.015),
        ("sogou_deepclick_clicks", 10, "random", -0.05),
    ],
)
def test_real_clicks_when_the_page_is_reordered(name, least, held_out, lead):
    found = pairs_right(_read(name), LayoutSplit(4, held_out=held_out, random_state=3), least)
    ours = found[["PBM", "UBM"]]
    assert (ours > found["COEC"] + lead).all(), found
    assert (ours > found["click rate"] + (0.05 if least == 40 else -0.05)).all(), found
