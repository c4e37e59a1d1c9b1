"""The statistics of interfaces of this machine are read from the kernel."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest

from forewarn.pipelines.agent.ethtool_statistics import ethtool_statistics


def test_each_interface_can_be_asked() -> None:
    for path in Path("/sys/class/net").iterdir():
        with contextlib.suppress(OSError):  # a driver without statistics
            for name, value in ethtool_statistics(path.name):
                assert name.isprintable()
                assert value >= 0


def test_unknown_interface_is_an_error() -> None:
    with pytest.raises(OSError, match="No such device"):
        ethtool_statistics("nosuchif0")
