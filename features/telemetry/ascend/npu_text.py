"""NPUs in the texts of `npu-smi info -t board`, `usages`, `ecc`, `health`, `common` and others.

A text about an NPU has the values of each chip before its `Chip ID` (`usages`, `ecc`) or after it
(`common`, `health`), and then those of the board's controller, the MCU, which is no chip. A text
about one chip (`-c`) has `Chip ID` first, or only the command, as the script printed it, names it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from forewarn.features.telemetry.ascend.npu_table import chip_slot, npu_type
from forewarn.features.telemetry.parsers.gpu_reading import (
    GpuReading,
    Unread,
    parse_gpu_name,
    parse_pci_address,
)
from forewarn.features.telemetry.parsers.script_time import ScriptTime, stamped_lines

__all__ = ["NpuBlock", "block_readings", "is_npu_text", "npu_blocks"]

_FORM = re.compile(
    r"^\s*(?:NPU ID +: *\d|Health(?: Status)? +: *\w+\s+Error Code +: )", re.MULTILINE
)
_LINE = re.compile(r"\s*(?P<name>[A-Za-z][\w ()%./-]*?) *:(?!\S*//) *(?P<value>.*?)\s*")
_COMMAND = re.compile(r"npu-smi info\b(?P<options>.*)")
_OPTION = re.compile(r"-(?P<name>[ic]) +(?P<number>\d{1,3})\b")
# The first name with a value counts.
_COLUMNS = {
    "temperature_gpu": ("npu temperature (c)", "temperature(c)", "temperature (c)"),
    "power_draw": ("npu real-time power(w)", "power dissipation(w)", "power(w)"),
    "utilization_gpu": ("aicore usage rate(%)",),
    "clock_sm": ("aicore curfreq(mhz)",),
    "ecc_corrected": ("hbm single bit aggregate total err cnt", "hbm single bit error count"),
    "ecc_uncorrected": ("hbm double bit aggregate total err cnt", "hbm double bit error count"),
    "rows_remapped": ("hbm single bit isolated pages count", "hbm double bit isolated pages count"),
}
_MEMORIES = ("hbm", "memory", "ddr")  # NPUs with HBM may have DDR of other use
_NUMBER = re.compile(r"\d{1,15}(?:\.\d{1,9})?")
_ABSENT = ("", "NA", "N/A", "-", "UNKNOWN")
_DIES = ("vdie id", "die id")


@dataclass(slots=True)
class NpuBlock:
    """The values that a text has of one chip, or of a whole NPU if `chip` is None."""

    npu: int | None = None
    chip: int | None = None
    time: ScriptTime | None = None
    values: dict[str, str] = field(default_factory=dict)
    is_named_first: bool = False
    is_controller: bool = False

    @property
    def slots(self) -> list[int]:
        """Slots of the chips; empty if the text does not name its NPU."""
        if self.npu is None:
            return []
        if self.chip is not None:
            return [chip_slot(self.npu, self.chip)]
        count = self.values.get("chip count", "1")
        count = count if count.isdecimal() and 0 < int(count) <= 8 else "1"
        return [chip_slot(self.npu, chip) for chip in range(int(count))]


def is_npu_text(text: str) -> bool:
    """Tell whether a text has output of `npu-smi info -t`."""
    return bool(_FORM.search(text))


def npu_blocks(text: str) -> Iterator[NpuBlock]:
    """Yield the values of each chip, names in lower case."""
    block = NpuBlock()
    for line, last in stamped_lines(text):
        if command := _COMMAND.search(line):
            yield from _ended(block)
            options = {m["name"]: int(m["number"]) for m in _OPTION.finditer(command["options"])}
            block = NpuBlock(options.get("i"), options.get("c"), last)
            continue
        match = _LINE.fullmatch(line) if "|" not in line else None
        if match is None:
            continue
        name, value = match["name"].lower(), match["value"]
        if name == "npu id" and value.isdecimal():
            yield from _ended(block)
            chip = block.chip if not block.values and block.npu == int(value) else None
            block = NpuBlock(int(value), chip, last)
        elif name == "chip id" and value.isdecimal():
            done, block = _at_chip(block, int(value), last)
            yield from done
        else:
            if is_next := _begins_next(block, name, value):
                yield from _ended(block)
                block = NpuBlock(block.npu, None, last, is_named_first=is_next)
            block.is_controller |= _is_controller(name, value)
            block.values[name] = value
            block.time = block.time or last
    yield from _ended(block)


def _ended(block: NpuBlock) -> list[NpuBlock]:
    return [block] if block.values and not block.is_controller else []


def _at_chip(
    block: NpuBlock, chip: int, last: ScriptTime | None
) -> tuple[list[NpuBlock], NpuBlock]:
    """Return the blocks that a line with a `Chip ID` completes, and the block after it."""
    if not block.values.keys() - {"chip count"}:
        block.chip, block.is_named_first = chip, True
        return [], block
    if block.is_named_first:
        return _ended(block), NpuBlock(block.npu, chip, last, is_named_first=True)
    block.chip = chip
    return _ended(block), NpuBlock(block.npu, None, last)


def _begins_next(block: NpuBlock, name: str, value: str) -> bool:
    """Tell whether a value is of the controller after the last chip."""
    is_of_chip = block.is_named_first and block.chip is not None
    return is_of_chip and (name in block.values or _is_controller(name, value))


def _is_controller(name: str, value: str) -> bool:
    return name == "chip name" and value.lower() == "mcu"


def block_readings(block: NpuBlock, unread: Unread) -> list[GpuReading]:
    """Return the readings of the chips of a block; none if it has neither values nor names."""
    numbers = {name: _number(block, names, unread) for name, names in _COLUMNS.items()}
    numbers["memory_used"] = _used_memory(block)
    pages = [_number(block, [name], unread) for name in _COLUMNS["rows_remapped"]]
    numbers["rows_remapped"] = None if None in pages else sum(filter(None, pages))
    known = {name: number for name, number in numbers.items() if number is not None}
    chip = block.values.get("npu name") or block.values.get("chip name")
    driver = block.values.get("software version")
    texts = {"gpu_type": npu_type(chip)} if chip and chip[0].isdecimal() else {}
    texts |= {"driver_version": driver} if driver and driver not in _ABSENT else {}
    die = next((block.values[name] for name in _DIES if name in block.values), "")
    reading = GpuReading(
        numbers=known,
        texts=texts,
        serial=_serial(block),
        uuid=None if die in _ABSENT else "-".join(die.split()),
        pci=parse_pci_address(block.values.get("pcie bus info", "")),
        time=block.time.moment if block.time else None,
        utc=block.time.utc if block.time else False,
        names_only=not known,
    )
    if not known and reading.serial is None and reading.uuid is None:
        return []
    if not block.slots:
        unread.add("values of npu-smi that name no NPU (print the command before them)", "")
    slots = block.slots
    pci = reading.pci if len(slots) == 1 else None
    return [replace(reading, slot=slot, pci=pci) for slot in slots]


def _serial(block: NpuBlock) -> str | None:
    text = block.values.get("serial number", "")
    return None if text in _ABSENT else parse_gpu_name(text)


def _number(block: NpuBlock, names: tuple[str, ...] | list[str], unread: Unread) -> float | None:
    for name in names:
        text = block.values.get(name, "NA")
        if _NUMBER.fullmatch(text):
            return float(text)
        if text.upper() not in _ABSENT:
            unread.add(f"a value of npu-smi that is no number: {name}", text)
    return None


def _used_memory(block: NpuBlock) -> float | None:
    """Return the memory in use in MiB, from its size and the percentage, which is rounded."""
    for kind in _MEMORIES:
        names = (f"{kind} capacity(mb)", f"{kind} usage rate(%)")
        texts = [block.values.get(name, "") for name in names]
        if all(_NUMBER.fullmatch(text) for text in texts) and float(texts[0]):
            return float(texts[0]) * float(texts[1]) / 100
    return None
