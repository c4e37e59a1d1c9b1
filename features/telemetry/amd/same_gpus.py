"""Readings of one GPU at one moment: its partitions, and its identity from another command."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from forewarn.features.telemetry.parsers.gpu_reading import GpuReading

__all__ = ["merge_gpus", "with_identities"]


def merge_gpus(readings: Iterable[GpuReading]) -> list[GpuReading]:
    """Return readings with the identity that other commands of the same file gave their index.

    Partitions of a GPU, which share its UUID, are one reading with the values of the first that
    has them. The identity of an index without a reading stays, as names alone.
    """
    known = list(readings)
    names = _named_slots(gpu for gpu in known if gpu.names_only)
    measured = [gpu for gpu in known if not gpu.names_only]
    measured = with_identities(measured, names.values())
    used = {gpu.slot for gpu in measured}
    return [*_whole_gpus(measured), *(gpu for slot, gpu in names.items() if slot not in used)]


def with_identities(
    readings: Iterable[GpuReading], identities: Iterable[GpuReading]
) -> list[GpuReading]:
    """Return readings with what another command told about the GPU at the same index."""
    by_slot = {gpu.slot: gpu for gpu in identities}
    return [
        _joined(gpu, by_slot[gpu.slot]) if gpu.slot is not None and gpu.slot in by_slot else gpu
        for gpu in readings
    ]


def _named_slots(readings: Iterable[GpuReading]) -> dict[int, GpuReading]:
    """Return the last identity of each index; parts of it may come from several commands."""
    names: dict[int, GpuReading] = {}
    for gpu in readings:
        if gpu.slot is not None:
            before = names.get(gpu.slot, gpu)
            names[gpu.slot] = gpu if _is_other(before, gpu) else _joined(gpu, before)
    return names


def _is_other(first: GpuReading, second: GpuReading) -> bool:
    pairs = zip(
        (first.serial, first.uuid, first.pci), (second.serial, second.uuid, second.pci), strict=True
    )
    return any(a != b for a, b in pairs if a and b)


def _whole_gpus(readings: Iterable[GpuReading]) -> list[GpuReading]:
    """Return one reading of each GPU and moment."""
    whole: dict[tuple[object, ...], GpuReading] = {}
    for number, gpu in enumerate(readings):
        position = number if gpu.slot is None else f"slot {gpu.slot}"
        key = (gpu.uuid or gpu.pci or position, gpu.time)
        whole[key] = _joined(whole[key], gpu) if key in whole else gpu
    return list(whole.values())


def _joined(first: GpuReading, second: GpuReading) -> GpuReading:
    """Return a reading with the values that only the second one has."""
    return replace(
        first,
        numbers={**second.numbers, **first.numbers},
        texts={**second.texts, **first.texts},
        serial=first.serial or second.serial,
        uuid=first.uuid or second.uuid,
        pci=first.pci or second.pci,
        names_only=first.names_only and second.names_only,
    )
