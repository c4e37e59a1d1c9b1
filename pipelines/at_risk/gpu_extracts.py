"""Extracts of a day's records for the pages of GPUs, which never read records themselves."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pandas as pd

from forewarn.features.array_types import Float64Array
from forewarn.features.records.record_table import RACK
from forewarn.features.time_units import SECOND
from forewarn.pipelines.at_risk.channel_charts import hourly_series
from forewarn.pipelines.at_risk.channel_evidence import ChannelEvidence
from forewarn.pipelines.at_risk.channel_names import NOUNS, UNITS, title

__all__ = ["MAX_TELEMETRY_GPUS", "gpu_extracts"]

MAX_TELEMETRY_GPUS: Final = 200
"""GPUs with telemetry in the extract: more than a person looks at before the next list."""

_MAX_EVENTS: Final = 50  # of a GPU, the newest
_DIGITS: Final = 4  # significant digits of a level


def gpu_extracts(evidence: ChannelEvidence, rows: Sequence[int]) -> pd.DataFrame:
    """Return the extract of each GPU with an instance, in the order of the instances.

    Parameters
    ----------
    evidence : ChannelEvidence
    rows : sequence of int
        Instances with telemetry.

    Returns
    -------
    DataFrame
        `gpu_serial`, `rack`, and as JSON: `events` of code columns (time in seconds since 1970 UTC,
        name, code), and `telemetry` (empty for other GPUs): time of the first point and seconds
        between two points, with title, unit and levels of each channel.
    """
    instances, records = evidence.instances, evidence.timeline.records
    serials = np.array(records.serials, dtype=object)[instances.gpu]
    racks = np.full(len(serials), "", dtype=object)
    if RACK in records.texts:
        texts = np.array([*records.texts[RACK].texts, ""], dtype=object)
        racks = texts[records.codes(RACK, instances.row)]
    telemetry = np.full(len(serials), "", dtype=object)
    for row, text in zip(rows, _telemetry(evidence, rows), strict=True):
        telemetry[row] = text
    columns = {"gpu_serial": serials, "rack": racks, "events": _events(evidence)}
    return pd.DataFrame({**columns, "telemetry": telemetry})


def _events(evidence: ChannelEvidence) -> list[str]:
    """Return the newest events of each GPU as JSON, oldest first."""
    by_row: dict[int, list[tuple[int, str, int]]] = {}
    for name, events in evidence.codes.items():
        triples = zip(events.row.tolist(), events.time.tolist(), events.code.tolist(), strict=True)
        for row, time, code in triples if events.distinct else ():
            by_row.setdefault(row, []).append((time // SECOND, title(name), int(code)))
    newest = {row: sorted(events)[-_MAX_EVENTS:] for row, events in by_row.items()}
    return [json.dumps(newest.get(row, [])) for row in range(len(evidence.instances))]


def _telemetry(evidence: ChannelEvidence, rows: Sequence[int]) -> list[str]:
    """Return the telemetry of each row as JSON."""
    kinds = evidence.plan.kinds
    series = hourly_series(evidence, rows, (*kinds.float, *kinds.counter))
    span = evidence.lengths[-1] / SECOND
    texts = []
    for number, row in enumerate(rows):
        channels = [
            {
                "name": name,
                "title": title(name) if name in kinds.float else NOUNS.get(name, title(name)),
                "unit": UNITS.get(name, "").strip(),
                "counted": name not in kinds.float,
                "levels": _rounded(levels[number]),
            }
            for name, levels in series.items()
        ]
        n_points = max((len(levels[number]) for levels in series.values()), default=1)
        end = int(evidence.instances.end[row]) / SECOND
        texts.append(_as_json(end - span, span / max(n_points, 1), channels))
    return texts


def _as_json(start: float, step: float, channels: list[dict[str, Any]]) -> str:
    return json.dumps({"start": round(start), "step": round(step), "channels": channels})


def _rounded(levels: Float64Array) -> list[float | None]:
    return [float(f"{x:.{_DIGITS}g}") if np.isfinite(x) else None for x in levels.tolist()]
