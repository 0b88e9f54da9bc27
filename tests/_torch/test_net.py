from types import SimpleNamespace

import pytest
from skorch.history import History

from skultr._torch._net import _Patience
from skultr.rankers import IPSRanker

from .._worlds import top_k_log


@pytest.mark.parametrize("start", [1.0, -1.0])
def test_early_stopping_on_either_side_of_zero(start):
    """Losses that rise by less than the threshold do not pass for better ones."""
    net = SimpleNamespace(history=History(), verbose=0)
    stop = _Patience("valid_loss", patience=3)
    stop.on_train_begin(net)

    def train(n_epochs):
        for epoch in range(1, n_epochs + 1):
            net.history.new_epoch()
            net.history.record("epoch", epoch)
            net.history.record("valid_loss", start + 5e-5 * abs(start) * (epoch - 1))
            stop.on_epoch_end(net)

    with pytest.raises(KeyboardInterrupt):
        train(10)
    assert (stop.best_epoch_, len(net.history)) == (1, 4)


@pytest.mark.parametrize("loss", ["softmax", "pairwise", "lambda", "bce", "mse"])
def test_a_constant_is_trained_where_the_loss_determines_it(loss):
    _, log, clicks, curve = top_k_log(n_queries=20, n_sessions=500)
    ranker = IPSRanker(loss=loss, propensity=curve, max_epochs=3, random_state=0)
    is_trained = ranker.fit(log, clicks).network_[1][-1].bias.any()
    assert is_trained == (loss in ("bce", "mse"))
