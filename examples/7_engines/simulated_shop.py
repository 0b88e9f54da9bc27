"""A simulated shop whose search writes User Behavior Insights, with the truth behind its clicks.

``open_shop`` makes products for queries, ``serve`` lets users search, and ``write_ndjson`` and
``write_parquet`` write their queries and events as OpenSearch does (UBI 1.3.0). A million events
take seconds.
"""

import json
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd

from skultr.datasets import make_ltr
from skultr.simulation import PlackettLucePolicy, production_scores, simulate_clicks

ADJECTIVES = """black white red blue green small large light heavy cheap warm soft
waterproof wireless portable folding outdoor vintage wooden steel"""
NOUNS = """shoes tent lamp charger backpack kettle jacket chair desk bottle blanket speaker
headphones keyboard mug umbrella pillow knife mirror clock scarf helmet bicycle drill
camera rug towel shelf grill"""
#: Names that a search team gives its features.
_FEATURES = """title_bm25 description_bm25 brand_match category_match price discount stock rating
n_ratings sales_30d clicks_30d age_days margin shipping_days image_count title_length"""
FEATURES = _FEATURES.split()
FIRST_SEARCH = np.datetime64("2026-01-05T08:00:00.000", "ms")


@dataclass(frozen=True)
class Visits:
    """What users did, in the columns of UBI, and what decided it.

    ``queries`` has one row per search, ``impressions`` one per product shown, with ``click``;
    ``examination`` is P(looked at) by position from 1.
    """

    queries: pd.DataFrame
    impressions: pd.DataFrame
    examination: np.ndarray

    @property
    def n_events(self):
        return len(self.impressions) + int(self.impressions["click"].sum())


def open_shop(n_queries=400, n_products=20, *, production=0.01, random_state=0):
    """Products by query: ``qid`` (words), ``doc``, ``relevance``, features, ``production``.

    ``production`` is the share of the queries whose annotation trained the ranker that serves.
    """
    shop = make_ltr(
        n_queries,
        n_products,
        len(FEATURES),
        n_informative=len(FEATURES),
        random_state=random_state,
    )
    scores = production_scores(shop, fraction=production, random_state=random_state)
    shop.columns = ["qid", "doc", "relevance", *FEATURES]
    words = np.array([" ".join(pair) for pair in product(ADJECTIVES.split(), NOUNS.split())])
    if n_queries > len(words):
        raise ValueError(f"n_queries must be at most {len(words)}, got {n_queries}.")
    words = np.random.default_rng(random_state).permutation(words)
    shop["qid"] = words[shop["qid"]]
    shop["doc"] = [f"P{number:06d}" for number in shop["doc"]]
    return shop.assign(production=scores)


def serve(shop, n_pages=10_000, *, user=None, temperature=0.1, n_positions=10, random_state=0):
    """Users search ``n_pages`` times; production ranks, with noise of this temperature."""
    X, clicks, truth = simulate_clicks(
        shop.drop(columns="production"),
        n_sessions=n_pages,
        n_positions=n_positions,
        policy=PlackettLucePolicy(temperature=temperature),
        scores=shop["production"],
        user=user,
        features=False,
        random_state=random_state,
    )
    rng = np.random.default_rng(random_state)
    first = X.drop_duplicates("session").set_index("session")["qid"]
    seconds = np.sort(rng.integers(0, 28 * 24 * 3600, n_pages))
    queries = pd.DataFrame(
        {
            "query_id": [f"q-{page:07d}" for page in first.index],
            "client_id": [
                f"c-{who:05d}" for who in rng.integers(0, max(n_pages // 5, 1), n_pages)
            ],
            "user_query": _as_typed(first.to_numpy(), rng),
            "time": FIRST_SEARCH + (1000 * seconds).astype("timedelta64[ms]"),
        }
    )
    page = X["session"].to_numpy()
    impressions = queries.loc[page, ["query_id", "client_id", "user_query", "time"]]
    impressions = impressions.reset_index(drop=True).assign(
        object_id=X["doc"].to_numpy(), ordinal=X["position"].to_numpy(), click=clicks
    )
    return Visits(queries, impressions, truth.examination)


def _as_typed(words, rng):
    """One search in five is typed with capitals or with a space too many."""
    forms = [words, np.char.title(words.astype(str)), np.char.add(words.astype(str), " ")]
    return np.choose(rng.choice(3, len(words), p=[0.8, 0.1, 0.1]), forms)


def events_of(visits):
    """The events in the order of time: each product shown, and each click some seconds later."""
    shown = visits.impressions
    clicked = shown[shown["click"] == 1]
    after = np.arange(len(clicked)) % 20_000 + 1_500
    clicked = clicked.assign(time=clicked["time"] + after.astype("timedelta64[ms]"))
    events = pd.concat(
        [shown.assign(action_name="impression"), clicked.assign(action_name="click")],
        ignore_index=True,
    )
    return events.drop(columns="click").sort_values("time", kind="stable", ignore_index=True)


def write_ndjson(visits, path):
    """One file for the bulk interface of OpenSearch: searches, then events."""
    queries, events = visits.queries, events_of(visits)
    text = {words: json.dumps(words) for words in queries["user_query"].unique()}
    searches = (
        f'{{"index":{{"_index":"ubi_queries","_id":"{query}"}}}}\n'
        f'{{"application":"shop","query_id":"{query}","client_id":"{client}",'
        f'"user_query":{text[words]},"query_attributes":{{}},"timestamp":"{time}Z"}}\n'
        for query, client, words, time in zip(
            queries["query_id"],
            queries["client_id"],
            queries["user_query"],
            np.datetime_as_string(queries["time"]),
            strict=True,
        )
    )
    actions = (
        f'{{"index":{{"_index":"ubi_events","_id":"e-{number}"}}}}\n'
        f'{{"application":"shop","action_name":"{action}","query_id":"{query}",'
        f'"client_id":"{client}","user_query":{text[words]},"timestamp":"{time}Z",'
        f'"event_attributes":{{"object":{{"object_id":"{item}"}},'
        f'"position":{{"ordinal":{ordinal}}}}}}}\n'
        for number, (action, query, client, words, time, item, ordinal) in enumerate(
            zip(
                events["action_name"],
                events["query_id"],
                events["client_id"],
                events["user_query"],
                np.datetime_as_string(events["time"]),
                events["object_id"],
                events["ordinal"],
                strict=True,
            )
        )
    )
    with Path(path).open("w", encoding="utf-8") as file:
        file.writelines(searches)
        file.writelines(actions)


def write_parquet(visits, queries_path, events_path):
    """Both indices as Parquet, with the nested fields of UBI."""
    import pyarrow as pa
    from pyarrow import parquet

    queries = visits.queries
    table = {
        "application": pa.repeat("shop", len(queries)),
        "query_id": pa.array(queries["query_id"]),
        "client_id": pa.array(queries["client_id"]),
        "user_query": pa.array(queries["user_query"]),
        "timestamp": _iso(queries["time"]),
    }
    parquet.write_table(pa.table(table), queries_path)
    events = events_of(visits)
    item = pa.StructArray.from_arrays([pa.array(events["object_id"])], ["object_id"])
    place = pa.StructArray.from_arrays([pa.array(events["ordinal"])], ["ordinal"])
    table = {
        "application": pa.repeat("shop", len(events)),
        "action_name": pa.array(events["action_name"]),
        "query_id": pa.array(events["query_id"]),
        "client_id": pa.array(events["client_id"]),
        "user_query": pa.array(events["user_query"]),
        "timestamp": _iso(events["time"]),
        "event_attributes": pa.StructArray.from_arrays([item, place], ["object", "position"]),
    }
    parquet.write_table(pa.table(table), events_path)


def _iso(times):
    import pyarrow as pa

    return pa.array(np.char.add(np.datetime_as_string(times), "Z"))
