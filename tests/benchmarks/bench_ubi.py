"""Reading ten million events of User Behavior Insights, as ndjson and as Parquet.

Usage: OMP_NUM_THREADS=1 python tests/benchmarks/bench_ubi.py [--events 1e7] [--folder PATH]

Pages show ten documents and have one click: eleven events of some 600 bytes each, and a query
record. The files are made of one block of pages that is written again under other ids; with 1e7
events the ndjson takes 7 GB. Each file is read in a process of its own; the memory is that of the
process and its workers together (proportional to shared pages). The time is compared with that of
``json.loads`` alone for the same lines on one core, measured on the first of them.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

PER_PAGE, PAGES, QUERIES = 10, 20_000, 5_000
#: What is replaced in a block, by its number: part of every id of a page.
BLOCK = "00000000"


def records() -> Iterator[tuple[str, str, dict]]:
    """Index, id and document of each record of one block."""
    rng = np.random.default_rng(0)
    shown = rng.integers(0, 200_000, (PAGES, PER_PAGE)) * PER_PAGE + np.arange(PER_PAGE)
    clicked = rng.integers(0, PER_PAGE, PAGES)
    query_of = rng.zipf(1.3, PAGES) % QUERIES
    for page in range(PAGES):
        query_id = f"{BLOCK}-{page:04x}-4c01-9084-912f318569f9"
        user_query = f"query of some words {query_of[page]}"
        common = {
            "application": "shop",
            "query_id": query_id,
            "session_id": f"{BLOCK}-{page // 3:04x}-4b7d-9aa7-b45d7403dffa",
            "client_id": f"{page // 5:08x}-1f4a-4467-a927-1ed5d6b8465a",
            "timestamp": "2024-12-10T00:26:04.625Z",
            "user_query": user_query,
        }
        yield "ubi_queries", query_id, common
        for action, place in [("impression", k) for k in range(PER_PAGE)] + [
            ("click", int(clicked[page]))
        ]:
            doc = f"B{shown[page, place]:09d}"
            attributes = {
                "object": {
                    "object_id": doc,
                    "object_id_field": "asin",
                    "description": f"A document with the title that documents have, {doc}",
                },
                "position": {"ordinal": place},
            }
            event = {"action_name": action, "message_type": "INFO", "message": None}
            key = f"{BLOCK}-{page:04x}-{action[0]}{place:03x}-8a5a-1d4d24ce7f03"
            yield "ubi_events", key, {**common, **event, "event_attributes": attributes}


def write_lines(path: Path, n_blocks: int) -> None:
    block = "".join(
        f"{json.dumps({'index': {'_index': index, '_id': key}})}\n{json.dumps(record)}\n"
        for index, key, record in records()
    ).encode()
    with path.open("wb") as file:
        for number in range(n_blocks):
            file.write(block.replace(BLOCK.encode(), f"{number:08x}".encode()))


def write_parquet(path: Path, n_blocks: int) -> None:
    """Nested Parquet with a row group per block; both kinds of records in one file."""
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    rows = [{**record, "_id": key} for _, key, record in records()]
    event = pa.Table.from_pylist([rows[1] | {"message": ""}]).schema
    block = pa.Table.from_pylist(rows, schema=event)
    with pq.ParquetWriter(path, block.schema) as writer:
        for number in range(n_blocks):
            new = block
            for name in ("_id", "query_id", "session_id"):
                ids = pc.replace_substring(block[name], BLOCK, f"{number:08x}")
                new = new.set_column(new.column_names.index(name), name, ids)
            writer.write_table(new)


def memory(pid: int) -> float:
    """Gigabytes of a process and its children."""
    total, waiting = 0.0, [pid]
    while waiting:
        each = waiting.pop()
        try:
            rollup = Path(f"/proc/{each}/smaps_rollup").read_text()
            children = Path(f"/proc/{each}/task/{each}/children").read_text().split()
        except OSError:  # ended meanwhile
            continue
        total += int(rollup.split("Pss:")[1].split()[0]) / 1024**2
        waiting += map(int, children)
    return total


def read_apart(path: Path) -> None:
    """Read a file in a process of its own, and print what it took."""
    process = subprocess.Popen([sys.executable, __file__, "--read", path])
    peak, before = 0.0, resource.getrusage(resource.RUSAGE_CHILDREN)
    while process.poll() is None:
        peak = max(peak, memory(process.pid))
        time.sleep(0.2)
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = used.ru_utime + used.ru_stime - before.ru_utime - before.ru_stime
    print(f"  peak memory {peak:.2f} GB, {seconds:.0f} s on all cores together", flush=True)


def read(path: Path) -> None:
    from skultr.datasets import read_ubi

    start = time.perf_counter()
    log, report = read_ubi(path)
    wall = time.perf_counter() - start
    n_events = report.n_records("event")
    print(
        f"{path.suffix}: {n_events:,} events in {wall:.1f} s, {wall / n_events * 1e6:.2f} us each"
    )
    assert report.n_records("event", used=False) == 0
    assert len(log) * 11 == n_events * 10
    if path.suffix != ".parquet":
        print(f"  {wall / (parsing(path) * n_events):.2f} of json.loads on one core", flush=True)


def parsing(path: Path) -> float:
    """Seconds per event of json.loads alone."""
    with path.open("rb") as file:
        lines = [line for _, line in zip(range(400_000), file, strict=False)]
    start = time.process_time()
    for line in lines:
        json.loads(line)
    return (time.process_time() - start) / sum(b'"action_name"' in line for line in lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--events", type=float, default=1e7)
    parser.add_argument("--folder", type=Path, help="kept, and used again; by default temporary")
    parser.add_argument("--read", type=Path, help="a file to read in this process")
    given = parser.parse_args()
    if given.read:
        read(given.read)
        return
    n_blocks = max(round(given.events / (PAGES * (PER_PAGE + 1))), 1)
    with tempfile.TemporaryDirectory() as temporary:
        folder = given.folder or Path(temporary)
        folder.mkdir(exist_ok=True)
        for name, write in (("log.ndjson", write_lines), ("log.parquet", write_parquet)):
            if not (folder / name).exists():
                write(folder / name, n_blocks)
            read_apart(folder / name)


if __name__ == "__main__":
    main()
