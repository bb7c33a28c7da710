"""Requests that are wrong: each is refused with what is wrong with it, and nothing is changed."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import httpx2
import pytest

from genlock.service.api.app import check_place
from tests.servers.service import Service, serving

T = "A-001-core"


class Here:
    """The service, with a task in it."""

    def __init__(self, service: Service) -> None:
        self.url, self.http = service.url, service.http
        self.client = service.client("/v1/default/default/")
        self.client.post("tasks", json={"tasks": [T]}).raise_for_status()

    def ask(self, method: str, path: str, **more: Any) -> httpx2.Response:
        return self.client.request(method, path, **more)

    def post(self, path: str, content: bytes, **headers: str) -> httpx2.Response:
        given = {
            "content-type": "application/json",
            **{name.replace("_", "-"): value for name, value in headers.items()},
        }
        return self.client.post(path, content=content, headers=given)

    def position(self) -> str:
        """Where the feed ends: it moves with everything that is written."""
        return str(
            self.client.get("events", params={"tail": True}).raise_for_status().json()["cursor"]
        )

    def said_raw(self, *lines: str) -> str:
        """The first line of the answer to a request that no client would send."""
        address = urlsplit(self.url)
        with socket.create_connection(
            (address.hostname or "", address.port or 0), timeout=30
        ) as link:
            link.sendall("\r\n".join([*lines, "connection: close", "", ""]).encode("latin-1"))
            answer = b""
            while piece := link.recv(65536):
                answer += piece
        return answer.decode("latin-1")


@pytest.fixture(scope="module")
def running() -> Iterator[Here]:
    with serving() as service:
        here = Here(service)
        yield here
        here.client.close()


@pytest.fixture
def here(running: Here) -> Iterator[Here]:
    """Whatever a test asks, nothing is written, and the service goes on."""
    before = running.position()
    yield running
    assert running.position() == before
    assert running.client.get(f"tasks/{T}").json()["state"] == "PENDING"


def refused(answer: httpx2.Response, status: int, code: str, words: str) -> httpx2.Response:
    body = answer.json()
    assert (answer.status_code, body["code"]) == (status, code), body
    assert words in body["detail"]
    return answer


@pytest.mark.parametrize(
    "body",
    [b"{", b"[1,", b"nonsense", b"\xff\xfe", b'{"a": 1} x', b"[" * 100_000, b'{"task_ids": [NaN]}'],
)
def test_broken_json_is_refused(here: Here, body: bytes) -> None:
    refused(here.post("batch/claim", body), 400, "BAD_ARGUMENT", "the request's body is ")


@pytest.mark.parametrize("body", [b"[]", b"1", b'"text"', b"null", b"true"])
def test_a_body_that_is_no_object_is_refused(here: Here, body: bytes) -> None:
    refused(here.post("claim-next", body), 400, "BAD_ARGUMENT", "Expected `object`")


def test_a_value_of_the_wrong_type_is_refused_and_named(here: Here) -> None:
    refused(
        here.post(f"tasks/{T}/renew", b'{"expected_generation": "1"}'),
        400,
        "BAD_ARGUMENT",
        "$.expected_generation",
    )


def test_an_entry_of_the_wrong_type_is_refused_and_named(here: Here) -> None:
    refused(
        here.post("batch/states", b'{"task_ids": ["a", 5]}'), 400, "BAD_ARGUMENT", "$.task_ids[1]"
    )


def test_a_text_where_a_list_is_wanted_is_refused(here: Here) -> None:
    refused(here.post("batch/states", b'{"task_ids": "abc"}'), 400, "BAD_ARGUMENT", "$.task_ids")


def test_a_missing_field_is_named(here: Here) -> None:
    refused(here.post(f"tasks/{T}/renew", b"{}"), 400, "BAD_ARGUMENT", "generation is missing")


def test_an_unknown_field_is_refused_and_named(here: Here) -> None:
    refused(here.post("claim-next", b'{"lease": 5}'), 400, "BAD_ARGUMENT", "lease")


@pytest.mark.parametrize("name", ["tenant_id", "project_id", "task_id"])
def test_what_stands_in_the_path_cannot_be_said_again_in_the_body(here: Here, name: str) -> None:
    refused(
        here.post(f"tasks/{T}/claim", f'{{"{name}": "other"}}'.encode()), 400, "BAD_ARGUMENT", name
    )


def test_an_unknown_name_in_the_query_is_refused(here: Here) -> None:
    refused(here.ask("GET", "ready?lmit=5"), 400, "BAD_ARGUMENT", "lmit")


def test_a_name_that_the_query_has_twice_is_refused(here: Here) -> None:
    refused(here.ask("GET", "ready?limit=5&limit=6"), 400, "BAD_ARGUMENT", "'limit' twice")


def test_a_list_may_be_named_several_times(here: Here) -> None:
    assert [line["task"]["id"] for line in here.ask("GET", "ready?tracks=A&tracks=B").json()] == [T]
    assert here.ask("GET", "ready?tracks=B").json() == []


@pytest.mark.parametrize(
    "query",
    ["limit=many", "limit=0", "limit=100001", "limit=", "limit=1.5", "limit=%ff", "limit=é"],
)
def test_a_limit_that_is_none_is_refused(here: Here, query: str) -> None:
    refused(here.ask("GET", f"ready?{query}"), 400, "BAD_ARGUMENT", "")


@pytest.mark.parametrize(
    "kind",
    [
        "text/plain",
        "application/xml",
        "application/x-www-form-urlencoded",
        "multipart/form-data",
        "application/jsonfoo",
        "application/json-seq",
        "x; application/json",
    ],
)
def test_a_body_of_another_kind_is_refused(here: Here, kind: str) -> None:
    refused(
        here.post("next-id", b"{}", content_type=kind),
        415,
        "KIND_REFUSED",
        "content-type: application/json",
    )


@pytest.mark.parametrize(
    "kind",
    [
        "application/json; charset=utf-8",
        "Application/JSON",
        "APPLICATION/JSON;charset=UTF-8",
        "application/json ; charset=utf-8",
    ],
)
def test_json_may_name_its_character_set_and_be_written_large(here: Here, kind: str) -> None:
    answer = here.post("batch/states", b'{"task_ids": []}', content_type=kind)
    assert (answer.status_code, answer.json()) == (200, {})


@pytest.mark.parametrize("encoding", ["gzip", "br", "GZIP", "identity, gzip"])
def test_a_body_that_is_packed_is_refused(here: Here, encoding: str) -> None:
    refused(
        here.post("batch/states", b'{"task_ids": []}', content_encoding=encoding),
        415,
        "KIND_REFUSED",
        "without content-encoding",
    )


def test_a_body_may_be_said_not_to_be_packed(here: Here) -> None:
    assert (
        here.post("batch/states", b'{"task_ids": []}', content_encoding="Identity").status_code
        == 200
    )


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE"])
def test_the_status_page_refuses_what_it_does_not_take_like_anything_else(
    here: Here, method: str
) -> None:
    answer = refused(
        here.http.request(method, f"{here.url}/"),
        405,
        "METHOD_REFUSED",
        "this path takes GET, HEAD",
    )
    assert answer.headers["allow"] == "GET, HEAD"


def test_a_body_over_the_limit_is_refused_before_it_is_read(here: Here) -> None:
    answer = here.said_raw(
        f"POST /v1/default/default/tasks/{T}/claim HTTP/1.1",
        "host: localhost",
        "content-type: application/json",
        "content-length: 99999999",
    )
    assert answer.startswith("HTTP/1.1 413 ")
    assert "OVER_LIMIT" in answer


def test_a_body_in_pieces_over_the_limit_is_refused(here: Here) -> None:
    pieces = (b" " * 65536 for _ in range(17))
    answer = here.client.post(
        "next-id", content=pieces, headers={"content-type": "application/json"}
    )
    refused(answer, 413, "OVER_LIMIT", "1,048,576 bytes")


@pytest.mark.parametrize("name", ["a%20b", "%C3%A9", "x" * 65, "a%00b", "a%0Ab"])
@pytest.mark.parametrize("what", ["tenant", "project"])
def test_a_bad_tenant_or_project_in_the_path_is_refused(here: Here, what: str, name: str) -> None:
    place = f"{name}/default" if what == "tenant" else f"default/{name}"
    refused(here.http.get(f"{here.url}/v1/{place}/ready"), 400, "BAD_ARGUMENT", what)


def test_a_bad_name_in_the_path_is_refused_every_time_also_beside_one_that_was_good(
    here: Here,
) -> None:
    for _ in range(3):
        refused(
            here.http.get("/v1/default/no%20name/ready"), 400, "BAD_ARGUMENT", "project 'no name'"
        )
        refused(
            here.http.get("/v1/no%20name/default/ready"), 400, "BAD_ARGUMENT", "tenant 'no name'"
        )
        # As the name of all, `*` is a word of keys and of no path.
        refused(here.http.get("/v1/*/default/ready"), 400, "BAD_ARGUMENT", "tenant '*'")
        refused(here.http.get("/v1/default/*/ready"), 400, "BAD_ARGUMENT", "project '*'")
        refused(here.http.get("/v1/*/_/keys"), 400, "BAD_ARGUMENT", "tenant '*'")
        assert [one["task"]["id"] for one in here.http.get("/v1/default/default/ready").json()] == [
            T
        ]


def test_places_whose_names_are_alike_are_apart_however_often_each_is_named(here: Here) -> None:
    for _ in range(2):
        for tenant, project in (
            ("a", "b.c"),
            ("a.b", "c"),
            ("b.c", "a"),
            ("ab", "c"),
            ("a", "bc"),
            ("default", "Default"),
        ):
            assert check_place(tenant, project) == (tenant, project)
            assert here.http.get(f"/v1/{tenant}/{project}/ready").json() == []
        assert [check_place("_", "_"), check_place("a", "_")] == [("*", "*"), ("a", "*")]


def test_what_is_no_name_is_no_place_for_a_project_s_operations(here: Here) -> None:
    refused(
        here.http.get(f"{here.url}/v1/_/default/ready"),
        400,
        "BAD_ARGUMENT",
        "tenant '_' is reserved",
    )
    refused(
        here.http.get(f"{here.url}/v1/default/_/ready"),
        404,
        "ROUTE_NOT_FOUND",
        "there is nothing at",
    )
    refused(
        here.http.get(f"{here.url}/v1/default/default/keys"),
        404,
        "ROUTE_NOT_FOUND",
        "there is nothing at",
    )


@pytest.mark.parametrize("name", ["a%20b", "%C3%A9", "x" * 129, "a%00b", "a:b:c", "a::0"])
def test_a_bad_task_in_the_path_is_refused(here: Here, name: str) -> None:
    refused(here.ask("GET", f"tasks/{name}"), 400, "BAD_ARGUMENT", "task id")


@pytest.mark.parametrize("name", ["a%00b", "a%0Ab", "x" * 129])
def test_a_bad_session_in_the_path_is_refused(here: Here, name: str) -> None:
    refused(here.ask("GET", f"sessions/{name}/memory"), 400, "BAD_ARGUMENT", "session")


@pytest.mark.parametrize(
    "path",
    [
        "",
        "nowhere",
        "tasks/",
        f"tasks/{T}/",
        f"tasks/{T}/claim/again",
        "tasks//claim",
        "claim-next/",
    ],
)
def test_a_path_at_which_there_is_nothing_is_said_to_be_so(here: Here, path: str) -> None:
    refused(here.ask("GET", path), 404, "ROUTE_NOT_FOUND", "/openapi.json")


@pytest.mark.parametrize(
    "path",
    ["/nowhere", "/v1", "/v1/", "/v1/default", "/v2/default/default/ready", "//", "/healthz/"],
)
def test_a_path_outside_the_operations_is_said_to_be_nothing_too(here: Here, path: str) -> None:
    refused(here.http.get(here.url + path), 404, "ROUTE_NOT_FOUND", "there is nothing at")


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("PUT", "ready", "GET, HEAD"),
        ("GET", f"tasks/{T}/claim", "POST"),
        ("HEAD", f"tasks/{T}/claim", "POST"),
        ("DELETE", f"tasks/{T}", "GET, HEAD, PATCH"),
        ("OPTIONS", "tasks", "GET, HEAD, POST"),
        ("TRACE", "sessions", "GET, HEAD, POST"),
    ],
)
def test_a_method_that_a_path_does_not_take_is_405_with_those_it_takes(
    here: Here, method: str, path: str, allowed: str
) -> None:
    answer = here.ask(method, path)
    assert (answer.status_code, answer.headers["allow"]) == (405, allowed)
    assert method == "HEAD" or answer.json()["code"] == "METHOD_REFUSED"


@pytest.mark.parametrize("path", ["/healthz", "/readyz", "/openapi.json", "/docs"])
def test_pages_take_get_and_head_alone(here: Here, path: str) -> None:
    answer = here.http.post(here.url + path)
    assert (answer.status_code, answer.headers["allow"], answer.json()["code"]) == (
        405,
        "GET, HEAD",
        "METHOD_REFUSED",
    )
    assert here.http.head(here.url + path).status_code == 200


def test_a_service_whose_lane_has_ended_says_that_it_needs_a_new_start() -> None:
    with serving() as service:
        lane = service.coordinator.engine._lanes[0]
        assert service.http.get("/healthz").status_code == 200
        lane.close()  # as a bug of ours would: only the lane ends
        lane.thread.join()
        for path in ("/healthz", "/readyz"):
            answer = service.http.get(path)
            assert (answer.status_code, answer.json()["status"]) == (503, "broken")


def test_head_is_get_without_the_body(here: Here) -> None:
    full, head = here.ask("GET", f"tasks/{T}"), here.ask("HEAD", f"tasks/{T}")
    assert (head.status_code, head.content) == (200, b"")
    assert head.headers["content-length"] == full.headers["content-length"]
    assert here.ask("HEAD", "tasks/nobody").status_code == 404


def test_idempotency_key_and_operation_id_that_differ_are_refused(here: Here) -> None:
    body = b'{"session_id": "s1", "agent_id": "a", "operation_id": "one"}'
    refused(
        here.post(f"tasks/{T}/claim", body, idempotency_key="two"),
        400,
        "BAD_ARGUMENT",
        "idempotency-key and operation_id differ",
    )


@pytest.mark.parametrize("key", ["", "x" * 129, "caf\u00e9\u0085"])
def test_an_idempotency_key_that_is_none_is_refused(here: Here, key: str) -> None:
    headers = {"idempotency-key": key.encode("latin-1")}
    answer = here.client.post(
        f"tasks/{T}/claim",
        json={"session_id": "s1", "agent_id": "a"},
        headers=headers,  # type: ignore[arg-type]
    )
    refused(answer, 400, "BAD_ARGUMENT", "operation_id")


@pytest.mark.parametrize("header", ["genlock-session", "genlock-agent", "genlock-user"])
@pytest.mark.parametrize("value", ["", "a%2Fb", "%FF", "%00", "x" * 129])
def test_an_identity_in_a_header_that_is_none_is_refused(
    here: Here, header: str, value: str
) -> None:
    refused(here.client.get("ready", headers={header: value}), 400, "BAD_ARGUMENT", "")


@pytest.mark.parametrize(
    "value", ["", "nonsense", "a/b", "a/b/c/d", "a/b/1/x", "a/b/1/2/3/4", "a/b/c/2/3"]
)
def test_a_process_in_a_header_that_is_none_is_refused(here: Here, value: str) -> None:
    refused(
        here.client.get("ready", headers={"genlock-process": value}),
        400,
        "BAD_ARGUMENT",
        "genlock-process",
    )


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (f"a/b/{2**70}/1", "header genlock-process"),
        (f"a/b/{'9' * 4000}/1", "header genlock-process"),
        ("a/b/-1/1", "header genlock-process"),
        ("a/b/%31/1", "header genlock-process"),
        ("a/b/0/1", "pid is a whole number"),
        (f"a/b/{2**31}/1", "pid is a whole number"),
        (f"a/b/1/{2**53}", "started is a whole number"),
        ("a%00/b/1/1", "host has at most 255 printable"),
        (f"a/{'x' * 256}/1/1", "boot has at most 255 printable"),
        ("%ff/b/1/1", "percent-encoded UTF-8"),
        ("a/b/1/1/%ff", "percent-encoded UTF-8"),
        (f"a/b/1/1/{'x' * 65}", "namespace has at most 64 printable"),
    ],
)
def test_a_process_that_nobody_could_be_is_refused(here: Here, value: str, words: str) -> None:
    refused(
        here.client.get("ready", headers={"genlock-process": value}), 400, "BAD_ARGUMENT", words
    )


@pytest.mark.parametrize(
    "wrong",
    [
        {"pid": 2**70},
        {"pid": 0},
        {"started": -1},
        {"started": 2**53},
        {"host": "a\0"},
        {"host": "x" * 500_000},
        {"boot": "x" * 256},
    ],
)
def test_a_session_is_no_process_that_nobody_could_be(here: Here, wrong: dict[str, object]) -> None:
    process = {"host": "h", "boot": "b", "pid": 1, "started": 1} | wrong
    answer = here.ask("POST", "sessions", json={"session_id": "s", "process": process})
    refused(answer, 400, "BAD_ARGUMENT", next(iter(wrong)))
    assert len(answer.text) < 1000


@pytest.mark.parametrize("value", ["0", "2", "-1", "x", "", "9" * 6000])
def test_a_protocol_that_is_not_spoken_is_refused(here: Here, value: str) -> None:
    refused(
        here.client.get("ready", headers={"genlock-protocol": value}),
        426,
        "SERVICE_MISMATCH",
        "protocol",
    )


@pytest.mark.parametrize(
    "origin",
    [
        "https://elsewhere.example",
        "http://localhost.elsewhere.example",
        "null",
        "http://127.0.0.1:1",
    ],
)
def test_a_page_of_another_site_is_refused_and_may_read_nothing(here: Here, origin: str) -> None:
    for method in ("GET", "OPTIONS"):
        answer = refused(
            here.client.request(method, "ready", headers={"origin": origin}),
            403,
            "ACCESS_REFUSED",
            "other sites",
        )
        assert not [name for name in answer.headers if name.startswith("access-control-")]


def test_a_page_of_its_own_may_ask(here: Here) -> None:
    assert here.client.get("ready", headers={"origin": here.url}).status_code == 200


HOSTS_OF_OTHERS = [
    *(
        "rebound.example",
        "127.0.0.1.rebound.example",
        "localhost.",
        "[::2]:80",
        "[::1]rebound.example",
        "[::1]x:80",
    ),
    *(
        "localhost:80:80",
        "localhost:x",
        "localhost:@rebound.example",
        "[::1",
        "::1]",
        "]",
        "[]",
        ":80",
        "localhost@rebound.example",
    ),
]


@pytest.mark.parametrize("host", HOSTS_OF_OTHERS)
def test_a_host_that_the_service_does_not_answer_for_is_refused(here: Here, host: str) -> None:
    refused(here.client.get("ready", headers={"host": host}), 421, "HOST_REFUSED", "--allow-host")


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:1", "127.0.0.1:", "[::1]", "[::1]:8420"])
def test_a_host_may_have_a_port(here: Here, host: str) -> None:
    assert here.client.get("ready", headers={"host": host}).status_code == 200


@pytest.mark.parametrize(
    "name",
    [
        "Authorization",
        "x-api-key",
        "Idempotency-Key",
        "genlock-session",
        "genlock-agent",
        "origin",
        "content-type",
    ],
)
def test_what_a_request_may_say_once_is_refused_if_it_is_said_twice(here: Here, name: str) -> None:
    lines = (
        "GET /v1/default/default/ready HTTP/1.1",
        "host: localhost",
        f"{name}: a",
        f"{name.lower()}: a",
    )
    answer = here.said_raw(*lines)
    assert answer.startswith("HTTP/1.1 400 ")
    assert f"more than one header {name.lower()}" in answer


def test_what_may_be_said_several_times_may_be(here: Here) -> None:
    lines = (
        "GET /v1/default/default/ready HTTP/1.1",
        "host: localhost",
        "accept: text/html",
        "accept: */*",
        "x-other: a",
        "x-other: b",
    )
    assert here.said_raw(*lines).startswith("HTTP/1.1 200 ")


def test_a_request_without_a_host_is_refused(here: Here) -> None:
    answer = here.said_raw("GET /v1/default/default/ready HTTP/1.0")
    assert answer.startswith("HTTP/1.1 421 ")


def test_a_request_that_is_no_http_is_refused_and_the_service_goes_on(here: Here) -> None:
    assert here.said_raw("NONSENSE").startswith("HTTP/1.1 400 ")


def test_a_number_for_the_log_is_taken_if_it_is_one_and_made_otherwise(here: Here) -> None:
    assert (
        here.client.get("ready", headers={"x-request-id": "abc123"}).headers["x-request-id"]
        == "abc123"
    )
    for other in ("", "a b", "x" * 65, "a\tb", "a-b\u00ff"):
        answer = here.client.get("ready", headers={"x-request-id": other.encode("latin-1")})  # type: ignore[arg-type]
        assert answer.headers["x-request-id"] not in ("", other)
