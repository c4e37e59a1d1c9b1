from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from forewarn.features.telemetry.parsers.reading import GpuReading
from forewarn.pipelines.agent.gpu_answer import Answer
from forewarn.pipelines.agent.gpu_roll import GpuRoll

GPUS = [GpuReading(serial=f"S{slot}", pci=f"0000:1{slot}:00", slot=slot) for slot in range(4)]

answers = st.builds(
    lambda here, lost, trouble: Answer(
        [GPUS[slot] for slot in sorted(here - lost)],
        tuple(str(GPUS[slot].pci) for slot in sorted(lost)),
        trouble=trouble,
    ),
    st.sets(st.integers(0, 3)),
    st.one_of(st.just(set()), st.sets(st.integers(0, 3), max_size=2)),
    st.sampled_from(["", "", "exit code 9"]),
)


@given(st.lists(st.one_of(answers, st.none()), max_size=12))
def test_lost_is_what_the_driver_says_or_two_whole_answers_in_a_row(
    steps: list[Answer | None],
) -> None:
    roll, before = GpuRoll(), None
    roll.call(Answer(GPUS), 0)
    for time, answer in enumerate(steps, 1):
        if answer is None:
            roll.unanswered()
        else:
            for gpu, since in roll.call(answer, time).lost:
                if gpu.pci in answer.lost:
                    continue
                for whole in (answer, before):
                    assert whole is not None
                    assert whole.readings
                    assert not whole.trouble
                    assert gpu not in whole.readings
                assert since == time - 1
        before = answer


@given(st.lists(answers, max_size=12))
def test_every_gpu_is_known_whatever_is_answered(steps: list[Answer]) -> None:
    roll = GpuRoll()
    roll.call(Answer(GPUS), 0)
    lost: list[GpuReading] = []
    for time, answer in enumerate(steps, 1):
        told = roll.call(answer, time)
        lost = [gpu for gpu in lost if gpu not in told.back] + [gpu for gpu, _ in told.lost]
        assert sorted(roll.known) == ["S0", "S1", "S2", "S3"]
        assert sorted(roll.missing) == sorted(str(gpu.serial) for gpu in lost)
        silent = len(answer.readings) + len(answer.lost) < 4 and answer.trouble
        assert not told.blind or silent or not answer.readings
