from __future__ import annotations

from pathlib import Path

import pytest

from forewarn.features.time_units import DAY, HOUR, MINUTE
from forewarn.pipelines.incidents.loop.response_site import ResponseSite
from forewarn.response.state.response_settings import ResponseSettings

CONFIG = """
[respond]
settle = "20min"
quiet = "5min"
many = 4
max_age = "3h"
known_late = "3d"
[respond.pools.train]
avoided = 0.1
"""


def test_site_settings_reach_the_core(tmp_path: Path) -> None:
    (tmp_path / "my.toml").write_text(CONFIG)
    site = ResponseSite.from_config(tmp_path / "my.toml")
    core = site.core
    assert (core.group_wait, core.quiet) == (20 * MINUTE, 5 * MINUTE)
    assert (core.max_age, core.known_late) == (3 * HOUR, 3 * DAY)
    assert core.many == 4
    assert site.pools["train"].limits.avoided == 0.1


@pytest.mark.parametrize(
    "name",
    ["group_wait", "quiet", "many", "max_age", "known_late", "list_every", "drift_every"],
)
def test_site_defaults_equal_core_defaults(tmp_path: Path, name: str) -> None:
    (tmp_path / "my.toml").write_text("")
    core = ResponseSite.from_config(tmp_path / "my.toml").core
    assert getattr(core, name) == getattr(ResponseSettings(), name)
