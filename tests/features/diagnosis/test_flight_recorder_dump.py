"""Flight recorder dumps as arrays."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from forewarn.features.diagnosis.collective_operations import merge_dumps
from forewarn.features.diagnosis.flight_recorder_dump import (
    COMPLETED,
    SCHEDULED,
    STARTED,
    BrokenDumpError,
    parse_dump,
)

ENTRY: dict[str, Any] = {
    "process_group": ["7", "tp"],
    "profiling_name": "nccl:all_reduce",
    "collective_seq_id": 3,
    "time_created_ns": 10**18,
    "pg_id": 4,
    "input_sizes": [[2, 3]],
    "input_dtypes": ["Half"],
    "output_sizes": [[2, 3]],
}


def dump(*entries: dict[str, Any], **keys: Any) -> bytes:
    rows = [ENTRY | {"record_id": i} | entry for i, entry in enumerate(entries)]
    return json.dumps({"version": "2.10", "entries": rows} | keys).encode()


@pytest.mark.parametrize("job", ["hang", "wrong_collective"])
@pytest.mark.parametrize("rank", range(4))
def test_json_and_pickle_dumps_are_equal(shared_data: Path, job: str, rank: int) -> None:
    file = shared_data / "flight_recorder" / job / f"dump_{rank}"
    text, pickled = (parse_dump(file.with_suffix(s).read_bytes()) for s in (".json", ".pickle"))
    assert (text.entries == pickled.entries).all()
    assert text.groups == pickled.groups
    assert text.descriptions == pickled.descriptions
    assert text.signatures == pickled.signatures


def test_parse_dump_converts_entry_to_row() -> None:
    read = parse_dump(dump({"state": "started", "time_discovered_started_ns": 10**18 + 5}))
    (row,) = read.entries
    assert (row["seq"], row["created"], row["started"], row["completed"]) == (
        3,
        10**18,
        10**18 + 5,
        0,
    )
    assert (read.groups, read.descriptions, read.names) == (("7",), ("tp",), ("nccl:all_reduce",))
    assert read.signatures == ("Half[[2,3]]->[[2,3]]",)


def test_completed_states() -> None:
    status = {"4": {"last_completed_collective": "2", "last_started_collective": None}}
    rows: list[dict[str, Any]] = [
        {"state": "scheduled"},
        {"state": "started"},
        {"state": "completed"},
        {"state": "scheduled", "retired": True},
        {"state": "scheduled", "collective_seq_id": 2},
        {"state": "scheduled", "collective_seq_id": 2, "is_p2p": True},
    ]
    states = parse_dump(dump(*rows, pg_status=status)).entries["state"].tolist()
    assert states == [SCHEDULED, STARTED, COMPLETED, COMPLETED, COMPLETED, SCHEDULED]


def test_entries_sorted_by_record_id() -> None:
    rows = [{"record_id": 9, "time_created_ns": 9}, {"record_id": 2, "time_created_ns": 2}]
    assert parse_dump(dump(*rows)).entries["created"].tolist() == [2, 9]


def test_members_are_parsed_from_text() -> None:
    config = {
        "a": {"name": "7", "desc": "", "ranks": "[4, 6]"},
        "": {"name": "", "desc": "", "ranks": "[]"},
        "b": {"name": "8", "desc": "", "ranks": "[4, 'x']"},
    }
    assert parse_dump(dump(ENTRY, pg_config=config)).members == {"7": (4, 6)}


def test_merged_groups_match_by_name() -> None:
    ranks = {
        5: parse_dump(dump({"process_group": ["b", "x"]}, {"process_group": ["a", ""]})),
        2: parse_dump(dump({"process_group": ["a", ""]})),
    }
    operations = merge_dumps(ranks)
    assert operations.entries["rank"].tolist() == [2, 5, 5]
    names = [operations.groups[group] for group in operations.entries["group"]]
    assert names == ["a", "b", "a"]
    members = {operations.groups[group]: who for group, who in operations.members.items()}
    assert members == {"a": (2, 5), "b": (5,)}
    assert operations.described == frozenset()


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "is empty"),
        (b" \n", "is empty"),
        (b"{", "truncated"),
        (dump({})[:-30], "truncated"),
        (b"[1, 2]", "is not a flight recorder dump"),
        (b"\xff\xfe\x00", "truncated or not a flight recorder dump"),
        (b'{"version": "3.1", "entries": []}', "has version '3.1', expected 2.x"),
        (b'{"entries": []}', "is not a flight recorder dump"),
        (b'{"version": "2.10", "entries": {}}', "is not a flight recorder dump"),
        (dump({"collective_seq_id": -1}), "is not a flight recorder dump"),
        (dump({"time_created_ns": 2**63}), "is not a flight recorder dump"),
        (dump({"time_created_ns": 10**40}), "is not a flight recorder dump"),
        (dump({"process_group": ["a"]}), "is not a flight recorder dump"),
        (b'{"version": "2.10", "x": ' + b"[" * 100_000, "nested too deep"),
    ],
)
def test_invalid_dumps_raise(data: bytes, message: str) -> None:
    with pytest.raises(BrokenDumpError, match=message):
        parse_dump(data)


def test_p2p_entries_use_p2p_sequence_numbers() -> None:
    assert parse_dump(dump({"is_p2p": True, "p2p_seq_id": 9})).entries["seq"].tolist() == [9]
