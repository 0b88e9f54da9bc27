"""The lines of code that read a log, mend it, train a ranker and rank candidates."""

from __future__ import annotations

from .._log._estimator import DROP, RENAME
from .._log._faults import ADD_ONE
from .._log._lookalikes import features_that_name
from ._log_columns import NEEDED, TEXT, LogTable
from ._log_files import Files, reading_code
from ._log_verdict import LogVerdict
from ._thresholds import FEW_TEXTS

# Pairs of lines are for pandas and for Polars.
#: Words become clicks or outcomes.
_COMPARES_WORD = (
    "log[{0!r}] = log[{0!r}] == {1!r}",
    "log = log.with_columns(pl.col({0!r}) == {1!r})",
)
_LEAVES_OUT = (
    "log = log[~log[{0!r}].astype(bool)]",
    "log = log.filter(~pl.col({0!r}).cast(pl.Boolean))",
)
#: A comment: who is a bot is for the user to say.
_LEAVES_OUT_USERS = (
    "# log = log[~log['user'].isin({0!r})]  # if these are bots",
    "# log = log.filter(~pl.col('user').is_in({0!r}))  # if these are bots",
)
_ASKS_FOR_ROLES = "# Complete this line. The other columns are {0}."
_RANKS = (
    """\
candidates = log.drop_duplicates(["qid", "doc"])  # or others: their qid and features
candidates = candidates.assign(score=ranker.predict(candidates))
scores = candidates.groupby("qid")["score"]
candidates = candidates.assign(rank=scores.rank(ascending=False, method="first"))""",
    """\
candidates = log.unique(["qid", "doc"])  # or others: their qid and features
candidates = candidates.with_columns(score=ranker.predict(candidates))
rank = pl.col("score").rank("ordinal", descending=True).over("qid")
candidates = candidates.with_columns(rank=rank)""",
)


#: Where a model runs, the format of its file, and the file.
ENGINES = {
    "python": ("", ""),
    "opensearch": ("xgboost+json", "model.json"),
    "elasticsearch": ("elastic", "model.json"),
    "solr": ("solr", "model.json"),
    "vespa": ("lightgbm", "model.json"),
    "onnx": ("onnx", "model.onnx"),
}
#: What the code says of a log that is not enough, by the level of its verdict.
_WARNINGS = {
    "no": "# CAUTION: these clicks do not separate place from quality. A model repeats the order.",
    "faulty": "# CAUTION: the log has faults. Mend those that no line below mends.",
    "barely": "# With care: at some places the clicks determine little. See the report.",
}


#: Lines that import, by what uses them.
_IMPORTS = {
    "glob.glob(": "import glob",
    "pd.": "import pandas as pd",
    "pl.": "import polars as pl",
}


def training_code(
    table: LogTable,
    mends: list[tuple[str, str]],
    files: Files | None,
    engine: str,
    verdict: LogVerdict,
) -> str:
    """The lines that read and train; while a role is not known, those that rename, to complete."""
    is_polars = table.frame.implementation.is_polars()
    lines = _reading(table, files, is_polars)
    if table.missing:
        lines += _mending(table, mends, is_polars)
        return "\n".join(lines)
    text = [name for name in table.features if isinstance(table.frame[name].dtype, TEXT)]
    encoded = [name for name in text if table.frame[name].n_unique() <= FEW_TEXTS.value]
    # The code must name every column that no ranker should read.
    if engine != "python":
        # Engines compute features of numbers; text is encoded there, if at all.
        encoded = []
    dropped = _no_features(table, text, encoded)
    if verdict.busy_users:
        lines.append(_LEAVES_OUT_USERS[is_polars].format(verdict.busy_users))
    lines += _mending(table, mends, is_polars)
    if dropped:
        lines.append(DROP[is_polars].format(dropped))
    # Without a feature there is no ranker, but labels of documents.
    has_features = not {*table.features} <= {*dropped}
    imports, more = _learning(engine, encoded, is_polars) if has_features else _labels()
    lines += more
    # Only what the lines use is imported.
    text_of_lines = "".join(lines)
    imports += [line for used, line in _IMPORTS.items() if used in text_of_lines]
    caution = [_WARNINGS[verdict.level]] if verdict.level in _WARNINGS else []
    return "\n".join([*caution, *sorted(imports), "", *lines])


def _learning(engine, encoded, is_polars):
    """Imports and lines that train a model for where it will run."""
    if engine == "python":
        return _training(encoded, is_polars)
    return _exporting(engine)


def _no_features(table, text, encoded):
    """Columns that a ranker must not read: of pages, times, text, lists, names of documents."""
    named = {found["name"] for found in features_that_name(table.sample)}
    about_no_document = {*table.page_columns, *table.place_columns, *table.times}
    no_features = {*about_no_document, *text, *named} - {*encoded}
    dropped = [name for name in table.frame.columns if name in no_features]
    return [*dropped, *table.left_out]


def _reading(table, files, is_polars):
    """Lines that read the file, if there is one, and rename its columns."""
    lines = []
    if files is not None:
        lines.append(reading_code(files, is_polars))
    # A role that no column looks like stands in the line to complete, in angle brackets.
    asked = {f"<{NEEDED[role]}>": role for role in table.missing}
    rename = table.rename | asked
    if rename:
        lines.append(RENAME[is_polars].format(rename))
    others = [name for name in table.frame.columns if name not in table.roles]
    if table.missing and others:
        lines.append(_ASKS_FOR_ROLES.format(others))
    return lines


def _mending(table, mends, is_polars):
    """Lines that leave out paid slots, make words into numbers, let positions count from 1, and
    mend faults."""
    lines = [_LEAVES_OUT[is_polars].format(name) for name in table.paid]
    lines += [_COMPARES_WORD[is_polars].format(*word) for word in table.words.items()]
    if table.starts_at_0:
        lines.append(ADD_ONE[is_polars].format())
    return lines + [mend[is_polars].format() for mend in mends]


def _labels():
    """Imports and lines where no feature is left: labels of documents."""
    imports = [
        "from skultr.click_models import UBMModel",
        "from skultr.propensity import relevance_labels",
    ]
    return imports, [
        "# No column is a feature: labels of documents, for a model of features to learn from",
        'labels = relevance_labels(log, "click", propensity=UBMModel(), interval=True)',
    ]


def _exporting(engine):
    """Imports and lines that train trees, and write them for an engine."""
    form, name = ENGINES[engine]
    imports = [
        "from pathlib import Path",
        "from skultr.rankers import LambdaMARTRanker",
        "from skultr.serving import export_model",
    ]
    write = "write_bytes" if form == "onnx" else "write_text"
    return imports, [
        "ranker = LambdaMARTRanker()",
        'ranker.fit(log, "click")',
        f"model = export_model(ranker, {form!r})  # names its features as the log does",
        f"Path({name!r}).{write}(model)",
    ]


def _training(encoded, is_polars):
    """Imports and lines that train a ranker, with these columns of text encoded, and rank."""
    imports = ["from skultr.rankers import EnsembleRanker"]
    lines = []
    ranker = "EnsembleRanker()"
    if encoded:
        imports += [
            "from sklearn.compose import make_column_transformer",
            "from sklearn.pipeline import make_pipeline",
            "from sklearn.preprocessing import OneHotEncoder",
            "from skultr.preprocessing import OnFeatures",
        ]
        lines += [
            "encoder = OneHotEncoder(max_categories=30, sparse_output=False, "
            'handle_unknown="infrequent_if_exist")',
            f'features = make_column_transformer((encoder, {encoded!r}), remainder="passthrough", '
            "verbose_feature_names_out=False)",
        ]
        ranker = "make_pipeline(OnFeatures(features), EnsembleRanker())"
    lines += [f"ranker = {ranker}", 'ranker.fit(log, "click")', _RANKS[is_polars]]
    return imports, lines
