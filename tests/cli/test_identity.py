"""Which session a call is: by name, or by the process on whose behalf it runs."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from genlock.cli import identity
from genlock.cli.identity import NoSession, Seen, nearest, process_of, session_of
from genlock.core.model import Process
from genlock.engine.processes import boot, host, start_time
from tests.cli.console import environment, run

PYTHON = sys.executable
GENLOCK = f'"{PYTHON}" -m genlock.cli'
NAMELESS = {"GENLOCK_SESSION": None}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    assert run("init", cwd=tmp_path).code == 0
    assert run("add", "task", cwd=tmp_path).code == 0
    return tmp_path


class Agent:
    """A process that lives on and runs what it is told, each command in a fresh `bash -c`, as an agent's tool does."""

    PROGRAM = """
import json, subprocess, sys
for line in sys.stdin:
    done = subprocess.run(["bash", "-c", json.loads(line)], capture_output=True, text=True, stdin=subprocess.DEVNULL)
    print(json.dumps([done.returncode, done.stdout, done.stderr]), flush=True)
"""

    def __init__(self, folder: Path) -> None:
        self.process = subprocess.Popen(
            [PYTHON, "-c", self.PROGRAM], cwd=folder, env=environment(NAMELESS), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.session = session_of(Process(host(), boot(), self.process.pid, start_time(self.process.pid) or 0))

    def run(self, command: str) -> tuple[int, Any]:
        """The exit code, and the answer."""
        assert self.process.stdin
        assert self.process.stdout
        self.process.stdin.write(json.dumps(command.replace("genlock ", f"{GENLOCK} ")) + "\n")
        self.process.stdin.flush()
        code, out, err = json.loads(self.process.stdout.readline())
        return code, json.loads(out or err)

    def die(self) -> None:
        os.kill(self.process.pid, signal.SIGKILL)
        self.process.communicate(timeout=30)


@pytest.fixture
def agent(project: Path) -> Iterator[Agent]:
    made = Agent(project)
    yield made
    if made.process.poll() is None:
        made.die()


def test_claim_and_submit_from_two_shells_of_one_agent_are_one_session(agent: Agent) -> None:
    code, answer = agent.run("true; genlock claim task; true")
    assert (code, answer["claim"]["session_id"]) == (0, agent.session)
    code, answer = agent.run("env A=1 timeout 60 nice sh -c 'genlock submit task -g 1; exit $?'")
    assert (code, answer["accepted"]) == (0, True)


def test_a_claim_outlives_the_command_and_ends_with_its_agent(agent: Agent, project: Path) -> None:
    agent.run("genlock claim task --lease 3600")
    rival = {"GENLOCK_SESSION": "rival"}
    denied = run("claim", "task", cwd=project, env=rival)
    assert (denied.code, denied.json()["reason"], denied.json()["holder"]["looks_alive"]) == (5, "DENIED_ACTIVE_CLAIM", True)
    agent.die()
    granted = run("claim", "task", cwd=project, env=rival)
    assert (granted.code, granted.json()["claim"]["generation"]) == (0, 2)
    events = run("events", cwd=project).out
    assert '"PROCESS_GONE"' in events


def test_what_a_session_does_on_its_claim_is_done_by_the_agent_that_the_claim_was_granted_to(agent: Agent, project: Path) -> None:
    assert agent.run("genlock next --agent ada")[0] == 0
    assert agent.run("genlock renew task -g 1")[0] == 0
    assert agent.run("genlock release task -g 1")[0] == 0
    assert agent.run("genlock claim task --agent ada")[0] == 0
    spawned = agent.run("genlock spawn task -g 2 part --keep")[1]
    assert run("cancel", *spawned["children"], cwd=project).code == 0
    assert agent.run("genlock submit task -g 2 --text hi")[1]["accepted"] is True
    told = [json.loads(line) for line in run("events", "--task", "task", cwd=project).out.splitlines()]
    done = [told for told in told if told["event"].get("session_id") == agent.session]
    assert {"CLAIM_ACQUIRED", "LEASE_RENEWED", "CLAIM_RELEASED", "RESULT_ACCEPTED"} <= {event["event_type"] for event in done}
    assert {event["event"]["agent_id"] for event in done} == {"ada"}
    assert run("show", "task", cwd=project).json()["result"]["agent_id"] == "ada"


def test_a_result_that_comes_too_late_is_kept_under_the_agent_whose_claim_it_was(agent: Agent, project: Path) -> None:
    assert agent.run("genlock next --agent ada")[0] == 0
    assert run("unlock", "task", "--force", cwd=project).code == 0
    assert agent.run("genlock submit task -g 1 --text late")[0] == 5
    assert [refused["agent_id"] for refused in run("refused", cwd=project).json()["refused"]] == ["ada"]


def test_a_name_that_is_given_counts_more_than_the_claims(agent: Agent, project: Path) -> None:
    assert agent.run("genlock next --agent ada")[0] == 0
    assert agent.run("genlock submit task -g 1 --agent bob")[0] == 0
    assert run("show", "task", cwd=project).json()["result"]["agent_id"] == "bob"


def test_two_agents_are_two_sessions(agent: Agent, project: Path) -> None:
    assert agent.run("genlock claim task")[0] == 0
    other = Agent(project)
    try:
        code, answer = other.run("genlock claim task")
        assert (code, answer["reason"]) == (5, "DENIED_ACTIVE_CLAIM")
    finally:
        other.die()


def test_a_named_session_is_what_it_is_called_and_its_process_is_not_known(agent: Agent, project: Path) -> None:
    _, answer = agent.run("GENLOCK_SESSION=named genlock claim task")
    assert (answer["claim"]["session_id"], answer["claim"]["agent_id"]) == ("named", "named")
    agent.die()
    assert run("claim", "task", cwd=project, env={"GENLOCK_SESSION": "rival"}).code == 5, "only its lease decides"
    sessions = run("sessions", cwd=project).json()["sessions"]
    assert [(line["session_id"], line["pid"], line["process_gone"]) for line in sessions] == [("named", None, False)]


def test_a_flag_counts_more_than_the_environment(project: Path) -> None:
    assert run("claim", "task", "--session", "by-flag", cwd=project).json()["claim"]["session_id"] == "by-flag"


def sessions_of(project: Path, script: str, *, shell: str = "bash", background: bool = False) -> list[str]:
    """What `config get session` says wherever the script calls SHOW, in order of the lines' numbers."""
    out = project / "sessions"
    out.mkdir()
    file = project / "fleet.sh"
    file.write_text(f'show() {{ "{PYTHON}" -m genlock.cli config get session -q > "{out}/$1"; }}\n{script}\nwait\n')
    starter = f'{shell} "{file}" &\nwait' if background else f'{shell} "{file}"'
    subprocess.run(["bash", "-c", starter], cwd=project, env=environment(NAMELESS), check=True, timeout=60, stdin=subprocess.DEVNULL)
    return [path.read_text().strip() for path in sorted(out.iterdir())]


@pytest.mark.parametrize(
    ("shell", "claimer"),
    [
        ("bash", '( show "$i"; true ) &'),
        ("bash", 'worker() { show "$1"; true; }; worker "$i" &'),
        ("bash", 'bash worker.sh "$i" &'),
        ("bash", f"""bash -c '"$1" -m genlock.cli config get session -q > "sessions/$0"; true' "$i" "{PYTHON}" &"""),
        ("sh", 'worker() { show "$1"; true; }; worker "$i" &'),
        ("bash", f'"{PYTHON}" -m genlock.cli config get session -q > "sessions/$i" &'),
        ("sh", f'"{PYTHON}" -m genlock.cli config get session -q > "sessions/$i" &'),
        ("bash", f"""bash -c '"$1" -m genlock.cli config get session -q > "sessions/$0"' "$i" "{PYTHON}" &"""),
        (
            "bash",
            f"""[ "$i" = 8 ] && seq 8 | xargs -P 8 -I N sh -c '"{PYTHON}" -m genlock.cli config get session -q > sessions/N; true';""",
        ),
    ],
    ids=["subshell", "function", "script", "bash -c", "function of sh", "itself", "itself of sh", "bash -c of one", "xargs -P"],
)
def test_eight_claimers_started_by_one_script_are_eight(project: Path, shell: str, claimer: str) -> None:
    (project / "worker.sh").write_text(f'"{PYTHON}" -m genlock.cli config get session -q > "sessions/$1"\n')
    found = sessions_of(project, f"for i in 1 2 3 4 5 6 7 8; do {claimer} done", shell=shell)
    assert len(found) == len(set(found)) == 8


def test_of_eight_claims_that_a_script_puts_into_the_background_one_is_granted_and_stays(project: Path) -> None:
    """Each ends at once: what is granted to it must not be taken for an orphan's."""
    script = project / "fleet.sh"
    script.write_text(f'for i in 1 2 3 4 5 6 7 8; do {GENLOCK} claim task > "answer-$i" & done\nwait\n')
    subprocess.run(["bash", str(script)], cwd=project, env=environment(NAMELESS), check=True, timeout=60, stdin=subprocess.DEVNULL)
    answers = [json.loads(path.read_text()) for path in project.glob("answer-*")]
    assert sorted(answer["reason"] for answer in answers) == ["DENIED_ACTIVE_CLAIM"] * 7 + ["GRANTED"]
    assert run("claim", "task", cwd=project, env={"GENLOCK_SESSION": "late"}).json()["reason"] == "DENIED_ACTIVE_CLAIM"


@pytest.mark.parametrize("shell", ["bash", "sh"])
@pytest.mark.parametrize("background", [False, True], ids=["foreground", "background"])
def test_all_that_a_script_does_itself_is_one_session(project: Path, shell: str, background: bool) -> None:
    found = sessions_of(
        project,
        """
show 1
x=$(show 2; true)
x=$(show 3 | cat)
( show 4; true )
echo a | while read -r line; do show 5; done
bash -c '"$@"; true' bash env A=1 sh -c 'exit 0'
if show 6; then show 7; fi
""",
        shell=shell,
        background=background,
    )
    assert len(found) == 7
    assert len(set(found)) == 1


@pytest.mark.parametrize("shell", ["bash", "sh"])
def test_a_worker_in_the_background_is_one_session_whatever_it_does(project: Path, shell: str) -> None:
    found = sessions_of(
        project,
        """
worker() { show "$1a"; x=$(show "$1b" | cat); ( show "$1c"; true ); echo a | while read -r line; do show "$1d"; done; }
worker 1 &
worker 2 &
show 3
""",
        shell=shell,
    )
    first, second, script = found[:4], found[4:8], found[8]
    assert (len(set(first)), len(set(second))) == (1, 1)
    assert len({first[0], second[0], script}) == 3


def test_an_interactive_shell_counts_as_itself(project: Path) -> None:
    """In a real terminal: what is typed, in pipes and substitutions too, is the shell's; a background loop is its own."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(project)
        os.execvpe("bash", ["bash", "--norc", "--noprofile", "-i"], environment(NAMELESS | {"PS1": "$ ", "TERM": "dumb"}))
    try:
        call = f"{GENLOCK} config get session -q"
        lines = [
            f"{call} > 1",
            f"x=$({call} | cat); echo $x > 2",
            f"( {call}; true ) > 3",
            f"( {call}; true ) > 4 & wait",
            "exit",
        ]
        os.write(terminal, ("\n".join(lines) + "\n").encode())
        while _read(terminal):
            pass
    finally:
        os.close(terminal)
        os.waitpid(pid, 0)
    typed, substituted, grouped, background = ((project / name).read_text().strip() for name in "1234")
    assert typed.startswith(f"{host()}-{pid}-")
    assert typed == substituted == grouped
    assert background != typed


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65536)
    except OSError:
        return b""


# The rules, on processes as they could be


def tree(*commands: str | tuple[str, ...]) -> Any:
    """Processes from the command's own upwards, numbered from OWN down, which no real process has; the last is the system."""
    seen = {}
    for at, command in enumerate([("genlock", "next"), *commands]):
        seen[OWN - at] = Seen(OWN - at, OWN - at - 1, 50, -1, (command,) if isinstance(command, str) else command)
    seen[OWN - len(commands) - 1] = Seen(1, 0, 1, -1, ("/sbin/init",))
    return seen.get


OWN = 50_000_000


@pytest.mark.parametrize(
    "launcher",
    [
        ("bash", "-c", "genlock claim x"),
        ("/bin/sh", "-ec", "genlock claim x"),
        ("bash", "-l", "-c", "x"),
        ("bash", "-o", "pipefail", "-c", "x"),
        ("bash", "--rcfile", "x", "-ic", "x"),
        ("dash", "-c", "x"),
        ("/usr/bin/fish", "--command", "x"),
        ("busybox", "sh", "-c", "x"),
        ("make", "work"),
        ("/usr/bin/env", "A=1", "x"),
        ("xargs", "-n1", "genlock"),
        ("timeout", "60", "x"),
        ("uv", "run", "genlock"),
        ("nice", "x"),
        ("nohup", "x"),
        ("sudo", "-u", "x", "y"),
        ("time", "x"),
        ("npm exec genlock",),
        ("node", "/usr/lib/node_modules/npm/bin/npx-cli.js", "x"),
        ("/usr/bin/python3.11", "-X", "utf8", "-m", "genlock.cli", "next"),
        ("python", "/home/x/.venv/bin/genlock", "next"),
        ("python3", "/usr/bin/poetry", "run", "x"),
    ],
    ids=" ".join,
)
def test_a_launcher_is_looked_through(launcher: tuple[str, ...]) -> None:
    assert nearest(OWN, tree(launcher, "claude")).command == ("claude",)


@pytest.mark.parametrize(
    "agent",
    [
        ("claude",),
        ("node", "/usr/bin/codex"),
        ("python3", "agent.py"),
        ("python3", "script.py"),
        ("python3", "-c", "x"),
        ("python3", "-m", "crew"),
        ("bash",),
        ("-bash",),
        ("bash", "-i"),
        ("bash", "worker.sh", "-c"),
        ("bash", "-e", "worker.sh", "-c"),
        ("bash", "-s"),
        ("/bin/sh", "./time"),
        ("zsh", "-l"),
    ],
    ids=" ".join,
)
def test_whoever_works_is_itself(agent: tuple[str, ...]) -> None:
    assert nearest(OWN, tree(("bash", "-c", "x"), agent, "tmux")).command == agent


@pytest.mark.parametrize(
    "above",
    [[], ["sshd: vera@pts/0"], [("cron", "-f")], [("bash", "-c", "x"), ("sh", "-c", "y")], ["containerd-shim"], [("systemd", "--user")]],
    ids=str,
)
def test_where_nobody_stands_above_it_stops_and_says_what_to_set(above: list[Any]) -> None:
    with pytest.raises(NoSession) as raised:
        nearest(OWN, tree(*above))
    assert "set GENLOCK_SESSION" in str(raised.value)
    assert "--session" in str(raised.value)


CHILD_OF_INIT = """
import os, sys
from genlock.cli import identity
from genlock.cli.group import run

really = identity.look
identity.look = lambda pid: really(pid)._replace(parent=1) if pid == os.getpid() else really(pid)
sys.exit(run(sys.argv[1:]))
"""


def test_at_pid_1_the_command_stops(project: Path) -> None:
    """Whose child an orphan becomes depends on the machine, so this one is told that it is init's."""
    done = subprocess.run(
        [PYTHON, "-c", CHILD_OF_INIT, "claim", "task"], cwd=project, env=environment(NAMELESS), capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert json.loads(done.stderr)["error"]["code"] == "NO_SESSION"
    assert run("show", "task", cwd=project).json()["generation"] == 0


def test_reading_needs_no_identity(project: Path) -> None:
    done = subprocess.run(
        [PYTHON, "-c", CHILD_OF_INIT, "ready", "-q"], cwd=project, env=environment(NAMELESS), capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, "task\n")


def test_a_reused_pid_is_not_mistaken() -> None:
    mine = Process(host(), boot(), os.getpid(), start_time(os.getpid()) or 0)
    earlier = Process(host(), boot(), os.getpid(), mine.started - 1)
    assert session_of(mine) != session_of(earlier)
    assert process_of(session_of(mine)) == mine
    assert process_of(session_of(earlier)) is None
    assert session_of(Process(mine.host, "0000-another-boot", mine.pid, mine.started)) != session_of(mine)


@pytest.mark.parametrize("name", ["alice", "a-1-2", "vm-1-x", "a-99999999999-1", "-", "", "host-1-1-ffff"])
def test_a_name_that_only_looks_like_a_process_is_none(name: str) -> None:
    assert process_of(name) is None


def test_ps_sees_what_proc_sees() -> None:
    with subprocess.Popen(["sleep", "60"]) as child:
        try:
            assert identity.look_by_ps(child.pid) == identity.look(child.pid)
            assert identity.look_by_ps(child.pid) == Seen(child.pid, os.getpid(), os.getpgrp(), _foreground(), ("sleep", "60"))
        finally:
            child.kill()
    assert identity.look_by_ps(2**22 - 1) is None


def _foreground() -> int:
    seen = identity.look(os.getpid())
    assert seen is not None
    return seen.foreground
