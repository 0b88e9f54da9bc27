"""The one home of P(click | user model).

Users (:mod:`skultr.simulation`) and click models read the same formula from both ends: a user
draws from it, a click model fits it. A shared mistake would make the two agree with each other,
so every formula here is tested by enumerating the events behind it. Nothing here checks its
input: callers do, where they know the names that a user gave.
"""

import numpy as np

__all__ = [
    "EYE_TRACKING",
    "contextual_examination",
    "pbm_click_probability",
    "power_law_at",
    "power_law_examination",
]

#: P(examined) at positions 1 to 10, from eye tracking on result pages of a web search engine:
#: Joachims, Granka, Pan, Hembrooke & Gay (2005), "Accurately interpreting clickthrough data as
#: implicit feedback", SIGIR; the values are those that simulations of click logs share since.
EYE_TRACKING = (0.68, 0.61, 0.48, 0.34, 0.28, 0.20, 0.11, 0.10, 0.08, 0.06)


def pbm_click_probability(relevance, examination):
    """P(click) of the position-based model: relevance times examination.

    A document is clicked when it is examined *and* found relevant; the first depends on the
    position alone, the second on the document alone, and they are independent (the examination
    hypothesis; Richardson, Dominowska & Ragno 2007, eq. 4).

    Parameters
    ----------
    relevance : ndarray of shape (..., n_positions)
        P(found relevant | examined) of the document at each position.
    examination : ndarray of shape (n_positions,) or like ``relevance``
        P(examined) at each position.

    Returns
    -------
    probability : ndarray of the shape of ``relevance``

    Examples
    --------
    >>> import numpy as np
    >>> pbm_click_probability(np.array([[1.0, 0.5]]), np.array([0.8, 0.4]))
    array([[0.8, 0.2]])
    """
    return relevance * examination


def power_law_examination(n_positions, eta):
    """Examination (1/k)^η at positions k = 1, ..., n_positions.

    Parameters
    ----------
    n_positions : int
    eta : float
        0: everything is examined; 1: examination is inversely proportional to the position.

    Returns
    -------
    examination : ndarray of shape (n_positions,)

    Examples
    --------
    >>> power_law_examination(4, 1.0)
    array([1.        , 0.5       , 0.33333333, 0.25      ])
    """
    return power_law_at(np.arange(1, n_positions + 1), eta)


def power_law_at(position, eta):
    """Examination (1/k)^η at given positions k.

    Parameters
    ----------
    position, eta : array-like
        They broadcast against each other.

    Returns
    -------
    examination : ndarray
    """
    return np.asarray(position, dtype=float) ** -np.asarray(eta, dtype=float)


def contextual_examination(examination, effect):
    """Examination o_k^max(e + 1, 0) at each position in contexts of effect e = w · v.

    An effect of 0 is the neutral context. Below it users look further down, until at -1 they
    examine everything; above it they stop sooner (Fang, Agarwal & Joachims 2019, "Intervention
    harvesting for context-dependent examination-bias estimation", SIGIR). A position that nobody
    examines in the neutral context stays so, although 0^0 = 1.

    Parameters
    ----------
    examination : ndarray of shape (n_positions,)
        o_k, P(examined) at each position in the neutral context.
    effect : ndarray of shape (...,)

    Returns
    -------
    examination : ndarray of shape (..., n_positions)

    Examples
    --------
    >>> import numpy as np
    >>> contextual_examination(np.array([0.8, 0.5]), np.array([0.0, 1.0, -2.0]))
    array([[0.8 , 0.5 ],
           [0.64, 0.25],
           [1.  , 1.  ]])
    """
    exponent = np.maximum(np.asarray(effect) + 1, 0)[..., None]
    return np.where(examination > 0, examination**exponent, 0.0)
