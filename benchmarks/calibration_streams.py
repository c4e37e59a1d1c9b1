"""How often the calibration monitor alarms on alert streams of known precision.

    python -m benchmarks.calibration_streams [--seed 1]

For `docs/daily_list.md`. Each row has 200 streams of 400 alerts, of which the first `good` are
calibrated. Probabilities are beta-distributed with the weight of eight alerts, about as spread as
on a list. The monitor is compared with a simple rule without statistics: it stops flags when, of
the last 60 alerts, fewer than 0.8 of the expected failures happened.

The second table shows the time after an alarm: 200 streams of 1,800 alerts, in lists of 30 by
falling probability, and after how many alerts flags resume.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

import numpy as np

from forewarn.evaluation.prediction.metrics.calibration_monitor import (
    LabelledAlerts,
    monitor_calibration,
)
from forewarn.features.array_types import BoolArray, Float64Array

_STREAMS, _ALERTS, _ENOUGH, _TOLERANCE = 200, 400, 60, 0.8
_RATIOS = {"calibrated": 1.0, "0.8 times: the limit of the tolerance": 0.8}
_RATIOS |= {"half": 0.5, "a third": 1 / 3, "a tenth": 0.1}
_LATE = {"a third": 1 / 3, "a tenth": 0.1}
_GOOD = 200
_AFTER, _LIST, _BAD = 1800, 30, 210
_BACK = {"calibrated": 1.0, "0.8 times: should resume": 0.8}
_BACK |= {"half: the limit": 0.5, "a third": 1 / 3}


def _monitor_alarm(probability: Float64Array, hit: BoolArray) -> int | None:
    broken = monitor_calibration(LabelledAlerts.from_sequences(probability, hit)).broken_at
    return broken[0] + 1 if broken else None


def _simple_rule_alarm(probability: Float64Array, hit: BoolArray) -> int | None:
    sums = np.cumsum(hit - _TOLERANCE * probability)
    last = sums[_ENOUGH - 1 :] - np.append(0.0, sums[:-_ENOUGH])
    low = np.flatnonzero(last < 0.0)
    return int(low[0]) + _ENOUGH if len(low) else None


def _cells(alarms: Sequence[int | None], good: int) -> str:
    """Format the share of streams that alarm once they are bad, and after how many alerts."""
    late = [n - good for n in alarms if n is not None and n > good]
    early = sum(n is not None for n in alarms) - len(late)
    text = f"{len(late) / len(alarms):.2f} | {f'{np.median(late):.0f}' if late else ''}"
    return f"{text} | {early / len(alarms):.2f}" if good else f"{text} |"


def _print(mean: float, what: str, ratio: float, good: int, rng: np.random.Generator) -> None:
    good_so_far = np.arange(_ALERTS) < good
    alarms: tuple[list[int | None], list[int | None]] = [], []
    for _ in range(_STREAMS):
        probability = rng.beta(8 * mean, 8 * (1 - mean), _ALERTS)
        hit = rng.random(_ALERTS) < np.where(good_so_far, 1.0, ratio) * probability
        alarms[0].append(_monitor_alarm(probability, hit))
        alarms[1].append(_simple_rule_alarm(probability, hit))
    name = f"{what}, after {good} good ones" if good else what
    print(f"| {mean} | {name} | {' | '.join(_cells(b, good) for b in alarms)} |", flush=True)


def _returned(
    mean: float, ratio: Float64Array, rng: np.random.Generator
) -> tuple[int, float] | None:
    """Return the alerts until flags resume, and the flagged share of the list; None if never."""
    lists = rng.beta(8 * mean, 8 * (1 - mean), (_AFTER // _LIST, _LIST))
    probability = np.flip(np.sort(lists, axis=1), axis=1).ravel()
    position = np.tile(np.arange(1, _LIST + 1) / _LIST, _AFTER // _LIST)
    alerts = LabelledAlerts.from_sequences(
        probability, rng.random(_AFTER) < ratio * probability, position
    )
    changes = monitor_calibration(alerts, length=0.0).changes
    return (changes[0].judged, changes[0].length) if changes else None


def _print_returns(mean: float, what: str, ratio: Float64Array, rng: np.random.Generator) -> None:
    ways = [_returned(mean, ratio, rng) for _ in range(_STREAMS)]
    known = [way for way in ways if way is not None]
    # Those that never resume count as the longest.
    median = np.median([way[0] if way else np.inf for way in ways])
    cells = [f"{len(known) / len(ways):.2f}", f"{median:.0f}" if np.isfinite(median) else ""]
    cells.append(f"{np.mean([length for _, length in known]):.2f}" if known else "")
    print(f"| {mean} | {what} | {' | '.join(cells)} |", flush=True)


def _print_table_of_returns(rng: np.random.Generator) -> None:
    titles = ["mean probability", "after an alarm", "resume", "alerts until then, median"]
    titles.append("share of the list, mean")
    print(f"\n| {' | '.join(titles)} |\n|{'---|' * len(titles)}")
    for mean in (0.3, 0.1, 0.05, 0.02):
        for what, ratio in _BACK.items():
            _print_returns(mean, what, np.full(_AFTER, ratio), rng)
        recovered = np.where(np.arange(_AFTER) < _BAD, 0.1, 1.0)
        _print_returns(mean, f"a tenth for {_BAD} alerts, then calibrated", recovered, rng)


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    rng = np.random.default_rng(parser.parse_args().seed)
    titles = ["mean probability", "failures per expected failure"]
    for watch in ("monitor", "last 60"):
        titles += [f"{watch}: alarms", "alerts until then", "before"]
    print(f"| {' | '.join(titles)} |\n|{'---|' * len(titles)}")
    for mean in (0.3, 0.1, 0.05):
        for what, ratio in _RATIOS.items():
            _print(mean, what, ratio, 0, rng)
        for what, ratio in _LATE.items():
            _print(mean, what, ratio, _GOOD, rng)
    _print_table_of_returns(rng)


if __name__ == "__main__":
    main()
