"""Ranks of a job: their machines, and the ranks that do the same work."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from forewarn.features.diagnosis.host_names import host_key
from forewarn.features.diagnosis.table_rows import table_rows
from forewarn.features.errors import InputError

__all__ = ["MAX_RANKS", "Rank", "Ranks", "RanksError", "format_ranks", "parse_ranks"]

MAX_RANKS = 1_000_000
_MIN_GROUP_SIZE = 4  # including the rank itself
_MAX_LISTED_RANKS = 8
_PARALLEL_AXES = ("tp", "pp", "dp")
_INTEGER_COLUMNS = ("local_rank", "pid", *_PARALLEL_AXES)


class RanksError(InputError):
    """A `ranks.csv` that cannot be used."""


@dataclass(frozen=True, slots=True)
class Rank:
    """One process of a job; unknown fields are None.

    Attributes
    ----------
    number : int
    machine : str or None
    local_rank, pid : int or None
    gpu_serial : str or None
    tp, pp, dp : int or None
        Tensor, pipeline and data parallel coordinates.
    """

    number: int
    machine: str | None = None
    local_rank: int | None = None
    pid: int | None = None
    gpu_serial: str | None = None
    tp: int | None = None
    pp: int | None = None
    dp: int | None = None


@dataclass(frozen=True, slots=True)
class Ranks:
    """All ranks of a job, by number.

    Attributes
    ----------
    table : mapping of int to Rank
    listed : bool
        Whether the ranks come from `ranks.csv`. If not, they are the ranks that other parts of the
        folder mention, with the machines that logs state.
    """

    table: Mapping[int, Rank]
    listed: bool = True
    _alike: dict[tuple[int | None, ...], list[int]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )
    _on: dict[str, list[int]] = field(default_factory=dict, init=False, repr=False, compare=False)
    _names_by_key: dict[str, list[str]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def __post_init__(self) -> None:
        """Index ranks and machines, which are asked for once for each of thousands of ranks."""
        for number, row in sorted(self.table.items()):
            self._alike.setdefault((row.tp, row.pp), []).append(number)
            self._alike.setdefault((row.pp,), []).append(number)
            if row.machine is not None:
                self._on.setdefault(row.machine, []).append(number)
        for name in self._on:
            self._names_by_key.setdefault(host_key(name), []).append(name)

    def machine(self, rank: int | None) -> str | None:
        """Return the machine of a rank, or None if it is unknown."""
        row = None if rank is None else self.table.get(rank)
        return None if row is None else row.machine

    def on(self, machine: str) -> tuple[int, ...]:
        """Return the ranks of a machine, in order."""
        return tuple(self._on.get(machine, ()))

    def machine_named(self, host: str) -> str | None:
        """Return the machine that a host name or an address means, or None.

        Examples
        --------
        >>> Ranks({0: Rank(0, "node-1"), 1: Rank(1, "node-2")}).machine_named("node-2.example.org")
        'node-2'
        """
        if host in self._on:
            return host
        alike = self._names_by_key.get(host_key(host), [])
        return alike[0] if len(alike) == 1 else None

    def rank_at(self, machine: str, local_rank: int) -> int | None:
        """Return the rank with a given local rank on a machine."""
        for number, row in self.table.items():
            if (row.machine, row.local_rank) == (machine, local_rank):
                return number
        return None

    def by_pid(self) -> dict[int, int]:
        """Return the ranks by process number, where no two ranks have the same."""
        counts = Counter(row.pid for row in self.table.values())
        return {
            row.pid: number
            for number, row in self.table.items()
            if row.pid is not None and counts[row.pid] == 1
        }

    def peers(self, rank: int) -> tuple[int, ...]:
        """Return the ranks that do the same work as a rank, without the rank itself, in order.

        Peers differ only in the data coordinate. If these are fewer than 4 including the rank
        itself, peers are the ranks of the same pipeline stage, and without coordinates all ranks.

        Examples
        --------
        >>> ranks = Ranks({n: Rank(n, tp=n % 2, pp=0, dp=n // 2) for n in range(8)})
        >>> ranks.peers(5)
        (1, 3, 7)
        >>> Ranks({n: Rank(n, tp=n % 2, pp=0, dp=n // 2) for n in range(4)}).peers(3)
        (0, 1, 2)
        """
        row = self.table[rank]
        alike = self._alike[row.tp, row.pp]
        if len(alike) < _MIN_GROUP_SIZE:
            alike = self._alike[(row.pp,)]
        return tuple(number for number in alike if number != rank)

    def stages(self, rank: int) -> tuple[int, ...]:
        """Return the other stages of a rank's pipeline: the ranks that differ only in `pp`.

        Examples
        --------
        >>> Ranks({n: Rank(n, tp=n % 2, pp=n // 2, dp=0) for n in range(6)}).stages(3)
        (1, 5)
        """
        row = self.table[rank]
        if row.pp is None:
            return ()
        return tuple(
            number
            for number, other in sorted(self.table.items())
            if (other.tp, other.dp) == (row.tp, row.dp) and other.pp != row.pp
        )

    def tensor_partners(self, rank: int) -> tuple[int, ...]:
        """Return the other shards of a rank's layers: the ranks that differ only in `tp`.

        Examples
        --------
        >>> Ranks({n: Rank(n, tp=n % 2, pp=n // 2, dp=0) for n in range(6)}).tensor_partners(3)
        (2,)
        """
        row = self.table[rank]
        if row.tp is None:
            return ()
        return tuple(
            number
            for number in self._alike[(row.pp,)]
            if self.table[number].dp == row.dp and number != rank
        )

    def may_join(self, rank: int, members: Iterable[int], use: str) -> bool:
        """Return whether a rank may belong to a group of which only some members are known.

        Parameters
        ----------
        rank : int
        members : iterable of int
            Known members.
        use : str
            Purpose of the group. If it is the name of a coordinate, members differ only in it.

        Examples
        --------
        >>> ranks = Ranks({n: Rank(n, tp=n % 2, pp=0, dp=n // 2) for n in range(8)})
        >>> [n for n in (2, 5, 6) if ranks.may_join(n, [1, 3], "dp")]
        [5]
        """
        row, rows = self.table[rank], [self.table[n] for n in members if n in self.table]
        if len(rows) < 2 and use not in _PARALLEL_AXES:
            return True
        for axis in set(_PARALLEL_AXES) - {use}:
            values = {getattr(other, axis) for other in rows}
            if len(values) == 1 and getattr(row, axis) not in values:
                return False
        return True

    def mentioned(self, numbers: Iterable[int], machines: Mapping[int, str]) -> Ranks:
        """Return the ranks of a job without `ranks.csv`: those that other parts mention.

        Parameters
        ----------
        numbers : iterable of int
        machines : mapping of int to str
            Machines by rank, as far as logs state them.
        """
        table = {n: Rank(n, machines.get(n)) for n in sorted({*numbers, *machines})}
        return Ranks(table, listed=False)


def parse_ranks(text: str, name: str) -> Ranks:
    """Parse `rank,machine[,local_rank,pid,gpu_serial,tp,pp,dp]`.

    Parameters
    ----------
    text : str
    name : str
        File name for error messages.

    Raises
    ------
    RanksError
        If a column is missing, a number is invalid, or a rank or an address is repeated.
    """
    cells_of_rows = table_rows(text, name, ("rank", "machine"), RanksError)
    rows = [_parse_rank(cells, where) for cells, where in cells_of_rows]
    if not rows:
        raise RanksError(f"{name}: contains no rank, expected at least one.")
    _check_unique([str(row.number) for row in rows], f"{name}: rank")
    addresses = [f"{row.machine}/{row.local_rank}" for row in rows if row.local_rank is not None]
    _check_unique(addresses, f"{name}: machine and local_rank")
    return Ranks({row.number: row for row in sorted(rows, key=lambda row: row.number)})


def _check_unique(values: list[str], what: str) -> None:
    seen = set[str]()
    for value in values:
        if value in seen:
            raise RanksError(f"{what} {value[:80]} occurs twice, expected once.")
        seen.add(value)


def _parse_rank(cells: Mapping[str, str], where: str) -> Rank:
    number = _parse_number(cells, "rank", where)
    machine = cells["machine"].strip()
    if number is None or not machine:
        empty = "rank" if number is None else "machine"
        raise RanksError(f"{where}: column `{empty}` is empty, expected a value.")
    serial = (cells.get("gpu_serial") or "").strip() or None
    numbers = {column: _parse_number(cells, column, where) for column in _INTEGER_COLUMNS}
    return Rank(number, machine, gpu_serial=serial, **numbers)


def _parse_number(cells: Mapping[str, str], column: str, where: str) -> int | None:
    """Parse a cell as a non-negative integer; return None if it is empty or absent."""
    cell = (cells.get(column) or "").strip()
    if not cell:
        return None
    most = MAX_RANKS - 1 if column == "rank" else 2**31 - 1
    if not (cell.isascii() and cell.isdecimal() and len(cell) < 11 and int(cell) <= most):
        raise RanksError(
            f"{where}: column `{column}` is {cell[:40]!r}, expected an integer from 0 to {most}."
        )
    return int(cell)


def format_ranks(ranks: Sequence[int]) -> str:
    """Format ranks for a sentence, listing at most eight.

    Examples
    --------
    >>> format_ranks([3]), format_ranks([1, 2]), format_ranks(range(10))
    ('rank 3', 'ranks 1, 2', 'ranks 0, 1, 2, 3, 4, 5, 6, 7 and 2 more')
    """
    shown = ", ".join(map(str, ranks[:_MAX_LISTED_RANKS]))
    more = f" and {len(ranks) - _MAX_LISTED_RANKS} more" if len(ranks) > _MAX_LISTED_RANKS else ""
    return f"rank {shown}" if len(ranks) == 1 else f"ranks {shown}{more}"
