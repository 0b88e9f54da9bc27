"""Unbiased learning to rank from click logs, with the scikit-learn interface.

- :mod:`skultr.rankers`: rankers that learn relevance from clicks.
- :mod:`skultr.click_models`: how users browse a list, and the relevance behind their clicks.
- :mod:`skultr.propensity`: estimators of examination, for rankers that divide by it.
- :mod:`skultr.identifiability`: whether a log determines relevance, and its repair.
- :mod:`skultr.metrics`: metrics of rankings, clicks and debiasedness, and scorers.
- :mod:`skultr.model_selection`: splitters that keep queries whole.
- :mod:`skultr.preprocessing`: transformers that leave role columns alone.
- :mod:`skultr.simulation`: click logs with known truth.
- :mod:`skultr.datasets`: documents with relevance labels, made or read; logs of search engines.
- :mod:`skultr.plotting`: Displays of graphs and examination curves.
- :mod:`skultr.evaluation`: value of a ranking by its clicks, experiments, monitoring.
- :mod:`skultr.serving`: models and judgments in the formats of search engines, and on disk.
- :mod:`skultr.testing`: checks for rankers, yours or ours.
- :func:`skultr.aggregate_clicks`: from impressions in any engine to distinct cells.
- :class:`skultr.ClickDataset`: a log on disk, for what no memory holds.
- :func:`skultr.describe_log`: what a log holds, its faults, and the code that trains from it.
- :func:`skultr.show_progress`: bars of the progress of long work.
"""

from typing import TYPE_CHECKING

__version__ = "0.1.0"

if TYPE_CHECKING:
    from . import click_models as click_models
    from . import datasets as datasets
    from . import evaluation as evaluation
    from . import exceptions as exceptions
    from . import identifiability as identifiability
    from . import metrics as metrics
    from . import model_selection as model_selection
    from . import plotting as plotting
    from . import preprocessing as preprocessing
    from . import propensity as propensity
    from . import rankers as rankers
    from . import serving as serving
    from . import simulation as simulation
    from . import testing as testing
    from ._base._progress import show_progress as show_progress
    from ._log._aggregate import aggregate_clicks as aggregate_clicks
    from ._log._dataset import ClickDataset as ClickDataset
    from .command._report import describe_log as describe_log
    from .identifiability import IdentifiabilityRepair as IdentifiabilityRepair
    from .metrics import CMIPScorer as CMIPScorer
    from .rankers import CLDRanker as CLDRanker
    from .rankers import DLARanker as DLARanker
    from .rankers import EnsembleRanker as EnsembleRanker
    from .rankers import UserAwareIPSRanker as UserAwareIPSRanker
    from .rankers import VectorizationRanker as VectorizationRanker
else:
    from ._base._lazy import lazy_names

    # Lazy, so that `import skultr` does not import torch.
    __getattr__, __dir__, __all__ = lazy_names(
        __name__,
        {
            "_log._aggregate": ("aggregate_clicks",),
            "_log._dataset": ("ClickDataset",),
            "_base._progress": ("show_progress",),
            "command._report": ("describe_log",),
            "identifiability": ("IdentifiabilityRepair",),
            "metrics": ("CMIPScorer",),
            "rankers": (
                "CLDRanker",
                "DLARanker",
                "EnsembleRanker",
                "UserAwareIPSRanker",
                "VectorizationRanker",
            ),
        },
        submodules=(
            "click_models",
            "datasets",
            "evaluation",
            "exceptions",
            "identifiability",
            "metrics",
            "model_selection",
            "plotting",
            "preprocessing",
            "propensity",
            "rankers",
            "serving",
            "simulation",
            "testing",
        ),
    )
    __all__ = [*__all__, "__version__"]
