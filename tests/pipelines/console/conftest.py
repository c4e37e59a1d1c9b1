from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.pipelines.console.console_client import Console, open_console


@pytest.fixture
def console(tmp_path: Path) -> Iterator[Console]:
    console = open_console(tmp_path)
    yield console
    console.api.context.close()
    console.api.ledger.close()
