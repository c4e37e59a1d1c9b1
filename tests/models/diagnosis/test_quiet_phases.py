"""Phases that nobody wrote down: by stacks, by pauses of the past, by the recorder."""

from __future__ import annotations

from forewarn.features.diagnosis.ranks import Rank, Ranks
from forewarn.features.diagnosis.stack_sample import Frame
from forewarn.models.diagnosis.hang import quiet_phase
from forewarn.models.diagnosis.joining import join
from forewarn.models.diagnosis.log_phases import pauses
from forewarn.models.diagnosis.phases import Phase
from forewarn.models.diagnosis.probe import Probe
from forewarn.models.diagnosis.stack_phases import stack_phases
from forewarn.models.diagnosis.stack_probe import StackRound

SECOND = 10**9
SAVES = (Frame("write", "torch/serialization.py", 9), Frame("save_checkpoint", "train.py", 2))
WAITS = (Frame("barrier", "torch/distributed/distributed_c10d.py", 4),)


def rounds(*saving: bool) -> list[StackRound]:
    return [
        StackRound((1000 + 30 * number) * SECOND, {0: SAVES if saves else WAITS, 1: WAITS})
        for number, saves in enumerate(saving)
    ]


def test_a_silent_checkpoint_shows_in_a_stack_until_it_does_no_more() -> None:
    (phase,) = stack_phases(rounds(False, True, True))
    assert (phase.kind, phase.end) == ("checkpoint", None)
    assert quiet_phase([phase], 1100 * SECOND) == phase
    (over,) = stack_phases(rounds(True, True, False))
    assert over.end is not None
    assert quiet_phase([over], 1100 * SECOND) is None


def kind_of(stack: str, phases: list[Phase]) -> str:
    idle = [Probe(name, "idle", 50, "", 60) for name in ("log", "collective")]
    probes = [*idle, Probe("stack", stack, 50, "", 60)]  # type: ignore[arg-type]
    return join([], probes, phases, ranks=Ranks({0: Rank(0)}), at=200 * SECOND).kind


def test_a_pause_like_those_of_the_past_is_no_hang_unless_stacks_show_what_it_is() -> None:
    marks = [second * SECOND for second in (0, 10, 20, 30, 40, 140)]
    explained = pauses(marks, 200 * SECOND)
    assert kind_of("blind", explained) == "none"
    assert kind_of("idle", explained) == "hang"
    assert kind_of("blind", pauses(marks[:5], 200 * SECOND)) == "hang"


def test_the_recorder_tells_that_the_first_step_is_over() -> None:
    compiling = Phase("first step", 0, None)
    assert quiet_phase([compiling], 900) == compiling
    assert quiet_phase([compiling, Phase("first step", 500, 800)], 900) is None
