"""The document and its page: complete, true to the checks they tell of, and fetched from nowhere
else."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html.parser import HTMLParser
from typing import Any

import jsonschema_rs
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from genlock.core.ids import parse_task_id
from genlock.core.names import check_project, check_session, check_track
from genlock.errors import BadArgument
from genlock.service.api.request import body_type
from genlock.service.openapi.document import document, path_of
from genlock.service.openapi.examples import ANSWERS, REQUESTS, SESSION, TASK
from genlock.service.openapi.fields import (
    FIELDS,
    MEANINGS,
    NAME,
    OF_OPERATION,
    SCOPE,
    TASK_ID,
    TRACK,
)
from genlock.service.openapi.page import page
from genlock.wire.operations import ROUTES, Route
from tests.servers.service import Service, serving

DOCUMENT = document(keys=True)


@pytest.fixture(scope="module")
def service() -> Iterator[Service]:
    with serving() as service:
        yield service


def test_every_operation_is_told_of_with_its_role() -> None:
    told = {
        (path, method.upper()): operation["x-genlock-role"]
        for path, methods in DOCUMENT["paths"].items()
        for method, operation in methods.items()
        if path.startswith("/v1/") and not path.endswith("/stream")
    }
    assert told == {(path_of(route), route.method): route.role for route in ROUTES}


def test_every_keyword_that_can_be_sent_has_a_meaning_and_no_meaning_is_left_over() -> None:
    keywords = {
        name
        for route in ROUTES
        for name in (*body_type(route).__struct_fields__, route.variable)
        if name
    }
    assert set(MEANINGS) == keywords
    assert {*FIELDS, *(name for _, name in OF_OPERATION)} <= keywords


def test_every_reference_leads_somewhere() -> None:
    def follow(value: Any) -> None:
        if isinstance(value, dict):
            if isinstance(value.get("$ref"), str):
                at: Any = DOCUMENT
                for part in value["$ref"].removeprefix("#/").split("/"):
                    at = at[part]
            for inner in value.values():
                follow(inner)
        elif isinstance(value, list):
            for inner in value:
                follow(inner)

    follow(DOCUMENT)


def test_no_component_is_left_over() -> None:
    text = repr(DOCUMENT)
    for kind in ("schemas", "parameters", "responses", "headers"):
        for name in DOCUMENT["components"][kind]:
            assert f"'#/components/{kind}/{name}'" in text, name


def test_keys_are_needed_where_the_service_asks_for_them() -> None:
    assert document(keys=True)["security"] == [{"key": []}]
    assert {} in document(keys=False)["security"]
    assert DOCUMENT["paths"]["/healthz"]["get"]["security"] == []


def test_streams_and_added_paths_are_told_of() -> None:
    paths = document(
        keys=True,
        extra={"/more": {"get": {"operationId": "more", "tags": ["Service"], "responses": {}}}},
    )["paths"]
    assert (
        "text/event-stream"
        in paths["/v1/{tenant}/{project}/events/stream"]["get"]["responses"]["200"]["content"]
    )
    assert "/more" in paths


NAMES = [(SCOPE, check_project), (NAME, check_session), (TRACK, check_track)]
TEXTS = st.one_of(
    st.text(st.sampled_from("aA0.-_:/ \n\0"), max_size=12),
    st.from_regex(r"[A-Za-z0-9._-]{1,140}(:[a-z.]{1,3})?(::[0-9]{1,3}){0,3}", fullmatch=True),
    st.sampled_from(
        [
            ".",
            "..",
            "_",
            "A-001-x",
            "A-000-x",
            "a:.",
            "x" * 128,
            "x" * 129,
            "A" * 100 + "-001-" + "x" * 50,
            "é",
            "A" * 17,
        ]
    ),
)


@pytest.mark.parametrize(
    ("schema", "check"),
    [(SCOPE, check_project), (NAME, check_session), (TRACK, check_track), (TASK_ID, parse_task_id)],
    ids=["scope", "name", "track", "task"],
)
@given(text=TEXTS)
def test_a_schema_admits_whatever_the_check_admits(
    schema: dict[str, Any], check: Any, text: str
) -> None:
    try:
        check(text)
    except BadArgument:
        return
    assert jsonschema_rs.is_valid(schema, text)


@pytest.mark.parametrize(("schema", "check"), NAMES, ids=["scope", "name", "track"])
@given(text=TEXTS)
def test_a_schema_of_names_admits_nothing_in_ascii_that_the_check_refuses(
    schema: dict[str, Any], check: Any, text: str
) -> None:
    if text.isascii() and jsonschema_rs.is_valid(schema, text):
        check(text)


@pytest.mark.parametrize(
    "route", [route for route in ROUTES if route.name in REQUESTS], ids=lambda route: route.name
)
def test_an_example_is_accepted_as_it_stands(route: Route, service: Service) -> None:
    tenant = f"t-{route.name}"
    with service.client(f"/v1/{tenant}/p/") as client:
        client.post("tasks", json=REQUESTS["add_tasks"]).raise_for_status()
        if route.name in (
            "renew_lease",
            "report_progress",
            "submit_result",
            "release_claim",
            "spawn_subtasks",
            "batch_renew",
            "batch_submit",
        ):
            client.post(f"tasks/{TASK}/claim", json=REQUESTS["claim_task"]).raise_for_status()
        body = REQUESTS[route.name]
        task = "FEATURE:code" if "digest" in body else TASK
        if route.name == "settle_promotion":
            body, task = body | _promotion(client), TASK
        elif "digest" in body:
            body = body | _in_review(client)
        path = route.path.format(task_id=task, session_id=SESSION)
        answer = client.request(route.method, path, json=body)
    assert answer.status_code == 200, answer.text


def _promotion(client: Any) -> dict[str, Any]:
    """Has a result with a product accepted; what names its promotion."""
    client.patch("policy", json={"policy": {"products": "s3://bucket"}}).raise_for_status()
    client.post(f"tasks/{TASK}/claim", json=REQUESTS["claim_task"]).raise_for_status()
    product = {"path": "a.txt", "sha256": "0" * 64, "size": 1}
    body = REQUESTS["submit_result"] | {"products": [product]}
    client.post(f"tasks/{TASK}/submit", json=body).raise_for_status()
    (waiting,) = client.get("promotions").raise_for_status().json()
    return {"generation": waiting["generation"], "digest": waiting["digest"]}


def _in_review(client: Any) -> dict[str, Any]:
    """Brings a task into review; what names its result there, and who evaluates it."""
    rule = {"edges": {"code": {"evaluators": ["unit_tests"]}}}
    client.patch("policy", json={"agent_roles": rule}).raise_for_status()
    client.post("tasks", json={"tasks": ["FEATURE:code"]}).raise_for_status()
    task = "tasks/FEATURE:code"
    client.post(f"{task}/claim", json=REQUESTS["claim_task"]).raise_for_status()
    client.post(f"{task}/submit", json=REQUESTS["submit_result"]).raise_for_status()
    waiting = client.get(f"{task}/review").raise_for_status().json()
    return {"generation": waiting["generation"], "digest": waiting["digest"]}


@pytest.mark.parametrize("which", ANSWERS, ids="-".join)
def test_an_example_of_an_answer_is_of_its_schema(which: tuple[str, str]) -> None:
    route = next(route for route in ROUTES if route.name == which[0])
    response = DOCUMENT["paths"][path_of(route)][route.method.lower()]["responses"][which[1]]
    (content,) = response["content"].values()
    schema = {**content["schema"], "components": DOCUMENT["components"]}
    jsonschema_rs.validate(schema, ANSWERS[which])


def test_the_document_is_served_and_not_sent_again_to_who_has_it(service: Service) -> None:
    first = service.http.get("/openapi.json")
    assert first.content == msgspec.json.encode(document(keys=False))
    again = service.http.get("/openapi.json", headers={"if-none-match": first.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    assert service.http.get("/openapi.json", headers={"if-none-match": '"old"'}).status_code == 200
    for known in (f'"old", W/{first.headers["etag"]}', "*"):
        assert (
            service.http.get("/openapi.json", headers={"if-none-match": known}).status_code == 304
        )


class _Links(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.links: list[str] = []
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.ids.update(filter(None, [given.get("id")]))
        self.links += [link for name in ("href", "src", "action") if (link := given.get(name))]
        if tag not in ("meta", "wbr"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_the_page_has_every_operation_and_fetches_nothing_from_elsewhere(service: Service) -> None:
    answer = service.http.get("/docs")
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert "default-src 'none'" in answer.headers["content-security-policy"]
    found = _Links()
    found.feed(answer.text)
    assert found.open == []
    assert {route.name for route in ROUTES} <= found.ids
    assert all(
        link == "openapi.json" or link.removeprefix("#") in found.ids for link in found.links
    )
    assert "url(" not in answer.text
    assert "@import" not in answer.text


def test_the_page_shows_a_line_for_the_shell_with_every_operation() -> None:
    lines = re.findall(r"curl -s [^<]*", page(DOCUMENT).replace("<wbr>", ""))
    assert len(lines) == sum(len(methods) for methods in DOCUMENT["paths"].values())
    assert not [line for line in lines if "{t" in line or "…" in line]


def test_a_narrow_page_breaks_paths_between_their_parts() -> None:
    shown = re.findall(r"<summary><b>([A-Z]+)</b><code>(.*?)</code>", page(DOCUMENT))
    assert {(method, path.replace("<wbr>", "")) for method, path in shown} == {
        (method.upper(), path) for path, methods in DOCUMENT["paths"].items() for method in methods
    }
    assert all(re.fullmatch(r"/[^/<]+(<wbr>/[^/<]+)*|/", path) for _, path in shown)
    lines = re.findall(r"<pre><code>(curl -s .*?)</code>", page(DOCUMENT), re.DOTALL)
    assert all(
        line.partition("http://localhost:8420")[2].startswith(("<wbr>/", " ")) for line in lines
    ), lines
    assert not [
        line
        for line in lines
        if re.search(r"[a-z}]/[a-z{]", line.partition("http://localhost:8420")[2].partition(" ")[0])
    ]
