"""Events from samples of a gauge or a windowed counter, merged over series."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

__all__ = ["Change", "Sample", "detect_changes", "detect_ends", "detect_increases"]

# (time in ns, scraped exporter, value); two exporters of one GPU scrape at different times.
Sample = tuple[int, str, float]


@dataclass(frozen=True, slots=True, order=True)
class Change:
    """A new value of a gauge, or an increase of a count.

    Attributes
    ----------
    time : int
        Of the first sample that shows it, nanoseconds since 1970 UTC.
    value : float
    """

    time: int
    value: float


def detect_changes(
    samples: Iterable[Sample], *, recent: int, at_start: bool = False
) -> Iterator[Change]:
    """Yield the changes of a gauge that shows the last event; zeros are skipped.

    A gauge repeats its value until the next event, also after a gap or in a new series. Only a
    different value is an event. An exporter shows 0 after its start.

    Parameters
    ----------
    samples : iterable of Sample
        In any order; samples of one exporter and time are parts of a split GPU, or copies.
    recent : int
        Nanoseconds for which the value of another exporter still applies to the GPU.
    at_start : bool
        The very first value is an event as well, because it is a state that needs action.

    Examples
    --------
    >>> samples = [(0, "a", 0.0), (60, "a", 79.0), (120, "a", 79.0), (180, "a", 45.0)]
    >>> [(change.time, change.value) for change in detect_changes(samples, recent=600)]
    [(60, 79.0), (180, 45.0)]
    """
    shown: dict[str, tuple[int, frozenset[float]]] = {}
    for time, exporter, values in _scrapes(samples):
        before = _shown_before(shown, time, exporter, recent)
        if before is not None or at_start:
            for value in sorted(values - (before or frozenset()) - {0.0}):
                yield Change(time, value)
        shown[exporter] = time, values


def detect_ends(samples: Iterable[Sample], *, recent: int) -> Iterator[Change]:
    """Yield the values that a gauge showed and its next scrape does not show.

    Parameters
    ----------
    samples : iterable of Sample
        In any order. A scrape without samples says nothing.
    recent : int
        Nanoseconds for which the value of another exporter still applies to the GPU.

    Examples
    --------
    >>> samples = [(0, "a", 7.0), (0, "a", 9.0), (60, "a", 9.0), (120, "a", 0.0)]
    >>> [(change.time, change.value) for change in detect_ends(samples, recent=600)]
    [(60, 7.0), (120, 9.0)]
    """
    shown: dict[str, tuple[int, frozenset[float]]] = {}
    for time, exporter, values in _scrapes(samples):
        _, before = shown.get(exporter, (time, frozenset[float]()))
        shown[exporter] = time, values
        others = [some for at, some in shown.values() if time - at <= recent]
        for value in sorted(before.difference({0.0}, *others)):
            yield Change(time, value)


def _scrapes(samples: Iterable[Sample]) -> Iterator[tuple[int, str, frozenset[float]]]:
    """Yield the values of each scrape, sorted by time."""
    by_scrape: dict[tuple[int, str], set[float]] = {}
    for time, exporter, value in samples:
        by_scrape.setdefault((time, exporter), set()).add(value)
    for (time, exporter), values in sorted(by_scrape.items()):
        yield time, exporter, frozenset(values)


def _shown_before(
    shown: dict[str, tuple[int, frozenset[float]]], time: int, exporter: str, recent: int
) -> frozenset[float] | None:
    """Return the values shown last; None if there are none."""
    if not shown:
        return None
    own = shown.get(exporter) or max(shown.values(), key=lambda last: last[0])
    others = [values for at, values in shown.values() if time - at <= recent]
    return own[1].union(*others)


def detect_increases(samples: Iterable[Sample], *, window: int) -> Iterator[Change]:
    """Yield the increases of a windowed count, at the first sample that shows each.

    Parameters
    ----------
    samples : iterable of Sample
        In any order. A window without a sample had no event.
    window : int
        Nanoseconds.

    Examples
    --------
    >>> samples = [(0, "a", 1.0), (60, "a", 1.0), (120, "a", 3.0), (180, "a", 2.0)]
    >>> [(change.time, change.value) for change in detect_increases(samples, window=300)]
    [(0, 1.0), (120, 2.0)]
    """
    counts: dict[str, tuple[int, float]] = {}
    for time, exporter, count in sorted(samples):
        # A decrease means that old events have left the window.
        recent = [value for at, value in counts.values() if time - at <= window]
        counts[exporter] = time, count
        if (rise := count - max(recent, default=0.0)) > 0:
            yield Change(time, rise)
