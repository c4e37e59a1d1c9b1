"""Tests with requests that schemathesis generates from the OpenAPI description."""

from __future__ import annotations

from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.core.result import Ok
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)
from tests.pipelines.incidents.api.api_client import Api, bearer

# schemathesis calls the application in process, through Starlette's test client.
pytestmark = pytest.mark.filterwarnings("ignore:Using `httpx` with `starlette.testclient`")

_CHECKS = (
    not_a_server_error,
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)
_SETTINGS = settings(
    # Requests are slow; --hypothesis-profile=thorough tries 400 of each kind on each route.
    max_examples=max(8, settings().max_examples // 25),
    derandomize=True,
    database=None,
    deadline=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)


@pytest.mark.parametrize("mode", list(GenerationMode))
def test_no_request_causes_server_error(populated: Api, mode: GenerationMode) -> None:
    schema = schemathesis.openapi.from_asgi("/openapi.json", populated.app)
    tried: set[str] = set()
    for result in schema.get_all_operations():
        assert isinstance(result, Ok)
        operation = result.ok()

        @_SETTINGS
        @given(case=operation.as_strategy(generation_mode=mode))
        def check(case: schemathesis.Case[Any]) -> None:
            case.call_and_validate(headers=bearer("admin"), checks=list(_CHECKS))
            tried.add(case.operation.label)

        check()
    assert len(tried) == 17
