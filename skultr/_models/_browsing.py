"""P(click) under each user model, defined once for users and click models.

Users (:mod:`skultr.simulation`) draw from the same formula that a click model fits. A mistake in
it would make the two agree with each other, so every formula here is tested by enumerating the
events behind it. Nothing here checks its input: callers do, because they know the parameter names.
"""

from __future__ import annotations

import numpy as np

from .._base._typing import ArrayLike, Bools, Floats, Ints

#: P(examined) at positions 1 to 10, from eye tracking on result pages of a web search engine:
#: Joachims, Granka, Pan, Hembrooke & Gay (2005), "Accurately interpreting clickthrough data as
#: implicit feedback", SIGIR; simulations of click logs have used these values since.
EYE_TRACKING = (0.68, 0.61, 0.48, 0.34, 0.28, 0.20, 0.11, 0.10, 0.08, 0.06)


#: Click rate by relevance grade (rows, 0 to 4) and position (columns, 1 to 10), counted on
#: TianGong-ST, sessions of a web search engine with annotated documents: M. Chen, C. Liu, Z. Liu
#: and J. Sun (2022), "Scalar is not enough: vectorization-based unbiased learning to rank", KDD,
#: Figure 1. Its singular values are 1.399, 0.151, 0.069, 0.057 and 0.033.
# fmt: off
TIANGONG_CLICK_MATRIX = (
    (0.590531, 0.086794, 0.085829, 0.066219, 0.022320,
     0.003409, 0.004000, 0.002324, 0.001468, 0.002286),
    (0.496226, 0.151815, 0.014456, 0.066909, 0.003719,
     0.006607, 0.005155, 0.003054, 0.002560, 0.002574),
    (0.541645, 0.097210, 0.035203, 0.021631, 0.014229,
     0.007217, 0.011511, 0.014283, 0.008545, 0.004123),
    (0.611413, 0.123859, 0.074209, 0.029114, 0.055367,
     0.050326, 0.004774, 0.007994, 0.028296, 0.014935),
    (0.742062, 0.162621, 0.241987, 0.039747, 0.013889,
     0.032051, 0.008333, 0.002058, 0.009756, 0.003932),
)


# fmt: on


def pbm_click_probability(
    relevance: Floats,  # (..., n_positions)
    examination: Floats,  # (n_positions,) or like relevance
) -> Floats:
    """P(click) of the position-based model: relevance times examination.

    A document is clicked when it is examined *and* found relevant. Examination depends on the
    position alone, relevance on the document alone, and the two are independent (the examination
    hypothesis; Richardson, Dominowska & Ragno 2007, eq. 4).
    """
    return relevance * examination


def power_law_examination(n_positions: int, eta: float) -> Floats:
    """Examination (1/k)^η at positions k = 1, ..., n_positions."""
    return power_law_at(np.arange(1, n_positions + 1), eta)


def power_law_at(position: ArrayLike, eta: ArrayLike) -> Floats:
    """Examination (1/k)^η at given positions k."""
    position = np.asarray(position, dtype=float)
    return position ** -np.asarray(eta, dtype=float)


def contextual_examination(
    examination: Floats,  # (n_positions,)
    effect: ArrayLike,  # (...,)
) -> Floats:  # (..., n_positions)
    """Examination o_k^max(e + 1, 0) at each position in contexts of effect e = w · v.

    An effect of 0 is the neutral context. At negative effects users look further down, and at -1
    they examine everything; at positive effects they stop sooner (Fang, Agarwal & Joachims 2019,
    "Intervention harvesting for context-dependent examination-bias estimation", SIGIR). A position
    that nobody examines in the neutral context stays so, although 0^0 = 1.
    """
    exponent = np.maximum(np.asarray(effect) + 1, 0)[..., None]
    return np.where(examination > 0, examination**exponent, 0.0)


def trust_affine(
    examination: Floats,  # (n_positions,)
    trust_positive: Floats,  # (n_positions,)
    trust_negative: Floats,  # (n_positions,)
) -> tuple[Floats, Floats]:  # (n_positions,)
    """Slope α and offset β of the click probability under trust bias, α r + β.

    α_k = θ_k (ε⁺_k − ε⁻_k) and β_k = θ_k ε⁻_k: trust is an affine function of relevance at each
    position (Vardasbi, Oosterhuis & de Rijke 2020, "When inverse propensity scoring does not
    work: affine corrections for unbiased learning to rank", CIKM).
    """
    slope = examination * (trust_positive - trust_negative)
    offset = examination * trust_negative
    return slope, offset


def trust_click_probability(
    relevance: Floats,  # (..., n_positions)
    examination: Floats,  # (n_positions,)
    trust_positive: Floats,  # (n_positions,)
    trust_negative: Floats,  # (n_positions,)
) -> Floats:
    """P(click) under trust bias: θ_k (ε⁺_k r + ε⁻_k (1 − r)).

    A user who examines a document sees its relevance and also trusts the ranking: documents near
    the top are clicked more often than their relevance justifies (Agarwal, Wang, Li, Bendersky &
    Najork 2019, "Addressing trust bias for unbiased learning-to-rank", WWW).
    """
    # In affine form: two passes over the sessions, and exactly r θ without trust bias.
    slope, offset = trust_affine(examination, trust_positive, trust_negative)
    return relevance * slope + offset


def matrix_click_probability(
    grade: Ints,  # (..., n_positions), -1 where there is no document, which is never clicked
    matrix: Floats,  # (n_grades, n_positions)
) -> Floats:
    """P(click) by a table of grades and positions.

    The only form without an assumption about how grade and position interact (Chen et al. 2022,
    eq. 11).
    """
    n_positions = matrix.shape[1]
    # Index -1 selects the last row, of zeros.
    table = np.vstack([matrix, np.zeros(n_positions)])
    return table[grade, np.arange(n_positions)]


# Users who scan down the list and may stop --------------------------------------------
def chain_click_probability(
    attraction: Floats,  # (n_lists, n_positions), P(click | examined), 0 where is no document
    after_skip: ArrayLike,
    after_click: ArrayLike,
    clicks: Bools | None = None,  # (n_lists, n_positions)
) -> Floats:  # (n_lists, n_positions)
    """P(click) at each row for a user who scans down, given the ``clicks`` above it, if any.

    One formula for the cascade family. The user examines the first row. At an examined row they
    click with probability ``attraction`` and continue to the next row with probability
    ``after_click`` or ``after_skip``:

    - cascade model (Craswell et al. 2008): after a skip 1, after a click 0;
    - dependent click model (Guo et al. 2009): 1 and λ of the position;
    - dynamic Bayesian network (Chapelle & Zhang 2009): γ and γ (1 − s), s the satisfaction.

    The probability of the clicks of a list is a product over its rows: P(click) given the clicks
    above for a clicked row, 1 - P(click) for another. P(click) is 0 below impossible clicks.
    """
    attraction, after_skip, after_click = np.broadcast_arrays(attraction, after_skip, after_click)
    probability = np.empty(attraction.shape)
    examined = np.ones(len(attraction))
    for k in range(attraction.shape[1]):
        click = examined * attraction[:, k]
        probability[:, k] = click
        skip = examined - click
        if clicks is not None:
            # What was done is known: P(examined | not clicked) by Bayes' rule.
            skip = np.divide(skip, 1 - click, out=np.zeros_like(click), where=click < 1)
            click = clicks[:, k]
            skip = np.where(click, 0.0, skip)
        examined = click * after_click[:, k] + skip * after_skip[:, k]
    return probability


def draw_chain_clicks(
    attraction: Floats, after_skip: ArrayLike, after_click: ArrayLike, rng: np.random.Generator
) -> Bools:
    """Draw the clicks of a user who scans down."""
    attraction, after_skip, after_click = np.broadcast_arrays(attraction, after_skip, after_click)
    clicks = np.empty(attraction.shape, dtype=bool)
    examined = np.ones(len(attraction), dtype=bool)
    for k in range(attraction.shape[1]):
        click_draw, on_draw = rng.random((2, len(examined)))
        clicks[:, k] = examined & (click_draw < attraction[:, k])
        continuation = np.where(clicks[:, k], after_click[:, k], after_skip[:, k])
        examined &= on_draw < continuation
    return clicks


# Users whose examination depends on the last click ------------------------------------
def last_click_above(
    clicks: Bools,  # (n_lists, n_positions)
) -> Ints:  # (n_lists, n_positions)
    """Rank of the last click above each row, 0 if there is none."""
    rank = np.where(clicks, np.arange(1, clicks.shape[1] + 1), 0)
    last = np.zeros_like(rank)
    np.maximum.accumulate(rank[:, :-1], axis=1, out=last[:, 1:])
    return last


def ubm_click_probability(
    relevance: Floats,  # (n_lists, n_positions)
    examination: Floats,  # (n_positions, n_positions), by rank - 1 and last click above, 0 if none
) -> Floats:  # (n_lists, n_positions)
    """P(click) of the user browsing model, not conditional on any click.

    A row is examined with a probability that depends on its rank and on the rank of the last
    click above it (Dupret & Piwowarski 2008, "A user browsing model to predict search engine
    click data from past observations", SIGIR). The rank of the last click is summed out, from the
    top down.
    """
    n_lists, n_positions = relevance.shape
    probability = np.empty((n_lists, n_positions))
    # P(the last click above is at this rank), one row per rank.
    last = np.zeros((n_positions + 1, n_lists))
    last[0] = 1
    for k in range(n_positions):
        above = slice(0, k + 1)
        # P(clicked here, and the last click above was at this rank).
        joint = last[above] * examination[k, above, None] * relevance[:, k]
        click = joint.sum(axis=0)
        probability[:, k] = click
        # Below, this row is the last click where it was clicked.
        last[above] -= joint
        last[k + 1] = click
    return probability


def ubm_conditional_click_probability(
    relevance: Floats,
    examination: Floats,
    clicks: Bools,  # (n_lists, n_positions)
) -> Floats:  # (n_lists, n_positions)
    """P(click) of the user browsing model at each row, given the clicks above it."""
    rank = np.arange(relevance.shape[1])
    last = last_click_above(clicks)
    return relevance * examination[rank, last]


def draw_ubm_clicks(relevance: Floats, examination: Floats, rng: np.random.Generator) -> Bools:
    """Draw clicks of the user browsing model."""
    clicks = np.empty(relevance.shape, dtype=bool)
    last = np.zeros(len(relevance), dtype=np.intp)
    for k in range(relevance.shape[1]):
        chance = relevance[:, k] * examination[k, last]
        clicks[:, k] = rng.random(len(relevance)) < chance
        last[clicks[:, k]] = k + 1
    return clicks
