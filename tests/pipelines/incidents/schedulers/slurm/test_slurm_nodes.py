from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forewarn.features.time_units import SECOND
from forewarn.pipelines.incidents.schedulers.slurm.slurm_nodes import (
    AVOID_WEIGHT,
    SlurmNode,
    parse_nodes,
)
from forewarn.pipelines.incidents.schedulers.slurm.slurm_output import (
    controller_start,
    jobs_by_node,
    leaf_switches,
    maintenance_by_node,
)
from forewarn.response.state.machine import ServiceState

LINE = (
    "NodeName={name} Arch=x86_64 CoresPerSocket=1  CPUAlloc=0 CPUTot=8 CPULoad=0.10 "
    "AvailableFeatures={features} ActiveFeatures={features} Gres={gres} NodeAddr=10.0.0.7 "
    "Version=22.05.8 OS=Linux 6.1 #1 SMP State=DOWN x RealMemory=1000 Boards=1 State={state} "
    "ThreadsPerCore=1 TmpDisk=0 Weight={weight} Owner=N/A MCS_label=N/A Partitions=gpu,debug  "
    "BootTime=2026-11-21T23:22:15 SlurmdStartTime=2026-11-22T02:52:23 CfgTRES=cpu=8 AllocTRES= "
    "ExtSensorsTemp=n/s{reason}"
)


def node(
    state: str = "IDLE",
    *,
    name: str = "n1",
    reason: str = "",
    gres: str = "gpu:8",
    features: str = "(null)",
    weight: int = 1,
) -> SlurmNode:
    values = {"name": name, "reason": reason, "gres": gres, "features": features}
    (parsed,) = parse_nodes(LINE.format(state=state, weight=weight, **values))
    return parsed


def parsed_state(text: str, jobs: tuple[str, ...] = ()) -> ServiceState:
    return node(text).machine(jobs, pools={}).state


@pytest.mark.parametrize(
    ("text", "state"),
    [
        ("IDLE", ServiceState.IN_SERVICE),
        ("ALLOCATED", ServiceState.IN_SERVICE),
        ("MIXED+PLANNED", ServiceState.IN_SERVICE),
        ("IDLE+RESERVED", ServiceState.IN_SERVICE),
        ("IDLE+CLOUD+POWERED_DOWN", ServiceState.IN_SERVICE),
        ("IDLE+COMPLETING", ServiceState.IN_SERVICE),
        ("IDLE+DRAIN", ServiceState.DRAINED),
        ("MIXED+DRAIN", ServiceState.DRAINING),
        ("ALLOCATED+DRAIN", ServiceState.DRAINING),
        ("IDLE+COMPLETING+DRAIN", ServiceState.DRAINING),
        ("IDLE+DRAIN+NOT_RESPONDING", ServiceState.DRAINED),
        ("IDLE+MAINTENANCE+RESERVED", ServiceState.DRAINED),
        ("IDLE+FAIL", ServiceState.DRAINED),
        ("IDLE+REBOOT_ISSUED", ServiceState.DRAINED),
        ("DOWN", ServiceState.DOWN),
        ("DOWN*", ServiceState.DOWN),
        ("DOWN*+DRAIN", ServiceState.DOWN),
        ("DOWN+DRAIN+NOT_RESPONDING", ServiceState.DOWN),
        ("IDLE+DRAIN+INVALID_REG", ServiceState.DOWN),
        ("IDLE+NOT_RESPONDING", ServiceState.UNKNOWN),
        ("IDLE*", ServiceState.UNKNOWN),
        ("UNKNOWN", ServiceState.UNKNOWN),
        ("UNKNOWN+DRAIN", ServiceState.UNKNOWN),
        ("UNKNOWN*", ServiceState.UNKNOWN),
        ("SOMETHING_NEW", ServiceState.UNKNOWN),
    ],
)
def test_slurm_states_are_mapped(text: str, state: ServiceState) -> None:
    assert parsed_state(text) is state


def test_drained_node_with_job_is_draining() -> None:
    assert parsed_state("IDLE+DRAIN", ("4711",)) is ServiceState.DRAINING


@pytest.mark.parametrize(
    ("gres", "gpus"),
    [
        ("gpu:8", 8),
        ("gpu", 1),
        ("gpu:h100:8(S:0-1)", 8),
        ("gpu:h100:8(S:0,2),shard:16(S:0-1)", 8),
        ("gpu:a100_1g.5gb:7,gpu:a100:1", 8),
        ("nic:2,mps:100", 0),
        ("(null)", 0),
    ],
)
def test_gpus_are_counted(gres: str, gpus: int) -> None:
    assert node(gres=gres).gpus == gpus


def test_reason_may_look_like_fields() -> None:
    text = "fan 3 State=IDLE Weight=9 Gres=gpu:1 [see 4711] = 'x'"
    reason = f" Reason={text} [tom@2026-11-22T03:00:08] Comment=a Reason=b [c@2026-01-01T00:00:00]"
    drained = node("IDLE+DRAIN", reason=reason)
    machine = drained.machine(pools={})
    assert (machine.reason, machine.reason_by) == (text, "tom")
    assert machine.reason_at == 1795316408 * SECOND
    assert (machine.state, drained.weight, drained.gpus) == (ServiceState.DRAINED, 1, 8)


def test_only_first_line_of_reason_is_read() -> None:
    reason = " Reason=two [root@2026-11-22T03:00:08]        \nNodeName=n2 State=IDLE Comment=c"
    with pytest.raises(ValueError, match="lists a node twice"):
        parse_nodes(
            LINE.format(name="n2", state="IDLE", weight=1, features="", gres="", reason="")
            + "\n"
            + LINE.format(
                name="n1", state="IDLE+DRAIN", weight=1, features="", gres="", reason=reason
            )
        )
    reason = reason.replace("NodeName", "       NodeName")
    assert node("IDLE+DRAIN", reason=reason).reason == "two"


def test_own_reason_without_drain_is_ignored() -> None:
    reason = " Reason=forewarn:17 hot [root@2026-11-22T03:00:08]"
    assert node("DOWN+DRAIN", reason=reason).machine(pools={}).action == 17
    assert node("DOWN", reason=reason).machine(pools={}).reason == ""
    assert node("IDLE", reason=reason).machine(pools={}).action is None


@pytest.mark.parametrize("state", ["IDLE+NOT_RESPONDING", "UNKNOWN", "IDLE+MAINTENANCE"])
def test_reason_of_past_outage_is_ignored(state: str) -> None:
    reason = " Reason=Tom: Xid 79 [tom@2026-11-22T03:00:08]"  # as Slurm 24.11 keeps it
    machine = node(state, reason=reason).machine(pools={})
    assert machine.out
    assert (machine.reason, machine.reason_by, machine.reason_at) == ("", "", None)


def test_appended_reason_is_used_for_down_node() -> None:
    reason = " Reason=Tom: Xid 79 : Not responding [slurm@2026-11-22T03:00:08]"
    machine = node("DOWN+NOT_RESPONDING", reason=reason).machine(pools={})
    assert (machine.reason, machine.reason_by) == ("Not responding", "slurm")
    drained = node("DOWN+DRAIN+NOT_RESPONDING", reason=reason).machine(pools={})
    assert drained.reason == "Tom: Xid 79 : Not responding"


def test_features_become_labels() -> None:
    features = "a100,rack=r7,switch_s3,forewarn:off,ib"
    machine = node(features=features).machine(pools={}, switch="leaf1")
    assert (machine.rack, machine.switch, machine.opted_out) == ("r7", "s3", True)
    assert machine.labels["a100"] == ""
    assert node().machine(pools={}, switch="leaf1").switch == "leaf1"
    assert node().machine(pools={}).labels == {}


def test_raised_weight_marks_avoided_node() -> None:
    assert [node(weight=weight).avoided for weight in (1, AVOID_WEIGHT, 2 * AVOID_WEIGHT - 1)] == [
        0,
        1,
        1,
    ]
    assert not node(weight=2 * AVOID_WEIGHT).avoided


def test_node_belongs_to_first_matching_pool() -> None:
    pools = {"none": "cpu", "debug": "debug", "all": "gpu"}
    assert node().machine(pools=pools).pool == "debug"
    assert node().machine(pools={"none": "cpu"}).pool is None


def test_only_recreatable_nodes_have_boot() -> None:
    assert node("IDLE").boot == ""
    assert node("IDLE+DYNAMIC_NORM").boot == "2026-11-22T02:52:23"


def test_output_without_nodes() -> None:
    assert parse_nodes("") == []
    assert parse_nodes("slurm_load_node error\n") == []
    with pytest.raises(ValueError, match="no state"):
        parse_nodes("NodeName=n1 Arch=x86_64")


@given(st.text(max_size=60))
def test_reason_does_not_affect_other_fields(reason: str) -> None:
    text = " ".join(f" Reason={reason} [root@2026-11-22T03:00:08]".splitlines())
    parsed = node("MIXED+DRAIN", reason=text, weight=5)
    assert (parsed.name, parsed.weight, parsed.gpus) == ("n1", 5, 8)
    assert parsed.flags == {"MIXED", "DRAIN"}


# --- other output ---------------------------------------------------------------------------------


def test_jobs_are_listed_by_node() -> None:
    jobs = jobs_by_node("4711|n[1-2]\n4712_3|n2\n12+1|\n")
    assert jobs == {"n1": ("4711",), "n2": ("4711", "4712_3")}
    with pytest.raises(ValueError, match=r"expected JOB\|NODES"):
        jobs_by_node("slurm_load_jobs error")


def test_switch_is_the_leaf_switch() -> None:
    text = (
        "SwitchName=s1 Level=0 LinkSpeed=1 Nodes=n[1-2] \n"
        "SwitchName=top Level=1 LinkSpeed=1 Nodes=n[1-2] Switches=s1 \n"
    )
    assert leaf_switches(text) == {"n1": "s1", "n2": "s1"}
    assert leaf_switches("") == {}


def test_only_active_maintenance_reservations_count() -> None:
    form = "ReservationName={} StartTime=x Nodes={} NodeCnt=1 Flags={} Users=root State={}\n"
    text = "".join(
        [
            form.format("forewarn-17", "n1", "MAINT,IGNORE_JOBS,SPEC_NODES", "ACTIVE"),
            form.format("firmware", "n[2-3]", "MAINT", "ACTIVE"),
            form.format("course", "n4", "SPEC_NODES", "ACTIVE"),
            form.format("tomorrow", "n5", "MAINT", "INACTIVE"),
            form.format("licences", "(null)", "MAINT", "ACTIVE"),
        ]
    )
    assert maintenance_by_node(text) == {
        "n1": "forewarn:17 checks",
        "n2": "maintenance reservation firmware",
        "n3": "maintenance reservation firmware",
    }
    assert maintenance_by_node("No reservations in the system\n") == {}


def test_controller_start_is_read() -> None:
    text = "AuthInfo = x\nBOOT_TIME               = 2026-11-22T02:55:03\n"
    assert controller_start(text) == "2026-11-22T02:55:03"
    with pytest.raises(ValueError, match="no BOOT_TIME"):
        controller_start("")
