"""A small at-risk list as `forewarn score` writes it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd
from tests.pipelines.incidents.api.api_client import NOW

from forewarn.features.time_units import DAY, HOUR, SECOND
from forewarn.pipelines.runtime.timestamps import format_iso

DATE = "2026-03-01"


def write_list(lists: Path, date: str = DATE, n: int = 24, **changes: Any) -> Path:
    """Write the list of a day: n GPUs, eight a machine and two machines a rack; two are flagged."""
    folder = lists / f"date={date}"
    folder.mkdir(parents=True, exist_ok=True)
    end = pd.Timestamp(NOW - HOUR, tz="UTC")
    table = pd.DataFrame(
        {
            "rank": range(1, n + 1),
            "gpu_serial": [f"S{i:03}" for i in range(n)],
            "machine_id": [f"node-{i // 8 + 1}" for i in range(n)],
            "slot": [str(i % 8) for i in range(n)],
            "probability": [0.5 / (i + 1) for i in range(n)],
            "flagged": [i < 2 for i in range(n)],
            "reasons": [
                "corrected memory errors 41 in 7 days | Xid 63" if i < 2 else "" for i in range(n)
            ],
            "window_end": end,
            "valid_until": end + pd.Timedelta(DAY, "ns"),
            "model_version": "linear 2026-02-28",
        }
        | changes
    )
    table.to_parquet(folder / "at_risk.parquet", index=False)
    start = (NOW - 7 * DAY) // SECOND
    channel: dict[str, Any] = {
        "name": "temperature_gpu",
        "title": "temperature",
        "unit": "°C",
        "counted": False,
    }
    channel["levels"] = [60.0, None, 71.5] * 18
    telemetry = {
        "start": start,
        "step": 3 * 3600,
        "channels": [channel],
    }
    event = [[start + 3600, "Xid", 63]]
    extracts = pd.DataFrame(
        {
            "gpu_serial": table["gpu_serial"],
            "rack": [f"rack-{i // 16}" for i in range(n)],
            "events": [json.dumps(event if i < 2 else []) for i in range(n)],
            "telemetry": [json.dumps(telemetry) if i < 4 else "" for i in range(n)],
        }
    )
    extracts.to_parquet(folder / "gpu_extracts.parquet", index=False)
    summary: dict[str, Any] = {"at": format_iso(NOW - HOUR), "model_version": "linear 2026-02-28"}
    summary |= {"hindsight": False, "sentences": ["No action pays off today."]}
    (folder / "summary.json").write_text(json.dumps(summary))
    (folder / "unscored.csv").write_text(
        "gpu_serial,machine_id,reason,failed_since,cause,ended_by\n"
        "S100,node-3,stale,,,\n"
        "S101,node-3,failed,2026-02-27T00:00:00Z,xid 79,a repair ticket\n"
    )
    return folder
