"""A small log of real clicks, downloaded once."""

from __future__ import annotations

import json
from os import PathLike
from pathlib import Path

import pandas as pd
from sklearn.datasets import fetch_file, get_data_home

from .._base._sklearn import validate_params

#: A fixed commit of https://github.com/CHIANGEL/GraphCM.
_SOURCE = (
    "https://raw.githubusercontent.com/CHIANGEL/GraphCM/"
    "ce7bcf11ccb7a4270a94e44cecd44137ac0cf1b3/data/demo/"
)
_SHA256 = {
    "train_per_query_quid.txt": "03db6562b02901f44edbab01617ea0757ab09f528cdf09d79a0964e07c30ec73",
    "valid_per_query_quid.txt": "8f439f08835dddcc575a037a7f43447db2be9df3f6556a0fb7bf3fb643185486",
    "test_per_query_quid.txt": "50e72e87688fea98ac3c05cf4a4a746fc3a0b8ad80c47ad2552016223f5b3d78",
}


@validate_params(
    {"data_home": [str, PathLike, None], "download_if_missing": ["boolean"]},
    prefer_skip_nested_validation=True,
)
def fetch_trec_sessions(
    *, data_home: str | PathLike[str] | None = None, download_if_missing: bool = True
) -> pd.DataFrame:
    """Download the result pages and clicks of the TREC 2014 Session Track.

    Workers of a crowdsourcing service searched a crawl of the web for given topics, and their
    clicks were logged [1]_: 3,596 result pages of ten documents (35,960 rows), 2,544 queries and
    1,610 clicks. Ids replace the texts of queries and the addresses of documents. There are no
    features. Use the log to estimate examination curves and labels, and to see whether a log is
    enough for that.

    The first call downloads 463 kB (three files) and checks their SHA-256 sums. Later calls read
    the files from the folder ``trec_sessions_2014`` in the data home of scikit-learn.

    Parameters
    ----------
    data_home : str or path-like, default=None
        The folder for downloaded data, see :func:`sklearn.datasets.get_data_home`. By default
        ``~/scikit_learn_data``, or the folder named by the environment variable
        ``SCIKIT_LEARN_DATA``.
    download_if_missing : bool, default=True
        If False, files that are not in ``data_home`` are an error instead of a download.

    Returns
    -------
    log : pandas.DataFrame of shape (35960, 5)
        One row per document of each result page: ``session`` (the page, from 0), ``qid``,
        ``doc``, ``position`` (from 1 to 10) and ``click`` (0 or 1), all int64. On 101 pages a
        document is at several positions.

    Raises
    ------
    OSError
        If a file can be neither read nor downloaded, or has another checksum.

    Notes
    -----
    The files come from the repository of a paper [2]_, at a fixed commit. Its licence is MIT,
    ``Copyright (c) 2021 Jianghao Lin``. The original is public at NIST
    (https://trec.nist.gov/data/session2014.html), together with grades; we found no terms of use
    for it. skultr does not ship the log.

    References
    ----------
    .. [1] B. Carterette, E. Kanoulas, M. Hall and P. Clough (2014). Overview of the TREC 2014
       Session Track. TREC.
    .. [2] J. Lin et al. (2021). A graph-enhanced click model for web search. SIGIR.
       https://github.com/CHIANGEL/GraphCM

    Examples
    --------
    >>> from skultr.datasets import fetch_trec_sessions
    >>> log = fetch_trec_sessions()  # doctest: +SKIP
    >>> log.groupby("position")["click"].mean().round(3).tolist()  # doctest: +SKIP
    [0.136, 0.089, 0.064, 0.045, 0.033, 0.024, 0.019, 0.014, 0.013, 0.011]
    """
    # Both folders are made if they do not exist.
    folder = get_data_home(Path(get_data_home(data_home), "trec_sessions_2014"))
    pages = []
    for name in _SHA256:
        path = _fetched(Path(folder, name), download_if_missing)
        for line in path.read_text().splitlines():
            # Numbers and lists of numbers, separated by tabs.
            pages.append(json.loads(f"[{line.replace(chr(9), ',')}]"))
    names = ["search", "qid", "doc", "media", "click"]
    pages = pd.DataFrame(pages, columns=names).rename_axis("session")
    # From one row per page to one row per document.
    log = pages[["qid", "doc", "click"]].explode(["doc", "click"])
    log = log.astype("int64").reset_index()
    position = log.groupby("session").cumcount() + 1
    log.insert(3, "position", position)
    return log


def _fetched(path, download):
    """The path of a file that is there, downloaded if it was not."""
    if not (download or path.exists()):
        raise OSError(
            f"{path} does not exist, and download_if_missing is False. Pass True to download it "
            f"from {_SOURCE}, or pass data_home=, the folder that holds {path.parent.name}."
        )
    try:
        return fetch_file(_SOURCE + path.name, path.parent, sha256=_SHA256[path.name], n_retries=0)
    except OSError as error:
        raise OSError(
            f"Could not download {_SOURCE}{path.name}: {error}. Try again with a connection to "
            f"that host, or save the files {', '.join(_SHA256)} from there to {path.parent}."
        ) from error
