"""An API over an empty ledger."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.pipelines.incidents.api.client import Api, api_of


@pytest.fixture(scope="module")
def empty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    """For requests that are all refused: at the end it has to be as empty as before."""
    api = api_of(tmp_path_factory.mktemp("empty"))
    yield api
    assert api.ledger.incidents() == []
    assert api.ledger.notes() == []
    assert api.desk.switch.off() is None
    api.desk.close()
    api.ledger.close()


@pytest.fixture(scope="module")
def worn(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    """Return an API whose ledger holds an incident with a proposal and one with an action."""
    api = api_of(tmp_path_factory.mktemp("worn"))
    api.act(api.incident())
    api.propose(api.incident("node-2"))
    yield api
    api.desk.close()
    api.ledger.close()


@pytest.fixture
def api(tmp_path: Path) -> Iterator[Api]:
    api = api_of(tmp_path)
    yield api
    api.desk.close()
    api.ledger.close()
