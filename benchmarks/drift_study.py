"""How often the calibration monitor alarms on fleets that drift: for `docs/daily_list.md`.

    python -m benchmarks.drift_study --seeds 901,902 --rows rows.jsonl [--drifts "none,false signs"]

Simulates a fleet for each seed, lets it drift from a day in the middle on (`fleet_drifts.py`), and
runs `forewarn backtest` on it with trees that are retrained every three days on all earlier data.
Each result is a line in `--rows`; existing ones are not run again, so the script can be
interrupted.

All values come from `report.json`. A list fell short if, after the drift, fewer than 0.8 of the
expected failures happened. The calibration monitor is compared with a simple rule without
statistics: stop flags while, over the last days with 60 or more evaluated alerts, fewer than 0.8 of
the expected failures happened. Brackets of alert shares are bootstrap intervals over fleets, those
of fleet shares are binomial.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from benchmarks.fleet_drifts import DRIFTS, FleetHistory, write_drifted
from scipy.stats import binomtest

from forewarn.evaluation.bootstrap import percentile_interval
from forewarn.evaluation.simulation.fleet.fleet_simulator import FIRST_DAY
from forewarn.pipelines.sandbox.simulate_fleet import simulate_fleet_to

_COMMAND = "import sys; from forewarn.pipelines.cli.main import main; sys.exit(main(sys.argv[1:]))"
# An instance every six hours and few healthy ones for the trees take a fifth of the time; the
# ranking is not what is measured. With a length of six days the first lists come sooner. The
# half-life is the default, 60 days.
_CONFIG = """
[windows]
step = 36

[training]
lengths = ["6d"]
half_life = 10.0
tree_negatives = 10

[list]
share = {share}

[executor]
workers = 1
"""
_ENOUGH, _TOLERANCE = 60, 0.8
_MONITORS = ("no monitor", "calibration monitor", "simple rule")

Row = dict[str, Any]


def _backtest(records: Path, folder: Path, share: float) -> dict[str, Any]:
    """Return the calibration section of a backtest report."""
    config, out = folder / "forewarn.toml", folder / "backtest"
    config.write_text(_CONFIG.format(share=share), encoding="utf-8")
    arguments = ["--records", str(records), "--config", str(config), "--out", str(out)]
    arguments += ["--models", "gbdt", "--strategies", "expanding"]
    command = [sys.executable, "-c", _COMMAND, "backtest", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stderr)
    report: dict[str, dict[str, Any]] = json.loads((out / "report.json").read_text())
    calibration: dict[str, Any] = report["promise"]["expanding"]
    return calibration


def _flagged_by_simple_rule(days: Sequence[Row]) -> list[int]:
    """Return how many alerts of each day the simple rule permits."""
    flagged = []
    for number, today in enumerate(days):
        alerts, hits, expected = 0, 0, 0.0
        for day in reversed(days[:number]):
            alerts, hits = alerts + day["alerts"], hits + day["hits"]
            expected += day["expected"]
            if alerts >= _ENOUGH:
                break
        stopped = alerts >= _ENOUGH and hits < _TOLERANCE * expected
        flagged.append(0 if stopped else today["alerts"])
    return flagged


def _monitor_row(days: Sequence[Row], flagged: Sequence[int], since: str) -> Row:
    """Return the results of a monitor from a day on; all alerts are evaluated."""
    start = sum(day["date"] < since for day in days)
    stopped = [not n for n in flagged]
    breaks = [n for n in range(start, len(days)) if stopped[n] and not stopped[n - 1]]
    after = slice(start, None)
    pairs = list(zip(days[after], flagged[after], strict=True))
    return {
        "broke_before": any(stopped[:start]),
        "broke": bool(breaks),
        "days": breaks[0] - start if breaks else None,
        "alerts_until": sum(d["alerts"] for d in days[start : breaks[0]]) if breaks else None,
        "away": _days_until_return(stopped[breaks[0] :]) if breaks else None,
        "flagged": sum(flagged[after]),
        "flagged_hits": sum(
            d["hits"] if n == d["alerts"] else d["flagged_hits"] for d, n in pairs if n
        ),
        **{name: sum(day[name] for day in days[after]) for name in ("alerts", "expected", "hits")},
    }


def _days_until_return(stopped: Sequence[bool]) -> int | None:
    """Return the days until flags come back; None if they do not."""
    return stopped.index(False) if False in stopped else None


def _monitor_results(days: Sequence[Row], since: str) -> Row:
    ways = [day["alerts"] for day in days], [day["flagged"] for day in days]
    flagged = *ways, _flagged_by_simple_rule(days)
    return {
        name: _monitor_row(days, flags, since)
        for name, flags in zip(_MONITORS, flagged, strict=True)
    }


def _measure(seed: int, drifts: Sequence[str], args: argparse.Namespace) -> None:
    """Simulate a fleet, and append a row for each of its drifts."""
    first = pd.Timestamp(FIRST_DAY, tz="UTC")
    day, end = (first + pd.Timedelta(days=n) for n in (args.drift_day, args.days))
    with tempfile.TemporaryDirectory() as name:
        fleet = Path(name) / "fleet"
        simulate_fleet_to(fleet, n_gpus=args.gpus, n_days=args.days, seed=seed)
        for drift in drifts:
            number = list(DRIFTS).index(drift)
            past = FleetHistory(fleet, day, end, np.random.default_rng([seed, number]))
            folder = Path(name) / str(number)
            write_drifted(past, drift, folder / "records")
            calibration = _backtest(folder / "records", folder, args.share)
            row = {"seed": seed, "drift": drift, "since": f"{day:%Y-%m-%d}", "report": calibration}
            with args.rows.open("a", encoding="utf-8") as file:
                file.write(json.dumps(row) + "\n")


def _percent(rows: Sequence[Row], part: str, whole: str) -> str:
    """Format a share of all alerts in percent; with an interval if there are several fleets."""
    pairs = np.array([[row[part], row[whole]] for row in rows], dtype=np.float64)
    if not pairs[:, 1].sum():
        return "-"
    if len(rows) == 1:
        return f"{100 * pairs[0, 0] / pairs[0, 1]:.1f}"
    draws = np.random.default_rng(0).integers(len(rows), size=(1000, len(rows)))
    sums = pairs[draws].sum(axis=1)
    low, high = percentile_interval(sums[:, 0] / np.maximum(sums[:, 1], 1)) or (np.nan, np.nan)
    return f"{100 * pairs[:, 0].sum() / pairs[:, 1].sum():.1f} [{100 * low:.1f}, {100 * high:.1f}]"


def _median(values: Sequence[float | None]) -> str:
    known = [value for value in values if value is not None]
    return f"{np.median(known):.0f}" if known else "-"


def _count(flags: Sequence[bool]) -> str:
    """Format a number of fleets, with bounds of the share among all such fleets in brackets."""
    low, high = binomtest(sum(flags), len(flags)).proportion_ci(method="wilson")
    return f"{sum(flags)} [{100 * low:.0f} %, {100 * high:.0f} %]"


def _print(rows: Sequence[Row]) -> None:
    """Print for each drift the expected failures of its lists, and the results of each monitor."""
    titles = ["drift", "fleets", "expected, %", "failed, %", "fell short", "monitor"]
    titles += ["stopped before", "stopped after", "days until then", "flags until then"]
    titles += ["resumed", "days until then", "flagged, %", "precision of these, %"]
    print(f"| {' | '.join(titles)} |\n|{'---|' * len(titles)}")
    for drift in DRIFTS:
        fleets = [
            _monitor_results(row["report"]["days"], row["since"])
            for row in rows
            if row["drift"] == drift
        ]
        for monitor in _MONITORS if fleets else ():
            print(
                f"| {drift} | {' | '.join(_cells(monitor, [fleet[monitor] for fleet in fleets]))} |"
            )


def _cells(monitor: str, fleets: Sequence[Row]) -> list[str]:
    short = [fleet["hits"] < _TOLERANCE * fleet["expected"] for fleet in fleets]
    broke = [fleet for fleet in fleets if fleet["broke"]]
    return [
        str(len(fleets)),
        _percent(fleets, "expected", "alerts"),
        _percent(fleets, "hits", "alerts"),
        _count(short),
        monitor,
        str(sum(fleet["broke_before"] for fleet in fleets)),
        _count([fleet["broke"] for fleet in fleets]),
        *(_median([fleet[name] for fleet in fleets]) for name in ("days", "alerts_until")),
        f"{sum(fleet['away'] is not None for fleet in broke)} of {len(broke)}",
        _median([fleet["away"] for fleet in fleets]),
        _percent(fleets, "flagged", "alerts"),
        _percent(fleets, "flagged_hits", "flagged"),
    ]


def main() -> None:
    """Run the requested backtests, and print the tables of all rows."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", required=True, help="seeds of the fleets, as 901,902")
    parser.add_argument("--rows", type=Path, required=True, help="JSON lines, one per backtest")
    parser.add_argument("--drifts", default=",".join(DRIFTS))
    # Thirty alerts a day, like 10,000 GPUs with the default share, at half the cost.
    parser.add_argument("--gpus", type=int, default=5000)
    parser.add_argument("--days", type=int, default=40)
    parser.add_argument("--drift-day", type=int, default=18)
    parser.add_argument("--share", type=float, default=0.006, help="share of the fleet on a list")
    args = parser.parse_args()
    for seed in map(int, args.seeds.split(",")):
        done = {row["drift"] for row in _rows(args.rows) if row["seed"] == seed}
        if drifts := [name for name in args.drifts.split(",") if name not in done]:
            _measure(seed, drifts, args)
    _print(_rows(args.rows))


def _rows(path: Path) -> list[Row]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


if __name__ == "__main__":
    main()
