"""A service that is told to stop answers what it has accepted, and ends in time."""

from __future__ import annotations

import http.client
import json
import signal
import socket
import threading
import time
from contextlib import closing, suppress
from pathlib import Path

import genlock
from tests.service.process import PATIENCE_SECONDS, Service, ask, make_store, read_all, serve

TASKS = "/v1/default/default/tasks"


def begin(service: Service, path: str, length: int, sent: bytes) -> socket.socket:
    """A request whose body has only begun. The service has let it in and waits for the rest: it has
    said so.

    What merely lies on the wire when a service is told to stop may or may not be let in.
    """
    connection = service.connect()
    head = (
        f"POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-length: {length}\r\nexpect: "
        "100-continue\r\n\r\n"
    )
    connection.sendall(head.encode())
    said = b""
    while not said.endswith(b"\r\n\r\n"):
        piece = connection.recv(1)
        assert piece, said
        said += piece
    assert said == b"HTTP/1.1 100 Continue\r\n\r\n"
    connection.sendall(sent)
    return connection


def hold(service: Service) -> socket.socket:
    """A request that is begun and never ended."""
    return begin(service, f"{TASKS}/x/claim", 100, b"{")


class Poll(threading.Thread):
    """Waits for work, of which there is none; `answer` is what it was told, and when it was told
    the stop has begun."""

    def __init__(self, service: Service) -> None:
        super().__init__(daemon=True)
        body = json.dumps(
            {"agent_id": "poll", "session_id": "s-poll", "wait_seconds": 60, "tracks": ["Z"]}
        ).encode()
        self._service = service
        self._connection = begin(service, "/v1/default/default/claim-next", len(body), body)
        self.answer: tuple[int, dict[str, object]] | None = None
        self.retry_after: str | None = None
        self.start()

    def run(self) -> None:
        with self._connection, http.client.HTTPResponse(self._connection) as answer:
            answer.begin()
            self.retry_after = answer.getheader("retry-after")
            self.answer = (answer.status, json.loads(answer.read()))

    def told(self) -> dict[str, object]:
        self.join(PATIENCE_SECONDS)
        if self.is_alive():
            self._service.give_up("who waits was not told")
        assert self.answer is not None
        assert self.answer[0] == 503
        return self.answer[1]


def test_what_was_begun_is_answered_who_waits_is_told_and_it_ends_with_0(tmp_path: Path) -> None:
    body = json.dumps({"agent_id": "ada", "session_id": "s-1"}).encode()
    with serve(tmp_path, "--trust-local") as service:
        assert service.ask("POST", TASKS, {"tasks": ["slow"]})[0] == 200
        begun = begin(service, f"{TASKS}/slow/claim", len(body), body[:10])
        poll = Poll(service)
        service.process.send_signal(signal.SIGTERM)
        assert poll.told()["code"] == "CLOSED"
        assert poll.retry_after == "1"
        assert service.process.poll() is None, "it waits for the rest of what was begun"
        begun.sendall(body[10:])
        answer = read_all(begun)
        assert answer.startswith(b"HTTP/1.1 200 ")
        assert b"connection: close\r\n" in answer
        assert json.loads(answer.partition(b"\r\n\r\n")[2])["reason"] == "GRANTED"
        assert service.wait() == 0
    with genlock.connect(
        f"sqlite://{tmp_path}/served.db", create=True, session_id="s-1", agent_id="ada"
    ) as fleet:
        assert [claim.task_id for claim in fleet.get_active_claims_for_session()] == ["slow"]
    assert service.lines()[-1]["event"] == "stopped"


def test_every_claim_that_was_acknowledged_under_load_is_in_the_store(tmp_path: Path) -> None:
    names = [f"t{n}" for n in range(2000)]
    acknowledged: list[list[str]] = [[] for _ in range(8)]
    some = threading.Semaphore(0)

    def claim(mine: list[str], todo: list[str], port: int) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_SECONDS)
        with closing(connection), suppress(http.client.HTTPException, OSError):
            for name in todo:
                if (
                    ask(
                        connection,
                        "POST",
                        f"{TASKS}/{name}/claim",
                        {"agent_id": "a", "session_id": "s-load"},
                    )[0]
                    != 200
                ):
                    return
                mine.append(name)
                some.release()

    with serve(tmp_path, "--trust-local", "--log-level", "error") as service:
        assert (
            service.ask(
                "PATCH", "/v1/default/default/policy", {"limits": {"max_concurrent_claims": 5000}}
            )[0]
            == 200
        )
        assert service.ask("POST", TASKS, {"tasks": names})[0] == 200
        threads = [
            threading.Thread(target=claim, args=(mine, names[n::8], service.port))
            for n, mine in enumerate(acknowledged)
        ]
        for thread in threads:
            thread.start()
        for _ in range(100):
            assert some.acquire(timeout=PATIENCE_SECONDS)
        assert service.end() == 0
        for thread in threads:
            thread.join(PATIENCE_SECONDS)
    done = {name for mine in acknowledged for name in mine}
    assert 100 <= len(done) < len(names), "it was stopped in the middle"
    with genlock.connect(
        f"sqlite://{tmp_path}/served.db", create=True, session_id="s-load"
    ) as fleet:
        held = {claim.task_id for claim in fleet.get_active_claims_for_session()}
    assert done <= held
    # What was accepted is answered: at most what was in flight on each connection was not read any
    # more.
    assert len(held - done) <= 8


def test_a_client_that_holds_its_connection_delays_the_end_by_the_grace_at_most(
    tmp_path: Path,
) -> None:
    with serve(tmp_path, "--trust-local", "--grace-seconds", "0.5") as service:
        idle, half = service.connect(), hold(service)
        assert service.ask("GET", "/healthz")[0] == 200
        began = time.monotonic()
        assert service.end() == 0
        assert time.monotonic() - began < 8
        assert read_all(idle) == b""
        assert not read_all(half).startswith(b"HTTP/1.1 200")
    assert [
        line["cut_off"] for line in service.lines() if line["event"] == "the grace is over"
    ] == [1]


def test_a_second_signal_ends_it_at_once(tmp_path: Path) -> None:
    with serve(tmp_path, "--trust-local", "--grace-seconds", "600") as service:
        half = hold(service)
        poll = Poll(service)
        service.process.send_signal(signal.SIGINT)
        poll.told()
        assert service.process.poll() is None
        assert service.end(signal.SIGTERM) == 128 + signal.SIGTERM
        half.close()


def test_while_it_stops_it_is_not_ready_and_lets_nobody_in(tmp_path: Path) -> None:
    with serve(tmp_path, "--trust-local") as service:
        begun = hold(service)
        poll = Poll(service)
        service.process.send_signal(signal.SIGTERM)
        poll.told()
        try:
            late = service.connect()
        except ConnectionRefusedError:
            pass
        else:
            late.sendall(b"GET /readyz HTTP/1.1\r\nhost: localhost\r\n\r\n")
            assert not read_all(late).startswith(b"HTTP/1.1 200")
        begun.close()
        assert service.wait() == 0


def test_the_store_is_whole_after_a_stop(tmp_path: Path) -> None:
    url = make_store(tmp_path)
    with serve(tmp_path, "--trust-local", url=url) as service:
        assert service.ask("POST", TASKS, {"tasks": ["one"]})[0] == 200
        assert service.end(signal.SIGINT) == 0
    assert (
        not (tmp_path / "served.db-wal").exists()
        or (tmp_path / "served.db-wal").stat().st_size == 0
    )


def test_no_log_of_the_store_is_left_behind_also_if_somebody_listens_to_its_events(
    tmp_path: Path,
) -> None:
    url = make_store(tmp_path)
    with serve(tmp_path, "--trust-local", url=url) as service, service.connect() as stream:
        stream.sendall(b"GET /v1/default/default/events/stream HTTP/1.1\r\nhost: localhost\r\n\r\n")
        assert stream.recv(20).startswith(b"HTTP/1.1 200")
        assert service.ask("POST", TASKS, {"tasks": ["one"]})[0] == 200
        said = b""
        while b"TASK_ADDED" not in said:
            said += stream.recv(65536)
        assert service.end() == 0
    assert not list(tmp_path.glob("served.db-*"))
