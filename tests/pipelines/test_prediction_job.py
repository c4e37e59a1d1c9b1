from __future__ import annotations

from pathlib import Path

import pytest

from forewarn.pipelines.config.settings import load_settings
from forewarn.pipelines.prediction_job import open_job


@pytest.mark.parametrize(
    ("share", "votes"), [("", True), ("linear = 0.0\n", False), ("linear = 0.1\n", True)]
)
def test_linear_model_needs_a_vote(
    records: Path, config: Path, tmp_path: Path, share: str, votes: bool
) -> None:
    path = tmp_path / "config.toml"
    path.write_text(config.read_text().replace("linear = 0.5\n", share))
    settings = open_job(records, load_settings(path)).walk_settings
    assert ("linear" in settings.names) is votes
    assert bool(settings.committee.linear) is votes
