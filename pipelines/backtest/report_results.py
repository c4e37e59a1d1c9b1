"""Results of a backtest, read from its report and ordered for display."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Generic, Literal, TypeVar

from forewarn.evaluation.prediction.metrics.backtest_metrics import FleetMetrics
from forewarn.evaluation.prediction.metrics.calibration_metrics import CalibrationMetrics
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

    def against(self, other: Estimate) -> str:
        """Compare two metrics by their intervals.

        Returns
        -------
        str
            ``better`` or ``worse`` (higher is better) for disjoint intervals, ``not
            distinguishable`` for overlapping ones, ``not comparable`` if a value or an interval is
            missing.

        Examples
        --------
        >>> Estimate(0.8, 0.7, 0.9).against(Estimate(0.5, 0.4, 0.6))
        'better'
        >>> Estimate(0.8, 0.5, 0.9).against(Estimate(0.5, 0.4, 0.6))
        'not distinguishable'
        """
        own, others = (self.low, self.high), (other.low, other.high)
        if self.value is None or other.value is None:
            return "not comparable"
        if own[0] is None or own[1] is None or others[0] is None or others[1] is None:
            return "not comparable"
        if own[0] > others[1]:
            return "better"
        return "worse" if own[1] < others[0] else "not distinguishable"


@dataclass(frozen=True, slots=True)
class Result(Generic[Figures]):
    """Metrics of one method on one protocol, and the metric used for ranking."""

    method: Method
    estimate: Estimate
    figures: Figures


def read_results(section: Mapping[str, Figures], metric: str) -> list[Result[Figures]]:
    """Read one section of the report.

    Parameters
    ----------
    section : mapping of str to PaperMetrics or FleetMetrics
    metric : str
        Metric that ranks the methods; its interval is under ``<metric>_interval``.
    """
    return [
        Result(Method.from_key(key), read_estimate(figures, metric), figures)
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
