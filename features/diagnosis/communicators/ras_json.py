"""Answers of NCCL's RAS subsystem in JSON: `ncclras -f json`, from NCCL 2.28.7."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Iterator
from typing import Annotated

import msgspec

from forewarn.features.diagnosis.communicators.communicator_state import (
    BrokenStatusError,
    CommunicatorState,
    GpuProcess,
    StatusSnapshot,
)
from forewarn.features.diagnosis.ranks import MAX_RANKS

__all__ = ["parse_ras_json"]

_SUCCESS = 0  # ncclSuccess


class _Status(msgspec.Struct):
    init_state: int = _SUCCESS
    finalize_called: bool = False
    destroy_flag: bool = False
    abort_flag: bool = False
    unresponsive: bool = False
    considered_dead: bool = False


class _RankRow(msgspec.Struct):
    rank: int
    host: str = "unknown"
    pid: int = -1
    cuda_dev: int = -1
    nvml_dev: int = -1
    status: _Status = msgspec.field(default_factory=_Status)
    collective_counts: dict[str, int] = {}

    @property
    def process(self) -> GpuProcess | None:
        if self.pid < 0:
            return None
        gpu = self.nvml_dev if self.nvml_dev >= 0 else self.cuda_dev
        return GpuProcess(self.host, self.pid, gpu if gpu >= 0 else None)


class _Communicator(msgspec.Struct):
    size: Annotated[int, msgspec.Meta(ge=1, le=MAX_RANKS)]
    hash: str = ""
    ranks: list[_RankRow] = []
    missing_ranks: list[_RankRow] = []


class _Answer(msgspec.Struct):
    communicators: list[_Communicator]
    timestamp: str = ""


def parse_ras_json(text: str) -> list[StatusSnapshot]:
    """Parse one or several answers, which may follow lines of the protocol.

    Raises
    ------
    BrokenStatusError
        If an answer is truncated or has another form.
    """
    return [_snapshot(answer) for answer in _answers(text)]


def _answers(text: str) -> Iterator[_Answer]:
    decoder, start = json.JSONDecoder(), text.find("{")
    if start < 0:
        raise BrokenStatusError("contains no JSON object, expected the status of communicators")
    while start >= 0:
        try:
            value, end = decoder.raw_decode(text, start)
            if "communicators" in value:  # events of the monitoring mode have none
                yield msgspec.convert(value, _Answer, strict=False)
        except (ValueError, RecursionError) as error:
            raise BrokenStatusError(f"is truncated or not a status ({error})") from None
        start = text.find("{", end)


def _snapshot(answer: _Answer) -> StatusSnapshot:
    every = [row for c in answer.communicators for row in (*c.ranks, *c.missing_ranks)]
    processes = {row.process for row in every}
    is_whole = None not in processes
    return StatusSnapshot(
        tuple(map(_state, answer.communicators)),
        len(processes) if is_whole else None,
        _local_time(answer.timestamp),
    )


def _state(communicator: _Communicator) -> CommunicatorState:
    counts: dict[str, dict[int, int]] = {}
    for row in communicator.ranks:
        for name, count in row.collective_counts.items():
            counts.setdefault(name, {})[row.rank] = count
    rows = (*communicator.ranks, *communicator.missing_ranks)
    lost = [r for r in communicator.missing_ranks if r.status.unresponsive]
    dead = [r for r in communicator.missing_ranks if r.status.considered_dead]
    missing = frozenset(row.rank for row in (*lost, *dead))
    return CommunicatorState(
        communicator.hash,
        communicator.size,
        counts,
        {row.rank: process for row in rows if (process := row.process) is not None},
        missing - {row.rank for row in dead},
        frozenset(row.rank for row in dead),
        is_running=all(_is_running(row.status) for row in communicator.ranks)
        and len(missing) == len(communicator.missing_ranks),
    )


def _is_running(status: _Status) -> bool:
    is_ending = status.finalize_called or status.destroy_flag or status.abort_flag
    return status.init_state == _SUCCESS and not is_ending


def _local_time(text: str) -> dt.datetime | None:
    try:
        return dt.datetime.fromisoformat(text).replace(tzinfo=None)
    except ValueError:
        return None
