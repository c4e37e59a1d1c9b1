"""How often the promise of the list is broken on fleets that drift: for `docs/results.md`.

    python -m benchmarks.drift_study --seeds 901,902 --rows rows.jsonl [--drifts "none,false signs"]

Simulates a fleet for each seed, lets it drift from a day in the middle on (`drifts.py`), and runs
`forewarn backtest` on it: trees, trained anew every three days on all of the past. A line for each
of them goes to `--rows`; those that are there are not run again, so it can be killed at any time.

All is read from `report.json`. A list fell short if fewer than 0.8 of those that were to fail after
the drift did. Beside the promise stands a trivial watcher: it stops flags while of the last days
with 60 judged alerts or more fewer than 0.8 of those that were to fail did, and knows nothing of
chance. Brackets of shares of alerts resample fleets, those of shares of fleets are binomial.
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
# An instance every six hours and few healthy ones for the trees: it is not the ranking that is
# measured, and it takes a fifth of the time. With a length of six days the first lists come sooner;
# the half-life is that of the defaults, 60 days.
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
_WATCHES = ("no watch", "promise", "trivial")

Row = dict[str, Any]


def _backtest(records: Path, folder: Path, share: float) -> dict[str, Any]:
    """Return the promise in the report of a backtest."""
    config, out = folder / "forewarn.toml", folder / "backtest"
    config.write_text(_CONFIG.format(share=share), encoding="utf-8")
    arguments = ["--records", str(records), "--config", str(config), "--out", str(out)]
    arguments += ["--models", "gbdt", "--strategies", "expanding"]
    command = [sys.executable, "-c", _COMMAND, "backtest", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stderr)
    promise: dict[str, Any] = json.loads((out / "report.json").read_text())["promise"]["expanding"]
    return promise


def _trivially_flagged(days: Sequence[Row]) -> list[int]:
    """Return how many alerts of each day the trivial watcher lets through."""
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


def _watched(days: Sequence[Row], flagged: Sequence[int], since: str) -> Row:
    """Return what became of the flags of a watch from a day on, all of which are judged."""
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
        "away": _away(stopped[breaks[0] :]) if breaks else None,
        "flagged": sum(flagged[after]),
        "flagged_hits": sum(
            d["hits"] if n == d["alerts"] else d["flagged_hits"] for d, n in pairs if n
        ),
        **{name: sum(day[name] for day in days[after]) for name in ("alerts", "expected", "hits")},
    }


def _away(stopped: Sequence[bool]) -> int | None:
    """Return after how many days flags come back; None if they do not."""
    return stopped.index(False) if False in stopped else None


def _watches(days: Sequence[Row], since: str) -> Row:
    ways = [day["alerts"] for day in days], [day["flagged"] for day in days]
    flagged = *ways, _trivially_flagged(days)
    return {name: _watched(days, of, since) for name, of in zip(_WATCHES, flagged, strict=True)}


def _measure(seed: int, drifts: Sequence[str], asked: argparse.Namespace) -> None:
    """Simulate a fleet, and append a row for each of its drifts."""
    first = pd.Timestamp(FIRST_DAY, tz="UTC")
    day, end = (first + pd.Timedelta(days=n) for n in (asked.drift_day, asked.days))
    with tempfile.TemporaryDirectory() as name:
        fleet = Path(name) / "fleet"
        simulate_fleet_to(fleet, n_gpus=asked.gpus, n_days=asked.days, seed=seed)
        for drift in drifts:
            number = list(DRIFTS).index(drift)
            past = FleetHistory(fleet, day, end, np.random.default_rng([seed, number]))
            folder = Path(name) / str(number)
            write_drifted(past, drift, folder / "records")
            promise = _backtest(folder / "records", folder, asked.share)
            row = {"seed": seed, "drift": drift, "since": f"{day:%Y-%m-%d}", "report": promise}
            with asked.rows.open("a", encoding="utf-8") as file:
                file.write(json.dumps(row) + "\n")


def _percent(rows: Sequence[Row], part: str, whole: str) -> str:
    """Write a share of all alerts of some fleets in percent; of several with its interval."""
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
    """Write how many fleets it is, and in brackets bounds of the share of all such fleets."""
    low, high = binomtest(sum(flags), len(flags)).proportion_ci(method="wilson")
    return f"{sum(flags)} [{100 * low:.0f} %, {100 * high:.0f} %]"


def _print(rows: Sequence[Row]) -> None:
    """Print for each drift what its lists promised, and what each watch made of it."""
    titles = ["drift", "fleets", "promised, %", "came true, %", "fell short", "watch"]
    titles += ["stopped before", "stopped after", "days until then", "flags until then"]
    titles += ["came back", "days until then", "flagged, %", "precision of these, %"]
    print(f"| {' | '.join(titles)} |\n|{'---|' * len(titles)}")
    for drift in DRIFTS:
        fleets = [
            _watches(row["report"]["days"], row["since"]) for row in rows if row["drift"] == drift
        ]
        for watch in _WATCHES if fleets else ():
            print(f"| {drift} | {' | '.join(_cells(watch, [fleet[watch] for fleet in fleets]))} |")


def _cells(watch: str, fleets: Sequence[Row]) -> list[str]:
    short = [fleet["hits"] < _TOLERANCE * fleet["expected"] for fleet in fleets]
    broke = [fleet for fleet in fleets if fleet["broke"]]
    return [
        str(len(fleets)),
        _percent(fleets, "expected", "alerts"),
        _percent(fleets, "hits", "alerts"),
        _count(short),
        watch,
        str(sum(fleet["broke_before"] for fleet in fleets)),
        _count([fleet["broke"] for fleet in fleets]),
        *(_median([fleet[name] for fleet in fleets]) for name in ("days", "alerts_until")),
        f"{sum(fleet['away'] is not None for fleet in broke)} of {len(broke)}",
        _median([fleet["away"] for fleet in fleets]),
        _percent(fleets, "flagged", "alerts"),
        _percent(fleets, "flagged_hits", "flagged"),
    ]


def main() -> None:
    """Measure what is asked for, and print the tables of all rows."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", required=True, help="of the fleets, as 901,902")
    parser.add_argument(
        "--rows", type=Path, required=True, help="JSON lines, one for each backtest"
    )
    parser.add_argument("--drifts", default=",".join(DRIFTS))
    # Thirty alerts a day, as 10,000 GPUs have by default, at half the cost.
    parser.add_argument("--gpus", type=int, default=5000)
    parser.add_argument("--days", type=int, default=40)
    parser.add_argument("--drift-day", type=int, default=18)
    parser.add_argument("--share", type=float, default=0.006, help="of the fleet listed a day")
    asked = parser.parse_args()
    for seed in map(int, asked.seeds.split(",")):
        done = {row["drift"] for row in _rows(asked.rows) if row["seed"] == seed}
        if drifts := [name for name in asked.drifts.split(",") if name not in done]:
            _measure(seed, drifts, asked)
    _print(_rows(asked.rows))


def _rows(path: Path) -> list[Row]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


if __name__ == "__main__":
    main()
