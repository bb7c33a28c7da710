"""Completion: in a real bash, and as each shell asks for it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from genlock.cli.main import SECTIONS
from tests.cli.console import environment, run


@pytest.fixture
def project(tmp_path: Path) -> Path:
    run("init", cwd=tmp_path)
    for task in ("A-001-first", "A-002-second", "B-001-other"):
        run("add", task, cwd=tmp_path)
    return tmp_path


def completed(folder: Path, *words: str) -> list[str]:
    """What bash is told for this line, the last word of it unfinished."""
    line = {
        "_GENLOCK_COMPLETE": "bash_complete",
        "COMP_WORDS": " ".join(["genlock", *words]),
        "COMP_CWORD": str(len(words)),
    }
    ran = run(cwd=folder, env=line)
    assert (ran.code, ran.err) == (0, "")
    return [line.partition(",")[2] for line in ran.out.splitlines()]


def test_every_verb_is_offered(tmp_path: Path) -> None:
    assert completed(tmp_path, "") == [name for section in SECTIONS.values() for name in section]
    assert completed(tmp_path, "re") == [
        name for section in SECTIONS.values() for name in section if name.startswith("re")
    ]


def test_the_words_of_a_verb_with_several_are_offered(tmp_path: Path) -> None:
    assert completed(tmp_path, "config", "") == [
        "alerts",
        "get",
        "grafana",
        "path",
        "set",
        "show",
        "unset",
    ]


def test_options_of_a_verb_are_offered(tmp_path: Path) -> None:
    assert "--session" in completed(tmp_path, "claim", "--s")
    assert completed(tmp_path, "completion", "z") == ["zsh"]


def test_tasks_are_offered_where_a_verb_takes_one(project: Path) -> None:
    assert completed(project, "claim", "A-") == ["A-001-first", "A-002-second"]
    assert completed(project, "show", "--json", "") == [
        "A-001-first",
        "A-002-second",
        "B-001-other",
    ]
    assert completed(project, "show", "--project", "empty", "") == []


@pytest.mark.parametrize("verb", [["ready"], ["next"], ["graph"], ["plan", "show"], ["add", "x"]])
def test_the_tracks_that_tasks_have_are_offered(project: Path, verb: list[str]) -> None:
    assert completed(project, *verb, "--track", "") == ["A", "B"]
    assert completed(project, *verb, "--track", "B") == ["B"]
    assert completed(project, *verb, "--project", "empty", "--track", "") == []


def test_a_track_is_offered_with_what_it_is_for(project: Path) -> None:
    line = {
        "_GENLOCK_COMPLETE": "zsh_complete",
        "COMP_WORDS": "genlock ready --track A",
        "COMP_CWORD": "3",
    }
    assert run(cwd=project, env=line).out.splitlines() == ["plain", "A", "_"]


def test_roles_and_profiles_are_offered(tmp_path: Path) -> None:
    assert completed(tmp_path, "keys", "create", "ci", "--role", "") == [
        "observer",
        "agent",
        "operator",
        "admin",
    ]
    assert completed(tmp_path, "keys", "create", "ci", "--role", "o") == ["observer", "operator"]
    assert completed(tmp_path, "tenant", "set", "acme", "--profile", "e") == ["enterprise"]


def test_without_a_store_nothing_is_offered_and_nothing_made(tmp_path: Path) -> None:
    assert completed(tmp_path, "claim", "") == []
    assert completed(tmp_path, "ready", "--track", "") == []
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_is_for_the_shell_to_read(shell: str) -> None:
    ran = run("completion", shell)
    assert (ran.code, ran.err) == (0, "")
    assert f"_GENLOCK_COMPLETE={shell}_complete" in ran.out
    assert run("completion", shell, "--json").json() == {"shell": shell, "script": ran.out}


def test_a_shell_that_is_not_known_is_refused() -> None:
    ran = run("completion", "cmd")
    assert (ran.code, ran.out) == (2, "")
    assert "'bash', 'zsh', 'fish'" in ran.error()["message"]


@pytest.mark.parametrize(
    "words",
    [
        ["plan", "import", "pl"],
        ["plan", "check", "a.yaml", ""],
        ["submit", "x", "--result-file", "r"],
    ],
)
def test_files_are_left_to_the_shell(tmp_path: Path, words: list[str]) -> None:
    line = {
        "_GENLOCK_COMPLETE": "bash_complete",
        "COMP_LINE": " ".join(["genlock", *words]),
        "COMP_WORD": words[-1],
    }
    assert run(cwd=tmp_path, env=line).out == f"file,{words[-1]}\n"


@pytest.mark.parametrize(
    ("line", "words", "offered"),
    [
        ("genlock claim B-", "genlock claim B-", "B-001-other"),
        # As bash takes a word apart that has a colon in it: only what follows the last one is
        # replaced.
        ("genlock show login:d", "genlock show login : d", "design"),
        ("genlock show login:", "genlock show login :", "code design"),
        ("genlock show log", "genlock show log", "login:code login:design"),
        ("genlock show 'login:d", "genlock show 'login:d", "login:design"),
        ("genlock events --task=login:c", "genlock events --task = login : c", "code"),
        (
            "genlock show --url sqlite://.genlock/genlock.db B",
            "genlock show --url sqlite : //.genlock/genlock.db B",
            "B-001-other",
        ),
    ],
)
def test_a_real_bash_completes(project: Path, line: str, words: str, offered: str) -> None:
    for task in ("login:design", "login:code"):
        run("add", task, cwd=project)
    command = project / "bin" / "genlock"
    command.parent.mkdir()
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m genlock.cli "$@"\n')
    command.chmod(0o755)
    script = """
eval "$(genlock completion bash)"
COMP_LINE="$LINE" COMP_POINT=${#LINE} COMP_WORDS=($WORDS) COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
_genlock_completion genlock
echo "${COMPREPLY[@]}"
"""
    env = environment(
        {"PATH": f"{command.parent}:{environment()['PATH']}", "LINE": line, "WORDS": words}
    )
    done = subprocess.run(
        ["bash", "-c", script], cwd=project, env=env, capture_output=True, text=True, check=False
    )
    assert (done.stdout, done.stderr) == (f"{offered}\n", "")
