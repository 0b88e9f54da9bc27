"""Documents with relevance labels, made or read, and click logs that search engines write.

:func:`make_ltr` and :func:`load_letor` return a pandas frame with one row per query-document
pair: the role columns ``qid``, ``doc`` and ``relevance``, then the features. :func:`letor_splits`
finds the files of a published set.
:func:`skultr.simulation.simulate_clicks` turns such a frame into a click log, and
:func:`read_ubi` returns the click log of a search engine, with a report of how it was read.
:func:`load_result_lists` reads pages of documents that have no features.
"""

from ._letor import load_letor
from ._letor_files import letor_splits
from ._make import make_ltr
from ._result_lists import load_result_lists
from ._ubi import read_ubi
from ._ubi_report import UBIReport

__all__ = ["UBIReport", "letor_splits", "load_letor", "load_result_lists", "make_ltr", "read_ubi"]
