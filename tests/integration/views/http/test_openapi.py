"""The OpenAPI document describes what is answered, and nothing that it allows makes the service stumble."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings, strategies
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.core.result import Ok
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from cdc.base.web.problem import KINDS
from cdc.views.store.open import open_store
from tests.integration.views.http.conftest import planted, serving

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
]

TABLES = ["", "public.users", "public.stock", "events"]
"""Those that are there are asked more often; empty is any text."""


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    """Over users, stock and a topic; /people is an alias."""
    store = open_store(str(tmp_path_factory.mktemp("view") / "view"))
    planted(store).say(lsn=2**64 - 1)  # nobody waits for what is never to come
    with serving(store, {"aliases": {"/people": "public.users"}, "request_timeout_s": 1}) as client:
        yield client
    store.close()


@pytest.mark.parametrize("mode", list(GenerationMode), ids=lambda mode: mode.value)
def test_nothing_that_can_be_asked_is_answered_otherwise_than_the_document_says(
    service: httpx.Client, mode: GenerationMode
) -> None:
    schema = schemathesis.openapi.from_url(f"{service.base_url}/openapi.json").exclude(path_regex="/watch$")
    found = list(schema.get_all_operations())
    operations = [each.ok() for each in found if isinstance(each, Ok)]
    assert len(operations) == len(found) == 10
    for operation in operations:
        if mode is GenerationMode.NEGATIVE and not (operation.query or operation.body):
            continue  # any text is a path

        @settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
        @given(case=operation.as_strategy(generation_mode=mode), table=strategies.sampled_from(TABLES))
        def ask(case: Any, table: str) -> None:
            if table and "table" in case.path_parameters:
                case.path_parameters["table"] = table
            case.call_and_validate(checks=CHECKS)

        ask()


def test_every_page_has_an_example_that_works(service: httpx.Client) -> None:
    document = service.get("/openapi.json").json()
    parameters = {
        each["name"]: each["example"]
        for page in document["paths"].values()
        for said in page.values()
        for each in said["parameters"]
        if each["in"] == "path"
    }
    assert parameters == {"table": "public.users", "key": "42"}
    for path, page in document["paths"].items():
        if path.endswith("/watch"):
            continue
        [(method, said)] = page.items()
        body = said.get("requestBody", {}).get("content", {}).get("application/json", {}).get("example")
        got = service.request(method, path.format(table="public.users", key="1"), json=body)
        assert got.status_code == 200, path


def test_every_status_of_a_page_is_in_the_document(service: httpx.Client) -> None:
    document = service.get("/openapi.json").json()
    told = {
        int(status) for page in document["paths"].values() for said in page.values() for status in said["responses"]
    }
    assert {status for status, _ in KINDS.values()} - told == {405, 414, 500, 504}
