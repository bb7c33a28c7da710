"""The session that a caller belongs to: --session, $GENLOCK_SESSION, or the process that called.

An agent's tool runs every command in a new `bash -c`, and a script runs commands in subshells, so
the pid of the parent says nothing. The session is the nearest process above the command that is
more than a launcher:

    launchers       programs that only start others (env, timeout, xargs, make, npx, uv, ...), and
                    shells with -c, are skipped
    shells          a shell that runs a script, or reads commands from a terminal or a pipe, is a
                    session
    subshells       `$(...)`, `... | while ...`, `( ... )` and `worker &` belong to their shell
    side by side    each child of `parallel` and of `xargs -P` is a session

A script is therefore one session, in a terminal, in the background, under nohup, cron and systemd
alike: nothing is concluded from ignored signals or from process groups (ADR 51). If a script starts
several workers with &, they share its session. A task that one of them holds is `already_held` for
the others (exit code 6). GENLOCK_AGENT or GENLOCK_SESSION tells them apart.

The claim holds the session's process: when the process ends, the claim is overdue. Pids are reused,
and every container counts its own, so start time and namespace count too. If the session is this
command itself (`xargs -P 4 genlock next`), which ends at once, the claim holds no process, and only
the lease decides.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final, NamedTuple

from genlock.core.model import Process
from genlock.core.process_identity import NO_NAMESPACES
from genlock.engine.processes import (
    INITIAL_NAMESPACE,
    observer,
    sees_its_namespace,
    start_time,
)
from genlock.engine.processes import identify as identify
from genlock.errors import BadArgument

if TYPE_CHECKING:
    from genlock.coordinator import Coordinator

SHELLS: Final = frozenset(
    {
        "sh",
        "bash",
        "dash",
        "ash",
        "zsh",
        "fish",
        "ksh",
        "ksh93",
        "mksh",
        "rbash",
        "csh",
        "tcsh",
        "busybox",
    }
)

# fmt: off
LAUNCHERS: Final = frozenset({
    "bunx", "chroot", "chrt", "corepack", "direnv", "doas", "eatmydata", "env", "firejail",
    "flock", "genlock", "gmake", "hatch",
    "ionice", "just", "ltrace", "make", "mise", "nice", "ninja", "nohup", "npm", "npm-cli.js",
    "npx", "npx-cli.js", "parallel", "pdm",
    "perf", "pipx", "pixi", "pnpm", "pnpm.cjs", "pnpx", "poetry", "pyenv", "rbenv", "rye",
    "script", "setarch", "setsid", "stdbuf",
    "strace", "su", "sudo", "systemd-run", "task", "taskset", "time", "timeout", "unbuffer",
    "unshare", "uv", "uvx", "valgrind",
    "watch", "xargs", "yarn", "yarn.js",
})
# fmt: on
"""Programs that only start others. An interpreter counts as the script or module it runs."""

INTERPRETERS: Final = frozenset({"python", "pypy", "node", "nodejs", "bun", "deno", "ruby", "perl"})

NOBODY: Final = frozenset(
    {
        "init",
        "systemd",
        "launchd",
        "sshd",
        "sshd-session",
        "cron",
        "crond",
        "atd",
        "tini",
        "dumb-init",
        "docker-init",
        "containerd-shim",
    }
)
"""Programs that start processes for every user (init, sshd …): being their child identifies
nothing."""

ADVICE: Final = (
    "say who you are: set GENLOCK_SESSION to a name that stays the same for this "
    "agent and is nobody else's, or pass --session"
)

_FARTHEST = 64


class NoSession(BadArgument):
    """Genlock cannot determine the session of the command."""


class SeenProcess(NamedTuple):
    """A process as the system shows it."""

    pid: int
    parent: int
    command: tuple[str, ...]


class CallerIdentity(NamedTuple):
    """A session, the process that it is (None: not known), and a name for its agent."""

    session: str
    process: Process | None
    agent: str


def identify_caller(session: str | None) -> CallerIdentity:
    """Returns the named session, else the session of the calling process."""
    if session is not None:
        return CallerIdentity(session, process_of(session), session)
    if not sees_its_namespace():
        raise NoSession(
            "cannot tell which agent this is: /proc shows another pid namespace than the one this "
            f"command runs in; {ADVICE}"
        )
    seen = nearest(os.getpid(), look)
    process = identify(seen.pid)
    if process is None:
        raise NoSession(
            f"the process {seen.pid} that started this command has ended, or cannot be seen from "
            f"here; {ADVICE}"
        )
    return CallerIdentity(
        session_of(process),
        None if seen.pid == os.getpid() else process,
        f"{_short(_title(seen.command))}-{seen.pid}",
    )


def identify_process(session: str | None, agent: str, pid: int) -> CallerIdentity:
    """Returns the identity of a process that lives as long as its work; `session` names its
    session."""
    process = identify(pid)
    if session is None and process is None:
        raise NoSession(f"cannot tell which process this is; {ADVICE}")
    name = session if process is None or session is not None else session_of(process)
    assert name is not None
    return CallerIdentity(name, process, f"{_short(agent)}-{pid}")


def agent_of_claim(fleet: Coordinator, session: str, task: str, generation: int) -> str | None:
    """The agent for which this session was granted the task at this generation, even if another
    session has it now; None if this session was never granted it.

    A grant in the history never changes, so it may be read before the act and outside the fence.
    """
    claim = fleet.get_task_state(task_id=task).claim
    if claim is not None and (claim.session_id, claim.generation) == (session, generation):
        return claim.agent_id
    told = fleet.get_lineage(task_id=task).generations
    return next(
        (
            entry.agent_id
            for entry in told
            if (entry.session_id, entry.generation) == (session, generation)
        ),
        None,
    )


def session_of(process: Process) -> str:
    """The id of a process's session: host, pid and start time, then boot and namespace."""
    return "-".join([_short(process.host), str(process.pid), str(process.started)]) + _ending(
        process.boot, process.namespace
    )


def _ending(boot: str, namespace: str) -> str:
    """The beginning of the boot's id, since pid and start time may recur after a reboot, and the
    namespace, since every container counts its pids from 1. Outside containers there is none."""
    named = namespace not in ("", NO_NAMESPACES, INITIAL_NAMESPACE)
    return (f"-{boot[:4]}" if boot else "") + (f"-{namespace}" if named else "")


def process_of(session: str) -> Process | None:
    """The process that this session's id names, if it is alive on this machine."""
    here = observer()
    parts = session.removesuffix(_ending(here.boot, here.namespace)).rsplit("-", 2)
    if (
        len(parts) != 3
        or not (parts[1].isdecimal() and parts[2].isdecimal())
        or not 1 <= len(parts[1]) <= 10
    ):
        return None
    process = Process(here.host, here.boot, int(parts[1]), int(parts[2]), here.namespace)
    return (
        process
        if session_of(process) == session and start_time(process.pid) == process.started
        else None
    )


def nearest(pid: int, look: Callable[[int], SeenProcess | None]) -> SeenProcess:
    """Returns the nearest ancestor of `pid` that is not a launcher, or one below it that runs side
    by side with others. `pid` is the command's own process."""
    passed = []
    for seen, parent in _upwards(pid, look):
        name = _name(seen.command)
        if seen.pid <= 1 or name in NOBODY:
            break
        if (parent is not None and _starts_side_by_side(parent.command)) or (
            seen.pid != pid and not _is_launcher(seen, name, parent)
        ):
            return seen
        if seen.pid != pid:
            passed.append(name)
    way = " < ".join(passed) or "nothing"
    raise NoSession(
        f"cannot tell which agent this is: above this command there is {way}, and then the system; "
        f"{ADVICE}"
    )


def _upwards(
    pid: int, look: Callable[[int], SeenProcess | None]
) -> Iterator[tuple[SeenProcess, SeenProcess | None]]:
    """Each process with its parent."""
    seen = look(pid)
    for _ in range(_FARTHEST):
        if seen is None:
            return
        parent = look(seen.parent) if seen.parent > 0 else None
        yield seen, parent
        seen = parent


def _starts_side_by_side(command: tuple[str, ...]) -> bool:
    """Is it a launcher that runs several commands at once?"""
    name = _name(command)
    return name == "parallel" or (
        name == "xargs" and any(word.startswith(("-P", "--max-procs")) for word in command[1:])
    )


def _is_launcher(seen: SeenProcess, name: str, parent: SeenProcess | None) -> bool:
    if name not in SHELLS:
        return name in LAUNCHERS
    forked = parent is not None and parent.command == seen.command
    return forked or _runs_a_command(seen.command)


def _runs_a_command(command: tuple[str, ...]) -> bool:
    """Is there a `-c`, perhaps combined with other letters, before the first word that is not an
    option?"""
    arguments = list(command[1:])
    if _base(command[0]) == "busybox" and arguments:
        arguments.pop(0)
    while arguments and arguments[0][:1] in ("-", "+") and arguments[0] not in ("-", "--"):
        option = arguments.pop(0)
        if option == "--command" or (option[:2] != "--" and "c" in option[1:]):
            return True
        if option in ("-o", "+o", "-O", "+O", "--rcfile", "--init-file") and arguments:
            arguments.pop(0)
    return False


def _name(command: tuple[str, ...]) -> str:
    """Returns the program's name; for an interpreter, the name of the script or module it runs."""
    name = _base(command[0])
    plain = name.rstrip("0123456789.")
    if plain not in INTERPRETERS:
        return name
    arguments = list(command[1:])
    while arguments and arguments[0].startswith("-"):
        option = arguments.pop(0)
        if option == "-m" and arguments:
            return arguments[0].partition(".")[0]
        if option in ("-c", "-e", "-"):
            return plain
        if option in ("-X", "-W", "-r", "--require", "--import", "--loader") and arguments:
            arguments.pop(0)
    return _base(arguments[0]) if arguments else plain


def _base(path: str) -> str:
    """The last part of a path, or the first word of a title that a program gave itself ("npm exec
    x", "sshd: x")."""
    words = path.lstrip("-").split()
    return os.path.basename(words[0] if words else path).removesuffix(":") or "process"


def _title(command: tuple[str, ...]) -> str:
    """Returns the agent name for this command."""
    name = _name(command)
    if name in SHELLS and len(command) > 1 and not command[1].startswith(("-", "+")):
        name = _base(command[1])
    if not any(map(str.isalpha, name)):
        name = "agent"
    for ending in (".py", ".js", ".cjs", ".mjs", ".ts", ".sh", ".rb"):
        name = name.removesuffix(ending)
    return name


def _short(name: str) -> str:
    return (
        "".join(char if char.isprintable() and char not in "/ " else "_" for char in name)[:48]
        or "process"
    )


def look(pid: int) -> SeenProcess | None:
    """Reads a process of this machine; None if it does not exist or cannot be read."""
    if not os.path.exists("/proc/self/stat"):
        return look_by_ps(pid)
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            stat = file.read()
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            command = os.fsdecode(file.read())
    except OSError:
        return None
    # The name is in brackets and may itself contain brackets and blanks.
    fields = stat[stat.rindex(b")") + 2 :].split()
    name = os.fsdecode(stat[stat.index(b"(") + 1 : stat.rindex(b")")])
    words = tuple(command.rstrip("\0").split("\0")) if command else (name,)
    return SeenProcess(pid, int(fields[1]), words)


def look_by_ps(pid: int) -> SeenProcess | None:
    """Reads a process with `ps`, where there is no /proc. `ps` splits arguments at blanks; the
    rules above allow for that."""
    import subprocess

    columns = ["ps", "-o", "ppid=", "-o", "args=", "-p", str(pid)]
    shown = subprocess.run(
        columns, capture_output=True, text=True, errors="surrogateescape", check=False
    ).stdout.split(None, 1)
    if len(shown) < 2:
        return None
    return SeenProcess(pid, int(shown[0]), tuple(shown[1].split()))
