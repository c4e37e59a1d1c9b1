"""Results of a backtest, read from its report and ordered for display."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Generic, Literal, TypeVar

from forewarn.evaluation.prediction.metrics.backtest_metrics import FleetMetrics
from forewarn.evaluation.prediction.metrics.calibration_metrics import CalibrationMetrics
from forewarn.evaluation.prediction.metrics.paired_differences import (
    Differences,
    PairedDifference,
)
from forewarn.evaluation.prediction.metrics.paper_protocol import PaperMetrics
from forewarn.evaluation.prediction.walk_forward.strategies import Strategy
from forewarn.pipelines.rendering.templates import visible

__all__ = [
    "STRATEGY_ORDER",
    "Estimate",
    "Method",
    "Result",
    "best_result",
    "rank_results",
    "read_estimate",
    "read_results",
]

Figures = TypeVar("Figures", PaperMetrics, FleetMetrics)
STRATEGY_ORDER = (
    Strategy.EXPANDING,
    Strategy.VARIABLE,
    Strategy.STEADY,
    Strategy.SLIDING,
    Strategy.FIXED,
)
_LABELS = {
    "cnn": "1D-CNN",
    "mlp": "MLP",
    "gbdt": "GBDT",
    "lstm": "LSTM",
    "linear": "Linear (strong prior)",
    "cascade_first": "Cascade's first model",
    "blend": "Blend",
    "parallel": "Parallel",
    "cascade": "Cascade",
    "random": "Random",
    "last_value": "Last value",
    "logistic": "Logistic regression",
    "window_gbdt": "GBDT on window statistics",
    "rules": "Fixed rules",
}
_ENSEMBLES = ("blend", "parallel", "cascade")
_BASELINES = ("random", "last_value", "logistic", "window_gbdt", "rules")


@dataclass(frozen=True, slots=True)
class Method:
    """A method and the strategy that trained it.

    Parameters
    ----------
    name, strategy : str
        The two parts of a key such as ``parallel_variable``; the strategy may be empty.
    """

    name: str
    strategy: str

    @classmethod
    def from_key(cls, key: str) -> Method:
        """Read a key of `report.json`.

        Examples
        --------
        >>> Method.from_key("last_value_fixed")
        Method(name='last_value', strategy='fixed')
        >>> Method.from_key("random")
        Method(name='random', strategy='')
        """
        name, _, strategy = key.rpartition("_")
        return cls(name, strategy) if strategy in STRATEGY_ORDER and name else cls(key, "")

    @property
    def kind(self) -> Literal["ensemble", "model", "baseline"]:
        """Ensemble, single model or trivial baseline."""
        if self.name in _ENSEMBLES:
            return "ensemble"
        return "baseline" if self.name in _BASELINES else "model"

    @property
    def label(self) -> str:
        """Display name."""
        return _LABELS.get(self.name, visible(self.name, limit=40))


@dataclass(frozen=True, slots=True)
class Estimate:
    """A metric with its interval; None if undefined."""

    value: float | None
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, slots=True)
class Result(Generic[Figures]):
    """Metrics of one method on one protocol, the metric used for ranking, and its differences.

    Attributes
    ----------
    method : Method
    estimate : Estimate
    figures : PaperMetrics or FleetMetrics
    differences : mapping of Method to PairedDifference
        To the methods that it can be compared with.
    """

    method: Method
    estimate: Estimate
    figures: Figures
    differences: Mapping[Method, PairedDifference] = field(default_factory=dict)

    def against(self, other: Result[Figures]) -> PairedDifference | None:
        """Return the difference to another method; None if they cannot be compared."""
        return self.differences.get(other.method)


def read_results(
    section: Mapping[str, Figures], metric: str, differences: Differences | None = None
) -> list[Result[Figures]]:
    """Read one section of the report.

    Parameters
    ----------
    section : mapping of str to PaperMetrics or FleetMetrics
    metric : str
        Metric that ranks the methods; its interval is under ``<metric>_interval``.
    differences : Differences, optional
        Those of this metric.
    """
    both: dict[str, dict[Method, PairedDifference]] = {key: {} for key in section}
    for first, others in (differences or {}).items():
        for second, difference in others.items():
            both[first][Method.from_key(second)] = difference
            both[second][Method.from_key(first)] = -difference
    return [
        Result(Method.from_key(key), read_estimate(figures, metric), figures, both[key])
        for key, figures in section.items()
    ]


def read_estimate(
    figures: PaperMetrics | FleetMetrics | CalibrationMetrics, metric: str
) -> Estimate:
    """Return a metric with its interval."""
    return Estimate(
        getattr(figures, metric), *(getattr(figures, f"{metric}_interval") or (None, None))
    )


def rank_results(results: Iterable[Result[Figures]], strategy: str) -> list[Result[Figures]]:
    """Return the results of one strategy, best first; results without a value come last."""
    of_strategy = [result for result in results if result.method.strategy in (strategy, "")]
    return sorted(of_strategy, key=_rank_key)


def _rank_key(result: Result[Figures]) -> tuple[bool, float, str]:
    """Return the sort key: known values first, high before low, then by name."""
    value = result.estimate.value
    return value is None, -(value or 0.0), result.method.name


def best_result(results: Iterable[Result[Figures]], *kinds: str) -> Result[Figures] | None:
    """Return the best result of some kinds of method, or None without any value."""
    known = [
        result
        for result in results
        if result.method.kind in kinds and result.estimate.value is not None
    ]
    return min(known, key=_rank_key, default=None)
