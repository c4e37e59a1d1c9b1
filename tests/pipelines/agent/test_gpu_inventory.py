from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from forewarn.features.telemetry.parsers.gpu_reading import GpuReading
from forewarn.pipelines.agent.gpu_inventory import GpuInventory
from forewarn.pipelines.agent.sources.gpu_source import GpuPoll

GPUS = [GpuReading(serial=f"S{slot}", pci=f"0000:1{slot}:00", slot=slot) for slot in range(4)]

answers = st.builds(
    lambda here, lost, trouble: GpuPoll(
        [GPUS[slot] for slot in sorted(here - lost)],
        tuple(str(GPUS[slot].pci) for slot in sorted(lost)),
        trouble=trouble,
    ),
    st.sets(st.integers(0, 3)),
    st.one_of(st.just(set()), st.sets(st.integers(0, 3), max_size=2)),
    st.sampled_from(["", "", "exit code 9"]),
)


@given(st.lists(st.one_of(answers, st.none()), max_size=12))
def test_loss_by_driver_or_two_complete_polls(
    steps: list[GpuPoll | None],
) -> None:
    inventory, before = GpuInventory(), None
    inventory.update(GpuPoll(GPUS), 0)
    for time, answer in enumerate(steps, 1):
        if answer is None:
            inventory.record_no_response()
        else:
            for gpu, since in inventory.update(answer, time).lost:
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
def test_inventory_keeps_every_gpu(steps: list[GpuPoll]) -> None:
    inventory = GpuInventory()
    inventory.update(GpuPoll(GPUS), 0)
    lost: list[GpuReading] = []
    for time, answer in enumerate(steps, 1):
        told = inventory.update(answer, time)
        lost = [gpu for gpu in lost if gpu not in told.back] + [gpu for gpu, _ in told.lost]
        assert sorted(inventory.known) == ["S0", "S1", "S2", "S3"]
        assert sorted(inventory.missing) == sorted(str(gpu.serial) for gpu in lost)
        silent = len(answer.readings) + len(answer.lost) < 4 and answer.trouble
        assert not told.blind or silent or not answer.readings


def test_board_gpus_are_lost_individually() -> None:
    board = [
        GpuReading(serial="B1", uuid=f"GPU-{slot}", pci=f"0000:4{slot}:00", slot=slot)
        for slot in range(4)
    ]
    inventory = GpuInventory()
    inventory.update(GpuPoll(board), 0)
    assert len(inventory.known) == 4
    assert inventory.update(GpuPoll(board[:1]), 1).lost == []
    assert [gpu.uuid for gpu, _ in inventory.update(GpuPoll(board[:1]), 2).lost] == [
        "GPU-1",
        "GPU-2",
        "GPU-3",
    ]
    back = inventory.update(GpuPoll(board[:2], ("0000:42:00", "0000:43:00")), 3).back
    assert [gpu.uuid for gpu in back] == ["GPU-1"]
    (called,) = inventory.update(GpuPoll(board[1:2], ("0000:40:00",)), 4).lost
    assert called[0].uuid == "GPU-0"


def test_reflashed_gpu_is_not_lost() -> None:
    gpu = GpuReading(serial="S1", uuid="GPU-old", pci="0000:19:00")
    inventory = GpuInventory()
    inventory.update(GpuPoll([gpu]), 0)
    for time in (1, 2, 3):
        called = inventory.update(
            GpuPoll([GpuReading(serial="S1", uuid="GPU-new", pci=gpu.pci)]), time
        )
        assert called.lost == []
    assert list(inventory.known) == ["GPU-new"]
