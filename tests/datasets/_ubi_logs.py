"""Logs of User Behavior Insights for tests: records, clean logs, files."""

import json

import numpy as np


def search(query_id, user_query, **fields):
    """A query record, as (index, document)."""
    return "ubi_queries", {
        "application": "shop",
        "query_id": query_id,
        "client_id": "c-1",
        "user_query": user_query,
        "query_attributes": {},
        "timestamp": "2024-12-10T00:26:04.625Z",
    } | fields


def event(action, doc, ordinal, query_id="q0", **fields):
    """An event with attributes by the schema, as a document."""
    return {
        "application": "shop",
        "action_name": action,
        "query_id": query_id,
        "client_id": "c-1",
        "timestamp": "2024-12-10T00:26:05.000Z",
        "event_attributes": {
            "object": {"object_id": doc, "object_id_field": "asin"},
            "position": {"ordinal": ordinal},
        },
    } | fields


def pair(record):
    """Index and document of a record."""
    return record if isinstance(record, tuple) else ("ubi_events", record)


def clean_log(n_pages=40, width=5, seed=0):
    """Pages of ``width`` documents of few queries, ordinals from 0, and clicks on some."""
    rng = np.random.default_rng(seed)
    records = []
    for k in range(n_pages):
        query = int(rng.integers(0, 4))
        ids = {"query_id": f"q{k}", "client_id": f"c-{k % 7}"}
        docs = [f"d{query}-{j}" for j in rng.permutation(2 * width)[:width]]
        records.append(search(user_query=f"Query {query}", query_response_hit_ids=docs, **ids))
        records += [pair(event("impression", doc, j, **ids)) for j, doc in enumerate(docs)]
        for j in np.flatnonzero(rng.random(width) < 0.2):
            records.append(pair(event("click", docs[j], int(j), **ids)))
    return records


def lines_of(records, bulk=True):
    """Lines of a file, each with its action before it if ``bulk``."""
    lines = []
    for number, (index, document) in enumerate(map(pair, records)):
        if bulk:
            lines.append(json.dumps({"index": {"_index": index, "_id": f"id-{number}"}}))
        lines.append(json.dumps(document))
    return lines


def write(path, records, bulk=True):
    path.write_text("\n".join(lines_of(records, bulk)) + "\n", encoding="utf-8")
    return path
