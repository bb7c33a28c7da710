"""`genlock serve`: where it listens, what it refuses, and where its settings come from."""

from __future__ import annotations

import asyncio
import os
import socket
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import httpx2
import pytest

from genlock.engine.engine import Engine, Monitor
from genlock.errors import BadArgument
from genlock.service.addresses import asks_for_keys, is_loopback
from genlock.service.host import Hosted, Options, host
from genlock.service.session_api.health import ClaimConfig, read_config
from genlock.service_settings import CLAIM_CONFIG, DEFAULTS, PREFIX
from tests.cli.console import run
from tests.cli.terminal import Terminal
from tests.service.logscan import leaks
from tests.service.process import make_store, serve


def options(**changes: object) -> Options:
    return Options(
        **{name.removeprefix(PREFIX): value for name, value in DEFAULTS.items()} | changes
    )


def test_it_prints_one_line_with_its_url_and_answers_there(tmp_path: Path) -> None:
    with serve(tmp_path, "--log-level", "info") as service:
        assert service.url == f"http://127.0.0.1:{service.port}/"
        assert service.ask("GET", "/healthz")[0] == 200
        assert service.ask("GET", "/readyz") == (200, {"status": "ready"})
        assert service.end() == 0
        assert service.process.stdout is not None
        assert service.process.stdout.read() == ""
    assert [line["event"] for line in service.lines()] == ["started", "stopped"]


def test_without_a_store_it_says_how_to_make_one(tmp_path: Path) -> None:
    ran = run("serve", cwd=tmp_path)
    assert (ran.code, ran.out) == (3, "")
    assert ran.error()["message"].endswith("to make one, type: genlock init")


def test_where_others_could_reach_it_it_does_not_start_without_keys(tmp_path: Path) -> None:
    ran = run("serve", "--host", "0.0.0.0", "--no-keys", "--url", make_store(tmp_path))
    assert (ran.code, ran.out) == (2, "")
    assert "genlock keys create" in ran.error()["message"]


@pytest.mark.parametrize(
    "address",
    ["0.0.0.0", "::", "192.168.1.7", "example.org", "127.0.0.1.example.org", "::ffff:192.168.1.7"],
)
def test_anywhere_but_on_loopback_keys_are_asked_for(address: str) -> None:
    assert asks_for_keys(address, None) is True
    with pytest.raises(BadArgument, match="without keys everybody"):
        asks_for_keys(address, False)


@pytest.mark.parametrize("address", ["127.0.0.1", "127.0.0.2", "::1", "localhost"])
def test_on_loopback_keys_are_asked_for_only_if_wanted(address: str) -> None:
    assert is_loopback(address)
    assert [asks_for_keys(address, wanted) for wanted in (None, False, True)] == [
        False,
        False,
        True,
    ]


def test_where_keys_are_asked_for_and_there_are_none_it_does_not_start(tmp_path: Path) -> None:
    ran = run("serve", "--keys", "--port", "0", "--url", make_store(tmp_path))
    assert (ran.code, ran.out) == (2, "")
    assert "type: genlock keys create" in ran.error()["message"]


def test_with_keys_it_lets_in_who_has_one_and_logs_its_id_alone(tmp_path: Path) -> None:
    url = make_store(tmp_path)
    key = run("keys", "create", "ci", "--role", "agent", "--url", url, "-q").out.strip()
    with serve(tmp_path, "--keys", "--log-level", "debug", url=url) as service:
        assert service.ask("GET", "/v1/default/default/ready")[0] == 401
        assert (
            service.ask(
                "GET", "/v1/default/default/ready", headers={"authorization": f"Bearer {key}"}
            )[0]
            == 200
        )
        assert service.ask(
            "GET", "/v1/default/default/ready", headers={"authorization": f"Bearer {key[:-1]}"}
        )[0] in (400, 401)
        assert service.ask("GET", "/healthz")[0] == 200
        assert service.end() == 0
    [line] = [
        line for line in service.lines() if line["event"] == "ready" and line["status"] == 200
    ]
    assert line["key"] in key
    assert leaks(service.log, [key.rpartition("_")[0].rpartition("_")[2], key]) == []


def test_a_sign_in_outlives_a_restart_where_its_secret_is_in_a_file(tmp_path: Path) -> None:
    url, secret = make_store(tmp_path), tmp_path / "secret"
    secret.write_text("0123456789abcdef0123456789abcdef\n")
    key = run("keys", "create", "ann", "--role", "observer", "--url", url, "-q").out.strip()
    told = ("--keys", "--sign-in-file", str(secret))
    with serve(tmp_path, *told, url=url) as service:
        signed_in = httpx2.post(f"{service.url}sign-in", data={"key": key}, verify=False)
        cookie = {"cookie": signed_in.headers["set-cookie"].partition(";")[0]}
        assert service.end() == 0
    with serve(tmp_path, *told, url=url) as service:
        assert service.ask("GET", "/v1/default/default/ready", headers=cookie)[0] == 200
        assert service.ask("GET", "/v1/default/default/ready")[0] == 401
    with serve(tmp_path, "--keys", url=url) as service:
        assert service.ask("GET", "/v1/default/default/ready", headers=cookie)[0] == 401
    secret.write_text("0123456789abcdef0123456789abcde\n")
    assert (
        "has 31 bytes; it needs 32 at least"
        in run("serve", *told, "--port", "0", "--url", url).error()["message"]
    )
    secret.unlink()
    assert "cannot be read" in run("serve", *told, "--port", "0", "--url", url).error()["message"]


def test_a_port_that_is_taken_is_named_with_who_has_it(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        ran = run("serve", "--port", port, "--url", make_store(tmp_path))
    assert (ran.code, ran.out) == (1, "")
    said = ran.error()
    assert said["code"] == "PORT_TAKEN"
    assert f"port {port} of 127.0.0.1 is taken by process {os.getpid()} (" in said["message"]
    assert "--port" in said["message"]


def test_an_address_that_is_not_ours_is_refused(tmp_path: Path) -> None:
    url = make_store(tmp_path)
    assert run("keys", "create", "ci", "--role", "agent", "--url", url).code == 0
    ran = run("serve", "--host", "203.0.113.9", "--url", url)
    assert ran.code == 2
    assert "cannot listen at 203.0.113.9" in ran.error()["message"]


def test_it_answers_only_for_the_hosts_it_was_told_of(tmp_path: Path) -> None:
    with serve(
        tmp_path, "--allow-host", "genlock.example.org", "--allow-host", "other.example.org"
    ) as service:
        statuses = {
            name: service.ask("GET", "/healthz", headers={"host": name})[0]
            for name in (
                "genlock.example.org",
                "OTHER.example.org:8420",
                "localhost:1",
                "evil.example.org",
                "",
            )
        }
    assert statuses == {
        "genlock.example.org": 200,
        "OTHER.example.org:8420": 200,
        "localhost:1": 200,
        "evil.example.org": 421,
        "": 421,
    }


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("port", "70000", "port is a whole number from 0 to 65535, not '70000'"),
        ("port", "http", "port is a whole number from 0 to 65535, not 'http'"),
        (
            "host",
            "a b",
            "host is an address to listen at, such as 127.0.0.1, ::1 or 0.0.0.0, not 'a b'",
        ),
        (
            "allow-host",
            "a/b",
            (
                "allow_host is a host's name without port, several with commas, or * for any, not "
                "'a/b'"
            ),
        ),
        (
            "forwarded-allow-ips",
            "proxy",
            "forwarded_allow_ips is the proxy's address or network, or * for any, not 'proxy'",
        ),
        ("log-level", "loud", "log_level is one of debug, info, warning, error, not 'loud'"),
        ("log-format", "xml", "log_format is one of json, text, not 'xml'"),
        (
            "metrics-prefix",
            "9",
            (
                "metrics_prefix is a word of letters, digits and _, such as genlock or coditect, "
                "not '9'"
            ),
        ),
        ("grace-seconds", "-1", "grace_seconds is a number of seconds from 0 to 3600, not '-1'"),
        ("connections", "0", "connections is a whole number from 1 to 1000000, not '0'"),
        ("rate", "-5", "rate is a whole number from 0 to 1000000, not '-5'"),
        ("api-tenant", "_", "tenant '_' is reserved; '.', '..' and '_' are no names"),
        (
            "claim-config",
            "defaultTTL",
            "claim_config defaultTTL is a whole number from 1 to 31622400000, not ''",
        ),
        (
            "claim-config",
            "minTTL=0",
            "claim_config minTTL is a whole number from 1 to 31622400000, not '0'",
        ),
        (
            "claim-config",
            "ttl=5",
            (
                "claim_config is NAME=MILLISECONDS, each name once, of "
                f"{', '.join(CLAIM_CONFIG.values())}; not 'ttl=5'"
            ),
        ),
        ("tenant-operations", "0", "tenant_operations is a whole number from 1 to 100000, not '0'"),
    ],
)
def test_a_setting_that_cannot_be_is_named_with_its_place(
    name: str, value: str, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from genlock.settings import BadSetting, resolve, variable

    setting = PREFIX + name.replace("-", "_")
    with pytest.raises(BadSetting) as by_flag:
        resolve({setting: value}, None)
    assert str(by_flag.value) == f"flag --{name}: {says}"
    monkeypatch.setenv(variable(setting), value)
    with pytest.raises(BadSetting) as by_environment:
        resolve({}, None)
    assert str(by_environment.value) == f"environment GENLOCK_{setting.upper()}: {says}"


def test_settings_come_from_flag_environment_and_file(tmp_path: Path) -> None:
    own: dict[str, str | None] = {"XDG_CONFIG_HOME": f"{tmp_path}/own"}
    run("init", cwd=tmp_path)
    assert run("config", "set", "--user", "serve_keys", "true", cwd=tmp_path, env=own).code == 0
    assert run("config", "set", "--user", "serve_rate", "7", cwd=tmp_path, env=own).code == 0
    assert run("config", "set", "serve_log_level", "debug", cwd=tmp_path, env=own).code == 0
    assert (
        tmp_path / "own" / "genlock" / "config.toml"
    ).read_text() == "serve_keys = true\nserve_rate = 7\n"
    shown = run(
        "config", "show", "--origin", cwd=tmp_path, env=own | {"GENLOCK_SERVE_PORT": "9000"}
    ).json()
    assert shown["serve_port"] == {"value": 9000, "origin": "environment GENLOCK_SERVE_PORT"}
    assert shown["serve_rate"] == {"value": 7, "origin": f"{tmp_path}/own/genlock/config.toml:2"}
    assert shown["serve_log_level"] == {
        "value": "debug",
        "origin": f"{tmp_path}/.genlock/config.toml:1",
    }
    assert shown["serve_keys"]["value"] is True
    assert shown["serve_host"] == {"value": "127.0.0.1", "origin": "default"}


def test_on_loopback_without_keys_a_ttl_may_have_the_document_s_two_hours(tmp_path: Path) -> None:
    with serve(tmp_path) as service:
        assert service.ask("POST", "/v1/default/default/tasks", {"tasks": ["one"]})[0] == 200
        asked = {"sessionId": "s", "ttlMs": 7_200_000}
        _, answer = service.ask("POST", "/api/tasks/one/claim", asked)
        claim = answer["claim"]
    lease = datetime.fromisoformat(claim["expiresAt"]) - datetime.fromisoformat(claim["claimedAt"])
    assert lease == timedelta(hours=2)


def test_requests_are_counted_where_keys_are_asked_for() -> None:
    assert options().requests_a_second is None
    assert options(keys=True).requests_a_second == 1000
    assert options(rate=5).requests_a_second == 5
    assert options(keys=True, rate=0).requests_a_second is None


def test_the_settings_of_claims_under_api_go_by_the_names_of_their_document(tmp_path: Path) -> None:
    with serve(
        tmp_path,
        "--api-project",
        "web",
        "--claim-config",
        "defaultTTL=120000",
        "--claim-config",
        "minTTL=1000",
    ) as service:
        service.ask("POST", "/v1/default/web/tasks", {"tasks": ["t"]})
        claim = service.ask("POST", "/api/tasks/t/claim", {"sessionId": "s"})[1]["claim"]
    assert datetime.fromisoformat(claim["expiresAt"]) - datetime.fromisoformat(
        claim["claimedAt"]
    ) == timedelta(minutes=2)


def test_the_project_under_api_is_swept_as_a_whole_as_often_as_its_settings_say(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[tuple[object, ...]] = []

    class Noted(Monitor):
        def __init__(self, engine: Engine, *how: Any) -> None:
            super().__init__(engine, *how)
            begun.append((*how, self.thread))

    def swept(set: str, **more: object) -> tuple[object, ...]:
        """How often, where, and whether that has begun while it served."""
        alive: list[bool] = []

        def announce(hosted: Hosted) -> None:
            alive.append(begun[-1][-1].is_alive())  # type: ignore[attr-defined]
            hosted.server.stop()

        asyncio.run(
            host(
                url,
                options(port=0, claim_config=set, **more),
                announce,
                token_folders=[tmp_path / "state"],
            )
        )
        return (*begun.pop()[:-1], *alive)

    monkeypatch.setattr("genlock.service.host.Monitor", Noted)
    url = make_store(tmp_path)
    assert swept("") == (300.0, ("default", "default"), True)
    assert swept("cleanupInterval=1500", api_tenant="acme", api_project="web") == (
        1.5,
        ("acme", "web"),
        True,
    )
    assert begun == []


def test_settings_of_claims_that_do_not_fit_each_other_are_refused() -> None:
    assert read_config("") == ClaimConfig()
    assert read_config("maxTTL=9000000,orphanThreshold=5") == ClaimConfig(
        max_ttl=9_000_000, orphan_threshold=5
    )
    with pytest.raises(
        BadArgument, match="minTTL 60000 <= defaultTTL 1800000 <= maxTTL 5 does not hold"
    ):
        read_config("maxTTL=5")


def test_on_a_terminal_it_says_how_to_end_it_and_where_to_look(tmp_path: Path) -> None:
    with Terminal(
        "serve",
        "--port",
        "0",
        "--url",
        make_store(tmp_path),
        cwd=tmp_path,
        columns=200,
        env={"NO_COLOR": "1"},
    ) as terminal:
        terminal.wait_for("From another terminal: genlock status --url http://127.0.0.1:")
        terminal.interrupt()
        assert terminal.end() == 0
