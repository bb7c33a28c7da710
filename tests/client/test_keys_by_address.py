"""A key belongs to an address and is sent nowhere else."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

import genlock
import genlock.aio
from genlock import credentials
from genlock.errors import BadArgument, GenlockError, ServiceError
from genlock.settings import BadSetting, Setting
from tests.cli.console import run
from tests.client.test_addresses import STOPPING
from tests.client.test_client import READY, _answer, answering

FEED = _answer("200 OK", b'{"events":[],"cursor":"c","more":false}', genlock_protocol="1")


@pytest.fixture(autouse=True)
def own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The folder of the user's settings."""
    monkeypatch.delenv("GENLOCK_API_KEY", raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    (tmp_path / "genlock").mkdir()
    return tmp_path / "genlock"


@pytest.fixture
def heard() -> list[bytes]:
    return []


@pytest.fixture
def service(heard: list[bytes]) -> Iterator[str]:
    with answering(READY, heard=heard) as url:
        yield url


def keys_in(heard: list[bytes]) -> list[str]:
    """What each request had for a key."""
    lines = [
        [line for line in request.split(b"\r\n") if line.lower().startswith(b"authorization:")]
        for request in heard
    ]
    return [found[0].decode().partition("Bearer ")[2] if found else "" for found in lines]


def test_each_address_gets_its_own_key_and_no_other(service: str, heard: list[bytes]) -> None:
    others: list[bytes] = []
    with answering(READY, heard=others) as other, answering(READY, heard=others) as third:
        credentials.store_key(service, "glk_one")
        credentials.store_key(other, "glk_other")
        for url in (service, other, third):
            with genlock.connect(url) as fleet:
                fleet.ready()
    assert keys_in(heard) == ["glk_one"]
    assert keys_in(others) == ["glk_other", ""]


def test_services_in_one_url_get_each_its_own(service: str, heard: list[bytes]) -> None:
    stopping: list[bytes] = []
    with answering(STOPPING, heard=stopping) as first:
        credentials.store_key(first, "glk_first")
        credentials.store_key(service, "glk_second")
        with genlock.connect(f"{first},{service}") as fleet:
            fleet.ready()
        assert (keys_in(stopping), keys_in(heard)) == (["glk_first"], ["glk_second"])


def test_the_event_loop_and_a_stream_of_events_send_the_same(heard: list[bytes]) -> None:
    async def ask(url: str) -> None:
        async with genlock.aio.connect(url) as fleet:
            await fleet.ready()

    with answering(READY, FEED, heard=heard) as service:
        credentials.store_key(service, "glk_one")
        asyncio.run(ask(service))
        with genlock.connect(service, deadline_seconds=0.2) as fleet, suppress(GenlockError):
            next(fleet.watch(timeout_seconds=5))
    assert any(b"/stream " in request for request in heard)
    assert set(keys_in(heard)) == {"glk_one"}


def test_the_argument_comes_before_the_environment_and_that_before_what_is_stored(
    monkeypatch: pytest.MonkeyPatch, service: str, heard: list[bytes]
) -> None:
    credentials.store_key(service, "glk_stored")
    monkeypatch.setenv("GENLOCK_API_KEY", "glk_environment")
    with genlock.connect(service, api_key="glk_argument") as fleet:
        fleet.ready()
    with genlock.connect(service, api_key={service: "glk_function"}.get) as fleet:
        fleet.ready()
    with genlock.connect(service) as fleet:
        fleet.ready()
    monkeypatch.delenv("GENLOCK_API_KEY")
    with genlock.connect(service) as fleet:
        fleet.ready()
    assert keys_in(heard) == ["glk_argument", "glk_function", "glk_environment", "glk_stored"]


def test_the_environments_key_is_not_for_an_address_of_a_project(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("GENLOCK_API_KEY", "glk_environment")
    chosen = {
        source: credentials.keys_for(Setting("http://a", "", source))("http://a")
        for source in ("argument", "flag", "environment", "user")
    }
    assert set(chosen.values()) == {"glk_environment"}
    assert credentials.keys_for(Setting("http://a", "", "project"))("http://a") is None


def test_a_key_of_the_settings_file_goes_to_the_url_beside_it_alone(
    own: Path, service: str, heard: list[bytes]
) -> None:
    (own / "config.toml").write_text(f'url = "{service}/"\napi_key = "glk_settings"\n')
    others: list[bytes] = []
    with answering(READY, heard=others) as other:
        for url in (service, other):
            with genlock.connect(url) as fleet:
                fleet.ready()
    assert (keys_in(heard), keys_in(others)) == (["glk_settings"], [""])
    with (
        genlock.connect("https://genlock.example.com") as fleet,
        pytest.raises(BadSetting) as raised,
    ):
        fleet.ready()
    assert str(raised.value) == (
        f"{own}/config.toml:2: api_key is not sent to https://genlock.example.com, since nothing "
        "says that it belongs there; store it with "
        "its address, type: genlock login https://genlock.example.com; and then: genlock config "
        "unset --user api_key"
    )


@pytest.mark.parametrize(
    "status",
    ["301 Moved Permanently", "302 Found", "307 Temporary Redirect", "308 Permanent Redirect"],
)
def test_a_redirect_is_not_followed_with_the_key_nor_without(
    service: str, heard: list[bytes], status: str
) -> None:
    first: list[bytes] = []
    with answering(_answer(status, location=f"{service}/v1/ready"), heard=first) as url:
        credentials.store_key(url, "glk_one")
        with (
            genlock.connect(url, deadline_seconds=0.2) as fleet,
            pytest.raises(ServiceError, match="sends on to"),
        ):
            fleet.ready()
    assert (keys_in(first), heard) == (["glk_one"], [])


@pytest.mark.parametrize(
    ("address", "origin"),
    [
        ("https://Genlock.Example.com", "https://genlock.example.com"),
        ("https://genlock.example.com:443/below/", "https://genlock.example.com"),
        ("https://genlock.example.com:8443", "https://genlock.example.com:8443"),
        ("http://genlock.example.com:443", "http://genlock.example.com:443"),
        ("HTTP://127.0.0.1:80", "http://127.0.0.1"),
        ("http://[::1]:8420/x", "http://[::1]:8420"),
    ],
)
def test_an_origin_is_scheme_host_and_port(address: str, origin: str) -> None:
    assert credentials.origin_of(address) == origin


@pytest.mark.parametrize(
    "address",
    ["genlock.example.com", "postgresql://db/plans", "http://", "http://a:x", "https://[::1"],
)
def test_what_is_no_address_of_a_service_gets_no_key(address: str) -> None:
    with pytest.raises(BadArgument, match="address of a service"):
        credentials.store_key(address, "glk_one")


def test_login_keeps_keys_where_nobody_else_reads_them(own: Path) -> None:
    env: dict[str, str | None] = {"XDG_CONFIG_HOME": str(own.parent)}
    for address, key in (
        ("https://one.example.com/", "glk_one"),
        ("http://two.example.com:8420", "glk_two"),
    ):
        ran = run("login", address, env=env, input=f"{key}\n")
        assert (ran.code, ran.err, ran.json()["file"], key in ran.out) == (
            0,
            "",
            f"{own}/credentials.toml",
            False,
        )
    file = own / "credentials.toml"
    assert (
        file.read_text()
        == '"http://two.example.com:8420" = "glk_two"\n"https://one.example.com" = "glk_one"\n'
    )
    assert file.stat().st_mode & 0o777 == 0o600
    assert (
        run("login", "https://one.example.com", env=env, input="no key\n").error()["code"]
        == "BAD_ARGUMENT"
    )
    assert run("logout", "https://one.example.com:443", env=env).json()["removed"] is True
    assert run("logout", "https://one.example.com", env=env).json()["removed"] is False
    assert file.read_text() == '"http://two.example.com:8420" = "glk_two"\n'
    refused = run("config", "set", "--user", "api_key", "glk_one", env=env)
    assert (
        refused.error()["message"]
        == "config set: a key belongs to an address; to store yours, type: genlock login ADDRESS"
    )
    assert list(own.iterdir()) == [file]


def test_credentials_that_cannot_be_read_are_named_without_showing_them(own: Path) -> None:
    (own / "credentials.toml").write_text('"https://one.example.com" = "very secret"\n')
    with genlock.connect("http://127.0.0.1:1") as fleet, pytest.raises(BadSetting) as raised:
        fleet.ready()
    assert str(raised.value).startswith(f"{own}/credentials.toml:1: api_key is a key")
    assert "secret" not in str(raised.value)
