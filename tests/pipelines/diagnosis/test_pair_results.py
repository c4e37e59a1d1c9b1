from __future__ import annotations

import csv
import json
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

from forewarn.pipelines.cli.main import main

NODES = [f"n{number}" for number in range(8)]
SLOW = {"n3"}


def bandwidth(a: str, b: str) -> float:
    wave = 1.0 + 0.01 * ((7 * int(a[1:]) + 3 * int(b[1:])) % 5 - 2) / 2
    return (24.0 if {a, b} & SLOW else 40.0) * wave


def printed(capsys: pytest.CaptureFixture[str], path: Path, *options: str) -> Any:
    assert main(["diagnose", "nodes", "--results", str(path), *options, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def state_of(line: Any, *states: str) -> set[str]:
    return {node["node"] for node in line["nodes"] if node["state"] in states}


TABLES = {
    "nodes,bandwidth": lambda a, b: f"{a} {b},{bandwidth(a, b)}",
    "a,b,bandwidth_GBs": lambda a, b: f"{a},{b},{bandwidth(a, b)}",
    "src,dst,busbw": lambda a, b: f"{b},{a},{bandwidth(a, b)}",
    "nodes,passed,algbw": lambda a, b: f'"{a},{b}",true,{bandwidth(a, b)}',
    "nodes,latency_us": lambda a, b: f"{a} {b},{1000 / bandwidth(a, b)}",
    "round,nodes,passed,seconds": lambda a, b: f"1,{a} {b},true,{1000 / bandwidth(a, b)}",
}


@pytest.mark.parametrize("header", TABLES)
def test_forms_of_tables_agree(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], header: str
) -> None:
    rows = [TABLES[header](a, b) for a, b in combinations(NODES, 2)]
    path = tmp_path / "table.csv"
    path.write_text("\n".join([header, *rows]) + "\n")
    line = printed(capsys, path)
    assert state_of(line, "slow") == SLOW
    assert state_of(line, "ok") == set(NODES) - SLOW
    assert line["links"] == line["blocks"] == []


def nccl_run(a: str, b: str, average: str) -> str:
    devices = [
        f"#  Rank {rank:2d} Group  0 Pid {4000 + rank} on {host:>8} device  {rank % 2} [0x1b] GPU\n"
        for rank, host in enumerate((a, a, b, b))
    ]
    return (
        "# nThread 1 nGpus 1 minBytes 1048576 maxBytes 8388608 step: 2(factor) iters: 20\n#\n"
        "# Using devices\n" + "".join(devices) + "#\n     1048576   262144  float  sum  -1  200.0\n"
        "# Out of bounds values : 0 OK\n" + average
    )


@pytest.mark.parametrize("prefix", ["", "0: ", "    "])
def test_output_of_nccl_tests(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], prefix: str
) -> None:
    runs = [
        nccl_run(a, b, f"# Avg bus bandwidth    : {bandwidth(a, b):.3f}\n" if b != "n6" else "")
        for a, b in combinations(NODES, 2)
        if a != "n6"
    ]
    path = tmp_path / "all.log"
    path.write_text("".join(prefix + row + "\n" for row in "".join(runs).splitlines()))
    line = printed(capsys, path)
    assert (state_of(line, "slow"), state_of(line, "failed")) == (SLOW, {"n6"})


def test_folder_of_logs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for a, b in combinations(NODES, 2):
        text = nccl_run(a, b, f"# Avg bus bandwidth    : {bandwidth(a, b):.3f}\n")
        (tmp_path / f"{a}_{b}.log").write_text(text)
    assert state_of(printed(capsys, tmp_path), "slow") == SLOW


def test_latency_blocks_keep_their_unit(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [f"{a} {b},{10 if (a < 'n4') == (b < 'n4') else 20}" for a, b in combinations(NODES, 2)]
    path = tmp_path / "table.csv"
    path.write_text("\n".join(["nodes,latency_us", *rows]) + "\n")
    line = printed(capsys, path)
    assert [block["nodes"] for block in line["blocks"]] == [NODES[:4], NODES[4:]]
    assert {(b["within"], b["across"], b["ratio"]) for b in line["blocks"]} == {(10, 20, 0.5)}


@pytest.mark.parametrize("value", ["", "nan", "FAILED", "N/A", "0"])
def test_words_for_failed_tests(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], value: str
) -> None:
    rows = [f"{a} {b},{value if 'n5' in (a, b) else 40}" for a, b in combinations(NODES, 2)]
    path = tmp_path / "table.csv"
    path.write_text("\n".join(["nodes,bandwidth", *rows]) + "\n")
    assert state_of(printed(capsys, path), "failed") == {"n5"}


def test_text_says_how_slow(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "table.csv"
    rows = [f"{a} {b},{bandwidth(a, b)}" for a, b in combinations(NODES, 2)]
    path.write_text("\n".join(["nodes,bandwidth", *rows]) + "\n")
    assert main(["diagnose", "nodes", "--results", str(path)]) == 0
    out = capsys.readouterr().out
    assert "n3: slow (0.60 of the expected bandwidth, 95 % interval 0.60 to 0.61" in out
    assert "7 of 8 nodes are ok" in out


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("nodes,bandwidth\na b,x\n", "line 2: `bandwidth` is 'x', expected a number over 0"),
        ("nodes,bandwidth\na b,-1\n", "line 2: `bandwidth` is '-1'"),
        ("nodes,latency\na b,1e-320\n", "line 2: `latency` is '1e-320'"),
        ("nodes,bandwidth\na b,inf\n", "line 2: `bandwidth` is 'inf'"),
        ("nodes,bandwidth" + 200_000 * "x" + "\na b,1\n", "is not a valid CSV table"),
        ("nodes,bandwidth\na a,1\n", "line 2: contains 'a' twice"),
        ("nodes,bandwidth\na b c,1\n", "contains no test of two nodes"),
    ],
)
def test_invalid_tables_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, message: str
) -> None:
    path = tmp_path / "table.csv"
    path.write_text(text)
    assert main(["diagnose", "nodes", "--results", str(path), "--json"]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


def test_empty_folder_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["diagnose", "nodes", "--results", str(tmp_path)]) == 2
    assert "contains no file .log, .out, .txt, .json" in capsys.readouterr().err


def truths(shared_data: Path) -> list[dict[str, str]]:
    with (shared_data / "nccl_pairs" / "truth.csv").open() as file:
        return [row for row in csv.DictReader(file) if row["table"].startswith("sim_")]


def test_planted_structures_are_found(
    shared_data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for truth in truths(shared_data):
        line = printed(capsys, shared_data / "nccl_pairs" / f"{truth['table']}.csv")
        named = {"node": "slow", "failed": "failed"}.get(truth["kind"])
        for state in ("slow", "failed", "unproven"):
            expected = set(truth["nodes"].split()) if state == named else set()
            assert state_of(line, state) == expected, truth["table"]
        leaves = [leaf.split() for leaf in truth["leaves"].split("|") if leaf]
        assert [block["nodes"] for block in line["blocks"]] == leaves, truth["table"]
        ends = {node for link in line["links"] for node in (link["a"], link["b"])}
        assert ends == set(truth["link"].split()) - {"x"}, truth["table"]


@pytest.mark.parametrize("pattern", ["cluster01.csv", "res_*.csv"])
def test_healthy_cluster_has_no_finding(
    shared_data: Path, capsys: pytest.CaptureFixture[str], pattern: str
) -> None:
    paths = sorted((shared_data / "nccl_pairs").glob(pattern))
    assert paths
    for path in paths:
        line = printed(capsys, path)
        assert {node["state"] for node in line["nodes"]} == {"ok"}
        assert line["links"] == line["blocks"] == []
