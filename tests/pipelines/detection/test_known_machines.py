"""Machines known from healthy tasks have their own tolerance."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

Put = Callable[..., None]
Detect = Callable[..., Any]
CONFIG = """interval = "1s"
window = 4
continuity = "40s"
metrics = [{name = "one", low = 0.0, high = 1.0}]"""


def samples(number: int, restless: int, *, lower: int | None = None, order: Any = None) -> Any:
    """Return six machines with offsets by name; one always varies, another may fail."""
    draw = np.random.default_rng([14, number])
    values = 0.5 + 0.03 * np.arange(6)[:, None] + draw.normal(0, 0.01, (6, 200))
    values[restless, 100:] += 0.25 * draw.choice([-1, 1])
    if lower is not None:
        values[lower, 100:] -= 0.3
    return {"one": values.astype(np.float32)[slice(None) if order is None else order]}


@pytest.mark.parametrize("names_change", [False, True])
def test_fault_size_is_independent_of_other_offsets(
    names_change: bool, put_samples: Put, detect: Detect, tmp_path: Path
) -> None:
    """The fault is a fifth larger than the constant offset of machine 0."""
    train, pulls = tmp_path / "train", tmp_path / "pulls"
    for number in range(24):
        order = np.random.default_rng(number).permutation(6) if names_change else None
        put_samples(train, f"t{number:02d}", samples(number, 0, order=order))
    put_samples(pulls, "usual", samples(100, 0))
    put_samples(pulls, "fault", samples(101, 0, lower=3))
    put_samples(pulls, "strange", samples(102, 0, lower=0))
    verdicts, _, _ = detect(train, pulls, CONFIG)
    assert verdicts["usual"]["machine"] is None
    assert verdicts["fault"]["machine"] == (None if names_change else "n03")
    assert verdicts["strange"]["machine"] is None
