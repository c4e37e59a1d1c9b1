from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from forewarn.features.diagnosis.log_lines.log_template import log_template
from forewarn.features.diagnosis.ranks import Rank, Ranks
from forewarn.models.diagnosis.clocks.clock_offsets import clock_offsets
from forewarn.models.diagnosis.crash.machine_symptoms import MachineSymptom
from forewarn.models.diagnosis.crash.rank_exit import (
    NamedPeer,
    RankExit,
    Symptom,
    symptom_from_line,
)
from forewarn.models.diagnosis.crash.root_cause import find_root_cause
from forewarn.models.diagnosis.probes.log_probe import log_probe
from forewarn.models.diagnosis.verdict.job_verdict import STRONG, JobFinding
from forewarn.models.diagnosis.verdict_fusion import fuse_findings

S = 10**9
LOST = {
    "role": "cascade",
    "scope": "fabric",
    "says": "a peer went away",
    "line": "Connection closed",
}
WAITED = {"role": "cascade", "scope": "fabric", "says": "waited", "line": "Timed out waiting"}
RAISED = {"role": "root", "scope": "application", "says": "raised", "line": "ValueError: x"}


def symptom(time: float | None, source: Any = "logs", **values: Any) -> Symptom:
    moment = None if time is None else int(time * S)
    return Symptom(source, next="look", time=moment, **values)


def report(time: float | None, **values: Any) -> Symptom:
    return symptom(time, is_report=True, **values)


def end(
    rank: int, *symptoms: Symptom, code: int | None = None, ended: float | None = None
) -> RankExit:
    moment = None if ended is None else int(ended * S)
    return RankExit(rank, f"m{rank // 2}", symptoms, code, moment, None)


def cause(*ends: RankExit, machine_symptoms: Any = ()) -> JobFinding:
    finding = find_root_cause(ends, machine_symptoms=machine_symptoms, masked=log_template)
    assert finding is not None
    return finding


def named(finding: JobFinding) -> list[int | None]:
    return [item.rank for item in finding.candidates if item.weight >= STRONG]


def test_raising_rank_is_root_cause() -> None:
    finding = cause(
        end(0, report(11, **LOST), code=1, ended=12),
        end(1, report(11, **LOST), code=1, ended=12),
        end(2, report(10, **RAISED), code=1, ended=12),
        end(3, code=-15, ended=13),
    )
    assert named(finding) == [2]
    assert finding.waiting == {0, 1}
    assert finding.cause == "raised: ValueError: x; look"


def test_lines_of_no_rank_alone_are_hearsay() -> None:
    killed = symptom(9, role="root", scope="node", says="killed", line="Killed process 7")
    for rank, is_hearsay in (
        *((end(0), True), (end(0, code=-9, ended=10), False)),
        (end(0, report(9, **LOST), code=1, ended=10), False),
    ):
        finding = find_root_cause([rank, end(1)], others=[killed], masked=log_template)
        assert finding is not None
        assert finding.is_hearsay == is_hearsay


def test_lost_peer_is_not_root_cause() -> None:
    ends = [end(r, report(9, **LOST), code=1, ended=10) for r in (0, 1, 3)]
    finding = cause(*ends, end(2, code=-9, ended=11))
    assert named(finding) == [2]
    assert "SIGKILL" in finding.cause


@pytest.mark.parametrize("is_done", [True, False])
def test_rank_that_made_its_last_step_is_not_accused(is_done: bool) -> None:
    """Others lose a rank at the regular end of a job too."""
    waiting = [end(r, report(9, **LOST), code=1, ended=10) for r in (1, 2, 3)]
    finding = cause(replace(end(0), is_done=is_done), *waiting)
    assert named(finding) == ([] if is_done else [0])


def test_rank_without_error_is_origin_of_hang() -> None:
    """As measured: torchrun's root cause was rank 1, while rank 2 left -15 and no error file."""
    finding = cause(
        end(0, report(101, **WAITED), code=1, ended=102),
        end(1, report(100, **WAITED), code=1, ended=101),
        end(2, code=-15, ended=102),
        end(3, report(101, **LOST), code=1, ended=102),
    )
    assert named(finding) == [2]


def test_launcher_sigkill_is_not_root_cause() -> None:
    """Launchers send SIGKILL 30 s after the first failure to ranks that ignore SIGTERM."""
    waited = [end(r, report(100, **WAITED), code=1, ended=101) for r in (0, 1, 3)]
    finding = cause(*waited, end(2, code=-9, ended=131))
    assert named(finding) == [2]
    assert "timed out" in finding.cause
    finding = cause(*waited[:2], end(2, code=-9, ended=131), end(3, code=-9, ended=131))
    assert named(finding) == []


@pytest.mark.parametrize("code", [-15, -2, 0])
def test_requested_exit_is_never_root_cause(code: int) -> None:
    finding = cause(end(0, code=code, ended=1), end(1, report(5, **RAISED), code=1, ended=6))
    assert named(finding) == [1]
    assert cause(*(end(r, code=-15, ended=r) for r in range(3))).candidates == ()


def test_simultaneous_failures_identify_no_culprit() -> None:
    other = {**RAISED, "line": "KeyError: 'y'"}
    ends = [end(r, report(20, **WAITED), code=1) for r in (2, 3)]
    finding = cause(end(0, report(10, **RAISED)), end(1, report(11, **other)), *ends)
    assert named(finding) == []
    assert [item.rank for item in finding.candidates] == [0, 1]
    finding = cause(end(0, report(10, **RAISED)), end(1, report(13, **other)), *ends)
    assert named(finding) == [0]


def test_same_error_on_most_ranks_is_program_error() -> None:
    ends = [
        end(r, report(10 + r, **{**RAISED, "line": f"ValueError: shard {r} of /d/{r}"}))
        for r in range(4)
    ]
    finding = cause(*ends)
    assert finding.is_program_error
    assert finding.candidates == ()
    assert "4 ranks had the same error" in finding.cause


def test_time_out_on_all_ranks_identifies_no_culprit() -> None:
    finding = cause(*(end(r, report(10, **WAITED), code=1) for r in range(4)))
    assert finding.candidates == ()
    assert "all ranks waited" in finding.cause


def test_lost_machine_without_errors_is_culprit() -> None:
    finding = cause(*(end(r, report(10, **LOST)) for r in range(4)), end(4), end(5))
    assert [(item.rank, item.machine) for item in finding.candidates] == [(None, "m2")]


def machine_sign(
    machine: str, time: float, rank: int | None = None, **values: Any
) -> MachineSymptom:
    fields = {"role": "root", "scope": "gpu", "says": "off the bus", "line": "Xid 79"} | values
    return MachineSymptom(machine, symptom(time, "events", **fields), rank)


def test_lost_gpu_explains_exception_of_its_rank() -> None:
    error = {**RAISED, "scope": "gpu", "line": "CUDA error: unknown error"}
    ends = [end(r, report(12, **LOST), code=1) for r in (0, 1, 2)]
    ends.append(end(3, report(11, **error), code=1))
    finding = cause(*ends, machine_symptoms=[machine_sign("m1", 9)])
    assert named(finding) == [3]
    assert finding.cause.startswith("off the bus")


def test_unrelated_xids_are_ignored() -> None:
    ends = [end(0, report(5000, **RAISED)), end(1, report(5001, **LOST))]
    for other in (
        machine_sign("m0", 60),
        machine_sign("m7", 4999),
        machine_sign("m0", 4999, level="notice"),
        machine_sign("m0", 4999, role="cascade"),
    ):
        assert cause(*ends, machine_symptoms=[other]).cause.startswith("raised")


def test_preceding_node_fault_overrides_exception() -> None:
    full = symptom(9, role="root", scope="storage", says="disk full", line="No space left")
    finding = cause(end(0, full, report(10, **LOST)), end(1, report(10, **LOST)))
    assert named(finding) == [0]
    early = symptom(-3000, role="root", scope="storage", says="disk full", line="No space left")
    assert named(cause(end(0, early, report(10, **LOST)), end(1, report(10, **LOST)))) == []


def test_survived_symptoms_do_not_count() -> None:
    """After a refused connection at the start and a later step, only the later error counts."""
    refused = symptom(10, role="root", scope="platform", says="refused", line="Connection refused")
    lost = symptom(100, **LOST)
    assert end(0, replace(refused, is_survived=True), lost).decisive is lost
    assert end(0, refused).decisive is refused


def test_exception_outweighs_earlier_remark() -> None:
    """A file that is missing is a remark; programs go on after it, but not after an exception."""
    missing = symptom(10, role="root", scope="storage", says="no file", line="no such file: a")
    raised = symptom(20, **RAISED)
    assert end(0, missing, raised).decisive is raised


def test_harmless_lines_do_not_count() -> None:
    retried = symptom(10, role="root", scope="storage", says="store", line="S3 503, retrying")
    assert end(0, retried).decisive is None


def test_line_of_all_ranks_is_not_cause() -> None:
    """A library that all ranks miss did no harm where one rank alone has an error of its own."""
    missing = {"role": "root", "scope": "gpu", "says": "no plug-in", "line": "plug-in not found"}
    ends = [end(n, symptom(n, **missing)) for n in range(4)]
    ends[2] = end(2, symptom(2, **missing), symptom(9, **RAISED))
    assert named(cause(*ends)) == [2]


def test_single_cause_without_timestamps() -> None:
    finding = cause(end(0, symptom(None, **LOST)), end(1, symptom(None, **RAISED)))
    assert named(finding) == [1]


def test_no_symptoms_is_no_crash() -> None:
    assert find_root_cause([end(0), end(1, code=0)]) is None


# --- clocks and the log probe ---------------------------------------------------------------------


def test_clock_offsets_from_shared_steps() -> None:
    steps = [(n, n * 10 * S) for n in range(5)]
    ahead = [(n, time + 7 * S + n) for n, time in steps]
    offsets = clock_offsets({"a": steps, "b": ahead, "c": steps, "d": steps[:2]})
    assert (offsets["a"], offsets["c"]) == (0, 0)
    assert abs(offsets["b"] - 7 * S) < 10
    assert "d" not in offsets


@pytest.mark.parametrize(
    ("writes", "at", "state", "since"),
    [
        ({0: 0, 1: 10}, 10 + 479, "active", None),
        ({0: 0, 1: 10}, 10 + 480, "idle", 10),
        ({0: 0, 1: None}, 10, "active", None),
        ({0: 0, 1: None}, 1000, "blind", None),
        ({0: None}, 1000, "blind", None),
        ({}, 1000, "blind", None),
    ],
)
def test_log_probe_states(
    writes: dict[int, int | None], at: int, state: str, since: int | None
) -> None:
    times = {rank: None if time is None else time * S for rank, time in writes.items()}
    probe = log_probe(times, at * S)
    assert (probe.state, probe.since) == (state, None if since is None else since * S)
    assert probe.confirmed_at == (None if since is None else (since + 480) * S)


STALL = {"role": "root", "scope": "platform", "says": "stood still", "pattern": "nccl-heartbeat"}


@pytest.mark.parametrize("n_waiting", range(4))
def test_stall_needs_others_that_waited(n_waiting: int) -> None:
    waiting = [end(rank, symptom(9 + rank, **WAITED)) for rank in range(1, n_waiting + 1)]
    finding = cause(end(0, symptom(10, line="stuck for 77 s", **STALL)), *waiting)
    assert named(finding) == ([0] if n_waiting > 1 else [])


@pytest.mark.parametrize("times", [(10, 40), (40, 10), (10, 10), (None, None)])
def test_two_stalls_name_no_rank(times: tuple[float | None, float | None]) -> None:
    stalls = [end(r, symptom(t, line=f"stuck {r}", **STALL)) for r, t in enumerate(times)]
    waiting = [end(rank, symptom(60, **WAITED)) for rank in (2, 3, 4)]
    assert not named(cause(*stalls, *waiting))


def test_only_stall_is_the_cause() -> None:
    finding = cause(end(3, symptom(10, line="stuck for 77 s", **STALL)))
    assert finding.cause == "stood still: stuck for 77 s; look"


@pytest.mark.parametrize("is_report", [True, False])
@pytest.mark.parametrize("text", ["Ranks 2, 3 never arrived", "no response from peer m7"])
def test_witness_is_no_root_cause(text: str, is_report: bool) -> None:
    error = symptom_from_line(None, f"GateError: {text}", 10 * S, is_report=is_report)
    finding = cause(end(0, error, code=1, ended=11))
    assert not finding.candidates
    assert text in finding.cause


@pytest.mark.parametrize(
    ("missing", "machines", "expected"),
    [
        ((2, 5), {}, {2, 5}),
        ((4, 5, 6, 7), {}, {4, 5, 6, 7}),  # a machine of which nothing was read
        ((4, 5), dict.fromkeys((4, 5), "b2"), {"b2"}),
        ((2, 4, 5), {2: "b1", 4: "b2", 5: "b2"}, {2, 4, 5}),
        ((1, 3, 5, 7), {}, set()),  # four places have a common cause
        ((1, 2, 3, 4, 5), {}, set()),  # most are missing
    ],
)
def test_observer_names_missing_ranks(
    missing: tuple[int, ...], machines: dict[int, str], expected: set[int | str]
) -> None:
    peers = tuple(NamedPeer(rank, machines.get(rank)) for rank in missing)
    line = symptom(9, by_observer=True, peers=peers, **WAITED)
    ends = [RankExit(rank, machines.get(rank), (line,) if rank == 0 else ()) for rank in range(8)]
    ranks = Ranks({rank: Rank(rank, machines.get(rank)) for rank in range(8)})
    finding = cause(*ends)
    verdict = fuse_findings([finding], (), (), ranks=ranks, at=20 * S)
    named_ones = {c.machine if c.rank is None else c.rank for c in verdict.culprits}
    assert named_ones == expected
    assert {c.rank for c in finding.candidates} == set(missing)


def test_observers_that_disagree_name_none() -> None:
    lines = [
        symptom(9, says="w", role="cascade", scope="fabric", line=str(peers), by_observer=True,
                peers=tuple(NamedPeer(rank, None) for rank in peers))
        for peers in ((1, 2), (3, 2))
    ]  # fmt: skip
    finding = cause(end(0, *lines), *(end(rank) for rank in range(1, 8)))
    assert finding.origins == frozenset()


@pytest.mark.parametrize(
    ("scope", "where", "is_program"),
    [("storage", "ab", False), ("platform", "ab", False), ("storage", "aa", True),
     ("application", "ab", True)],
)  # fmt: skip
def test_same_error_on_one_machine(scope: Any, where: str, *, is_program: bool) -> None:
    """A mount of one machine is gone; an error of the program may be that of a pipeline stage."""
    raised = {**RAISED, "scope": scope}
    failed = [replace(end(rank, report(10, **raised)), machine="a") for rank in range(4)]
    others = [replace(end(rank), machine=where[1]) for rank in range(4, 8)]
    finding = cause(*failed, *others)
    assert finding.is_program_error == is_program
    assert {c.rank for c in finding.candidates} == (set() if is_program else {0, 1, 2, 3})
