"""Click models with a table over documents by EM, or a network of features by gradient."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy.special import expit

from .._base._sklearn import StrOptions
from .._torch._joint import fit_towers
from .._torch._net import NeuralEstimator
from ._em import EMClickModel

#: Step size of parameters that all documents share.
SHARED_LEARNING_RATE = 0.05


@dataclass(kw_only=True, eq=False, repr=False)
class GradientClickModel(NeuralEstimator, EMClickModel):
    """Click models with ``solver="em"`` over documents, or ``"gradient"`` over features.

    The network is trained together with the parameters that all documents share. These are then
    fitted once more by EM, which removes the noise of the last batches.
    """

    solver: Literal["em", "gradient"] = "em"

    _parameter_constraints = {
        **NeuralEstimator._parameter_constraints,
        **EMClickModel._parameter_constraints,
        "solver": [StrOptions({"em", "gradient"})],
    }
    #: Names of the outputs of the network.
    _outputs_of_network = ("relevance",)

    def _n_subtasks(self):
        return super()._n_subtasks() if self.solver == "gradient" else 0

    @property
    def _needs_features(self):
        return self.solver == "gradient"

    def _network_parameters(self, features):
        """Outputs of the network as probabilities, a dict of arrays of shape (n_rows,)."""
        outputs = expit(self._outputs(self.network_, features)).T
        return dict(zip(self._outputs_of_network, np.clip(outputs, 1e-6, 1 - 1e-6), strict=True))

    def _document_parameters(self, log):
        """The same by document: means over its versions."""
        tables = self._network_parameters(log.features)
        return {name: log.by_document(values) for name, values in tables.items()}

    def _train_towers(self, log, task):
        """Relevance by document, trained as in :class:`TwoTowerRanker`."""
        fit_towers(self, log, task, learning_rate=SHARED_LEARNING_RATE)
        return self._document_parameters(log)
