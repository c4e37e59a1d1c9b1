from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from tests.pipelines.incidents.loop.test_responder import Rig, make_rig

from forewarn.features.time_units import HOUR, Nanoseconds
from forewarn.pipelines.incidents.schedulers.driver import JobExclusions
from forewarn.response.state.finding import FindingKind
from forewarn.response.state.job_block import BlockState, JobBlock
from forewarn.response.state.step import Step

WAITS, RUNS = JobExclusions(True, frozenset({"m7"})), JobExclusions(False, frozenset({"m7"}))


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    rig = make_rig(tmp_path, "observe")
    with rig.ledger:
        rig.driver.waiting["17"] = RUNS
        yield rig


def block(rig: Rig, machine: str = "m0", job: str = "17") -> JobBlock:
    at, until = rig.clock.at, Nanoseconds(rig.clock.at + HOUR)
    added = rig.ledger.add_block(JobBlock(0, job, machine, "wrong losses", "ann", at, until))
    assert added is not None
    return added


def last(rig: Rig, number: int = 1) -> tuple[BlockState, str]:
    (row,) = [row for row in rig.ledger.blocks() if row.id == number]
    return row.state, row.detail


def test_machine_is_excluded_once_the_job_waits(rig: Rig) -> None:
    block(rig)
    rig.once(1)
    assert rig.driver.calls == []
    assert last(rig) == (BlockState.ACTIVE, "")
    rig.driver.waiting["17"] = WAITS
    for _ in range(3):
        rig.once(1)
    assert rig.driver.calls == ["exclude m0 from 17"]
    assert rig.driver.waiting["17"].machines == {"m0", "m7"}
    assert last(rig) == (BlockState.HOLDING, "")


def test_lost_answer_changes_nothing_twice(rig: Rig) -> None:
    rig.driver.waiting["17"], rig.driver.silent = WAITS, True
    block(rig)
    rig.once(1)
    assert last(rig) == (BlockState.ACTIVE, "")
    rig.once(1)
    assert rig.driver.calls == ["exclude m0 from 17"]
    assert last(rig) == (BlockState.HOLDING, "")


def test_refusal_of_the_scheduler_ends_the_block(rig: Rig) -> None:
    rig.driver.waiting["17"], rig.driver.exclusion_refusal = WAITS, "needs 2 nodes"
    block(rig)
    rig.once(1)
    assert last(rig) == (BlockState.REFUSED, "needs 2 nodes")
    rig.once(1)
    assert len(rig.driver.calls) == 1


def test_block_ends_with_its_job(rig: Rig) -> None:
    block(rig)
    rig.once(1)
    del rig.driver.waiting["17"]
    rig.once(1)
    assert last(rig) == (BlockState.ENDED, "the job has ended")


def test_expired_block_is_lifted_while_the_job_waits(rig: Rig) -> None:
    rig.driver.waiting["17"] = WAITS
    block(rig)
    rig.once(1)
    rig.driver.waiting["17"] = replace(rig.driver.waiting["17"], waits=False)
    rig.once(1)
    rig.once(60)
    assert last(rig) == (BlockState.LIFTING, "it has expired")
    rig.driver.waiting["17"] = replace(rig.driver.waiting["17"], waits=True)
    for _ in range(2):
        rig.once(1)
    assert rig.driver.waiting["17"] == WAITS
    assert last(rig) == (BlockState.ENDED, "it has expired")


def test_manual_removal_takes_precedence(rig: Rig) -> None:
    rig.driver.waiting["17"] = WAITS
    block(rig)
    rig.once(1)
    rig.once(1)
    rig.driver.waiting["17"] = WAITS
    for _ in range(2):
        rig.once(1)
    assert last(rig)[0] is BlockState.ENDED
    assert rig.driver.calls == ["exclude m0 from 17"]


def test_kill_switch_stops_new_blocks_only(rig: Rig) -> None:
    rig.driver.waiting |= {"17": WAITS, "18": WAITS}
    block(rig)
    rig.once(1)
    rig.once(1)
    rig.ledger.switch(False, now=rig.clock.at, who="ann", why="maintenance")
    block(rig, "m1", "18")
    (held, _) = rig.ledger.open_blocks()
    rig.ledger.advance_block(held, BlockState.LIFTING, now=rig.clock.at)
    rig.once(1)
    rig.once(1)
    assert last(rig, 1)[0] is BlockState.ENDED
    assert last(rig, 2)[0] is BlockState.INTENDED
    assert rig.driver.waiting["18"] == WAITS


def test_blocked_machines_count_as_avoided(rig: Rig) -> None:
    for number in range(3):  # a quarter of eight machines may be avoided
        rig.driver.waiting[f"{number}"] = WAITS
        block(rig, f"m{number}", f"{number}")
    rig.once(1)
    assert last(rig, 2)[0] is BlockState.ACTIVE
    words = "blocked by: 2 of 8 machines of pool train are avoided, at most 2"
    assert last(rig, 3) == (BlockState.REFUSED, words)


def test_same_block_is_recorded_once(rig: Rig) -> None:
    first = block(rig)
    assert rig.ledger.add_block(replace(first, id=0)) is None
    assert block(rig, "m1").id == 2
    assert rig.ledger.advance_block(first, BlockState.ACTIVE, now=rig.clock.at) is not None
    assert rig.ledger.advance_block(first, BlockState.ACTIVE, now=rig.clock.at) is None


def test_interruption_before_the_call_loses_nothing(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig.driver.waiting["17"] = WAITS
    block(rig)
    with monkeypatch.context() as patch:
        patch.setattr(type(rig.driver), "exclude", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            rig.once(1)
    assert last(rig) == (BlockState.ACTIVE, "")  # written before the call
    rig.once(1)
    assert rig.driver.calls == ["exclude m0 from 17"]


def test_confirmed_verdict_blocks_machine_for_its_job(tmp_path: Path) -> None:
    rig = make_rig(tmp_path, "act")
    with rig.ledger:
        rig.driver.waiting["4711"] = RUNS
        for name, job in (("m0", "4711"), ("m1", "other")):
            rig.driver.machines[name] = replace(rig.driver.machines[name], jobs=(job,))
            verdict = {"kind": FindingKind.VERDICT, "job": "4711", "gpu_serial": None}
            evidence = {"evidence_from": ["metrics"]}
            rig.report("verdict", name, source="detect", evidence=evidence, **verdict)
        rig.once(1)
        assert rig.ledger.blocks() == []  # nothing confirms the verdict
        for name in ("m0", "m1"):
            rig.report("xid 94", name, gpu_serial=None)
        rig.once(1)
        (made,) = rig.ledger.blocks()  # none for a job that does not run on the machine
        assert (made.job, made.machine, made.owner) == ("4711", "m0", "forewarn")
        assert made.state is BlockState.ACTIVE
        rig.ledger.advance_block(made, BlockState.LIFTING, now=rig.clock.at)
        for _ in range(3):
            rig.once(1)
        assert [row.state for row in rig.ledger.blocks()] == [BlockState.ENDED]


def test_machine_that_two_owners_suspect_is_to_be_inspected(rig: Rig) -> None:
    for job, owner in (("17", "ann"), ("18", "bob")):
        rig.driver.waiting[job] = JobExclusions(False, frozenset(), owner)
        at, until = rig.clock.at, Nanoseconds(rig.clock.at + HOUR)
        rig.ledger.add_block(JobBlock(0, job, "m0", "hang", "recovery", at, until))
    rig.once(1)
    decided = [item for _ in range(2) for item in rig.once(1)]
    causes = [(item.incident.machine, item.incident.findings[0].cause) for item in decided]
    assert causes == [("m0", "inspect")] * 2
    assert [item.decision.step for item in decided] == [Step.TELL] * 2
    assert len(decided[-1].incident.findings) == 1
