from __future__ import annotations

import pytest

from forewarn.features.telemetry.parsers.machine_label import (
    LabelObservation,
    MachineLabels,
    choose_labels,
)

POD = "nvidia-dcgm-exporter-{}"


def observation(
    gpu: str, labels: dict[str, str], time: float = 0.0, slot: int = 0
) -> LabelObservation:
    return LabelObservation(gpu, slot, labels, (time,))


def named(gpu: str, **labels: str) -> LabelObservation:
    return observation(gpu, labels)


@pytest.mark.parametrize(
    ("labels", "machine"),
    [
        ({"Hostname": "gn01"}, "gn01"),
        ({"hostname": "gn01", "instance": "10.2.3.4:9400"}, "gn01"),
        ({"Hostname": POD.format("6ldbb"), "node": "gn01", "instance": "10.2.3.4:9400"}, "gn01"),
        ({"Hostname": "dcgm-exporter-abcde", "hostname": "gn02"}, "gn02"),
        ({"Hostname": "barista-gpu-dcgm-exporter-sgjz5", "instance": "gn03:9400"}, "gn03"),
        ({"instance": "gn03:9400"}, "gn03"),
        ({"instance": "gn03.example.com"}, "gn03.example.com"),
        ({"kubernetes_node": "gn04", "instance": "10.2.3.9:9400"}, "gn04"),
        ({"Hostname": "8e21d3ebf589", "instance": "gn05:9400"}, "gn05"),
        ({"Hostname": "localhost", "instance": "gn06:9400"}, "gn06"),
        ({"instance": "10.2.3.9:9400"}, "10.2.3.9"),
        ({"instance": "[fe80::1]:9400"}, None),
        ({"Hostname": "../etc"}, None),
        ({"Hostname": POD.format("6ldbb")}, None),
        ({"pod": "train-a"}, None),
        ({}, None),
    ],
)
def test_the_machine_of_one_series(labels: dict[str, str], machine: str | None) -> None:
    assert MachineLabels().machine(labels) == machine
    chosen = choose_labels([observation("GPU-1", labels)])
    assert chosen.machine(labels, "GPU-1") == machine


def test_most_stable_label_is_chosen() -> None:
    """The name does not look like that of an exporter pod."""
    seen = [
        observation(f"GPU-{gpu}", {"Hostname": f"watcher-{gpu}-{time}", "node": f"gn0{gpu}"}, time)
        for gpu in range(3)
        for time in range(2)
    ]
    chosen = choose_labels(seen)
    assert chosen.machine({"Hostname": "watcher-1-7", "node": "gn01"}) == "gn01"
    assert chosen.reasons == (
        "label `node` names the machine of 3 GPUs (not `Hostname`: it changes more often)",
    )


def test_label_known_to_cmdb_is_chosen() -> None:
    seen = [named(f"GPU-{i}", Hostname=f"x{i}", host=f"gn0{i}") for i in range(3)]
    assert choose_labels(seen).machine(seen[0].labels) == "x0"
    chosen = choose_labels(seen, known=["gn00", "gn01"])
    assert chosen.machine(seen[0].labels) == "gn00"
    assert "fewer of its names are in the CMDB" in chosen.reasons[0]
    odd = [named("GPU-1", Hostname="dcgm-exporter-01234")]
    assert choose_labels(odd, known=["dcgm-exporter-01234"]).machine(odd[0].labels) is not None


def test_shared_name_identifies_no_machine() -> None:
    seen = [named(f"GPU-{i}", Hostname="hpc", instance=f"gn0{i}:9400") for i in range(3)]
    chosen = choose_labels(seen)
    assert [chosen.machine(one.labels) for one in seen] == ["gn00", "gn01", "gn02"]
    only = [named(f"GPU-{i}", Hostname="hpc") for i in range(3)]
    nameless = choose_labels(only)
    assert nameless.machine(only[0].labels) is None
    assert "3 GPUs have no machine label" in nameless.reasons[0]


def test_swapped_board_keeps_machine_name() -> None:
    seen = [observation(f"GPU-{i}", {"Hostname": "gn01"}, slot=i) for i in range(8)]
    seen.append(observation("GPU-9", {"Hostname": "gn01"}, 1.0, slot=3))
    assert choose_labels(seen).machine({"Hostname": "gn01"}) == "gn01"


def test_previous_label_wins_ties() -> None:
    seen = [named("GPU-1", Hostname="gn01", node="n-1")]
    assert choose_labels(seen).chosen == {"Hostname,node": "Hostname"}
    kept = choose_labels(seen, before={"Hostname,node": "node"})
    assert kept.machine(seen[0].labels) == "n-1"
    assert choose_labels(seen, before=kept.chosen).chosen == kept.chosen
    assert choose_labels([named("GPU-1", Hostname="gn01")]).chosen == {}


def test_gpu_keeps_machine_despite_pod_labels() -> None:
    """The exporter started to report its node name during the past span."""
    before = {"Hostname": POD.format("6ldbb"), "instance": "10.2.3.4:9400"}
    after = {"Hostname": "gn01", "instance": "10.2.3.9:9400"}
    seen = [observation("GPU-1", before, 0), observation("GPU-1", after, 1)]
    chosen = choose_labels(seen)
    assert chosen.machine(before, "GPU-1") == chosen.machine(after, "GPU-1") == "gn01"
    assert chosen.machine(before, "GPU-2") is None


def test_changing_addresses_name_no_machine() -> None:
    """The same holds for a later call whose past span has no change."""
    seen = [
        observation(
            f"GPU-{i}", {"Hostname": POD.format(f"abc{i}{at}"), "instance": f"10.{at}.0.{i}:1"}, at
        )
        for i in range(3)
        for at in range(2)
    ]
    first, changed = choose_labels(seen[::2]), choose_labels(seen)
    assert first.machine(seen[0].labels, "GPU-0") == "10.0.0.0"
    assert changed.machine(seen[0].labels, "GPU-0") is None
    assert changed.chosen == {"Hostname,instance": ""}
    later = choose_labels(seen[1::2], before=changed.chosen)
    assert later.machine(seen[1].labels, "GPU-0") is None
    assert "have no machine label" in later.reasons[0]
    known = choose_labels(seen[1::2], known=["10.1.0.0", "10.1.0.1", "10.1.0.2"])
    assert known.machine(seen[1].labels) == "10.1.0.0"


def test_moved_gpu_has_both_machines() -> None:
    seen = [
        observation("GPU-1", {"Hostname": name}, at) for at, name in enumerate(["gn01", "gn02"])
    ]
    chosen = choose_labels(seen)
    assert [chosen.machine(one.labels, "GPU-1") for one in seen] == ["gn01", "gn02"]
