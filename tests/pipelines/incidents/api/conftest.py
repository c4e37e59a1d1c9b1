"""Fixtures: an API over an empty or a prepared ledger."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from tests.pipelines.incidents.api.api_client import Api, make_api


@pytest.fixture(scope="module")
def empty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    """Return an API for refused requests only; check at the end that its ledger is empty."""
    api = make_api(tmp_path_factory.mktemp("empty"))
    yield api
    assert api.ledger.incidents() == []
    assert api.ledger.notes() == []
    assert api.context.switch.off() is None
    api.context.close()
    api.ledger.close()


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def populated(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Api]:
    """Return an API whose ledger has an incident with a proposal and one with an action."""
    url = new_database(request) if request.param == "postgresql" else ""
    api = make_api(tmp_path_factory.mktemp("populated"), url)
    api.act(api.incident())
    api.propose(api.incident("node-2"))
    yield api
    api.context.close()
    api.ledger.close()


@pytest.fixture
def api(tmp_path: Path) -> Iterator[Api]:
    api = make_api(tmp_path)
    yield api
    api.context.close()
    api.ledger.close()


def new_database(request: pytest.FixtureRequest) -> str:
    server = request.getfixturevalue("postgresql_server")
    name = f"api_{secrets.token_hex(4)}"
    address = f"postgresql://{server.user}@{server.host}:{server.port}"
    with psycopg.connect(f"{address}/postgres", autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}".encode())
    return f"{address}/{name}"
