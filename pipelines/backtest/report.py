"""The report of a backtest: all figures, and what they were made from."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from forewarn.evaluation.prediction.figures.backtest_figures import FleetFigures
from forewarn.evaluation.prediction.figures.calibration_figures import CalibrationFigures
from forewarn.evaluation.prediction.figures.list_promise import PromiseFigures
from forewarn.evaluation.prediction.figures.list_worth import ListWorth
from forewarn.evaluation.prediction.figures.paper_protocol import PaperFigures
from forewarn.pipelines.runtime.progress import Costs

__all__ = ["LeftOut", "Report"]


@dataclass(frozen=True, slots=True)
class LeftOut:
    """The instances and daily lists that are not judged, since the records end too early."""

    last_record: str = ""
    since: str | None = None  # end of the first of the instances; `from` in the file
    instances: int = 0
    positives: int = 0
    days: Sequence[str] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return what JSON can hold."""
        return {"from" if k == "since" else k: value for k, value in asdict(self).items()}


@dataclass(frozen=True, slots=True)
class Report:
    """What `report.json` holds (formats.md, section 3).

    Figures are by method and strategy (`methods`, `fleet`), or by strategy.
    """

    methods: Mapping[str, PaperFigures] = field(default_factory=dict)
    fleet: Mapping[str, FleetFigures] = field(default_factory=dict)
    calibration: Mapping[str, CalibrationFigures] = field(default_factory=dict)
    worth: Mapping[str, ListWorth | None] = field(default_factory=dict)
    promise: Mapping[str, PromiseFigures | None] = field(default_factory=dict)
    prevalence: float | None = None
    share: float = 0.0
    k: float = 0.0
    interval_level: float = 0.0
    horizon_hours: float = 24.0
    records: int = 0
    instances: int = 0
    positives: int = 0
    gpus: int = 0
    left_out: LeftOut = field(default_factory=LeftOut)
    notes: Sequence[str] = ()
    costs: Costs = field(default_factory=Costs)

    def to_json(self) -> str:
        """Return the text of the file."""
        plain = asdict(self)
        plain["worth"] = {name: of and of.to_dict() for name, of in self.worth.items()}
        plain["left_out"] = self.left_out.to_dict()
        plain |= plain.pop("costs")
        return json.dumps(plain, indent=1, allow_nan=False) + "\n"
