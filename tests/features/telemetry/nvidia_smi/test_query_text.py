from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forewarn.features.telemetry.nvidia_smi.query_csv import parse_query_gpu
from forewarn.features.telemetry.nvidia_smi.query_text import is_query_text, parse_query_text

TITLE = "==============NVSMI LOG=============="
BAR = "#" * 80


def sections(path: Path, what: str) -> list[str]:
    """Return the outputs of one command in a capture."""
    parts = path.read_text(errors="replace").split(BAR)
    return [body for head, body in pairwise(parts) if what in head]


def test_real_outputs_match_the_table(shared_data: Path) -> None:
    paths = sorted((shared_data / "nvidia_smi_captures").glob("*.txt"))
    for path in paths:
        texts = [part for part in path.read_text(errors="replace").split(BAR) if TITLE in part]
        tables = sections(path, "query-gpu (csv")
        assert (len(texts), len(tables)) == (2, 2), path.name
        (reading,), unread = parse_query_text(texts[0])
        (expected,), _ = parse_query_gpu(tables[0])
        assert not unread, path.name
        assert (reading.pci, reading.slot) == (expected.pci, expected.slot)
        assert reading.texts == expected.texts
        assert reading.action == expected.action
        same = set(reading.numbers) & set(expected.numbers)
        assert {"temperature_gpu", "power_draw", "memory_used"} <= same
        for name in ("memory_used", "rows_remapped", "row_remap_failure", "ecc_uncorrected"):
            assert reading.numbers.get(name) == expected.numbers.get(name), (path.name, name)


def test_several_gpus_and_a_state_text() -> None:
    text = f"""
{TITLE}

Timestamp                                 : Wed Nov 25 10:20:00 2026
Attached GPUs                             : 2
GPU 00000000:19:00.0
    Serial Number                         : 1650000000001
    Temperature
        GPU Current Temp                  : GPU requires reset
GPU 00000000:3B:00.0
    Serial Number                         : 1650000000002
    ECC Errors
        Volatile
            DRAM Uncorrectable            : 9
        Aggregate
            SRAM Uncorrectable            : 1
            DRAM Uncorrectable            : 2
    Temperature
        GPU Current Temp                  : 44 C
"""
    readings, unread = parse_query_text(text)
    assert [(r.pci, r.slot, r.action) for r in readings] == [
        ("0000:19:00", 0, "reset"),
        ("0000:3b:00", 1, None),
    ]
    assert readings[1].numbers == {"temperature_gpu": 44.0, "ecc_uncorrected": 3.0}
    assert not unread


@pytest.mark.parametrize("text", ["", "NVSMI LOG", "GPU 00000000:19:00.0"])
def test_other_text_is_rejected(text: str) -> None:
    assert not is_query_text(text)


PIECES = st.sampled_from(
    [TITLE, "\n", "GPU 00000000:19:00.0", "    ", " : ", "Temperature", "41 C", "Attached GPUs"]
)


@given(st.lists(PIECES | st.text(max_size=5), max_size=15).map("".join))
def test_no_text_raises_anything(text: str) -> None:
    parse_query_text(text)
