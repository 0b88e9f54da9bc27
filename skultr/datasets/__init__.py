"""Documents with relevance labels: made (:func:`make_ltr`) or read (:func:`load_letor`).

Both return a pandas frame with one row per query-document pair: the role columns ``qid``, ``doc``
and ``relevance``, then the features. :func:`skultr.simulation.simulate_clicks` turns such a
frame into a click log. :func:`load_result_lists` reads pages of documents that have no features.
"""

from ._letor import load_letor
from ._make import make_ltr
from ._result_lists import load_result_lists

__all__ = ["load_letor", "load_result_lists", "make_ltr"]
