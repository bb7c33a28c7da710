"""Large answers are packed with gzip for clients that take it, and for no others."""

from __future__ import annotations

import gzip
import http.client
import json
from collections.abc import Iterator

import pytest

from genlock.service.responses import takes_gzip
from tests.servers.service import Service, serving

PLACE = "/v1/default/default"


@pytest.fixture(scope="module")
def service() -> Iterator[Service]:
    with serving() as running:
        tasks = [{"id": f"t-{number:04}", "title": "a title"} for number in range(600)]
        running.http.post(f"{PLACE}/tasks", json={"tasks": tasks}).raise_for_status()
        yield running


def get(service: Service, path: str, accept: str | None) -> tuple[dict[str, str], bytes]:
    """As it comes over the wire: most clients unpack by themselves."""
    connection = http.client.HTTPConnection("127.0.0.1", service.port, timeout=30)
    headers = {} if accept is None else {"Accept-Encoding": accept}
    connection.putrequest("GET", PLACE + path, skip_accept_encoding=True)
    for name, value in headers.items():
        connection.putheader(name, value)
    connection.endheaders()
    response = connection.getresponse()
    body = response.read()
    connection.close()
    assert response.status == 200
    return {name.lower(): value for name, value in response.getheaders()}, body


@pytest.mark.parametrize("path", ["/tasks?limit=20", "/tasks?limit=600", "/graph", "/plan"])
def test_a_large_answer_is_packed_and_the_same(service: Service, path: str) -> None:
    plain, whole = get(service, path, None)
    headers, body = get(service, path, "gzip, deflate, br")
    assert "content-encoding" not in plain
    assert (headers["content-encoding"], headers["vary"]) == ("gzip", "accept-encoding")
    assert int(headers["content-length"]) == len(body) < len(whole) / 4
    answers = json.loads(gzip.decompress(body)), json.loads(whole)
    for answer in answers:
        answer.pop("now", None)
    assert answers[0] == answers[1]


@pytest.mark.parametrize("accept", [None, "", "identity", "br", "gzip;q=0", "gzip; q=0.0"])
def test_nothing_is_packed_for_a_client_that_does_not_take_it(
    service: Service, accept: str | None
) -> None:
    headers, body = get(service, "/tasks?limit=600", accept)
    assert "content-encoding" not in headers
    assert len(json.loads(body)["tasks"]) == 600


def test_a_short_answer_is_not_packed(service: Service) -> None:
    headers, _ = get(service, "/tasks?limit=1", "gzip")
    assert "content-encoding" not in headers


def test_errors_and_writes_are_not_packed(service: Service) -> None:
    answer = service.http.post(
        f"{PLACE}/batch/states",
        json={"task_ids": [f"t-{number:04}" for number in range(100)]},
        headers={"accept-encoding": "gzip"},
    )
    assert "content-encoding" not in answer.headers


@pytest.mark.parametrize(
    ("header", "takes"),
    [
        (b"gzip", True),
        (b"GZIP;q=0.5", True),
        (b"br, gzip", True),
        (b"gzip;q=0", False),
        (b"gzip; q=0.000", False),
        (b"*", False),
        (b"gzipped", False),
        (b"", False),
    ],
)
def test_what_a_client_takes_is_read_from_its_header(header: bytes, takes: bool) -> None:
    assert takes_gzip({b"accept-encoding": header}) is takes
