"""Documents with relevance labels: made (:func:`make_ltr`) or read (:func:`load_letor`).

Both return a pandas frame with one row per query-document pair: the role columns ``qid``, ``doc``
and ``relevance``, then the features. :func:`skultr.simulation.simulate_clicks` turns such a
frame into a click log.
"""

from ._letor import load_letor
from ._make import make_ltr

__all__ = ["load_letor", "make_ltr"]
