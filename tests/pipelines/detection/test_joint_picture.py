"""The picture of a joint finding shows the metrics that contribute."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from forewarn.pipelines.cli.main import main
from forewarn.pipelines.detection.verdict_plot import plot_title

METRICS = ("cpu", "memory", "network", "disk", "power")
LIMITS = ", ".join(f'{{name = "{name}", low = 0.0, high = 100.0}}' for name in METRICS)
CONFIG = f'[detection]\ncontinuity = "2min"\nmetrics = [{LIMITS}]\n'


def test_joint_finding_is_drawn_with_its_metrics(
    put_samples: Callable[..., None], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def samples(seed: int, shift: float = 0.0) -> dict[str, Any]:
        generator = np.random.default_rng(seed)
        values = {name: generator.normal(50.0, 1.5, (8, 480)) for name in METRICS}
        for series in values.values():
            series[5, 200:] += shift
        return values

    for number in range(21):
        put_samples(tmp_path / "train", f"job-{number}", samples(number))
    put_samples(tmp_path / "pulls", "other-work", samples(99, shift=4.5))
    (tmp_path / "c.toml").write_text(CONFIG, encoding="utf-8")
    options = ["--config", str(tmp_path / "c.toml"), "--model", str(tmp_path / "model")]
    main(["detect", "fit", "--metrics", str(tmp_path / "train"), *options])
    capsys.readouterr()
    pictures = ["--plot", str(tmp_path / "png"), "--json"]
    assert main(["detect", "run", "--metrics", str(tmp_path / "pulls"), *options, *pictures]) == 0
    line = json.loads(capsys.readouterr().out)
    assert (line["machine"], line["metric"]) == ("n05", "joint")
    title, values, *_ = plot_title(line, 8).splitlines()
    assert title.startswith("other-work: n05 deviates on several metrics together: ")
    assert values.startswith(f"{line['metrics'][0]['metric']} of the machine: ")
    assert (tmp_path / "png" / "other-work.png").read_bytes().startswith(b"\x89PNG")
