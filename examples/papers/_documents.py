"""Documents of the studies: made ones, or a LETOR set of the reader's own (``--letor``)."""

from functools import lru_cache
from pathlib import Path

import numpy as np
import pandas as pd
from pyarrow.parquet import read_schema

from skultr.datasets import load_letor, make_ltr
from skultr.model_selection import train_test_queries

#: Words in the names of files and in a column ``split`` that tell the parts of a published split.
PARTS = {"train": ("train",), "test": ("test",), "validation": ("vali", "dev")}
PARQUET = (".parquet", ".pq")
SUFFIXES = (".txt", ".svm", ".svmlight", ".libsvm", ".dat", ".gz", ".bz2", *PARQUET)


def split_documents(settings, n_train, n_test, *, seed=0, n_features=20, **made):
    """Training and test documents: two frames with ``qid``, ``doc``, ``relevance``, features.

    Without ``--letor`` they are made (``made``: keywords of `make_ltr`) and differ by ``seed``.
    With it, ``n_train`` and ``n_test`` are the most queries of each part; the split is the one of
    the files where there is a test file, and random by ``seed`` otherwise. ``--queries`` takes
    the place of ``n_train`` in both cases.
    """
    n_train = settings.queries or n_train
    if settings.letor is None:
        documents = make_ltr(n_train + n_test, n_features=n_features, random_state=seed, **made)
        return train_test_queries(documents, test_size=n_test, random_state=seed)
    parts = read_letor(settings.letor)
    train, test = parts["train"], parts.get("test")
    if test is None:
        train, test = train_test_queries(train, test_size=0.3, random_state=seed)
    return _some_queries(train, n_train, seed), _some_queries(test, n_test, seed)


@lru_cache(maxsize=2)
def read_letor(path):
    """The parts of a LETOR set: a dict with ``train``, and ``test``, ``validation`` where found.

    ``path`` is a file or a folder. In a folder, the first file with "train" in its name and the
    files beside it count, so that of five folds the first is taken.
    """
    path = Path(path)
    files = letor_files(path)
    parts = _parts_of_parquet(path) if path.suffix in PARQUET else {}
    parts = parts or {part: load_letor([str(name) for name in files[part]]) for part in files}
    # svmlight leaves out zeros: a part need not show all features of the set.
    columns = sorted({name for part in parts.values() for name in feature_columns(part)})
    return {
        part: frame.reindex(columns=["qid", "doc", "relevance", *columns], fill_value=0)
        for part, frame in parts.items()
    }


def letor_files(path):
    """Part -> its files. One file, or files whose names tell no part, are all ``train``."""
    path = Path(path)
    files = [path] if path.is_file() else sorted(p for p in path.rglob("*") if p.is_file())
    files = [p for p in files if p.suffix in SUFFIXES]
    if not files:
        raise ValueError(
            f"{path} holds no LETOR file; expected svmlight (.txt, .svm, .dat, also "
            ".gz or .bz2) or Parquet, such as train.txt and test.txt"
        )
    trains = [p for p in files if _part_of(p.name) == "train"]
    if path.is_file() or not trains:
        return {"train": files}
    beside = [p for p in files if p.parent == trains[0].parent]
    found = {part: [p for p in beside if _part_of(p.name) == part] for part in PARTS}
    # Yahoo's two sets lie in one folder: set 1 comes first.
    return {part: names[:1] for part, names in found.items() if names}


def name_of(letor):
    """``Yahoo!`` or ``Istella-S`` if the path of a set says so, else its last part."""
    path = Path(letor).resolve().as_posix().lower()
    known = {"yahoo": "Yahoo!", "set1": "Yahoo!", "istella": "Istella-S"}
    return next((known[word] for word in known if word in path), Path(letor).stem)


def feature_columns(documents):
    """Names of the feature columns."""
    return [name for name in documents if name not in ("qid", "doc", "relevance")]


def _parts_of_parquet(path):
    """The parts that a column ``split`` tells; empty without one."""
    if "split" not in read_schema(path).names:
        return {}
    names = pd.read_parquet(path, columns=["split"])["split"].unique()
    by_part = {part: [n for n in names if _part_of(str(n)) == part] for part in PARTS}
    return {part: load_letor(path, split=names) for part, names in by_part.items() if names}


def _part_of(name):
    return next(
        (part for part, words in PARTS.items() if any(word in name.lower() for word in words)),
        None,
    )


def _some_queries(documents, n_queries, seed):
    ids = documents["qid"].unique()
    if len(ids) > n_queries:
        kept = np.random.default_rng(seed).choice(ids, n_queries, replace=False)
        documents = documents[documents["qid"].isin(kept)]
    # The simulator and the rankers want ids that are unique over the parts they see.
    return documents.assign(doc=np.arange(len(documents))).reset_index(drop=True)
