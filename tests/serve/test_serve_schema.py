"""Schemathesis against the published schema, in process: whatever it sends, nothing breaks."""

from collections import Counter

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis.checks import not_a_server_error
from schemathesis.generation import GenerationMode
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
    unsupported_method,
)

from cato.serve.app import create_app
from cato.serve.settings import ServeSettings


@pytest.fixture
def api(models):
    app = create_app(models, ServeSettings(max_body_bytes=10_000, host_names=("testserver",)))
    yield schemathesis.openapi.from_asgi("/openapi.json", app)
    app.state.service.close()


CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
    unsupported_method,
]


@pytest.mark.parametrize("mode", list(GenerationMode))
def test_nothing_that_can_be_sent_breaks_it(api, mode):
    """Bodies that keep to the schema and bodies that do not."""
    seen = Counter()
    for operation in (result.ok() for result in api.get_all_operations()):
        if mode is GenerationMode.NEGATIVE and operation.method == "get":
            continue  # a name is any text: nothing about it could be wrong

        @settings(
            max_examples=30,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
            deadline=None,
            derandomize=True,
            database=None,
        )
        @given(case=operation.as_strategy(generation_mode=mode))
        def send(case):
            parameters = case.path_parameters or {}
            if len(str(parameters.get("name", ""))) % 2:
                parameters["name"] = "grid"  # else nearly all models would be unknown
            answer = case.call()
            seen[answer.status_code] += 1
            case.validate_response(answer, checks=CHECKS)

        send()
    assert seen[404]
    assert seen[422] + seen[400]
    assert max(seen) < 500
