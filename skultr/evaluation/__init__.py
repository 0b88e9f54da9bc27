"""Value of a ranking by its clicks, plans and results of experiments, and monitoring of logs."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ._compare import RankerComparison as RankerComparison
    from ._compare import compare_rankers as compare_rankers
    from ._compare_judgments import JudgmentComparison as JudgmentComparison
    from ._compare_judgments import compare_judgments as compare_judgments
    from ._compare_logs import LogComparison as LogComparison
    from ._compare_logs import compare_logs as compare_logs
    from ._comparison_table import ComparisonTable as ComparisonTable
    from ._interleaving import Interleaver as Interleaver
    from ._interleaving import InterleavingOutcome as InterleavingOutcome
    from ._interleaving import interleaving_outcome as interleaving_outcome
    from ._plan_experiment import ExperimentPlan as ExperimentPlan
    from ._plan_experiment import plan_experiment as plan_experiment
    from ._policy_value import PolicyEstimate as PolicyEstimate
    from ._policy_value import PolicyValueScorer as PolicyValueScorer
    from ._policy_value import policy_difference as policy_difference
    from ._policy_value import policy_value as policy_value
    from ._run_comparison import run_comparison as run_comparison
else:
    from .._base._lazy import lazy_names

    # Lazy, as in all public folders.
    __getattr__, __dir__, __all__ = lazy_names(
        __name__,
        {
            "_compare": ("RankerComparison", "compare_rankers"),
            "_compare_judgments": ("JudgmentComparison", "compare_judgments"),
            "_compare_logs": ("LogComparison", "compare_logs"),
            "_comparison_table": ("ComparisonTable",),
            "_interleaving": ("Interleaver", "InterleavingOutcome", "interleaving_outcome"),
            "_plan_experiment": ("ExperimentPlan", "plan_experiment"),
            "_policy_value": (
                "PolicyEstimate",
                "PolicyValueScorer",
                "policy_difference",
                "policy_value",
            ),
            "_run_comparison": ("run_comparison",),
        },
    )
