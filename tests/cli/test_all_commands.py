"""Habits that every verb has, whatever it does."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from subprocess import PIPE, CompletedProcess
from typing import Any

import click
import pytest

from genlock.cli.group import CALLED, genlock
from genlock.cli.group import run as run_here
from genlock.cli.main import SECTIONS
from tests.cli.console import COMMAND, environment, run


def call(
    folder: Path,
    command: Sequence[str | bytes],
    env: dict[str, str] | None = None,
    stdout: int = PIPE,
) -> CompletedProcess[str]:
    """Some command in a clean environment, whatever is the matter with it."""
    return subprocess.run(
        command,
        cwd=folder,
        env=env or environment(),
        stdout=stdout,
        stderr=PIPE,
        text=True,
        check=False,
    )


VERBS = {name: line for section in SECTIONS.values() for name, (_, line) in section.items()}


@cache
def commands() -> dict[str, click.Command]:
    """Every verb, and for those of two words every second word."""
    context = click.Context(genlock, info_name="genlock")
    found: dict[str, click.Command] = {}
    for name in VERBS:
        command = genlock.get_command(context, name)
        assert command is not None
        if isinstance(command, click.Group):
            found |= {f"{name} {second}": inner for second, inner in command.commands.items()}
        else:
            found[name] = command
    return found


NAMES = sorted(commands())


def arguments_of(name: str) -> list[str]:
    """Something for every argument that a verb must have."""
    given = []
    for parameter in commands()[name].params:
        if isinstance(parameter, click.Argument) and parameter.required:
            choices = getattr(parameter.type, "choices", None)
            given.append(choices[0] if choices else "no-such-thing")
    return [*name.split(), *given]


def test_the_verbs_of_the_issue_are_all_there() -> None:
    promised = """init plan add edit ready next claim renew submit release show history explain agents sessions assign spawn blocking unlock
    graph next-id reset cancel hold reopen refused adopt discard events sweep doctor export backup restore config completion version demo
    db copy keys tenant policy status serve dev login logout trust link mcp work setup hook prime run session
    review roles folder guard list worktree product"""
    assert set(promised.split()) == set(VERBS)


@pytest.mark.parametrize("name", VERBS)
def test_the_first_line_of_a_verbs_help_is_its_line_in_the_table(name: str) -> None:
    command = genlock.get_command(click.Context(genlock), name)
    assert command is not None
    assert command.help is not None
    assert command.help.splitlines()[0] == VERBS[name]
    assert len(VERBS[name]) <= 60


@pytest.mark.parametrize("name", NAMES)
def test_every_verb_says_what_it_does_and_how_it_answers(name: str) -> None:
    command = commands()[name]
    with click.Context(
        command, info_name=f"genlock {name}", help_option_names=["-h", "--help"]
    ) as context:
        text = command.get_help(context)
        options = {
            option
            for parameter in command.get_params(context)
            for option in [*parameter.opts, *parameter.secondary_opts]
        }
    assert {"--json", "--quiet", "-q", "--help"} <= options
    assert all(
        parameter.help for parameter in command.params if isinstance(parameter, click.Option)
    ), "every option says what it is for"
    assert max(map(len, text.splitlines())) <= 80


def test_help_is_an_answer(tmp_path: Path) -> None:
    ran = run("--help", cwd=tmp_path)
    assert (ran.code, ran.err) == (0, "")
    assert all(f"  {name} " in ran.out for name in VERBS)
    assert max(map(len, ran.out.splitlines())) <= 80
    ran = run("claim", "-h", cwd=tmp_path)
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.startswith("Usage: genlock claim ")


def test_no_verb_at_all_is_a_mistake_that_shows_the_verbs(tmp_path: Path) -> None:
    ran = run(cwd=tmp_path)
    assert (ran.code, ran.out) == (2, "")
    assert "  claim " in ran.err


def call_here(capfd: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    """The same in this process: every verb is called many times below."""
    code = run_here(list(arguments))
    out, err = capfd.readouterr()
    return code, out, err


@pytest.fixture
def nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with no project, and nothing set."""
    for name in [name for name in os.environ if name.startswith(("GENLOCK_", "GIT_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "own"))
    monkeypatch.setenv("GENLOCK_SESSION", "test-session")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("name", NAMES)
def test_an_unknown_option_is_a_mistake_of_the_caller(
    name: str, nowhere: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    code, out, err = call_here(capfd, *name.split(), "--no-such-option")
    assert (code, out) == (2, "")
    error = _error(err)
    assert error["code"] == "USAGE"
    assert "--no-such-option" in error["message"]
    assert f"genlock {name} --help" in error["message"]
    assert list(nowhere.iterdir()) == []


NEEDS_NO_STORE = {
    "init",
    "dev",
    "demo",
    "version",
    "completion",
    "config show",
    "config get",
    "config path",
    "config alerts",
    "config grafana",
    "plan check",
    "doctor",
    "db create",
    "trust",
    "link",
    "mcp",
    "setup",
    "hook",
    "guard update",  # git reads what a hook says, not JSON
    "guard post-receive",
}
NAMES_A_FILE = {"restore"}
"""Their file is missed first."""


@pytest.mark.parametrize("name", [name for name in NAMES if name not in NEEDS_NO_STORE])
def test_where_there_is_no_store_nothing_is_made_and_the_error_says_what_to_type(
    name: str, nowhere: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    code, out, err = call_here(capfd, *arguments_of(name), "--json")
    assert out == "", "nothing on stdout but an answer"
    assert code in (2, 3)
    error = _error(err)
    assert set(error) <= {"code", "message", "faults", "try_next"}
    if code == 3 and name not in NAMES_A_FILE:
        assert error["code"] == "STORE_MISSING"
        assert "genlock init" in error["message"]
    assert list(nowhere.iterdir()) == []


def test_most_verbs_find_no_store_rather_than_fault(
    nowhere: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """The test above lets a verb complain of its arguments first; not many may."""
    codes = [
        call_here(capfd, *arguments_of(name), "--json")[0]
        for name in NAMES
        if name not in NEEDS_NO_STORE
    ]
    assert codes.count(3) > len(codes) * 0.6


def _error(err: str) -> Any:
    return json.loads(err.splitlines()[-1])["error"]


@pytest.mark.parametrize("quiet", [[], ["-q"]], ids=["", "quiet"])
def test_errors_are_for_people_where_people_read(quiet: list[str], tmp_path: Path) -> None:
    """On a terminal, or with --quiet: one line, with the command's name before it."""
    outer, inner = pty.openpty()
    done = call(tmp_path, [*COMMAND, "ready", *quiet], stdout=inner)
    os.close(inner)
    os.close(outer)
    assert done.returncode == 3
    assert done.stderr == (
        f"genlock: there is no store at {tmp_path}/.genlock/genlock.db; to make one, type: "
        "genlock init\n"
    )


def test_a_verb_that_is_mistyped_is_guessed(tmp_path: Path) -> None:
    ran = run("clam", cwd=tmp_path)
    assert (ran.code, ran.out) == (2, "")
    assert ran.error() == {
        "code": "USAGE",
        "message": "unknown command 'clam'. Did you mean 'claim'? All commands: genlock --help",
        "try_next": [["genlock", "claim"], ["genlock", "--help"]],
    }
    assert (
        run("xyzzy", cwd=tmp_path).error()["message"]
        == "unknown command 'xyzzy'. All commands: genlock --help"
    )


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("import", "'plan import'"),
        ("retry", "'reset'"),
        ("fail", "'release --error'"),
        ("close", "'submit'"),
        ("ls", "'list' or 'ready'"),
        ("log", "'events'"),
        ("info", "'status', 'show' or 'db status'"),
    ],
)
def test_what_other_tools_call_it_is_answered_with_what_it_is_called_here(
    tmp_path: Path, typed: str, meant: str
) -> None:
    assert (
        run(typed, cwd=tmp_path).error()["message"]
        == f"unknown command '{typed}'. Did you mean {meant}? All commands: genlock --help"
    )


def test_every_verb_that_is_named_instead_of_another_is_there() -> None:
    assert not VERBS.keys() & CALLED.keys()
    meant = {verb.partition(" --")[0] for verbs in CALLED.values() for verb in verbs}
    assert meant <= {*NAMES, *VERBS}


@pytest.mark.parametrize("words", [[], ["claim"], ["plan", "import"]], ids=" ".join)
def test_help_is_a_verb_too(tmp_path: Path, words: list[str]) -> None:
    asked = run("help", *words, cwd=tmp_path)
    assert (asked.code, asked.out) == (0, run(*words, "--help", cwd=tmp_path).out)


def test_a_mistake_and_where_to_look_are_two_sentences(project: Path) -> None:
    message = run("ready", "foo", cwd=project).error()["message"]
    assert message == "Got unexpected extra argument (foo). To see how: genlock ready --help"


# What goes wrong outside


@pytest.fixture
def project(tmp_path: Path) -> Path:
    run("init", cwd=tmp_path)
    run("add", "task", "--title", "x" * 50, cwd=tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    "arguments",
    [
        ["ready"],
        ["show", "task", "--json"],
        ["events"],
        ["--help"],
        ["version"],
        ["completion", "bash"],
    ],
    ids=" ".join,
)
def test_a_reader_that_has_gone_is_no_reason_for_a_traceback(
    project: Path, arguments: list[str]
) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    done = call(project, [*COMMAND, *arguments], stdout=writing)
    os.close(writing)
    assert (done.returncode, done.stderr) == (141, "")


def test_a_full_disk_is_told_in_one_line_also_by_what_is_answered_at_once(project: Path) -> None:
    for arguments in (["version"], ["version", "--json"]):
        with open("/dev/full", "w") as full:
            done = call(project, [*COMMAND, *arguments], stdout=full.fileno())
        assert (done.returncode, done.stderr) == (
            1,
            "genlock: the answer cannot be written: No space left on device\n",
        )


def test_a_full_disk_is_told_in_one_line(project: Path) -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [*COMMAND, "ready"],
            cwd=project,
            env=environment(),
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert done.returncode == 1
    assert _error(done.stderr) == {
        "code": "UNEXPECTED",
        "try_next": [],
        "message": "the answer cannot be written: No space left on device",
    }


def test_closed_streams_are_borne(project: Path) -> None:
    command = " ".join(f"'{word}'" for word in [*COMMAND, "claim", "task"])
    done = subprocess.run(
        ["sh", "-c", f"{command} >&- 2>&-; echo $?"],
        cwd=project,
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.stdout, done.stderr) == ("0\n", "")
    done = subprocess.run(
        ["sh", "-c", f"{command}x 2>&-; echo $?"],
        cwd=project,
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == "3\n", "what was meant for stderr does not land on stdout"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ("plan import -", "a plan is a mapping with project, tracks and tasks, not nothing"),
        ("submit task -g 1 --result-file -", "--result-file - is no JSON"),
        ("spawn task -g 1 --from -", "--from - is no JSON"),
        ("reset task --cascade", "There is no terminal to ask on"),
    ],
)
def test_in_a_closed_stdin_there_is_nothing(project: Path, arguments: str, says: str) -> None:
    command = " ".join(f"'{word}'" for word in COMMAND)
    done = call(project, ["sh", "-c", f"{command} {arguments} <&-"])
    assert done.returncode == 2
    assert says in _error(done.stderr)["message"]


BROKEN = """
import sys
from genlock.cli import app
from genlock.cli.group import run

def fail(self):
    raise RuntimeError("the works\\nare broken")

app.App.fleet = property(fail)
sys.exit(run(sys.argv[1:]))
"""


def test_what_nobody_expected_is_one_line_and_the_traceback_a_variable_away(project: Path) -> None:
    command = [sys.executable, "-c", BROKEN, "ready"]
    done = call(project, command)
    assert (done.returncode, done.stdout) == (1, "")
    assert _error(done.stderr) == {
        "code": "UNEXPECTED",
        "try_next": [],
        "message": (
            "something went wrong that should not have: RuntimeError: the works are broken; to see "
            "where, set GENLOCK_DEBUG=1"
        ),
    }
    done = call(project, [*command, "-q"], environment({"GENLOCK_DEBUG": "1"}))
    assert (done.returncode, done.stdout) == (1, "")
    assert "Traceback (most recent call last)" in done.stderr
    assert done.stderr.endswith("RuntimeError: the works\nare broken\n")


def test_arguments_that_are_no_text_are_refused_like_others(project: Path) -> None:
    done = call(project, [*map(os.fsencode, COMMAND), b"show", b"\xff\xfe"])
    assert (done.returncode, done.stdout) == (2, "")
    assert _error(done.stderr)["code"] == "BAD_ARGUMENT"


def test_json_is_utf8_whatever_the_terminal_speaks(project: Path) -> None:
    latin = environment({"LANG": None, "PYTHONIOENCODING": "latin-1"})
    subprocess.run(
        [*COMMAND, "add", "other", "--title", "naïve → done"],
        cwd=project,
        env=environment(),
        check=True,
        capture_output=True,
    )
    done = subprocess.run(
        [*COMMAND, "show", "other"], cwd=project, env=latin, capture_output=True, check=True
    )
    assert "naïve → done" in done.stdout.decode("utf-8")


def test_a_store_that_is_none_is_an_error_of_the_machine(tmp_path: Path) -> None:
    (tmp_path / "x.db").write_text("no database at all, but long enough to be one" * 100)
    ran = run("ready", "--url", f"sqlite://{tmp_path}/x.db", cwd=tmp_path)
    assert (ran.code, ran.out, ran.error()["code"]) == (1, "", "STORE_FOREIGN")


def test_refusals_are_answers_and_conflicts(project: Path) -> None:
    assert run("claim", "task", cwd=project).code == 0
    denied = run("claim", "task", cwd=project, env={"GENLOCK_SESSION": "other"})
    assert (denied.code, denied.json()["reason"]) == (5, "DENIED_ACTIVE_CLAIM")
    refused = run("submit", "task", "-g", "7", cwd=project)
    assert (refused.code, refused.json()["reason"]) == (5, "FUTURE_GENERATION")
