"""What takes long is done beside the event loop, which is everybody's, and what is too much is
refused before anything is made of it."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from typing import Any

import pytest

import genlock.plans
from genlock.coordinator import arguments, worker_ops
from genlock.reads import feed
from genlock.service.api import endpoint
from genlock.service.api.request import Keywords
from genlock.service.limits import LARGE_BYTES, Turns
from tests.servers.service import PATIENCE_SECONDS, Service, serving

PLACE = "/v1/default/default"
FAULTY = "tracks:\n  A:\n    - id: A-1\n      depends_on: [nowhere]\n"


@pytest.fixture
def service() -> Iterator[Service]:
    with serving() as running:
        yield running


class Threads:
    """By what was called, the names of the threads that did."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._patch = monkeypatch
        self.seen: dict[str, set[str]] = {}

    def watch(self, owner: Any, name: str) -> None:
        usual, seen = getattr(owner, name), self.seen.setdefault(name, set())

        def noting(*args: Any, **more: Any) -> Any:
            seen.add(threading.current_thread().name.partition("-")[0])
            return usual(*args, **more)

        self._patch.setattr(owner, name, noting)


@pytest.fixture
def threads(monkeypatch: pytest.MonkeyPatch) -> Threads:
    return Threads(monkeypatch)


def post(service: Service, path: str, body: Any) -> tuple[int, Any]:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    answer = service.http.post(
        f"{PLACE}/{path}", content=content, headers={"content-type": "application/json"}
    )
    return answer.status_code, answer.json()


@pytest.mark.parametrize("path", ["plan", "plan/diff", "plan/check"])
def test_a_plan_is_read_and_checked_in_a_thread(
    service: Service, threads: Threads, path: str
) -> None:
    threads.watch(genlock.plans.Draft, "__init__")
    threads.watch(genlock.plans.Draft, "check")
    status, said = post(service, path, {"source": FAULTY})
    assert (status, said["code"]) == (422, "PLAN_INVALID")
    assert "nowhere" in said["detail"]
    assert not any("service" in names for names in threads.seen.values()), (
        "the loop's own thread reads no plan"
    )


@pytest.mark.parametrize("path", ["plan", "plan/diff", "plan/check", "tasks"])
def test_a_plan_over_four_megabytes_is_refused_and_told_what_to_do(
    service: Service, path: str
) -> None:
    status, said = post(service, path, b" " * (4 * 1024 * 1024 + 1))
    assert (status, said["code"]) == (413, "OVER_LIMIT")
    assert "4,194,304 bytes" in said["detail"]
    assert "in parts" in said["detail"]


def test_a_tenant_has_one_plan_read_at_a_time(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate, begun = threading.Event(), threading.Semaphore(0)

    class Slow(genlock.plans.Draft):
        def __init__(self, *args: Any, **more: Any) -> None:
            begun.release()
            assert gate.wait(PATIENCE_SECONDS)
            super().__init__(*args, **more)

    monkeypatch.setattr(genlock.plans, "Draft", Slow)
    answers: list[int] = []
    askers = [
        threading.Thread(
            target=lambda: answers.append(post(service, "plan/check", {"source": "tracks: {}"})[0])
        )
        for _ in range(4)
    ]
    for asker in askers:
        asker.start()
    assert begun.acquire(timeout=PATIENCE_SECONDS)
    assert service.http.get(f"{PLACE}/policy").status_code == 200, "others are answered meanwhile"
    assert not begun.acquire(timeout=0.2), "one is read, the others wait"
    gate.set()
    for asker in askers:
        asker.join(PATIENCE_SECONDS)
    assert answers == [answers[0]] * 4


def claimed(service: Service, name: str = "t") -> dict[str, Any]:
    assert post(service, "tasks", {"tasks": [name]})[0] == 200
    status, said = post(service, f"tasks/{name}/claim", {"agent_id": "a", "session_id": "s"})
    assert status == 200
    return {"session_id": "s", "generation": said["claim"]["generation"]}


def test_a_large_body_is_read_and_packed_in_a_thread(service: Service, threads: Threads) -> None:
    call = claimed(service)
    threads.watch(Keywords, "of_body")
    threads.watch(worker_ops, "pack")
    status, said = post(service, "tasks/t/submit", call | {"result_data": [1] * LARGE_BYTES})
    assert (status, said["reason"]) == (200, "ACCEPTED")
    assert threads.seen == {"of_body": {"genlock"}, "pack": {"genlock"}}
    assert service.http.get(f"{PLACE}/tasks/t/result").json() == [1] * LARGE_BYTES


def test_a_result_over_the_limit_is_refused_by_its_length_before_it_is_read(
    service: Service, threads: Threads
) -> None:
    call = claimed(service)
    threads.watch(Keywords, "of_body")
    status, said = post(service, "tasks/t/submit", call | {"result_data": "x" * (11 * 1024 * 1024)})
    assert (status, said["code"]) == (413, "RESULT_TOO_LARGE")
    assert "max_result_size_bytes is 10,485,760" in said["detail"]
    assert threads.seen == {"of_body": set()}
    assert (
        post(service, "tasks/t/submit", call | {"result_data": "x"})[1]["reason"] == "ACCEPTED"
    ), "the claim is untouched"


def test_results_together_may_be_twice_as_large_as_one(service: Service) -> None:
    first, second = claimed(service, "t1"), claimed(service, "t2")
    size = 9 * 1024 * 1024
    results = [
        {"task_id": name, "generation": call["generation"], "result_data": "x" * size}
        for name, call in (("t1", first), ("t2", second))
    ]
    status, said = post(
        service, "batch/submit", {"session_id": "s", "results": [*results, *results]}
    )
    assert (status, said["code"]) == (413, "OVER_LIMIT")
    status, said = post(service, "batch/submit", {"session_id": "s", "results": results})
    assert [said[name]["reason"] for name in ("t1", "t2")] == ["ACCEPTED", "ACCEPTED"]


def test_who_waits_for_a_task_does_not_keep_the_turn_of_its_large_body(service: Service) -> None:
    service.running.large = Turns(1)
    body = (
        json.dumps({"agent_id": "a", "session_id": "s", "wait_seconds": 60}).encode()
        + b" " * LARGE_BYTES
    )
    head = (
        f"POST {PLACE}/claim-next HTTP/1.1\r\nhost: localhost\r\ncontent-length: "
        f"{len(body)}\r\n\r\n"
    )
    with service.connect() as connection:
        connection.sendall(head.encode() + body)
        # It is answered when it is its turn, which comes after that of the one that waits.
        status, _ = post(service, "tasks", b'{"tasks": ["large"]}' + b" " * LARGE_BYTES)
        assert status == 200
        assert connection.recv(100).startswith(b"HTTP/1.1 200 ")


@pytest.mark.parametrize("path", ["events?limit=5000", "ready?limit=5000", "plan", "graph"])
def test_a_long_answer_is_read_and_written_in_a_thread(
    service: Service, threads: Threads, path: str
) -> None:
    names = [f"A-{number:04d}" for number in range(2500)]
    assert post(service, "tasks", {"tasks": names})[0] == 200
    threads.watch(endpoint, "encode_in_pieces")
    threads.watch(feed, "feed_events")
    service.http.headers["accept-encoding"] = "identity"
    answer = service.http.get(f"{PLACE}/{path}")
    assert answer.status_code == 200
    assert int(answer.headers["content-length"]) == len(answer.content)
    assert all(name in answer.text for name in names)
    assert threads.seen["encode_in_pieces"] == {"genlock"}
    assert threads.seen["feed_events"] <= {"genlock"}
    short = service.http.get(f"{PLACE}/events?limit=1")
    assert answer.headers.keys() == short.headers.keys(), "it is an answer like any other"
    head = service.http.head(f"{PLACE}/{path}")
    assert (head.status_code, head.headers["content-length"], head.content) == (
        200,
        answer.headers["content-length"],
        b"",
    )


@pytest.mark.parametrize(
    "query",
    ["limit=100001", "limit=5000&after=nonsense", "limit=5000&after=", "limit=5000&tail=maybe"],
)
def test_what_goes_wrong_with_a_long_answer_is_answered_as_ever(
    service: Service, query: str
) -> None:
    answer, short = (
        service.http.get(f"{PLACE}/events?{asked}")
        for asked in (query, query.replace("5000", "50"))
    )
    assert answer.status_code == short.status_code == 400
    assert answer.json() | {"request": None} == short.json() | {"request": None}


LONG: list[Any] = [
    [1] * 50_000,
    [[1, 'é"\n'], {"b": None, "a": 1.5}] * 9_000,
    {f"k{number % 977}-{number}": [number, {"z": 1, "y": []}] for number in range(12_000)},
    {"b": {"a": [0.1] * 30_000, "": {}}, "a": [[[True] * 25_000]]},
]


@pytest.mark.parametrize("value", LONG)
def test_a_long_result_is_written_as_ever_but_in_pieces(
    value: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":"))
    usual, pieces = arguments._canonical(), []

    def encode(piece: Any) -> str:
        pieces.append(usual(piece))
        return pieces[-1]

    monkeypatch.setattr(arguments, "_canonical", lambda: encode)
    content, data = arguments.pack(value)
    assert data == whole.encode()
    assert content.size == len(data)
    # The encoder keeps the interpreter from all others while it writes one.
    assert len(pieces) > 1
    assert max(piece.count(",") for piece in pieces) <= 10_000
