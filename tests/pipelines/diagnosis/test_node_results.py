from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from forewarn.pipelines.cli.main import main

NODES = ["--nodes", "node-[1-6]"]
FIRST = """round,nodes,passed,seconds
1,node-1 node-2,true,12.0
1,node-3 node-4,true,13.0
1,node-5 node-6,false,
"""
SECOND = """2,node-5 node-1,true,12.5
2,node-6 node-2,false,
2,node-3 node-4,true,12.1
"""


def printed(capsys: pytest.CaptureFixture[str], *options: str) -> Any:
    assert main(["diagnose", "nodes", *options, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def results(tmp_path: Path, text: str) -> list[str]:
    path = tmp_path / "results.csv"
    path.write_text(text)
    return ["--results", str(path)]


def test_first_round_pairs_neighbours(capsys: pytest.CaptureFixture[str]) -> None:
    line = printed(capsys, *NODES)
    assert line["pairs"] == [["node-1", "node-2"], ["node-3", "node-4"], ["node-5", "node-6"]]
    assert (line["round"], line["done"], line["faulty"]) == (1, False, [])


def test_next_round_then_verdict(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    line = printed(capsys, *NODES, *results(tmp_path, FIRST))
    assert line["pairs"][:2] == [["node-5", "node-1"], ["node-6", "node-3"]]
    assert line["suspects"] == ["node-5", "node-6"]
    line = printed(capsys, *NODES, *results(tmp_path, FIRST + SECOND))
    assert (line["done"], line["faulty"], line["suspects"]) == (True, ["node-6"], [])
    assert (line["round"], line["good"], len(line["nodes"])) == (2, 5, 6)


def states(line: Any) -> dict[str, str]:
    return {node["node"][-1]: node["state"] for node in line["nodes"]}


def test_rounds_print_states_of_nodes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert set(states(printed(capsys, *NODES)).values()) == {"unproven"}
    line = printed(capsys, *NODES, *results(tmp_path, FIRST))
    assert states(line) == dict.fromkeys("1234", "ok") | dict.fromkeys("56", "unproven")
    line = printed(capsys, *NODES, *results(tmp_path, FIRST + SECOND))
    assert states(line) == dict.fromkeys("12345", "ok") | {"6": "failed"}
    assert [node["factor"] for node in line["nodes"]][-1] is None
    assert line["nodes"][0] == {"node": "node-1", "state": "ok", "factor": 1.0083}


LINKS = """round,nodes,passed,seconds
1,node-1 node-2,true,10
1,node-3 node-4,true,30
1,node-5 node-6,false,
2,node-3 node-1,true,10
2,node-4 node-2,true,30
2,node-5 node-1,true,25
2,node-6 node-2,true,10
3,node-5 node-2,true,10
3,node-6 node-1,true,10
"""


def test_rounds_print_links_with_states(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    line = printed(capsys, *NODES, *results(tmp_path, LINKS))
    assert line["links"] == [
        {"a": "node-5", "b": "node-6", "state": "failed", "factor": None},
        {"a": "node-1", "b": "node-5", "state": "slow", "factor": None},
    ]
    assert line["slow_links"] == [["node-1", "node-5"]]
    assert states(line) == dict.fromkeys("12356", "ok") | {"4": "slow"}
    assert line["nodes"][3]["factor"] == 0.3333
    assert line["blocks"] == []


def test_text_output_describes_links(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["diagnose", "nodes", *results(tmp_path, LINKS)]) == 0
    out = capsys.readouterr().out
    assert "node-5 - node-6: bad link between good nodes" in out
    assert "node-1 - node-5: slow link" in out


def test_json_lines_equal_csv(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [row.split(",") for row in (FIRST + SECOND).splitlines()[1:]]
    lines = [
        {
            "round": int(r),
            "nodes": n.split(),
            "passed": p == "true",
            "seconds": float(s) if s else None,
        }
        for r, n, p, s in rows
    ]
    text = "".join(json.dumps(line) + "\n" for line in lines)
    from_json = printed(capsys, *NODES, *results(tmp_path, text))
    assert from_json == printed(capsys, *NODES, *results(tmp_path, FIRST + SECOND))


def test_text_output_lists_faulty_nodes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["diagnose", "nodes", *results(tmp_path, FIRST + SECOND)]) == 0
    assert "node-6: faulty" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("round,passed\n1,true\n", "column `nodes` is missing"),
        ("round,nodes\n1,node-1\n", "line 2: `nodes` is ['node-1'], expected two or three names"),
        ("round,nodes\n1,node-1 node-1\n", "contains 'node-1' twice"),
        ("round,nodes\n1,node-1 node-9\n", "contains node 'node-9', expected one of the 6 nodes"),
        ("round,nodes\nx,node-1 node-2\n", "`round` is 'x', expected 1 to 1000"),
        ("round,nodes\n1.5,node-1 node-2\n", "`round` is '1.5'"),
        ("round,nodes,seconds\n1,node-1 node-2,0\n", "`seconds` is '0', expected more than 0"),
        ("round,nodes,seconds\n1,node-1 node-2,1e-320\n", "`seconds` is '1e-320'"),
        ("round,nodes,seconds\n1,node-1 node-2,nan\n", "`seconds` is 'nan'"),
        ("round,nodes,passed\n1,node-1 node-2,maybe\n", "`passed` is 'maybe', expected true or"),
        ('{"round": 1', "line 1 is not a JSON object"),
        ('{"round": 1, "nodes": "ab"}', "`nodes` is 'ab', expected two or three names"),
    ],
)
def test_invalid_results_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, message: str
) -> None:
    assert main(["diagnose", "nodes", *NODES, *results(tmp_path, text)]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


def test_missing_nodes_and_results_are_refused(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["diagnose", "nodes"]) == 2
    assert "--nodes or --results is required" in capsys.readouterr().err
