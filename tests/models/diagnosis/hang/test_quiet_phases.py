"""Quiet phases that no log shows: from stacks, earlier pauses and the flight recorder."""

from __future__ import annotations

from forewarn.features.diagnosis.ranks import Rank, Ranks
from forewarn.features.diagnosis.stack_sample import Frame
from forewarn.features.time_units import HOUR, MINUTE, SECOND
from forewarn.models.diagnosis.hang.hang_detection import quiet_phase
from forewarn.models.diagnosis.probes.log_phases import find_log_pauses
from forewarn.models.diagnosis.probes.phases import Phase
from forewarn.models.diagnosis.probes.stack_phases import stack_phases
from forewarn.models.diagnosis.probes.stack_probe import StackSample, latest_divergent_stacks
from forewarn.models.diagnosis.verdict.job_verdict import CulpritCandidate, JobFinding
from forewarn.models.diagnosis.verdict.probe import Probe
from forewarn.models.diagnosis.verdict_fusion import fuse_findings

SAVES = (Frame("write", "torch/serialization.py", 9), Frame("save_checkpoint", "train.py", 2))
WAITS = (Frame("barrier", "torch/distributed/distributed_c10d.py", 4),)


def samples(*saving: bool) -> list[StackSample]:
    return [
        StackSample((1000 + 30 * number) * SECOND, {0: SAVES if saves else WAITS, 1: WAITS})
        for number, saves in enumerate(saving)
    ]


def test_checkpoint_phase_from_stacks() -> None:
    (phase,) = stack_phases(samples(False, True, True))
    assert (phase.kind, phase.end) == ("checkpoint", None)
    assert quiet_phase([phase], 1100 * SECOND) == phase
    (over,) = stack_phases(samples(True, True, False))
    assert over.end is not None
    assert quiet_phase([over], 1130 * SECOND) is None


def kind_of(stack: str, phases: list[Phase]) -> str:
    idle = [Probe(name, "idle", 50, "", 60) for name in ("log", "collective")]
    probes = [*idle, Probe("stack", stack, 50, "", 60)]  # type: ignore[arg-type]
    return fuse_findings([], probes, phases, ranks=Ranks({0: Rank(0)}), at=200 * SECOND).kind


def test_past_pauses_suppress_hang_without_stacks() -> None:
    marks = [second * SECOND for second in (0, 10, 20, 30, 40, 140)]
    explained = find_log_pauses(marks, 200 * SECOND)
    assert kind_of("blind", explained) == "none"
    assert kind_of("idle", explained) == "hang"
    assert kind_of("idle", find_log_pauses(marks[:5], 200 * SECOND)) == "hang"


def blindly(at: int, *names: str, finding: tuple[JobFinding, ...] = ()) -> str:
    """Return the verdict kind of a job without stacks that has been stalled since 50 ns."""
    probes = [Probe(name, "idle", 50, "", 60) for name in names]  # type: ignore[arg-type]
    return fuse_findings(finding, probes, [], ranks=Ranks({0: Rank(0)}), at=at).kind


def test_unseen_pause_lasts_up_to_megatron_timeout() -> None:
    watched = "log", "metrics", "collective"
    assert blindly(1799 * SECOND, *watched) == "none"
    assert blindly(1801 * SECOND, *watched) == "hang"
    stuck = JobFinding("hang", "a deadlock", is_program_error=True, is_permanent=True)
    assert blindly(200 * SECOND, *watched, finding=(stuck,)) == "hang"
    assert blindly(400 * SECOND, "collective") == "hang"  # a folder that contains only dumps


def test_repeated_call_lasts_three_times_as_long() -> None:
    drain = (Frame("pwrite_all", "striped_io.py", 4), Frame("drain", "run.py", 2))
    minutes = (0, 1, 2, 40, 41, 42)
    seen = [StackSample(n * MINUTE, {0: drain, 1: WAITS}) for n in minutes]
    repeated = stack_phases(seen)
    assert [phase.kind for phase in repeated] == ["repeat", "repeat"]
    first, last = repeated
    assert (first.end, last.end) == ((120 + 30) * SECOND, None)

    def kind(began: int, at: int) -> str:
        probes = [Probe(name, "idle", began, "") for name in ("stack", "metrics")]
        return fuse_findings([], probes, repeated, ranks=Ranks({0: Rank(0)}), at=at).kind

    began = 2400 * SECOND
    assert kind(began, began + 300 * SECOND) == "none"
    assert kind(began, began + 700 * SECOND) == "hang"
    assert kind(MINUTE, 2520 * SECOND) == "hang"  # no activity between the samples
    assert stack_phases(seen[:3]) == []


def test_phase_kind_from_function_names() -> None:
    for name in ("compile_fx", "load_checkpoint", "from_pretrained", "build_index_mappings"):
        sample = StackSample(0, {0: (Frame(name, "a.py", 1),), 1: WAITS})
        assert [phase.kind for phase in stack_phases([sample])] == ["first step"]
    for name in ("_savez", "_save", "save_file", "save_pretrained", "upload_fileobj"):
        sample = StackSample(0, {0: (Frame(name, "a.py", 1),), 1: WAITS})
        assert [phase.kind for phase in stack_phases([sample])] == ["checkpoint"]
    for name in ("compile_wrapper", "save_for_backward", "checkpoint", "forward"):
        sample = StackSample(0, {0: (Frame(name, "a.py", 1),), 1: WAITS})
        assert stack_phases([sample]) == []


def test_recorded_step_ends_first_step() -> None:
    compiling = Phase("first step", 0, None)
    assert quiet_phase([compiling], 900) == compiling
    assert quiet_phase([compiling, Phase("first step", 500, 800)], 900) is None


def test_zero_length_step_teaches_no_limit() -> None:
    compiled = Phase("first step", 0, 400 * SECOND)
    made = Phase("first step", 600 * SECOND, 600 * SECOND)
    again = Phase("first step", 1000 * SECOND, None)
    assert quiet_phase([made, again], 5000 * SECOND) == again  # up to 120 minutes
    assert quiet_phase([compiled, made, again], 2700 * SECOND) == again
    assert quiet_phase([compiled, made, again], 2900 * SECOND) is None
    later = Phase("first step", 1200 * SECOND, 1200 * SECOND)
    assert quiet_phase([made, again, later], 1300 * SECOND) is None


def test_suppression_reason_is_reported() -> None:
    idle = [Probe(name, "idle", 50, "", 60) for name in ("log", "collective")]
    phases, ranks, at = [Phase("first step", 0, None)], Ranks({0: Rank(0)}), HOUR
    refusal = fuse_findings([], idle, phases, ranks=ranks, at=at)
    assert refusal.kind == "none"
    assert refusal.cause == (
        "there is no sign of a first step yet; classified as a hang in 60 min without progress"
    )
    assert (refusal.since, refusal.detected_at) == (50, None)
    waits = JobFinding("hang", "", (CulpritCandidate(0, "they wait for it", 1.0),))
    shown = fuse_findings([waits], idle, phases, ranks=ranks, at=at)
    assert (shown.kind, shown.rank, [c.rank for c in shown.also]) == ("none", None, [0])
    assert fuse_findings([], [], phases, ranks=ranks, at=at).cause is None


def test_single_stack_sample_during_stall() -> None:
    blind = [Probe(name, "idle", 1000 * SECOND, "") for name in ("log", "collective")]
    probes, ranks, at = (
        [*blind, Probe("stack", "blind", None, "")],
        Ranks({0: Rank(0)}),
        1600 * SECOND,
    )

    def kind(*looks: StackSample) -> str:
        finding = latest_divergent_stacks(looks, 1, at, None)
        assert finding is not None
        return fuse_findings([finding], probes, stack_phases(looks), ranks=ranks, at=at).kind

    assert kind(StackSample(1060 * SECOND, {0: WAITS, 1: WAITS})) == "hang"
    assert kind(StackSample(1060 * SECOND, {0: SAVES, 1: WAITS})) == "none"
    before = StackSample(900 * SECOND, {0: SAVES, 1: WAITS})
    assert kind(before) == "none"  # no sample since the stall began
    assert kind(before, StackSample(1060 * SECOND, {0: WAITS, 1: WAITS})) == "hang"
    later = [*probes[:2], Probe("stack", "idle", 1000 * SECOND, "")]
    assert fuse_findings([], later, stack_phases([before]), ranks=ranks, at=at).kind == "hang"
