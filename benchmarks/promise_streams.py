"""How often the promise breaks in streams of alerts of known precision: for `docs/daily_list.md`.

    python -m benchmarks.promise_streams [--seed 1]

Each row has 200 streams of 400 alerts, of which the first `good` keep what they promise; chances
are beta-distributed with the weight of eight alerts, about as spread as on a list. Beside the
promise stands a watcher that knows nothing of chance: it stops flags when of the last 60 alerts
fewer than 0.8 of those that were to fail did.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from forewarn.evaluation.prediction.kept_promise import JudgedAlerts, judge_promise

_STREAMS, _ALERTS, _ENOUGH, _TOLERANCE = 200, 400, 60, 0.8
_RATIOS = {"as promised": 1.0, "0.8 of it: the limit of what is tolerated": 0.8}
_RATIOS |= {"half of it": 0.5, "a third of it": 1 / 3, "a tenth of it": 0.1}
_LATE = {"a third of it": 1 / 3, "a tenth of it": 0.1}
_GOOD = 200

Floats = npt.NDArray[np.float64]


def _promise_breaks(chance: Floats, hit: npt.NDArray[np.bool_]) -> int | None:
    broken = judge_promise(JudgedAlerts.of(chance, hit)).broken_at
    return broken[0] + 1 if broken else None


def _trivially_breaks(chance: Floats, hit: npt.NDArray[np.bool_]) -> int | None:
    sums = np.cumsum(hit - _TOLERANCE * chance)
    last = sums[_ENOUGH - 1 :] - np.append(0.0, sums[:-_ENOUGH])
    low = np.flatnonzero(last < 0.0)
    return int(low[0]) + _ENOUGH if len(low) else None


def _cells(breaks: Sequence[int | None], good: int) -> str:
    """Write the share of streams that break once they are bad, and after how many alerts."""
    late = [n - good for n in breaks if n is not None and n > good]
    early = sum(n is not None for n in breaks) - len(late)
    text = f"{len(late) / len(breaks):.2f} | {f'{np.median(late):.0f}' if late else ''}"
    return f"{text} | {early / len(breaks):.2f}" if good else f"{text} |"


def _print(mean: float, what: str, ratio: float, good: int, rng: np.random.Generator) -> None:
    kept = np.arange(_ALERTS) < good
    breaks: tuple[list[int | None], list[int | None]] = [], []
    for _ in range(_STREAMS):
        chance = rng.beta(8 * mean, 8 * (1 - mean), _ALERTS)
        hit = rng.random(_ALERTS) < np.where(kept, 1.0, ratio) * chance
        breaks[0].append(_promise_breaks(chance, hit))
        breaks[1].append(_trivially_breaks(chance, hit))
    name = f"{what}, after {good} good ones" if good else what
    print(f"| {mean} | {name} | {' | '.join(_cells(b, good) for b in breaks)} |", flush=True)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    rng = np.random.default_rng(parser.parse_args().seed)
    titles = ["mean chance", "what happens"]
    for watch in ("promise", "last 60"):
        titles += [f"{watch}: breaks", "alerts until then", "before"]
    print(f"| {' | '.join(titles)} |\n|{'---|' * len(titles)}")
    for mean in (0.3, 0.1, 0.05):
        for what, ratio in _RATIOS.items():
            _print(mean, what, ratio, 0, rng)
        for what, ratio in _LATE.items():
            _print(mean, what, ratio, _GOOD, rng)


if __name__ == "__main__":
    main()
