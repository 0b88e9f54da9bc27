"""The command line: ``skultr check FILE`` and ``skultr ubi FILE --out FOLDER``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

from .._base._progress import show_progress
from .._base._texts import VisibleStream
from ..exceptions import is_meant
from ._log_verdict import LEVELS
from ._report import describe_log
from ._seals import refuse_page, replace_page
from ._training_code import ENGINES


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; 2 if the input cannot be used, else 0 or the verdict of ``check``."""
    # Names of columns, ids and files are a stranger's: no terminal obeys what stands in them.
    with redirect_stdout(VisibleStream(sys.stdout)), redirect_stderr(VisibleStream(sys.stderr)):
        return _run(sys.argv[1:] if arguments is None else arguments)


def _run(arguments):
    show_progress()  # where a person watches
    parser = argparse.ArgumentParser("skultr", description="Unbiased learning to rank.")
    commands = parser.add_subparsers(required=True, metavar="COMMAND", dest="command")
    check = commands.add_parser(
        "check",
        help="what a click log holds, its faults, and the code that trains from it",
        description="Reads a click log: one row per document of each result page, under any "
        "names of columns. Formats: Parquet, tables of text such as CSV, newline-delimited "
        "JSON (these two also as .gz and .zst), Arrow, and folders of such files.",
        epilog="Exit code: 0 if a model can be trained on the clicks; 1 if with care, or if a "
        "column is not known; 3 if the clicks do not show what users like, or the log has faults; "
        "2 if the input cannot be read.",
    )
    check.add_argument(
        "files",
        nargs="+",
        metavar="FILE",
        help="one or several files, a folder, or a pattern such as 'log/part-*.parquet'",
    )
    check.add_argument("--click", metavar="COLUMN", help="the column of clicks; found by default")
    check.add_argument(
        "--rename",
        nargs="+",
        action="extend",
        default=[],
        metavar="COLUMN=ROLE",
        type=lambda text: text.rpartition("=")[::2],
        help="roles of columns, such as place=position seen=click; others are found",
    )
    check.add_argument("--html", metavar="OUT", help="writes the report as an HTML file, too")
    check.add_argument("--json", action="store_true", help="prints the report as JSON")
    check.add_argument(
        "--engine",
        choices=ENGINES,
        default="python",
        help="where the model will run: decides the code that is printed; by default python",
    )
    check.set_defaults(run=_check)
    ubi = commands.add_parser(
        "ubi",
        help="verdict, judgments and a model from the click log of a search engine",
        description="Reads User Behavior Insights (OpenSearch, or the same fields from any "
        "engine) and writes report.html, judgments, the log and, with --features, a model.",
        epilog="Exit code: 0 if files were written, whatever the verdict; 2 if the input cannot "
        "be used. Where the log determines nothing, names of judgments and model begin with "
        "'assumed-'.",
    )
    # The other command starts without what takes seconds to import.
    if "ubi" in arguments[:1]:
        from ._verdict import add_arguments, run  # which imports torch

        add_arguments(ubi)
        ubi.set_defaults(run=run)
    options = parser.parse_args(arguments)
    try:
        status = options.run(options)
    except (ImportError, OSError, ValueError) as error:
        # A ValueError that this package did not mean is a fault of its own, and shows where.
        if isinstance(error, ValueError) and not is_meant(error):
            raise
        print(f"skultr {options.command}: error:", *str(error).split(), file=sys.stderr)
        return 2
    return status or 0


def _check(options):
    files = options.files if len(options.files) > 1 else options.files[0]
    page = None if options.html is None else Path(options.html)
    if page is not None:
        refuse_page(page, options.files)  # before a long log is read
    report = describe_log(files, options.click, rename=dict(options.rename), engine=options.engine)
    # The page comes last: what is printed is there even if the page cannot be written.
    print(report.to_json() if options.json else report)
    if page is not None:
        replace_page(page, report.page(), options.files)
        print(f"wrote {page}", file=sys.stderr if options.json else sys.stdout)
    return LEVELS[report.level][0]
