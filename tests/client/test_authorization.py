"""What a client sends to a service on loopback: the token that the service left, unless a key was
meant for this address."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

import genlock
from genlock import credentials, token_files
from genlock.client.addresses import Authorization, Way
from genlock.errors import KeyRefused
from genlock.service.auth.browser_sessions import LocalToken
from genlock.service.compose import Choices
from genlock.settings import Setting
from tests.servers.service import Service, serving

ADDRESS = "http://127.0.0.1:8420"
OLD, NEW = "glt_" + "0" * 64, "glt_" + "1" * 64
KEY = "glk_from_somewhere"


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    return token_files.folders(None)


def sent(url: str, state: list[Path]) -> Way:
    return Authorization(credentials.keys_for(Setting(url, "flag --url", "flag"), state), state).to(
        url
    )


def test_a_key_of_the_environment_does_not_go_where_the_token_serves(
    state: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GENLOCK_API_KEY", KEY)
    assert sent(ADDRESS, state) == Way(ADDRESS, f"Bearer {KEY}"), "by ssh -L, say"
    token_files.write(ADDRESS, OLD, state)
    assert sent(ADDRESS, state) == Way(ADDRESS, f"Bearer {OLD}")
    assert sent("http://127.0.0.1:8421", state) == Way("http://127.0.0.1:8421", f"Bearer {KEY}")
    assert sent("https://coordinator:8420", state) == Way(
        "https://coordinator:8420", f"Bearer {KEY}"
    )


def test_a_key_that_is_stored_for_the_address_comes_first(state: list[Path]) -> None:
    token_files.write(ADDRESS, OLD, state)
    credentials.store_key(ADDRESS, KEY)
    assert sent(ADDRESS, state) == Way(ADDRESS, f"Bearer {KEY}")


def test_no_key_is_sent_because_a_token_was_refused(
    state: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The service has ended and removed its token; another user who listens there now refuses
    it."""
    monkeypatch.setenv("GENLOCK_API_KEY", KEY)
    token_files.write(ADDRESS, OLD, state)
    authorization = Authorization(
        credentials.keys_for(Setting(ADDRESS, "flag --url", "flag"), state), state
    )
    first = authorization.to(ADDRESS)
    assert first == Way(ADDRESS, f"Bearer {OLD}")
    (state[0] / "127.0.0.1:8420.token").unlink()
    assert not authorization.is_renewed(ADDRESS, first)
    assert authorization.to(ADDRESS) == first
    token_files.write(ADDRESS, NEW, state)
    assert authorization.is_renewed(ADDRESS, first)


def test_a_token_is_read_again_when_it_is_refused(state: list[Path]) -> None:
    authorization = Authorization(lambda address: None, state)
    first = authorization.to(ADDRESS)
    assert (first, authorization.is_renewed(ADDRESS, first)) == (Way(ADDRESS, None), False)
    token_files.write(ADDRESS, OLD, state)
    assert authorization.is_renewed(ADDRESS, first)
    second = authorization.to(ADDRESS)
    assert second == Way(ADDRESS, f"Bearer {OLD}")
    assert not authorization.is_renewed(ADDRESS, second)
    token_files.write(ADDRESS, NEW, state)
    assert authorization.is_renewed(ADDRESS, second)
    assert authorization.to(ADDRESS) == Way(ADDRESS, f"Bearer {NEW}")


def test_a_key_is_not_exchanged_for_a_token(state: list[Path]) -> None:
    token_files.write(ADDRESS, OLD, state)
    authorization = Authorization(lambda address: KEY, state)
    assert not authorization.is_renewed(ADDRESS, authorization.to(ADDRESS))


# With a service


@pytest.fixture
def token() -> LocalToken:
    return LocalToken()


@pytest.fixture
def service(token: LocalToken, state: list[Path]) -> Iterator[Service]:
    with serving(choices=Choices(token=token)) as service:
        token_files.write(service.url, token.text, state)
        yield service


def test_a_given_key_is_sent_even_where_a_token_is(service: Service) -> None:
    key = service.do(service.coordinator.create_key(name="ci", role="observer")).text
    with (
        genlock.connect(service.url, api_key=key) as fleet,
        pytest.raises(genlock.errors.RoleRefused),
    ):
        fleet.add_tasks(tasks=["t"])
    with genlock.connect(service.url) as fleet:
        fleet.add_tasks(tasks=["t"])


def test_a_token_does_not_go_to_who_listens_at_the_other_localhost(service: Service) -> None:
    impostor = socket.socket(socket.AF_INET6)
    impostor.bind(("::1", service.port))
    impostor.listen()
    impostor.setblocking(False)
    with closing(impostor):
        with genlock.connect(f"http://localhost:{service.port}") as fleet:
            fleet.add_tasks(tasks=["t"])
            [event] = [
                event for event in fleet.read_events().events if event.event_type == "TASK_ADDED"
            ]
            assert next(fleet.watch(after=event.cursor, timeout_seconds=0), None) is None
        with pytest.raises(BlockingIOError):
            impostor.accept()


def test_who_has_no_token_is_told_what_to_do(
    service: Service, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "another"))
    with (
        genlock.connect(service.url) as fleet,
        pytest.raises(KeyRefused, match="this service is for the user who started it"),
    ):
        fleet.ready()
