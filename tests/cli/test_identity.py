"""Which session a call is: by name, or by the process on whose behalf it runs."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from genlock import identity
from genlock.core.model import Process
from genlock.engine.processes import INITIAL_NAMESPACE, boot, host, namespace, start_time
from genlock.identity import NoSession, SeenProcess, nearest, process_of, session_of
from tests.cli.console import environment, run
from tests.servers import namespaces

PYTHON = sys.executable
GENLOCK = f'"{PYTHON}" -m genlock.cli'
SHOW = f"{GENLOCK} config get session -q"
NAMELESS = {"GENLOCK_SESSION": None}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    assert run("init", cwd=tmp_path).code == 0
    assert run("add", "task", cwd=tmp_path).code == 0
    return tmp_path


class Agent:
    """A process that lives on and runs what it is told, each command in a fresh `bash -c`, as an
    agent's tool does."""

    PROGRAM = """
import json, subprocess, sys
for line in sys.stdin:
    done = subprocess.run(["bash", "-c", json.loads(line)], capture_output=True, text=True, stdin=subprocess.DEVNULL)
    print(json.dumps([done.returncode, done.stdout, done.stderr]), flush=True)
"""

    def __init__(self, folder: Path) -> None:
        self.process = subprocess.Popen(
            [PYTHON, "-c", self.PROGRAM],
            cwd=folder,
            env=environment(NAMELESS),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.session = session_of(
            Process(
                host(), boot(), self.process.pid, start_time(self.process.pid) or 0, namespace()
            )
        )

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
    assert (denied.code, denied.json()["reason"], denied.json()["holder"]["looks_alive"]) == (
        5,
        "DENIED_ACTIVE_CLAIM",
        True,
    )
    agent.die()
    granted = run("claim", "task", cwd=project, env=rival)
    assert (granted.code, granted.json()["claim"]["generation"]) == (0, 2)
    events = run("events", cwd=project).out
    assert '"PROCESS_GONE"' in events


def test_what_a_session_does_on_its_claim_is_done_by_the_agent_that_the_claim_was_granted_to(
    agent: Agent, project: Path
) -> None:
    assert agent.run("genlock next --agent ada")[0] == 0
    assert agent.run("genlock renew task -g 1")[0] == 0
    assert agent.run("genlock release task -g 1")[0] == 0
    assert agent.run("genlock claim task --agent ada")[0] == 0
    spawned = agent.run("genlock spawn task -g 2 part --keep")[1]
    assert run("cancel", *spawned["children"], cwd=project).code == 0
    assert agent.run("genlock submit task -g 2 --text hi")[1]["accepted"] is True
    told = [
        json.loads(line) for line in run("events", "--task", "task", cwd=project).out.splitlines()
    ]
    done = [told for told in told if told["event"].get("session_id") == agent.session]
    assert {"CLAIM_ACQUIRED", "LEASE_RENEWED", "CLAIM_RELEASED", "RESULT_ACCEPTED"} <= {
        event["event_type"] for event in done
    }
    assert {event["event"]["agent_id"] for event in done} == {"ada"}
    assert run("show", "task", cwd=project).json()["result"]["agent_id"] == "ada"


def test_a_result_that_comes_too_late_is_kept_under_the_agent_whose_claim_it_was(
    agent: Agent, project: Path
) -> None:
    assert agent.run("genlock next --agent ada")[0] == 0
    assert run("unlock", "task", "--force", cwd=project).code == 0
    assert agent.run("genlock submit task -g 1 --text late")[0] == 5
    assert [refused["agent_id"] for refused in run("refused", cwd=project).json()["refused"]] == [
        "ada"
    ]


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


def test_a_named_session_is_what_it_is_called_and_its_process_is_not_known(
    agent: Agent, project: Path
) -> None:
    _, answer = agent.run("GENLOCK_SESSION=named genlock claim task")
    assert (answer["claim"]["session_id"], answer["claim"]["agent_id"]) == ("named", "named")
    agent.die()
    assert run("claim", "task", cwd=project, env={"GENLOCK_SESSION": "rival"}).code == 5, (
        "only its lease decides"
    )
    sessions = run("sessions", cwd=project).json()["sessions"]
    assert [(line["session_id"], line["pid"], line["process_gone"]) for line in sessions] == [
        ("named", None, False)
    ]


def test_a_flag_counts_more_than_the_environment(project: Path) -> None:
    assert (
        run("claim", "task", "--session", "by-flag", cwd=project).json()["claim"]["session_id"]
        == "by-flag"
    )


STARTED = {
    "foreground": "{}",
    "background": "{} & wait",
    "nohup": "nohup {} & wait",
    "setsid": "setsid --wait {}",
    "signals ignored": "trap '' INT QUIT HUP; {}",
}
"""The ways in which a script may be started: a session is the same in all of them."""


def sessions_of(
    project: Path, script: str, *, shell: str = "bash", started: str = "foreground"
) -> list[str]:
    """The answers of `config get session` wherever the script calls `show NAME`, by name."""
    out = project / "sessions"
    out.mkdir()
    file = project / "fleet.sh"
    file.write_text(f'show() {{ {SHOW} > "{out}/$1"; }}\n{script}\nwait\n')
    subprocess.run(
        ["bash", "-c", STARTED[started].format(f'{shell} "{file}"')],
        cwd=project,
        env=environment(NAMELESS),
        check=True,
        timeout=60,
        stdin=subprocess.DEVNULL,
    )
    return [path.read_text().strip() for path in sorted(out.iterdir())]


@pytest.mark.parametrize("started", STARTED)
@pytest.mark.parametrize("shell", ["bash", "sh"])
def test_a_script_is_one_session_however_it_is_started(
    project: Path, shell: str, started: str
) -> None:
    found = sessions_of(
        project,
        f"""
show 1
x=$(show 2; true)
x=$(show 3 | cat)
( show 4; true )
echo a | while read -r line; do show 5; done
bash -c '"$@"; true' bash env A=1 sh -c 'exit 0'
if show 6; then show 7; fi
( show 8; true ) &
worker() {{ show "$1"; x=$(show "$1a" | cat); }}
worker 9 &
{SHOW} > sessions/b &
bash -c '{SHOW} > sessions/c; true' &
nohup {SHOW} > sessions/d 2> nohup.err &
""",
        shell=shell,
        started=started,
    )
    assert len(found) == 13
    assert len(set(found)) == 1


@pytest.mark.parametrize("started", ["foreground", "background"])
@pytest.mark.parametrize(
    "claimer",
    [
        'bash worker.sh "$i" &',
        """[ "$i" = 4 ] && seq 4 | xargs -P 4 -I N sh -c 'bash worker.sh N; true';""",
        f"""[ "$i" = 4 ] && seq 4 | xargs -P 4 -I N sh -c '{SHOW} > sessions/N; true';""",
    ],
    ids=["script", "script below xargs -P", "xargs -P"],
)
def test_each_worker_script_and_each_child_of_xargs_is_a_session(
    project: Path, claimer: str, started: str
) -> None:
    (project / "worker.sh").write_text(f'{SHOW} > "sessions/$1"\n')
    found = sessions_of(project, f"for i in 1 2 3 4; do {claimer} done", started=started)
    assert len(found) == len(set(found)) == 4


@pytest.mark.parametrize(
    ("names", "others"),
    [
        ("", (6, True, "GRANTED")),
        ('GENLOCK_AGENT="w$i"', (5, False, "DENIED_ACTIVE_CLAIM")),
        ('GENLOCK_SESSION="w$i"', (5, False, "DENIED_ACTIVE_CLAIM")),
    ],
    ids=["no names", "GENLOCK_AGENT", "GENLOCK_SESSION"],
)
def test_the_exit_code_stops_every_background_worker_of_a_script_but_one(
    project: Path, names: str, others: tuple[int, bool, str]
) -> None:
    """Workers without names share a session: the claim is `already_held` for all but the first."""
    script = project / "fleet.sh"
    script.write_text(
        "worker() {\n"
        f'  {names} {GENLOCK} claim task > "answer-$i"; code=$?\n'
        '  echo $code > "code-$i"\n'
        '  [ $code = 0 ] && touch "worked-$i"\n'
        "}\n"
        "for i in 1 2 3 4 5; do worker & done\nwait\n"
    )
    subprocess.run(
        ["bash", str(script)],
        cwd=project,
        env=environment(NAMELESS),
        check=True,
        timeout=60,
        stdin=subprocess.DEVNULL,
    )
    ended = []
    for at in range(1, 6):
        answer = json.loads((project / f"answer-{at}").read_text())
        code = int((project / f"code-{at}").read_text())
        ended.append((code, answer["already_held"], answer["reason"]))
    assert sorted(ended) == sorted([(0, False, "GRANTED"), *[others] * 4])
    assert len(list(project.glob("worked-*"))) == 1


def test_an_interactive_shell_counts_as_itself(project: Path) -> None:
    """In a real terminal, every command that is typed is the shell's: in pipes, substitutions and
    in the background too."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(project)
        os.execvpe(
            "bash",
            ["bash", "--norc", "--noprofile", "-i"],
            environment(NAMELESS | {"PS1": "$ ", "TERM": "dumb"}),
        )
    try:
        call = f"{SHOW}"
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
    typed, substituted, grouped, background = (
        (project / name).read_text().strip() for name in "1234"
    )
    assert typed.startswith(f"{host()}-{pid}-")
    assert typed == substituted == grouped == background


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65536)
    except OSError:
        return b""


# The rules, on processes as they could be


def tree(*commands: str | tuple[str, ...]) -> Any:
    """Processes from the command's own upwards, numbered from OWN down, which no real process has;
    the last is the system."""
    seen = {}
    for at, command in enumerate([("genlock", "next"), *commands]):
        seen[OWN - at] = SeenProcess(
            OWN - at, OWN - at - 1, (command,) if isinstance(command, str) else command
        )
    seen[OWN - len(commands) - 1] = SeenProcess(1, 0, ("/sbin/init",))
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
    [
        [],
        ["sshd: vera@pts/0"],
        [("cron", "-f")],
        [("bash", "-c", "x"), ("sh", "-c", "y")],
        ["containerd-shim"],
        [("systemd", "--user")],
    ],
    ids=str,
)
def test_where_nobody_stands_above_it_stops_and_says_what_to_set(above: list[Any]) -> None:
    with pytest.raises(NoSession) as raised:
        nearest(OWN, tree(*above))
    assert "set GENLOCK_SESSION" in str(raised.value)
    assert "--session" in str(raised.value)


CHILD_OF_INIT = """
import os, sys
from genlock import identity
from genlock.cli.group import run

really = identity.look
identity.look = lambda pid: really(pid)._replace(parent=1) if pid == os.getpid() else really(pid)
sys.exit(run(sys.argv[1:]))
"""


def test_at_pid_1_the_command_stops(project: Path) -> None:
    """Whose child an orphan becomes depends on the machine, so this one is told that it is
    init's."""
    done = subprocess.run(
        [PYTHON, "-c", CHILD_OF_INIT, "claim", "task"],
        cwd=project,
        env=environment(NAMELESS),
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert json.loads(done.stderr)["error"]["code"] == "NO_SESSION"
    assert run("show", "task", cwd=project).json()["generation"] == 0


def test_reading_needs_no_identity(project: Path) -> None:
    done = subprocess.run(
        [PYTHON, "-c", CHILD_OF_INIT, "ready", "-q"],
        cwd=project,
        env=environment(NAMELESS),
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "task\n")


def test_a_reused_pid_is_not_mistaken() -> None:
    mine = Process(host(), boot(), os.getpid(), start_time(os.getpid()) or 0, namespace())
    earlier = Process(host(), boot(), os.getpid(), mine.started - 1, namespace())
    assert session_of(mine) != session_of(earlier)
    assert process_of(session_of(mine)) == mine
    assert process_of(session_of(earlier)) is None
    assert session_of(
        Process(mine.host, "0000-another-boot", mine.pid, mine.started, mine.namespace)
    ) != session_of(mine)


@pytest.mark.parametrize(
    ("namespace", "name"),
    [
        (
            "4026531836",
            "box-7-900-b9f5",
        ),  # that of the machine itself: called as before there were namespaces in names
        ("4026532178", "box-7-900-b9f5-4026532178"),
        ("4026531836.4026532180", "box-7-900-b9f5-4026531836.4026532180"),
        ("none", "box-7-900-b9f5"),
        ("", "box-7-900-b9f5"),
    ],
)
def test_the_same_pid_in_two_containers_is_two_sessions(namespace: str, name: str) -> None:
    assert session_of(Process("box", "b9f5d605", 7, 900, namespace)) == name


LASTING_PARENT = "import subprocess, sys; sys.exit(subprocess.run(sys.argv[1:]).returncode)"


def in_namespace(
    folder: Path, options: tuple[str, ...], *words: str
) -> subprocess.CompletedProcess[str]:
    """`genlock` in namespaces of its own, called by a shell that stays."""
    command = [
        *namespaces.into(*options),
        "sh",
        "-c",
        '"$@"; exit',
        "sh",
        PYTHON,
        "-c",
        LASTING_PARENT,
        PYTHON,
        "-m",
        "genlock.cli",
        *words,
    ]
    return subprocess.run(
        command, cwd=folder, env=environment(NAMELESS), capture_output=True, text=True, check=False
    )


def test_a_session_in_a_container_has_the_namespace_in_its_name(project: Path) -> None:
    done = in_namespace(project, namespaces.SANDBOX, "claim", "task")
    assert done.returncode == 0, done.stderr
    session = json.loads(done.stdout)["claim"]["session_id"]
    assert re.search(r"-[0-9]+$", session)
    assert not session.endswith(f"-{INITIAL_NAMESPACE}")
    assert process_of(session) is None, "outside it is nobody's name"
    (line,) = run("sessions", cwd=project).json()["sessions"]
    assert (line["session_id"], line["process_gone"]) == (session, False)


def test_where_proc_shows_another_namespace_the_command_stops_and_says_what_to_set(
    project: Path,
) -> None:
    """What has our pid there is somebody else, and would be taken for the session of all who run
    so."""
    done = in_namespace(project, namespaces.BORROWED_PROC, "claim", "task")
    assert (done.returncode, done.stdout) == (2, "")
    error = json.loads(done.stderr)["error"]
    assert error["code"] == "NO_SESSION"
    assert error["message"].startswith(
        "cannot tell which agent this is: /proc shows another pid namespace than the one this "
        "command runs in; say who you are: set GENLOCK_SESSION"
    )
    assert run("show", "task", cwd=project).json()["generation"] == 0


@pytest.mark.parametrize(
    "name",
    [
        "alice",
        "a-1-2",
        "vm-1-x",
        "a-99999999999-1",
        "-",
        "",
        "host-1-1-ffff",
        f"{os.uname().nodename}-9999999999-1",
        f"{os.uname().nodename}-0-1",
    ],
)
def test_a_name_that_only_looks_like_a_process_is_none(name: str) -> None:
    assert process_of(name) is None


def test_ps_sees_what_proc_sees() -> None:
    with subprocess.Popen(["sleep", "60"]) as child:
        try:
            assert identity.look_by_ps(child.pid) == identity.look(child.pid)
            assert identity.look_by_ps(child.pid) == SeenProcess(
                child.pid, os.getpid(), ("sleep", "60")
            )
        finally:
            child.kill()
    assert identity.look_by_ps(2**22 - 1) is None
