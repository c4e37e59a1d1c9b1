"""The report of a backtest: all metrics and the data they are based on."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from forewarn.evaluation.prediction.metrics.backtest_metrics import FleetMetrics
from forewarn.evaluation.prediction.metrics.calibration_metrics import CalibrationMetrics
from forewarn.evaluation.prediction.metrics.intersection_worth import IntersectionWorth
from forewarn.evaluation.prediction.metrics.list_calibration import ListCalibrationMetrics
from forewarn.evaluation.prediction.metrics.member_worth import BlendWorth
from forewarn.evaluation.prediction.metrics.net_benefit import ListBenefit
from forewarn.evaluation.prediction.metrics.paired_differences import Differences
from forewarn.evaluation.prediction.metrics.paper_protocol import PaperMetrics
from forewarn.pipelines.runtime.progress import JobCosts

__all__ = ["BacktestReport", "ExcludedInstances"]


@dataclass(frozen=True, slots=True)
class ExcludedInstances:
    """Instances and daily lists that are not evaluated because the records end too early."""

    last_record: str = ""
    since: str | None = None  # end of the first instance; `from` in the file
    instances: int = 0
    positives: int = 0
    days: Sequence[str] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-serializable dict."""
        return {"from" if k == "since" else k: value for k, value in asdict(self).items()}


@dataclass(frozen=True, slots=True)
class BacktestReport:
    """Content of `report.json` (docs/formats.md, section 3).

    Metrics are keyed by method and strategy (`methods`, `fleet`) or by strategy. `configured` is
    the strategy of `train` and `retrain`, which leads the report. `differences` are by metric:
    `precision_at_k` on the paper's protocol, `list_precision` and `average_precision` of the fleet.
    """

    configured: str
    methods: Mapping[str, PaperMetrics] = field(default_factory=dict)
    fleet: Mapping[str, FleetMetrics] = field(default_factory=dict)
    differences: Mapping[str, Differences] = field(default_factory=dict)
    calibration: Mapping[str, CalibrationMetrics] = field(default_factory=dict)
    blend: Mapping[str, BlendWorth | None] = field(default_factory=dict)
    intersection: Mapping[str, IntersectionWorth | None] = field(default_factory=dict)
    worth: Mapping[str, ListBenefit | None] = field(default_factory=dict)
    promise: Mapping[str, ListCalibrationMetrics | None] = field(default_factory=dict)
    prevalence: float | None = None
    share: float = 0.0
    k: float = 0.0
    interval_level: float = 0.0
    horizon_hours: float = 24.0
    records: int = 0
    instances: int = 0
    positives: int = 0
    gpus: int = 0
    left_out: ExcludedInstances = field(default_factory=ExcludedInstances)
    notes: Sequence[str] = ()
    costs: JobCosts = field(default_factory=JobCosts)

    def to_json(self) -> str:
        """Return the text of the file."""
        plain = asdict(self)
        plain["worth"] = {name: worth and worth.to_dict() for name, worth in self.worth.items()}
        plain["blend"] = {name: blend and blend.to_dict() for name, blend in self.blend.items()}
        plain["left_out"] = self.left_out.to_dict()
        plain |= plain.pop("costs")
        return json.dumps(plain, indent=1, allow_nan=False) + "\n"
