"""Whatever strangers wrote, a terminal shows it and obeys nothing in it: every verb, in every
style, on a real terminal."""

from __future__ import annotations

import ast
import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import pytest

import genlock.cli
from tests.cli.console import run
from tests.cli.stage import Stage
from tests.cli.terminal import Terminal
from tests.hostile_text import HOSTILE, obeyed

STYLES: tuple[list[str], ...] = ([], ["--json"], ["--quiet"])


def on_terminal(
    *words: object,
    cwd: Path,
    answer: str = "",
    wait: str = "",
    colours: bool = False,
    env: dict[str, str] | None = None,
) -> tuple[int, str]:
    """What a terminal is written by a call."""
    with Terminal(
        *words,
        cwd=cwd,
        columns=100,
        env={"GENLOCK_SESSION": "s1", **({} if colours else {"NO_COLOR": "1"}), **(env or {})},
    ) as terminal:
        if wait:
            terminal.wait_for(wait)
            terminal.press(answer)
        return terminal.end(), terminal.shown


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Stage:
    """A project with hostile text wherever a stranger can write."""
    stage = Stage(tmp_path_factory.mktemp("hostile"))
    with stage.library() as fleet:
        fleet.add_tasks(
            tasks=[
                {
                    "id": "T1", "title": HOSTILE, "description": HOSTILE, "metadata": {"k": HOSTILE, HOSTILE[:40]: 1},
                    "work_product_ref": HOSTILE[:100],
                },
                {"id": "T2", "title": HOSTILE, "depends_on": ["T1"]},
                *({"id": name, "title": HOSTILE} for name in ("H", "R", "D", "N", "X")),
            ]
        )  # fmt: skip
        fleet.hold_task(task_id="H", reason=HOSTILE)
        fleet.register_session(session_id="s1", metadata={"note": HOSTILE})
    late = stage.claim("R", "s2", ago=900, lease=60)
    stage.submit("R", stage.claim("R", "s3"), "s3", {"said": HOSTILE})
    stage.submit("R", late, "s2", HOSTILE)
    stage.submit("D", stage.claim("D"), data=HOSTILE)
    stage.claim("N", "s4")
    (stage.folder / f"plan{HOSTILE[:60].replace('/', '')}.yaml").write_text(
        "tasks: [{id: 'a/b'}]\n"
    )
    (stage.folder / "title.yaml").write_text(
        f"tasks: [{{id: Z, title: {json.dumps(HOSTILE)}, nonsense: {json.dumps(HOSTILE)}}}]\n"
    )
    return stage


READING: list[list[str]] = [
    ["status"], ["ready"], ["show", "T1"], ["show", "H"], ["show", "R"], ["show", "R", "--result"], ["show", "D", "--result"],
    ["history", "R"],
    ["explain", "H"], ["explain", "T2"], ["agents"], ["sessions"], ["events"], ["refused"], ["graph"], ["graph", "--format", "mermaid"],
    ["graph", "--format", "dot"], ["graph", "--format", "json"], ["blocking", "T2"], ["plan", "show"], ["plan", "export"],
    ["plan", "export", "--format", "jsonl"], ["plan", "check", "title.yaml"], ["plan", "diff", "title.yaml"], ["export"], ["doctor"],
    ["policy"], ["config", "show", "--origin"], ["db", "status"], ["claim", "H"], ["claim", "N"], ["keys", "list"], ["tenant", "list"],
]  # fmt: skip


@pytest.mark.parametrize("verb", READING, ids=" ".join)
def test_a_terminal_obeys_nothing_that_a_verb_shows(stage: Stage, verb: list[str]) -> None:
    for style in STYLES:
        code, shown = on_terminal(*verb, *style, cwd=stage.folder)
        assert code in (0, 1, 2, 3, 4, 5), shown
        assert "should not have" not in shown, shown
        assert obeyed(shown) == [], (style, shown)
    _, shown = on_terminal(*verb, cwd=stage.folder, colours=True)
    assert obeyed(shown, colours=True) == [], shown


@pytest.mark.parametrize("verb", READING, ids=" ".join)
def test_json_has_the_text_as_it_was_written(stage: Stage, verb: list[str]) -> None:
    out = run(*verb, "--json", cwd=stage.folder, env={"GENLOCK_SESSION": "s1"}).out
    assert obeyed(out) == []
    if verb == ["show", "T1"]:
        task = json.loads(out)["task"]
        assert (task["title"], task["description"], task["metadata"]["k"]) == (
            HOSTILE,
            HOSTILE,
            HOSTILE,
        )


def test_markup_is_text(stage: Stage) -> None:
    _, shown = on_terminal("show", "T1", cwd=stage.folder)
    assert (
        "[red]markup[/red] :smile:" in shown.replace("\r\n", " ").replace("  ", "")
        or "[red]markup[/red]" in shown
    )


def test_a_reason_cannot_forge_a_line(stage: Stage) -> None:
    for verb in (["show", "H"], ["doctor"], ["explain", "H"], ["claim", "H"]):
        _, shown = on_terminal(*verb, cwd=stage.folder)
        assert not [line for line in shown.splitlines() if line.startswith("forged")], shown


@pytest.mark.parametrize("style", STYLES, ids=str)
def test_a_name_of_a_file_is_shown_and_not_obeyed(stage: Stage, style: list[str]) -> None:
    name = next(name for name in os.listdir(stage.folder) if name.startswith("plant"))
    missing = name + HOSTILE[:20]
    for words in (
        ["plan", "check", name], ["plan", "check", missing], ["plan", "import", name], ["restore", missing], ["export", missing + "/x"],
        ["backup", f"b{HOSTILE[:60].replace('/', '')}", "--force"], ["submit", "T1", "-g", "1", "--result-file", missing],
        ["show", missing.replace("/", "")], [missing], ["status", "--url", f"sqlite:///tmp/{missing}".replace("?", "")],
        ["config", "set", "agent", HOSTILE], ["add", HOSTILE], ["plan", "show", "--track", HOSTILE], ["events", "--after", HOSTILE],
    ):  # fmt: skip
        _, shown = on_terminal(*words, *style, cwd=stage.folder)
        assert shown
        assert obeyed(shown) == [], (words, shown)


def test_a_question_is_shown_and_not_obeyed(stage: Stage) -> None:
    name = f"ask{HOSTILE[:60].replace('/', '')}.yaml"
    (stage.folder / name).write_text("tasks: [{id: T1}]\n")
    code, shown = on_terminal(
        "plan", "import", "--prune", name, cwd=stage.folder, wait="[y/N]", answer="n\n"
    )
    assert (code, obeyed(shown)) == (1, [])


def test_what_is_granted_is_exported_as_plain_words(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    stage.add({"id": "T", "title": HOSTILE})
    code, shown = on_terminal("next", "--export", cwd=tmp_path)
    assert code == 0
    assert obeyed(shown) == []
    assert "GENLOCK_TASK=T\r\n" in shown


# Strangers at the other end


class Stranger(BaseHTTPRequestHandler):
    """Answers whatever it is asked with hostile text."""

    answer: ClassVar[tuple[int, dict[str, str], bytes]]

    def do_GET(self) -> None:
        self.rfile.read(int(self.headers.get("content-length") or 0))
        status, headers, body = self.answer
        self.send_response_only(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_POST = do_GET  # noqa: N815 - as the library wants it

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing."""


@contextmanager
def stranger(status: int, headers: dict[str, str], body: bytes) -> Iterator[str]:
    kind = type("One", (Stranger,), {"answer": (status, headers, body)})
    server = ThreadingHTTPServer(("127.0.0.1", 0), kind)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


OURS = {"Genlock-Protocol": "1 genlock/0"}
LATIN = HOSTILE.replace("\n", " ").replace("\r", " ").encode("latin-1", "ignore").decode("latin-1")


def problem(status: int) -> bytes:
    return json.dumps(
        {
            "type": f"urn:{HOSTILE}",
            "title": HOSTILE,
            "status": status,
            "detail": HOSTILE,
            "code": HOSTILE if status == 418 else "TASK_NOT_FOUND",
        },
        ensure_ascii=False,
    ).encode()


ANSWERS = [
    (404, {**OURS, "content-type": "application/problem+json"}, problem(404)),
    (418, {**OURS, "content-type": "application/problem+json"}, problem(418)),
    (200, {**OURS, "content-type": "application/json"}, HOSTILE.encode()),
    (200, {"server": LATIN}, HOSTILE.encode()),
    (302, {"location": LATIN}, b""),
    (200, {"Genlock-Protocol": f"1{LATIN} genlock/{LATIN}"}, b"{}"),
    (200, {"Genlock-Protocol": f"9 genlock/{LATIN}"}, b"{}"),
    (
        200,
        {**OURS, "content-type": "application/json"},
        json.dumps(
            {
                "tasks": [
                    {
                        "id": HOSTILE,
                        "title": HOSTILE,
                        "state": "PENDING",
                        "generation": 0,
                        "track": HOSTILE,
                    }
                ],
                "cycles": [],
            },
            ensure_ascii=False,
        ).encode(),
    ),
]
"""What a stranger in the place of a service may answer: status, headers and body."""


@pytest.mark.parametrize(("status", "headers", "body"), ANSWERS)
def test_what_a_service_says_is_shown_and_not_obeyed(
    tmp_path: Path, status: int, headers: dict[str, str], body: bytes
) -> None:
    with stranger(status, headers, body) as url:
        for verb in (
            ["show", "T"],
            ["graph"],
            ["graph", "--format", "mermaid"],
            ["graph", "--format", "dot"],
            ["events"],
        ):
            for style in STYLES:
                _, shown = on_terminal(*verb, *style, "--url", url, cwd=tmp_path)
                assert shown
                assert obeyed(shown) == [], (verb, shown)


@pytest.mark.parametrize(("status", "headers", "body"), ANSWERS)
def test_the_traceback_of_a_program_shows_what_a_service_says_and_is_not_obeyed(
    status: int, headers: dict[str, str], body: bytes
) -> None:
    program = "import genlock, sys; genlock.connect(sys.argv[1]).get_task_state(task_id='T')"
    with stranger(status, headers, body) as url:
        ended = subprocess.run(
            [sys.executable, "-c", program, url], capture_output=True, check=False, timeout=60
        )
    shown = ended.stderr.decode()
    assert "genlock.errors." in shown
    assert obeyed(shown) == []


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_offers_no_name_that_is_more_than_one_word(tmp_path: Path, shell: str) -> None:
    names = [
        HOSTILE,
        "A\nplain,rm",
        "$(reboot)",
        "`id`",
        "A;b",
        "A b",
        "A\x1b[2J",
        "A\u202eb",
        "--url=http://127.0.0.1:9",
        "A-001-good",
    ]
    graph = {
        "tasks": [
            {"id": name, "title": HOSTILE, "state": "PENDING", "generation": 0, "track": None}
            for name in names
        ],
        "cycles": [],
    }
    with stranger(
        200, {**OURS, "content-type": "application/json"}, json.dumps(graph).encode()
    ) as url:
        words = {
            "COMP_WORDS": "genlock show ",
            "COMP_CWORD": "2" if shell != "fish" else "",
            "COMP_LINE": "genlock show ",
        }
        asked = {**words, "_GENLOCK_COMPLETE": f"{shell}_complete", "GENLOCK_URL": url}
        offered = run(cwd=tmp_path, env=asked).out
        assert "A-001-good" in offered
        assert [name for name in names[:-1] if name in offered] == []
        assert "rm" not in offered
        assert obeyed(on_terminal(cwd=tmp_path, env=asked)[1]) == []


@contextmanager
def rude_server(said: bytes) -> Iterator[int]:
    """A database that refuses everybody with these bytes."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                with connection:
                    connection.settimeout(5)
                    try:
                        if connection.recv(4096)[4:8] == b"\x04\xd2\x16\x2f":
                            connection.sendall(b"N")
                            connection.recv(4096)
                        connection.sendall(said)
                        connection.recv(4096)
                    except OSError:
                        pass

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield server.getsockname()[1]
        finally:
            server.shutdown(socket.SHUT_RDWR)
    thread.join()


def postgres_error() -> bytes:
    fields = (
        b"SFATAL\0VFATAL\0C28000\0M"
        + HOSTILE.encode()
        + b"\0D"
        + HOSTILE.encode()
        + b"\0H"
        + HOSTILE.encode()
        + b"\0\0"
    )
    return b"E" + (len(fields) + 4).to_bytes(4, "big") + fields


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("postgresql://u@127.0.0.1:{}/d?sslmode=disable", postgres_error()),
        (
            "redis://127.0.0.1:{}/0",
            b"-WRONGPASS " + HOSTILE.replace("\n", " ").replace("\r", " ").encode() + b"\r\n",
        ),
    ],
    ids=["postgres", "redis"],
)
def test_what_a_database_says_is_shown_and_not_obeyed(
    tmp_path: Path, url: str, said: bytes
) -> None:
    with rude_server(said) as port:
        for style in STYLES:
            _, shown = on_terminal("status", "--url", url.format(port), *style, cwd=tmp_path)
            assert "owned" in shown, "the server was not quoted, and so nothing was tested"
            assert obeyed(shown) == [], shown


# Nobody prints but those who make it safe

CLI = Path(genlock.cli.__file__).parent
PRINTING = {"answers.py", "render/text.py", "main.py", "safe_console.py"}


def test_no_verb_prints_by_itself() -> None:
    found = []
    for file in sorted(CLI.rglob("*.py")):
        name = file.relative_to(CLI).as_posix()
        if name in PRINTING:
            continue
        for node in ast.walk(ast.parse(file.read_text())):
            called = ast.unparse(node.func) if isinstance(node, ast.Call) else ""
            if called in (
                "print",
                "click.echo",
                "click.secho",
                "click.prompt",
                "click.confirm",
                "Console",
                "input",
            ) or (called.startswith("sys.std") and ".write" in called):
                found.append(f"{name}:{node.lineno}: {called}")  # type: ignore[attr-defined]
    assert found == [], (
        "print by app.answers or tell: they show foreign text, and obey nothing in it"
    )
