"""What is usual for a machine among its peers, and how far it is from that now."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from forewarn.features.compiled import compiled
from forewarn.features.threads import in_parallel
from forewarn.models.detection.peer_deviation import Deviations, medians_of_others, select

__all__ = ["Judged", "Past", "PastTerms", "Usual", "judge"]

Floats = npt.NDArray[np.float32]
Flags = npt.NDArray[np.bool_]
Numbers = npt.NDArray[np.int64]
Range = tuple[float, float]

_EARLY = 3  # blocks that serve as the past of a machine that has none
_REMEMBERED = 30  # newest blocks whose median is what is usual
# Where a whole task slows down or changes phase, its machines need not follow alike: less than half
# of the change is no difference to act on.
_PROPORTIONAL = 0.5
# Of how a window varies about its mean: as much as the mean of 32 independent samples would. What a
# machine scatters by is not what it is slower by, but tells how far its means can be trusted.
_ROUGH = np.float32(0.03125)
_SUSPECT = 4.0  # blocks with such scores teach nothing about what is usual


@dataclass(frozen=True, slots=True)
class PastTerms:
    """How the past is cut.

    Attributes
    ----------
    block : int
        Windows whose median is kept as one.
    lag : int
        Blocks between what is judged and the newest one that it is compared with: a continuity and
        a guard gap, so that a fault does not become its own past while it is being found.
    """

    block: int
    lag: int


@dataclass(frozen=True, slots=True)
class Usual:
    """What is usual on a metric in healthy tasks.

    Attributes
    ----------
    deviation : float
        From the others of a task, in the median.
        Never less than what is large enough to act on.
    offset, spread : float
        The most that is forgiven a machine for having always been different.
    still : int
        Ticks of one value that healthy machines show: no sensor hangs for that.
    machines : mapping of str to (float, float)
        Least and greatest offset that is forgiven a machine that many healthy tasks had.
    groups : mapping of str to float
        Of groups that are too small to compare within: what they differ from their tasks by.
    """

    deviation: float = 0.0
    offset: float = np.inf
    spread: float = np.inf
    still: int = 0
    machines: Mapping[str, Range] = field(default_factory=dict)
    groups: Mapping[str, float] = field(default_factory=dict)

    def bounds(self, machines: Sequence[str]) -> tuple[Floats, Floats]:
        """Return the least and the greatest offset that is forgiven each machine."""
        most = self.offset
        ranges = [self.machines.get(machine, (-most, most)) for machine in machines]
        bounds = np.clip(np.array(ranges, dtype=np.float32).reshape(-1, 2), -most, most)
        return bounds[:, 0], bounds[:, 1]


@dataclass(frozen=True, slots=True)
class Judged:
    """Windows that were judged, and how.

    Attributes
    ----------
    window : ndarray of shape (n_windows,), int
        Their numbers, the same in every call; ascending.
    scores : ndarray of shape (n_machines, n_windows), float32
    there : ndarray of shape (n_windows, n_machines), bool
        Which machines had a whole window.
    """

    window: Numbers
    scores: Floats
    there: Flags

    def still_good(self, window: Numbers, there: Flags, block: int) -> int:
        """Return how many of the first windows of a call were judged before, for good.

        Windows in which another machine is there now are judged again, since its samples came
        late or its sensor hangs; so are the newest blocks, since only a whole one has a median.

        Parameters
        ----------
        window : ndarray of shape (n,), int
            Numbers of the windows of the call; ascending.
        there : ndarray of shape (n, n_machines), bool
        block : int
            Windows.
        """
        if not len(window) or not len(self.window):
            return 0
        again = (self.window[-1] // block - 1) * block
        place = np.minimum(np.searchsorted(self.window, window), len(self.window) - 1)
        known = (self.window[place] == window) & (self.there[place] == there).all(axis=1)
        new = np.flatnonzero(~known | (window >= again))
        if not len(new):
            return len(window)
        return int(np.searchsorted(window, window[new[0]] // block * block))


@dataclass(frozen=True, slots=True)
class Past:
    """Medians of blocks of windows, by machine; NaN where a block tells nothing.

    Attributes
    ----------
    machines : tuple of str
    blocks : ndarray of shape (n_blocks,), int
        Numbers of the blocks, the same in every call.
    offset, spread, level : ndarrays of shape (n_machines, n_blocks), float32
        Signed difference from the others, its size where what is usual is taken off, and the
        machine's own value.
    judged : Judged or None
        What the newest call came to, window by window.
    """

    machines: tuple[str, ...]
    blocks: Numbers
    offset: Floats
    spread: Floats
    level: Floats
    judged: Judged | None = None

    @property
    def known(self) -> Flags:
        """Tell of which machines it knows anything."""
        return np.asarray(np.isfinite(self.offset).any(axis=1), dtype=bool)

    @staticmethod
    def none(machines: Sequence[str] = ()) -> Past:
        """Return a past of no block."""
        empty = np.empty((len(machines), 0), dtype=np.float32)
        return Past(tuple(machines), np.empty(0, dtype=np.int64), empty, empty, empty)

    def of(self, machines: Sequence[str]) -> Past:
        """Return the past of these machines in their order; a new one has none."""
        if tuple(machines) == self.machines:
            return self
        place = {name: i for i, name in enumerate(self.machines)}
        rows = np.array([place.get(name, len(self.machines)) for name in machines], dtype=np.int64)
        parts = []
        for values in (self.offset, self.spread, self.level):
            nothing = np.full((1, values.shape[1]), np.nan, dtype=np.float32)
            parts.append(np.concatenate([values, nothing])[rows])
        offset, spread, level = parts
        return Past(tuple(machines), self.blocks, offset, spread, level)

    def with_judged(self, judged: Judged) -> Past:
        """Return it with what the newest call came to."""
        return replace(self, judged=judged)

    def newest(self, n: int = 2 * _REMEMBERED) -> Past:
        """Return its last blocks, and so much as a later call needs."""
        return self._kept(np.arange(len(self.blocks))[-n:])

    def before(self, block: int) -> Past:
        """Return what was known before a block."""
        return self._kept(np.flatnonzero(self.blocks < block))

    def _kept(self, places: Numbers) -> Past:
        offset, spread, level = (one[:, places] for one in (self.offset, self.spread, self.level))
        return Past(self.machines, self.blocks[places], offset, spread, level)


@compiled
def _medians(values: Floats, edges: Numbers, first: int, last: int, out: Floats) -> None:
    """Medians over the windows of each block, where at least half of them have a value."""
    buffer = np.empty(len(values), np.float32)
    for block in range(first, last):
        begin, end = edges[block], edges[block + 1]
        for machine in range(values.shape[1]):
            n = 0
            for w in range(begin, end):
                if not np.isnan(values[w, machine]):
                    buffer[n] = values[w, machine]
                    n += 1
            if 2 * n >= end - begin and n > 0:
                select(buffer, n, n // 2)
                out[machine, block] = buffer[n // 2]


def _block_medians(values: Floats, place: Numbers, n_blocks: int) -> Floats:
    """Return the (upper) median of every machine in every block."""
    edges = np.searchsorted(place, np.arange(n_blocks + 1))
    out = np.full((values.shape[1], n_blocks), np.nan, dtype=np.float32)
    in_parallel(lambda a, b: _medians(values, edges, a, b, out), n_blocks)
    return out


@compiled
def _usual(
    values: Floats, blocks: Numbers, until: int, early: int, remembered: int, out: Floats
) -> None:
    """Write the median of a machine's newest blocks up to one, or of its first ones.

    Where a pause comes soon, those before it are the first ones: who is different after it has not
    come back from it.
    """
    n_machines, n_blocks = values.shape
    buffer = np.empty(max(n_blocks, 1), np.float32)
    for machine in range(n_machines):
        n = 0
        for k in range(n_blocks):
            if blocks[k] <= until and not np.isnan(values[machine, k]):
                buffer[n] = values[machine, k]
                n += 1
        if n >= early:
            out[machine] = np.median(buffer[max(0, n - remembered) : n])
            continue
        n, paused = 0, False
        for k in range(n_blocks):
            if n < early and not paused and not np.isnan(values[machine, k]):
                buffer[n] = values[machine, k]
                n += 1
                paused = k + 1 < n_blocks and blocks[k + 1] > blocks[k] + 1
        out[machine] = np.median(buffer[:n]) if n >= early or paused else np.float32(np.nan)


def _by_block(blocks: Numbers, numbers: Numbers, values: Floats, lag: int, machines: int) -> Floats:
    """Return what was usual for every machine when each of `numbers` was judged."""
    out = np.empty((len(numbers), machines), dtype=np.float32)
    for i, number in enumerate(numbers):
        _usual(values, blocks, number - lag, _EARLY, _REMEMBERED, out[i])
    return out


def judge(
    found: Deviations,
    window: Numbers,
    groups: Numbers,
    terms: PastTerms,
    usual: Usual,
    past: Past,
) -> tuple[Floats, Past]:
    """Return how much every machine stands out from its peers and from its own past.

    The difference from the others, less what is usual for the machine, is set against what is
    usual in healthy tasks, what the others of the task show at the same moment, and what the
    machine itself used to show. A machine without a past is compared with its first blocks.

    Parameters
    ----------
    found : Deviations
        Of n_windows windows.
    window : ndarray of shape (n_windows,), int
        Number of each window, the same in every call; ascending.
    groups : ndarray of shape (n_machines,), int
    terms : PastTerms
    usual : Usual
    past : Past
        Of the same machines, from earlier calls.

    Returns
    -------
    ndarray of shape (n_windows, n_machines), float32
        NaN where nothing can be said.
    Past
        With the blocks that ended here; those in which a machine stood out teach nothing.
    """
    numbers, place = np.unique(window // terms.block, return_inverse=True)
    known = past.before(int(numbers[0])) if len(numbers) else past
    blocks = np.concatenate([known.blocks, numbers])
    bounds = usual.bounds(past.machines)
    here = _Here(
        found, place.astype(np.int64), numbers, blocks, groups, terms, usual, bounds, known
    )
    offsets, levels = (
        here.medians(found.offset, known.offset),
        here.medians(found.level, known.level),
    )
    scores, now = here.judged(offsets, levels)
    medians = _block_medians(scores, here.place, len(numbers))
    doubtful = np.zeros(now.offset.shape, dtype=bool)
    doubtful[:, len(known.blocks) :] = medians > _SUSPECT
    if doubtful.any():
        offsets[doubtful] = np.nan
        scores, now = here.judged(offsets, levels, doubtful)
    return scores, now


@dataclass(frozen=True, slots=True)
class _Here:
    """The windows of one call, and the numbers of their blocks."""

    found: Deviations
    place: Numbers
    numbers: Numbers
    blocks: Numbers
    groups: Numbers
    terms: PastTerms
    usual: Usual
    bounds: tuple[Floats, Floats]
    known: Past

    def medians(self, values: Floats, before: Floats) -> Floats:
        """Return a machine's blocks, those of this call after those from before."""
        mine = _block_medians(values, self.place, len(self.numbers))
        return np.concatenate([before, mine], axis=1)

    def usually(self, values: Floats) -> Floats:
        """Return what is usual for each machine, by block of this call."""
        return _by_block(self.blocks, self.numbers, values, self.terms.lag, len(values))

    def shifts(self, levels: Floats, offsets: Floats) -> Floats:
        """Return how far what the others show has moved, by block of this call and machine."""
        others = levels - offsets
        moved = others[:, len(self.known.blocks) :].T - self.usually(others)
        found: Floats = np.nan_to_num(np.abs(moved))
        return found

    def judged(
        self, offsets: Floats, levels: Floats, doubtful: Flags | None = None
    ) -> tuple[Floats, Past]:
        """Return the scores, and the past as it is after them."""
        found, usual = self.found, self.usual
        forgiven = np.clip(np.nan_to_num(self.usually(offsets)), *self.bounds)
        apart = _apart(found, forgiven, self.place)
        spreads = self.medians(apart, self.known.spread)
        if doubtful is not None:
            spreads[doubtful] = np.nan
        own = np.clip(np.nan_to_num(self.usually(spreads)), 0.0, usual.spread)
        others = medians_of_others(apart, self.groups)
        floor = usual.deviation**2
        # Bounded, too: where half of four machines are faulty, everybody differs.
        beside = np.minimum(others, np.float32(usual.spread))
        allowed = np.sqrt(own**2 + (_PROPORTIONAL * self.shifts(levels, offsets)) ** 2)
        scores = _against(apart, beside, allowed, self.place, floor)
        return scores, Past(self.known.machines, self.blocks, offsets, spreads, levels)


def _apart(found: Deviations, forgiven: Floats, place: Numbers) -> Floats:
    """Return the size of the differences, less what is forgiven in each block."""
    out = np.empty(found.offset.shape, dtype=np.float32)
    parts = (found.offset, found.square, forgiven, place)
    in_parallel(lambda a, b: _take_off(*parts, a, b, out), len(out))
    return out


@compiled
def _take_off(
    offset: Floats,
    square: Floats,
    forgiven: Floats,
    place: Numbers,
    first: int,
    last: int,
    out: Floats,
) -> None:
    for w in range(first, last):
        for machine in range(offset.shape[1]):
            usual, now = forgiven[place[w], machine], offset[w, machine]
            # Anything between what it always was and what the others are is no fault.
            taken = min(max(now, min(usual, 0.0)), max(usual, 0.0))
            level = now - taken
            left = level * level + _ROUGH * (square[w, machine] - now * now)
            out[w, machine] = np.sqrt(max(left, 0.0)) if left == left else np.nan


def _against(apart: Floats, others: Floats, own: Floats, place: Numbers, floor: float) -> Floats:
    out = np.empty(apart.shape, dtype=np.float32)
    parts = (apart, others, own, place, floor)
    in_parallel(lambda a, b: _divide(*parts, a, b, out), len(out))
    return out


@compiled
def _divide(
    apart: Floats,
    others: Floats,
    own: Floats,
    place: Numbers,
    floor: float,
    first: int,
    last: int,
    out: Floats,
) -> None:
    for w in range(first, last):
        for machine in range(apart.shape[1]):
            usual = own[place[w], machine]
            beside = others[w, machine]
            out[w, machine] = apart[w, machine] / np.sqrt(floor + beside * beside + usual * usual)
