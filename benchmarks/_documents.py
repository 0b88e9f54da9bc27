"""Documents of the studies: made ones, or a LETOR set of the reader's own (``--letor``)."""

from functools import lru_cache
from pathlib import Path

import lightgbm
import numpy as np
import pandas as pd
from pyarrow.parquet import read_schema
from sklearn.preprocessing import QuantileTransformer
from sklearn.svm import LinearSVC

from skultr.datasets import letor_splits, load_letor, make_ltr
from skultr.model_selection import train_test_queries


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


def whole_letor(path):
    """All splits of a LETOR set as one frame, with ids of documents that are all its own."""
    documents = pd.concat(read_letor(path).values(), ignore_index=True)
    return documents.assign(doc=np.arange(len(documents)))


@lru_cache(maxsize=2)
def read_letor(path):
    """The splits of a LETOR set: a dict with ``train``, and ``test``, ``validation`` if found.

    ``path`` is a file or a folder, of which the first fold is read. One file without a column
    ``split`` is all ``train``, and so are several files.
    """
    if isinstance(path, tuple):
        return {"train": load_letor(path)}
    path = Path(path)
    if path.is_dir():
        fold = first_fold(path)
        return {split: load_letor(path, split=split, fold=fold) for split in splits_of(path)}
    names = _splits_of_parquet(path) if path.suffix in (".parquet", ".pq") else []
    named = [name for name in names if name in ("train", "validation", "test")]
    return {name: load_letor(path, split=name) for name in named} or {"train": load_letor(path)}


def splits_of(path):
    """Split -> its file, in the first fold of a folder."""
    splits = letor_splits(path, fold=first_fold(path))
    if "train" not in splits:
        raise ValueError(f"{path} holds {list(splits)}; expected a file such as train.txt too")
    return splits


def first_fold(path):
    """1 if the folder holds several folds (or Yahoo!'s two sets), else None: the only one."""
    try:
        letor_splits(path, fold=1)
    except ValueError:
        return None
    return 1


def name_of(letor):
    """``Yahoo!`` or ``Istella-S`` if the (first) path of a set says so, else its last part."""
    first = Path(letor[0] if isinstance(letor, tuple) else letor)
    path = first.resolve().as_posix().lower()
    known = {"yahoo": "Yahoo!", "set1": "Yahoo!", "istella": "Istella-S"}
    return next((known[word] for word in known if word in path), first.stem)


def feature_columns(documents):
    """Names of the feature columns."""
    return [name for name in documents if name not in ("qid", "doc", "relevance")]


def tree_scores(known, documents, n_estimators=200):
    """Scores of a ranker that serves: trees that have learned the labels of ``known``."""
    trees = lightgbm.LGBMRegressor(
        n_estimators=n_estimators, num_leaves=15, min_child_samples=5, verbose=-1, n_jobs=1
    )
    features = [name for name in documents if name.startswith("feature_")]
    return trees.fit(known[features], known["relevance"]).predict(documents[features])


def ranking_svm(documents, fraction, seed, *, at_least=1):
    """Scores of a linear SVM on pairs of documents of one query (Joachims 2002).

    It knows the grades of a share of the queries, of ``at_least`` so many, and of more where
    these have no pair. Features are quantiles, as their scales differ by orders of magnitude.
    """
    rng = np.random.default_rng([12, seed])
    features = documents[feature_columns(documents)].to_numpy(float)
    features = QuantileTransformer(n_quantiles=200, random_state=seed).fit_transform(features)
    queries = rng.permutation(documents["qid"].unique())
    qid, grade = documents["qid"].to_numpy(), documents["relevance"].to_numpy()
    for n_queries in range(max(at_least, round(fraction * len(queries))), len(queries) + 1):
        rows = np.flatnonzero(np.isin(qid, queries[:n_queries]))
        better, worse = _pairs(qid[rows], grade[rows])
        if len(better):
            break
    difference = features[rows[better]] - features[rows[worse]]
    sign = rng.choice([-1, 1], len(difference))
    sign[:2] = (-1, 1)[: len(sign)]
    svm = LinearSVC(fit_intercept=False, random_state=seed)
    return features @ svm.fit(difference * sign[:, None], sign).coef_[0]


def _pairs(qid, grade):
    """Rows of the better and of the worse document of each pair of a query."""
    return np.nonzero((qid[:, None] == qid) & (grade[:, None] > grade))


def _splits_of_parquet(path):
    """Values of the column ``split``; empty without one."""
    if "split" not in read_schema(path).names:
        return []
    return pd.read_parquet(path, columns=["split"])["split"].unique().tolist()


def _some_queries(documents, n_queries, seed):
    ids = documents["qid"].unique()
    if len(ids) > n_queries:
        kept = np.random.default_rng(seed).choice(ids, n_queries, replace=False)
        documents = documents[documents["qid"].isin(kept)]
    # The simulator and the rankers want ids that are unique over the parts they see.
    return documents.assign(doc=np.arange(len(documents))).reset_index(drop=True)
