"""What scores explain of clicks, whatever examination may be."""

import numpy as np

from skultr._log._clicklog import make_click_log
from skultr._models._free_effects import FreeEffects


def test_a_wrong_curve_neither_feigns_nor_hides_what_scores_explain():
    """Effects of positions are free: relevance is best with any curve, also with its own."""
    rng = np.random.default_rng(0)
    position = np.array([rng.permutation(5) + 1 for _ in range(400)]).ravel()
    relevance = rng.uniform(0.1, 0.9, 2000)
    clicks = 50 * relevance / position
    roles = {"qid": np.repeat(np.arange(400), 5), "position": position}
    document = np.arange(2000, dtype=np.float32)[:, None]
    undoing = np.log(relevance) - 0.6 * np.log(position) + 0.3 * rng.normal(size=2000)
    losses = []
    for told in (1 / position, 1 / position**2):
        roles |= {"propensity": told, "impressions": np.full(2000, 50.0)}
        log = make_click_log(document, document, clicks / 50, roles=roles)
        row = log.features[log.doc, 0].astype(int)  # the log is sorted by position
        held_out = FreeEffects(log, np.column_stack([np.log(relevance), undoing])[row])
        losses.append([each.sum() for each in held_out.losses()])
        np.testing.assert_allclose(held_out.mix(held_out.scores[:, :1])[2], 1, atol=0.01)
    assert losses[0][0] < losses[0][1]
    np.testing.assert_allclose(losses[0], losses[1], rtol=1e-3)
