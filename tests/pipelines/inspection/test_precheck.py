"""Which machines a precheck leaves out, with probes that answer as machines would."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import combinations
from pathlib import Path

import pytest

from forewarn.pipelines.cli.main import main
from forewarn.pipelines.inspection.precheck import measure_all_pairs, pair_rounds, precheck
from forewarn.pipelines.inspection.probe_pool import GroupResult, ProbePool
from forewarn.pipelines.inspection.result_files import read_results

HOSTS = tuple(f"n{number}" for number in range(16))
Seconds = Callable[[str, str], float | None]


class Machines(ProbePool):
    """A pool without processes: a function says how long a pair takes, None if it fails."""

    def __init__(self, seconds: Seconds, dead: Sequence[str] = ()) -> None:
        super().__init__(HOSTS)
        self.seconds, self.dead = seconds, dead

    @property
    def unreachable(self) -> dict[str, str]:
        return dict.fromkeys(self.dead, "no answer")

    def run(self, groups: Sequence[Sequence[str]]) -> list[GroupResult]:
        results = []
        for group in groups:
            times = [self.seconds(a, b) for a, b in combinations(group, 2)]
            known = [t for t in times if t is not None and not set(group) & set(self.dead)]
            is_ok = len(known) == len(times)
            results.append(
                GroupResult(tuple(group), max(known), "")
                if is_ok
                else GroupResult(tuple(group), None, "connection reset")
            )
        return results


def slow(*nodes: str) -> Seconds:
    return lambda a, b: 5.0 if {a, b} & set(nodes) else 1.0


def test_healthy_machines_stay() -> None:
    result = precheck(Machines(lambda *_: 1.0))
    assert result.line()["leave_out"] == []
    assert result.line()["good"] == list(HOSTS)
    assert result.rounds == 2


def test_dead_failing_and_slow_machines_are_left_out() -> None:
    def seconds(a: str, b: str) -> float | None:
        return None if "n2" in (a, b) else slow("n5")(a, b)

    result = precheck(Machines(seconds, dead=["n14", "n15"]))
    assert list(result.reasons) == ["n2", "n5", "n14", "n15"]
    assert result.reasons["n2"] == "failed 2 of its tests: connection reset"
    assert result.reasons["n5"].startswith("slow: 0.20")
    assert result.reasons["n15"] == "no answer"


def test_bad_link_costs_one_of_its_machines() -> None:
    link = {"n0", "n1"}  # neighbours, so the first round meets it

    def seconds(a: str, b: str) -> float | None:
        return None if {a, b} == link else 1.0

    result = precheck(Machines(seconds), rounds=4)
    assert list(result.reasons) == ["n1"]
    assert result.reasons["n1"] == "failed link with n0"


@pytest.mark.parametrize("n", [2, 3, 8, 9])
def test_rounds_have_each_pair_once(n: int) -> None:
    hosts = [str(number) for number in range(n)]
    rounds = pair_rounds(hosts)
    assert sorted(tuple(sorted(p)) for pairs in rounds for p in pairs) == sorted(
        combinations(hosts, 2)
    )
    for pairs in rounds:
        named = [host for pair in pairs for host in pair]
        assert len(set(named)) == len(named)


def test_all_pairs_tell_a_link_from_a_machine() -> None:
    def seconds(a: str, b: str) -> float | None:
        return 9.0 if {a, b} == {"n1", "n4"} else slow("n6")(a, b)

    verdict, results = measure_all_pairs(Machines(seconds))
    line = verdict.line()
    assert len(results) == 120
    assert [n["node"] for n in line["nodes"] if n["state"] != "ok"] == ["n6"]
    assert [(link["a"], link["b"]) for link in line["links"]] == [("n1", "n4")]


# A probe that answers like the real one, without PyTorch.
PROBE = """
import json, sys
print(json.dumps({"ready": "0", "gpus": 0}), flush=True)
for line in sys.stdin:
    test = json.loads(line)
    seconds = 9.0 if HOST == "n3" else 1.0
    clock = 1740787200.0 + 60.0 * (HOST == "n4")
    answer = {"test": test["test"], "seconds": seconds, "gemm_seconds": 0.1, "clock": clock}
    print(json.dumps(answer), flush=True)
"""


@pytest.fixture
def via(tmp_path: Path) -> list[str]:
    """Return options by which machines n1 to n4 are processes here, and n9 does not answer."""
    for number in range(1, 5):
        (tmp_path / f"n{number}.py").write_text(f"HOST = 'n{number}'\n{PROBE}")
    command = f"sh -c 'exec {sys.executable} {tmp_path}/$0.py' {{host}}"
    return ["--via", command, "--pair-timeout", "1s"]


def test_command_names_the_slow_machine(via: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["inspect", "precheck", "--hosts", "n[1-4],n9", *via]
    assert main([*arguments, "--json"]) == 0
    line = json.loads(capsys.readouterr().out)
    assert line["leave_out"] == ["n3", "n9"]
    assert line["good"] == ["n1", "n2", "n4"]
    assert main([*arguments, "--check"]) == 1
    assert capsys.readouterr().out.splitlines() == [
        "n3: slow: 0.12 of the median speed",
        "n9: the probe ended",
    ]


def test_pairs_become_results(
    via: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    arguments = ["inspect", "run", "--set", "pairs", "--pair", "n[1-4]", "--out", str(out)]
    assert main([*arguments, *via]) == 0
    assert "n3: slow" in capsys.readouterr().out
    rows = read_results(out).to_pylist()
    assert Counter(row["check"] for row in rows) == {
        **{"pair_all_gather": 6, "pair_clock_skew": 6, "group_all_gather": 4},
    }
    values = {
        name: {frozenset((r["machine"], r["slot"])): r["value"] for r in rows if r["check"] == name}
        for name in ("pair_all_gather", "pair_clock_skew")
    }
    slow = {pair for pair, seconds in values["pair_all_gather"].items() if seconds > 2.0}
    assert slow == {frozenset(("n3", other)) for other in ("n1", "n2", "n4")}
    skewed = {pair: round(skew) for pair, skew in values["pair_clock_skew"].items() if skew > 1.0}
    assert skewed == {
        frozenset(("n4", "n1")): 59,
        frozenset(("n4", "n2")): 59,
        frozenset(("n4", "n3")): 51,
    }


def test_port_of_another_service_is_no_failure(
    via: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    taken = """
if HOST == "n2" and not test["test"]:
        print(json.dumps({"test": 0, "error": "EADDRINUSE: 29400"}), flush=True)
        continue
    """
    program = PROBE.replace("    seconds =", f"    {taken.strip()}\n    seconds =")
    (tmp_path / "n2.py").write_text(f"HOST = 'n2'\n{program}")
    assert main(["inspect", "precheck", "--hosts", "n[1-4]", *via, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["leave_out"] == ["n3"]


@pytest.mark.parametrize(
    ("hosts", "words"),
    [
        ("n1", "found 1 machine"),
        ("n1,n1", "'n1' twice"),
        ("n1,../etc", "'../etc'"),
        ("n1,-oProxyCommand=x", "names of machines"),
        ("n[1-", "n[1-"),
    ],
)
def test_bad_hosts_are_one_line(hosts: str, words: str, capsys: pytest.CaptureFixture[str]) -> None:
    try:
        code = main(["inspect", "precheck", f"--hosts={hosts}"])
    except SystemExit as raised:  # of argparse
        code = int(raised.code or 0)
    assert code == 2
    error = capsys.readouterr().err
    assert words in error
    assert error.count("\n") == 1
