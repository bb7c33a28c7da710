"""`genlock serve` on loopback, as real processes: it lets in the user who started it, who has
nothing to do for that, and no other."""

from __future__ import annotations

import asyncio
import http.server
import json
import os
import re
import signal
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import genlock
import genlock.aio
from genlock import token_files
from genlock.service.auth.browser_sessions import LocalToken
from tests.cli.console import COMMAND, environment, run
from tests.eventually import eventually
from tests.servers.postgres import free_port
from tests.service.matrix import Access, rows
from tests.service.process import PATIENCE_SECONDS, Service, make_store, serve

ROOT = Path(__file__).parent.parent.parent
NOBODY = 65534
TASKS = "/v1/default/default/tasks"
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")


def as_nobody(*command: str, told: str = "") -> subprocess.CompletedProcess[str]:
    """What becomes of this when another user of the machine does it."""
    return subprocess.run(
        command,
        input=told,
        capture_output=True,
        text=True,
        user=NOBODY,
        group=NOBODY,
        extra_groups=[],
        cwd="/",
        check=False,
        timeout=120,
    )


def asked_by_nobody(service: Service, requests: list[tuple[str, str, str | None]]) -> list[int]:
    """The statuses that another user of the machine is answered."""
    lines = []
    for method, path, body in requests:
        lines += [
            f'url = "http://127.0.0.1:{service.port}{path}"',
            f'request = "{method}"',
            'output = "/dev/null"',
            "silent",
        ]
        lines += ['write-out = "%{http_code}\\n"', "max-time = 20"]
        lines += (
            []
            if body is None
            else [f"data = {json.dumps(body)}", 'header = "content-type: application/json"']
        )
        lines.append("next")
    ended = as_nobody("curl", "-K", "-", told="\n".join(lines[:-1]))
    assert ended.returncode == 0, ended.stderr
    return list(map(int, ended.stdout.split()))


def events(url: str) -> list[str]:
    with genlock.connect(url) as fleet:
        return [event.cursor for event in fleet.read_events(limit=1000).events]


@as_root
def test_another_user_of_the_machine_does_nothing_and_reads_nothing(tmp_path: Path) -> None:
    url = make_store(tmp_path)
    with genlock.connect(url) as fleet:
        fleet.add_tasks(tasks=["t-1"])
    before = events(url)
    asked: list[tuple[str, str, str | None]] = []
    opened = []
    for row in rows(on_loopback=True):
        path = row.path.format(
            tenant="default", project="default", session="s-own", task_id="t-1", key_id="k" * 12
        )
        asked.append((row.method, path, row.body))
        opened.append(row.access is Access.OPEN)
    asked += [
        ("POST", f"{TASKS}/t-1/cancel", "{}"),
        ("POST", "/v1/_/_/keys", '{"name": "a", "role": "admin"}'),
    ]
    opened += [False, False]
    with serve(tmp_path, url=url) as service:
        assert service.header_file is not None
        token_file = service.header_file.with_suffix(".token")
        for file in (service.header_file, token_file):
            assert "Permission denied" in as_nobody("cat", str(file)).stderr
        for (method, path, _), status, is_open in zip(
            asked, asked_by_nobody(service, asked), opened, strict=True
        ):
            assert status in ((200, 303) if is_open else (401, 403)), (method, path, status)
        assert {path for (_, path, _), is_open in zip(asked, opened, strict=True) if is_open} == {
            "/healthz",
            "/readyz",
            "/favicon.ico",
            "/favicon.svg",
            "/sign-in",
            "/sign-out",
        }
        assert len(asked) > 90
        assert events(url) == before
        assert service.ask("GET", "/v1/_/_/keys") == (200, [])
        assert service.ask("POST", f"{TASKS}/t-1/cancel", {})[0] == 200, "its own user may"


def test_the_files_are_the_user_s_alone_and_are_gone_after_a_stop(tmp_path: Path) -> None:
    with serve(tmp_path) as service:
        assert service.header_file is not None
        folder = service.header_file.parent
        token_file = folder / f"127.0.0.1:{service.port}.token"
        assert (
            service.header_file
            == Path(os.environ["XDG_STATE_HOME"]) / "genlock" / f"127.0.0.1:{service.port}.header"
        )
        modes = [path.stat().st_mode & 0o7777 for path in (folder, service.header_file, token_file)]
        assert modes == [0o700, 0o600, 0o600]
        assert re.fullmatch(r"glt_[0-9a-f]{64}\n", token_file.read_text())
        assert service.header_file.read_text() == f"Authorization: Bearer {token_file.read_text()}"
        assert service.end() == 0
    assert not service.header_file.exists()
    assert not token_file.exists()


def test_a_client_goes_on_after_a_service_was_killed_and_started_again(tmp_path: Path) -> None:
    url, port = make_store(tmp_path), str(free_port())
    address = f"http://localhost:{port}"

    async def heard(tasks: list[str]) -> list[str]:
        async with genlock.aio.connect(address) as fleet:
            await fleet.add_tasks(tasks=tasks[:1])
            await asyncio.to_thread(restart)
            await fleet.add_tasks(tasks=tasks[1:])
        return tasks

    running: list[Any] = []

    def start() -> Service:
        running.append(serve(tmp_path, "--port", port, url=url))
        service: Service = running[-1].__enter__()
        return service

    services = [start()]

    def restart() -> None:
        assert services[-1].end(signal.SIGKILL) == -signal.SIGKILL
        assert services[-1].header_file is not None
        assert services[-1].header_file.exists(), "it was left behind"
        running.pop().__exit__(None, None, None)
        services.append(start())

    try:
        with genlock.connect(address) as fleet:
            fleet.add_tasks(tasks=["one"])
            old = services[0].token_header
            watching = fleet.watch(
                after=fleet.read_events(tail=True, limit=1).cursor, timeout_seconds=PATIENCE_SECONDS
            )
            fleet.add_tasks(tasks=["two"])
            assert next(watching).id == "two"
            restart()
            assert services[1].ask("GET", "/v1/default/default/ready", headers=old)[0] == 401, (
                "the old token is dead"
            )
            fleet.add_tasks(tasks=["three"])
            assert next(watching).id == "three"
        assert asyncio.run(heard(["four", "five"])) == ["four", "five"]
    finally:
        while running:
            running.pop().__exit__(None, None, None)


def test_the_command_line_needs_nothing(tmp_path: Path) -> None:
    with serve(tmp_path) as service:
        for address in (service.url, f"http://localhost:{service.port}"):
            assert run("status", "--json", "--url", address).json()["project"] == "default"
        other = {"XDG_STATE_HOME": str(tmp_path / "another")}
        refused = run("status", "--json", "--url", service.url, env=other)
        assert (refused.code, refused.error()["code"]) == (4, "KEY_REFUSED")
        assert "this service is for the user who started it" in refused.error()["message"]


def curl(*words: str, cwd: Path) -> str:
    return subprocess.run(
        ["curl", "-sS", *words], cwd=cwd, capture_output=True, text=True, check=True, timeout=60
    ).stdout


def test_the_link_that_is_printed_opens_the_page_and_is_in_no_log(tmp_path: Path) -> None:
    with serve(tmp_path, "--log-level", "debug") as service:
        assert re.fullmatch(
            rf"http://127.0.0.1:{service.port}/sign-in\?code=[\w-]{{43}}", service.link
        )
        assert "<title>Genlock: sign in</title>" in curl(
            "-H", "accept: text/html", service.url, cwd=tmp_path
        )
        seen = curl(
            "-L",
            "-c",
            "jar",
            "-b",
            "jar",
            "-w",
            "\n%{url_effective} %{num_redirects}",
            service.link,
            cwd=tmp_path,
        )
        page, _, where = seen.rpartition("\n")
        assert "<title>genlock</title>" in page
        assert re.fullmatch(rf"{re.escape(service.url)}#act=[0-9a-f]{{64}} 1", where)
        assert "#HttpOnly_127.0.0.1" in (tmp_path / "jar").read_text()
        again = curl("-H", "accept: text/html", service.link, cwd=tmp_path)
        assert "this link was used, or is older than 60 seconds" in again
        new = run("link", "--url", service.url, "-q").out.strip()
        assert "<title>genlock</title>" in curl("-L", "-c", "new", "-b", "new", new, cwd=tmp_path)
        assert service.end() == 0
    for secret in (
        service.link.partition("code=")[2],
        new.partition("code=")[2],
        service.token_header["authorization"].split()[1],
    ):
        assert secret not in service.log
    assert {line.get("event") for line in service.lines()} >= {
        "started",
        "sign_in",
        "sign_in_link",
        "stopped",
    }


def test_a_link_is_asked_for_where_there_is_a_service_of_one_s_own(tmp_path: Path) -> None:
    port = free_port()
    refused = run("link", "--json", "--url", f"http://127.0.0.1:{port}")
    assert (refused.code, refused.error()["code"]) == (3, "NO_SERVICE")
    assert (
        f"there is no token of a service that you started at http://127.0.0.1:{port}"
        in refused.error()["message"]
    )
    token_files.write(f"http://127.0.0.1:{port}", LocalToken().text, token_files.folders(tmp_path))
    away = run("link", "--json", "--url", f"http://127.0.0.1:{port}")
    assert (away.code, away.error()["code"]) == (1, "SERVICE_UNREACHABLE")
    assert away.error()["message"].endswith("To start a service: genlock serve")
    with serve(tmp_path) as service:
        env = {"GENLOCK_SERVE_PORT": str(service.port)}
        assert (
            run("link", "--json", env=env).json()["link"].startswith(f"{service.url}sign-in?code=")
        )


@pytest.mark.parametrize(
    "link",
    [
        "@evil.example/",
        "//evil.example/",
        ".evil.example/",
        "/sign-in?code=x\x1b[2J",
        "/sign-in?code=x&y",
        7,
    ],
)
def test_no_link_of_an_impostor_is_shown(link: object, tmp_path: Path) -> None:
    """Another user may listen at the port of a service that has ended. What it answers is no way to
    another site."""
    answer = json.dumps({"link": link, "expires_in_seconds": 60}).encode()

    class Impostor(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.send_response(200)
            self.send_header("content-length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

    with http.server.HTTPServer(("127.0.0.1", 0), Impostor) as impostor:
        thread = threading.Thread(target=impostor.handle_request)
        thread.start()
        url = f"http://127.0.0.1:{impostor.server_port}"
        token_files.write(url, LocalToken().text, token_files.folders(tmp_path))
        refused = run("link", "--json", "--url", url)
        thread.join()
    assert (refused.code, refused.out) == (4, "")
    assert refused.error()["message"].startswith(
        f"what answers at {url} is not the service that you started"
    )


def test_a_service_answers_at_any_address_of_loopback(tmp_path: Path) -> None:
    with serve(tmp_path, "--host", "127.0.0.2") as service:
        assert run("ready", "--json", "--url", service.url).code == 0


@pytest.mark.parametrize(
    ("host", "others"),
    [
        ("127.0.0.1", ",http://genlock.invalid:1"),
        ("127.0.0.2", ""),
        ("localhost", ",https://x.invalid"),
    ],
)
def test_no_proxy_is_given_the_token(host: str, others: str, tmp_path: Path) -> None:
    with serve(tmp_path, "--host", "127.0.0.1" if host == "localhost" else host) as service:
        proxy = "http://127.0.0.1:1"  # nothing answers there
        env = {
            "http_proxy": proxy,
            "https_proxy": proxy,
            "all_proxy": proxy,
            "no_proxy": None,
            "NO_PROXY": None,
        }
        assert (
            run("ready", "--json", "--url", f"http://{host}:{service.port}{others}", env=env).code
            == 0
        )


def test_trusting_local_users_asks_for_nothing_and_says_so(tmp_path: Path) -> None:
    with serve(tmp_path, "--trust-local", "--log-level", "info") as service:
        assert service.header_file is None
        assert service.link == service.url
        assert service.ask("POST", TASKS, {"tasks": ["t"]})[0] == 200
        assert run("ready", "--json", "--url", service.url).json()["ready_tasks"][0]["id"] == "t"
        assert service.end() == 0
    said = [(line["level"], line["event"]) for line in service.lines()]
    assert ("warning", "every user of this machine may do everything here (--trust-local)") in said


@pytest.mark.parametrize(
    ("told", "says"),
    [
        (["--keys"], "--keys asks everyone for a key"),
        (["--host", "0.0.0.0"], "others reach 0.0.0.0"),
    ],
)
def test_local_users_are_trusted_on_loopback_alone(
    told: list[str], says: str, tmp_path: Path
) -> None:
    ran = run("serve", "--json", "--trust-local", *told, "--url", make_store(tmp_path))
    assert (ran.code, ran.out) == (2, "")
    assert ran.error()["message"] == (
        f"--trust-local lets the users of this machine in without a key, and {says}; leave out "
        "one of them"
    )


def test_no_file_and_no_variable_trusts_local_users(tmp_path: Path) -> None:
    folder = tmp_path / ".genlock"
    folder.mkdir()
    (folder / "config.toml").write_text("serve_trust_local = true\n")
    assert (
        "there is no setting 'serve_trust_local'"
        in run("serve", "--json", cwd=tmp_path).error()["message"]
    )


def test_without_a_home_the_token_is_in_the_project_and_its_clients_find_it(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    homeless = {"HOME": str(tmp_path / "file"), "XDG_STATE_HOME": None, "XDG_CONFIG_HOME": None}
    assert run("init", cwd=tmp_path, env=homeless).code == 0
    command = [*COMMAND, "serve", "--json", "--port", "0"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, cwd=tmp_path, env=environment(homeless)
    ) as process:
        try:
            assert process.stdout is not None
            said = json.loads(process.stdout.readline())
            assert Path(said["header_file"]).parent == tmp_path / ".genlock" / "state"
            below = tmp_path / "below"
            below.mkdir()
            assert (
                run("status", "--json", "--url", said["url"], cwd=below, env=homeless).json()[
                    "project"
                ]
                == "default"
            )
            assert run("status", "--json", "--url", said["url"], cwd="/", env=homeless).code == 4
        finally:
            process.terminate()
            process.wait(PATIENCE_SECONDS)


def test_where_no_token_can_be_written_it_says_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / ".genlock").touch()
    homeless = {
        "HOME": str(tmp_path / "file"),
        "XDG_STATE_HOME": None,
        "XDG_CONFIG_HOME": str(tmp_path / "config"),
    }
    ran = run(
        "serve", "--json", "--port", "0", "--url", make_store(tmp_path), cwd=tmp_path, env=homeless
    )
    assert (ran.code, ran.out) == (2, "")
    assert "there is no folder for the service's token" in ran.error()["message"]
    assert "--trust-local" in ran.error()["message"]


def test_a_user_without_a_home_can_try_it(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    homeless = {
        "HOME": str(tmp_path / "file"),
        "XDG_STATE_HOME": None,
        "XDG_CONFIG_HOME": str(tmp_path / "config"),
    }
    command = [*COMMAND, "dev", "--json", "--port", "0", "--agents", "1"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, cwd=tmp_path, env=environment(homeless)
    ) as process:
        try:
            assert process.stdout is not None
            said = json.loads(process.stdout.readline())
            header = Path(said["header_file"])
            assert header.parent == tmp_path / ".genlock" / "state"
            jar = ("-c", "jar", "-b", "jar")
            assert "<title>genlock</title>" in curl("-L", *jar, said["link"], cwd=tmp_path)
            # The agent, a process of its own, finds the token as well.
            asked = ("-H", f"@{header}", f"{said['url']}v1/default/demo/sessions")
            eventually(lambda: "dev-" in curl(*asked, cwd=tmp_path), "the agent's session")
        finally:
            process.terminate()
            process.wait(PATIENCE_SECONDS)


# The examples of the document for clients of SC's interface


def blocks() -> Iterator[tuple[str, list[str]]]:
    """What is typed there, as it stands on the page: with the header file, and to a service that
    trusts local users."""
    page = (ROOT / "docs" / "how-to" / "session-claims.md").read_text(encoding="utf-8")
    for block in re.findall(r"^```sh\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)[:2]:
        yield block, [] if "-H $auth" in block else ["--trust-local"]


@pytest.mark.parametrize(
    ("block", "told"), list(blocks()), ids=["with the header file", "trusting local users"]
)
def test_the_examples_for_session_clients_work_as_they_stand(
    block: str, told: list[str], tmp_path: Path
) -> None:
    assert block.count("curl -s ") == 3
    assert block.count(" -H $auth ") == (0 if told else 3)
    home = tmp_path / "home"
    state = {} if told else {"XDG_STATE_HOME": str(home / ".local" / "state")}
    url = make_store(tmp_path)
    with serve(tmp_path, *told, url=url, env=state) as service:
        typed = block.replace("8420", str(service.port)).replace(
            "genlock add", f"{' '.join(COMMAND)} add -q --url {url}"
        )
        env = environment({"HOME": str(home), "XDG_STATE_HOME": None})
        shown = subprocess.run(
            ["bash", "-e"],
            input=typed,
            capture_output=True,
            text=True,
            cwd=tmp_path,
            env=env,
            check=True,
            timeout=60,
        )
        task, *answers = shown.stdout.replace("}{", "}\n{").splitlines()
        assert task == "implement-login"
        claimed, renewed, released = map(json.loads, answers)
        assert (claimed["success"], claimed["claim"]["taskId"], claimed["claim"]["generation"]) == (
            True,
            "implement-login",
            1,
        )
        assert (renewed["success"], renewed["claim"]["heartbeatCount"]) == (True, 1)
        assert (released["success"], released["released"]["reason"]) == (True, "completed")
