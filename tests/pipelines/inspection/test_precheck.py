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
from forewarn.pipelines.inspection.host_measurements import measure
from forewarn.pipelines.inspection.neighbour_check import judge_neighbours, measure_neighbours
from forewarn.pipelines.inspection.precheck import (
    measure_all_pairs,
    measure_by_rack,
    pair_rounds,
    precheck,
)
from forewarn.pipelines.inspection.probe_pool import GroupResult, ProbePool
from forewarn.pipelines.inspection.result_files import read_results

HOSTS = tuple(f"n{number}" for number in range(16))
Seconds = Callable[[str, str], float | None]


class Machines(ProbePool):
    """A pool without processes: a function says how long a pair takes, None if it fails."""

    def __init__(
        self,
        seconds: Seconds,
        dead: Sequence[str] = (),
        *,
        gpus: int = 0,
        bad_rings: Sequence[int] = (),
        hosts: Sequence[str] = HOSTS,
    ) -> None:
        super().__init__(hosts)
        self.seconds, self.dead, self.n_gpus, self.bad_rings = seconds, dead, gpus, bad_rings

    @property
    def gpus(self) -> int:
        return self.n_gpus

    @property
    def unreachable(self) -> dict[str, str]:
        return dict.fromkeys(self.dead, "no answer")

    def run(self, groups: Sequence[Sequence[str]], gpu: int = 0) -> list[GroupResult]:
        results = []
        for group in groups:
            times = [self.seconds(a, b) for a, b in combinations(group, 2)]
            known = [t for t in times if t is not None and not set(group) & set(self.dead)]
            is_ok = len(known) == len(times) and not (len(group) > 3 and gpu in self.bad_rings)
            results.append(
                GroupResult(tuple(group), max(known), gpu=gpu)
                if is_ok
                else GroupResult(tuple(group), None, "connection reset", gpu=gpu)
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


def test_machine_with_its_neighbours_has_a_pair_and_a_ring_for_each_gpu() -> None:
    two = judge_neighbours(Machines(lambda *_: 1.5, dead=["n3"], gpus=2), "n0")
    assert two == {"values": [(None, "1.5"), ("ring 0", "1.5"), ("ring 1", "1.5")]}
    without = judge_neighbours(Machines(lambda *_: 1.5), "n0")
    assert without == {"values": [(None, "1.5"), ("ring 0", "1.5")]}


@pytest.mark.parametrize(
    ("machines", "reason"),
    [
        (Machines(slow("n0")), "slow: 0.20 of the median speed"),
        (Machines(lambda a, b: None if "n0" in (a, b) else 1.0), "failed 2 of its tests"),
        (Machines(lambda *_: 1.0, dead=["n0"]), "no answer"),
        (
            Machines(lambda *_: 1.0, gpus=8, bad_rings=[5]),
            "the ring of GPU 5 of all machines failed: connection reset",
        ),
    ],
)
def test_bad_machine_fails_with_its_neighbours(machines: Machines, reason: str) -> None:
    assert judge_neighbours(machines, "n0")["failed"].startswith(reason)


def test_bad_neighbour_does_not_fail_the_machine() -> None:
    assert "values" in judge_neighbours(Machines(slow("n1")), "n0")
    alone = Machines(lambda *_: 1.0, dead=HOSTS[1:])
    assert judge_neighbours(alone, "n0") == {"not_run": "no neighbour answers"}


def test_neighbours_come_from_the_environment() -> None:
    few = {"FOREWARN_MACHINE_ID": "n0", "FOREWARN_NEIGHBOURS": "n0 n1 n2"}
    assert measure_neighbours({}) == measure_neighbours(few)
    assert "it needs 3 neighbours" in measure("neighbours", [])


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


RACKS = {f"n{number}": f"r{number // 8}" for number in range(64)}


def in_racks(a: str, b: str) -> float | None:
    """Two slow machines of a rack, a dead one, and a rack with a bad uplink."""
    if "n6" in (a, b):
        return None
    across = RACKS[a] != RACKS[b]
    uplink = 3.0 if across and "r3" in (RACKS[a], RACKS[b]) else 1.0
    return (2.0 if across else 1.0) * uplink * (slow("n18", "n20")(a, b) or 1.0)


def test_few_pairs_by_rack_tell_what_all_pairs_tell() -> None:
    machines = Machines(in_racks, hosts=list(RACKS))
    verdict, results = measure_by_rack(machines, RACKS)
    complete, everything = measure_all_pairs(machines)
    assert len(everything) == 2016
    assert 300 < len(results) < 400
    assert len({frozenset(result.nodes) for result in results}) == len(results)
    few, many = verdict.line(), complete.line()
    states = {node["node"]: node["state"] for node in few["nodes"] if node["state"] != "ok"}
    assert states == {
        node["node"]: node["state"] for node in many["nodes"] if node["state"] != "ok"
    }
    assert {name for name, state in states.items() if state != "unproven"} == {"n6", "n18", "n20"}
    assert few["links"] == []
    shown = {block["nodes"][0]: (block["within"], block["across"]) for block in few["blocks"]}
    assert shown["n24"] == (1.0, 6.0)
    assert {across for _, across in shown.values()} == {2.0, 6.0}


def test_link_of_a_tested_pair_is_told_from_its_machines() -> None:
    link = {"n0", "n1"}  # the first round meets it

    def seconds(a: str, b: str) -> float | None:
        return 4.0 * (in_racks(a, b) or 1.0) if {a, b} == link else in_racks(a, b)

    verdict, _ = measure_by_rack(Machines(seconds, hosts=list(RACKS)), RACKS)
    assert [(row["a"], row["b"], row["state"]) for row in verdict.line()["links"]] == [
        ("n0", "n1", "slow")
    ]


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


def test_racks_of_the_cmdb_choose_the_pairs(
    via: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, cmdb = tmp_path / "out", tmp_path / "cmdb.csv"
    arguments = ["inspect", "run", "--set", "pairs", "--pair", "n[1-4]", "--out", str(out)]
    arguments += ["--cmdb", str(cmdb), *via]
    cmdb.write_text("machine_id,rack\nn1,r1\nn2,r1\nn3,r2\n")
    assert main(arguments) == 2
    assert "found no rack of 'n4', expected a row with its `machine_id`" in capsys.readouterr().err
    assert not out.exists()
    cmdb.write_text("gpu_serial,machine_id,rack\na,n1,r1\nb,n1,r1\nc,n2,r1\nd,n3,r2\ne,n4,r2\n")
    assert main(arguments) == 0
    assert "n3: slow" in capsys.readouterr().out
    rows = read_results(out).to_pylist()
    pairs = [{r["machine"], r["slot"]} for r in rows if r["check"] == "pair_all_gather"]
    assert len(pairs) == 6
    assert {"n1", "n2"} in pairs


NEIGHBOURS = """
[check.neighbours]
value = {builtin = "neighbours", unit = "s", better = "lower"}
category = "network"
when = ["quick", "accept"]
required = true
"""


@pytest.mark.parametrize(
    ("machine", "others", "state"), [("n1", "n[2-4]", "passed"), ("n3", "n[1-2],n4", "failed")]
)
def test_acceptance_tests_the_network_with_neighbours(
    via: list[str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    machine: str,
    others: str,
    state: str,
) -> None:
    path = tmp_path / "checks.toml"
    path.write_text(NEIGHBOURS)
    monkeypatch.setattr("forewarn.pipelines.inspection.check_files.SHIPPED_CHECKS", path)
    words = ["inspect", "accept", "--machine", machine, "--after", "repair:network"]
    words += ["--results", str(tmp_path / "results"), "--out", str(tmp_path / "out"), "--json"]
    with_others = ["--neighbours", others, *via[:2]]
    assert main([*words, *with_others]) == 2
    assert "`--neighbours` needs --run" in capsys.readouterr().err
    main([*words, "--run", *with_others])
    certificate = json.loads(capsys.readouterr().out)
    assert certificate["state"] == state
    slots = {row["slot"]: row["value"] for row in certificate["checks"]}
    assert slots == ({None: 1.1, "ring 0": 9.1} if state == "passed" else {None: None})


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
