"""Documents with relevance labels, made or read, and click logs that search engines write.

:func:`make_ltr` and :func:`load_letor` return a pandas frame with one row per query-document
pair: the role columns ``qid``, ``doc`` and ``relevance``, then the features. :func:`letor_splits`
finds the files of a published set.
:func:`skultr.simulation.simulate_clicks` turns such a frame into a click log, and
:func:`read_ubi` returns the click log of a search engine, with a report of how it was read.
:func:`fetch_trec_sessions` downloads a small log of real clicks, and :func:`load_tiangong_st` and
:func:`load_baidu_ultr` read large ones that their owners hand out.
"""

from ._letor import letor_splits, load_letor
from ._make import make_ltr
from ._published_logs import load_baidu_ultr, load_tiangong_st
from ._sessions import fetch_trec_sessions
from ._ubi import UBIReport, read_ubi

__all__ = [
    "UBIReport",
    "fetch_trec_sessions",
    "letor_splits",
    "load_baidu_ultr",
    "load_letor",
    "load_tiangong_st",
    "make_ltr",
    "read_ubi",
]
