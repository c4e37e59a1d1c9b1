"""Reports of nccl-tests in JSON (`-J`) for `diagnose nodes`."""

from __future__ import annotations

import json
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forewarn.pipelines.cli.main import main
from forewarn.pipelines.diagnosis.parts.nccl_tests_output import find_nccl_runs, is_nccl_output

NODES = [f"cn{number}" for number in range(8)]
Pairs = dict[tuple[str, str], float | None]


def report(a: str, b: str, average: float | None, wrong: int = 0) -> str:
    """Return the report of a run on two hosts with two GPUs each."""
    devices = [
        {
            "rank": r,
            "group": 0,
            "pid": 700 + r,
            "hostname": host,
            "device": r % 2,
            "device_hex": "0x1b",
        }
        for r, host in enumerate((a, a, b, b))
    ]
    sizes = {"minimum_bytes": 1048576, "maximum_bytes": 4194304, "step_factor": 2}
    row = {"size": 4194304, "type": "float", "in_place": {"time": 310.5, "bus_bw": 13.2}}
    whole: dict[str, Any] = {
        "version": 3,
        "start_time": "2026-05-02 09:00:00",
        "args": ["/opt/nccl-tests/build/all_reduce_perf", "-b", "1M", "-J", "out.json"],
        "env": ["NCCL_DEBUG=WARN", "GREETING={hello}"],
        "nccl_version": 22907,
        "config": {"nthreads": 1, "ngpus": 2, **sizes, "devices": devices},
        "results": [row],
    }
    text = json.dumps(whole, separators=(",", ":"))
    if average is None:
        return text[: text.index('"in_place"')]  # a run that was killed
    whole["out_of_bounds"] = {"count": wrong, "okay": "true"}
    whole["average_bus_bandwidth"] = {"bandwidth": average, "okay": "unchecked"}
    return json.dumps(whole, separators=(",", ":"))


def log(a: str, b: str, average: float | None) -> str:
    """Return the log of a run by nccl-tests 2.19."""
    rows = [
        "# nccl-tests version 2.19.6 nccl-headers=22907 nccl-library=22907",
        "# Collective test starting: all_reduce_perf",
        "# nThread 1 nGpus 2 minBytes 1048576 maxBytes 4194304 step: 2(factor) warmup iters: 1",
        "# Per-Iteration Report: CUDA event timing; i_* uses max over process rows ",
        "# Using devices",
        f"#  Rank  0 Group  0 Pid    700 on {a:>10} device  0 [0000:1b:00] GPU",
        f"#  Rank  1 Group  0 Pid    701 on {b:>10} device  0 [0000:1b:00] GPU",
        "     4194304       1048576     float     sum      -1    310.5   13.51   13.20       0",
    ]
    end = ["# Out of bounds values : 0 OK", f"# Avg bus bandwidth    : {average} ", "#"]
    return "\n".join(rows + (end if average else ["cn1: Test NCCL failure common.cu:1279"])) + "\n"


def check(path: Path, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    assert main(["diagnose", "nodes", "--results", str(path), "--json"]) == 0
    line: dict[str, Any] = json.loads(capsys.readouterr().out)
    return line


def put_reports(folder: Path, pairs: Pairs) -> None:
    for number, ((a, b), average) in enumerate(pairs.items()):
        (folder / f"run{number}.json").write_text(report(a, b, average))


def nodes_in(line: dict[str, Any], state: str) -> set[str]:
    return {row["node"] for row in line["nodes"] if row["state"] == state}


@given(
    slow=st.integers(0, 7),
    dead=st.integers(0, 7),
    forms=st.lists(st.sampled_from([report, log]), min_size=28, max_size=28),
)
def test_both_forms_tell_the_same(slow: int, dead: int, forms: list[Any]) -> None:
    pairs: Pairs = {
        (a, b): None if NODES[dead] in (a, b) else 40.0 - 20.0 * (NODES[slow] in (a, b))
        for a, b in combinations(NODES, 2)
    }
    text = "\n".join(
        form(*pair, average) for form, (pair, average) in zip(forms, pairs.items(), strict=True)
    )
    runs = list(find_nccl_runs(text))
    assert [tuple(run.hosts) for run in runs] == list(pairs)
    assert [run.bandwidth for run in runs] == list(pairs.values())
    assert {run.kind for run in runs} == {"all_reduce_perf 1048576-4194304"}


def test_slow_node_of_reports(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pairs: Pairs = {
        (a, b): 41.0 - 19.0 * ("cn3" in (a, b)) + 0.1 * int(b[2]) for a, b in combinations(NODES, 2)
    }
    put_reports(tmp_path, pairs)
    line = check(tmp_path, capsys)
    assert nodes_in(line, "slow") == {"cn3"}
    assert nodes_in(line, "ok") == {*NODES} - {"cn3"}
    one = tmp_path / "all.json"
    one.write_text("\n".join(path.read_text() for path in sorted(tmp_path.glob("run*.json"))))
    assert nodes_in(check(one, capsys), "slow") == {"cn3"}


def test_five_pairs_prove_no_node(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As people report it: one node is in both slow pairs, and a pair is slow on its own."""
    pairs: Pairs = {("k1", "k2"): 47.1, ("k3", "k4"): 91.0, ("k5", "k6"): 46.9}
    put_reports(tmp_path, pairs | {("k4", "k1"): 47.0, ("k7", "k2"): 90.2})
    line = check(tmp_path, capsys)
    slow = {row["node"]: (row["slow_with"], row["partners"]) for row in line["nodes"]}
    assert (slow["k1"], slow["k3"], slow["k7"]) == ((2, 2), (0, 1), (0, 1))
    assert nodes_in(line, "slow") == nodes_in(line, "failed") == set()


def test_slow_pair_of_fast_nodes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As people report it: both nodes of a slow pair are fast with others."""
    put_reports(tmp_path, {("k1", "k2"): 24.0, ("k1", "k3"): 41.0, ("k2", "k4"): 40.5})
    line = check(tmp_path, capsys)
    assert nodes_in(line, "slow") == set()
    assert [(link["a"], link["b"], link["state"]) for link in line["links"]] == [
        ("k1", "k2", "unproven")
    ]


def test_wrong_values_are_a_failed_test() -> None:
    (run,) = find_nccl_runs(report("a", "b", 30.0, wrong=4))
    assert run.bandwidth is None


def test_other_json_is_no_output() -> None:
    assert not is_nccl_output('{"version":3,"start_time":"2026-05-02 09:00:00","args":[]}')
    assert not is_nccl_output('{"round": 1, "nodes": ["a", "b"], "passed": true}')


def test_report_spread_over_lines_is_read() -> None:
    text = json.dumps(json.loads(report("a", "b", 31.5)), indent=2)
    assert is_nccl_output(text)
    assert [(*run.hosts, run.bandwidth) for run in find_nccl_runs(text)] == [("a", "b", 31.5)]
