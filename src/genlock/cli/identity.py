"""Which session a call belongs to: --session, $GENLOCK_SESSION, else the process on whose behalf it was made.

An agent's tool runs every command in a fresh `bash -c`; a script runs them in subshells. So the parent's pid says nothing. We go up from
the parent to the nearest process that is no launcher:

    launchers          programs that only start others (env, timeout, xargs, make, npx, uv …), and shells with -c
    shells             one with a script, or that reads its commands from a terminal or a pipe, counts as itself
    subshells          `$(…)`, `… | while …`, `( … )`: a copy of their shell, and one with it
    the background     whatever a script has put there with & is a worker of its own: a subshell, a launcher, `bash -c`, this command itself
    side by side       so is each child of `parallel`, and of `xargs -P`

So `for i in 1 2 3; do worker.sh & done` is three sessions, and so is `worker() { …; }; worker &` three times. To take one worker for two
costs a refusal; to take two for one would let both have the same task. What cannot be told apart: parts of a script that runs in the
background as a whole, workers below `timeout … &`, commands that one program starts side by side. Those set GENLOCK_SESSION.

The session's process goes into the claim: when it ends the claim is over-due. A pid is used again, so it counts with its start time.
If the session is this very command (`genlock next &`), which ends at once, its process is not noted, and only the lease decides.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final, NamedTuple

from genlock.core.model import Process
from genlock.engine.processes import boot, host, start_time
from genlock.errors import BadArgument

if TYPE_CHECKING:
    from genlock.coordinator import Coordinator

SHELLS: Final = frozenset({"sh", "bash", "dash", "ash", "zsh", "fish", "ksh", "ksh93", "mksh", "rbash", "csh", "tcsh", "busybox"})

# fmt: off
LAUNCHERS: Final = frozenset({
    "bunx", "chroot", "chrt", "corepack", "direnv", "doas", "eatmydata", "env", "firejail", "flock", "genlock", "gmake", "hatch",
    "ionice", "just", "ltrace", "make", "mise", "nice", "ninja", "nohup", "npm", "npm-cli.js", "npx", "npx-cli.js", "parallel", "pdm",
    "perf", "pipx", "pixi", "pnpm", "pnpm.cjs", "pnpx", "poetry", "pyenv", "rbenv", "rye", "script", "setarch", "setsid", "stdbuf",
    "strace", "su", "sudo", "systemd-run", "task", "taskset", "time", "timeout", "unbuffer", "unshare", "uv", "uvx", "valgrind",
    "watch", "xargs", "yarn", "yarn.js",
})
# fmt: on
"""What only starts others. An interpreter counts by the script or module it runs."""

INTERPRETERS: Final = frozenset({"python", "pypy", "node", "nodejs", "bun", "deno", "ruby", "perl"})

NOBODY: Final = frozenset(
    {"init", "systemd", "launchd", "sshd", "sshd-session", "cron", "crond", "atd", "tini", "dumb-init", "docker-init", "containerd-shim"}
)
"""What starts programs for everyone: to be its child says nothing."""

ADVICE: Final = "say who you are: set GENLOCK_SESSION to a name that stays the same for this agent and is nobody else's, or pass --session"

_SIGINT, _SIGQUIT = 2, 3
_FARTHEST = 64


class NoSession(BadArgument):
    """It cannot be told on whose behalf the command runs."""


class Seen(NamedTuple):
    """A process as the system shows it."""

    pid: int
    parent: int
    group: int
    foreground: int
    """The group in the foreground of its terminal; -1 without a terminal."""
    command: tuple[str, ...]


class Who(NamedTuple):
    """A session, the process that it is (None: not known), and a name for its agent."""

    session: str
    process: Process | None
    agent: str


def identify_caller(session: str | None) -> Who:
    """Who calls: the session that was named, else the process on whose behalf we run."""
    if session is not None:
        return Who(session, process_of(session), session)
    seen = nearest(os.getpid(), look)
    started = start_time(seen.pid)
    if started is None:
        raise NoSession(f"the process {seen.pid} that started this command has ended; {ADVICE}")
    process = Process(host(), boot(), seen.pid, started)
    return Who(session_of(process), None if seen.pid == os.getpid() else process, f"{_short(_title(seen.command))}-{seen.pid}")


def agent_of_claim(fleet: Coordinator, session: str, task: str, generation: int) -> str | None:
    """Whom this session was granted the task for at this generation, also if the right has moved on; None if it was not.

    What is looked up here cannot change any more, so that it may be looked up before the act and beside the fence.
    """
    claim = fleet.get_task_state(task_id=task).claim
    if claim is not None and (claim.session_id, claim.generation) == (session, generation):
        return claim.agent_id
    told = fleet.get_lineage(task_id=task).generations
    return next((entry.agent_id for entry in told if (entry.session_id, entry.generation) == (session, generation)), None)


def session_of(process: Process) -> str:
    """The id of a process's session: host, pid, start time, and the beginning of the boot's id, since both may recur after a reboot."""
    return "-".join([_short(process.host), str(process.pid), str(process.started), *([process.boot[:4]] if process.boot else [])])


def process_of(session: str) -> Process | None:
    """The process that a session is by its id, if it is one of ours and runs here and now."""
    parts = session.removesuffix(f"-{boot()[:4]}").rsplit("-", 2)
    if len(parts) != 3 or not (parts[1].isdecimal() and parts[2].isdecimal()) or len(parts[1]) > 10:
        return None
    process = Process(host(), boot(), int(parts[1]), int(parts[2]))
    return process if session_of(process) == session and start_time(process.pid) == process.started else None


def nearest(pid: int, look: Callable[[int], Seen | None]) -> Seen:
    """The nearest process upwards that is no launcher; `pid` is the command's own, and only a session if it was set going by itself."""
    passed = []
    for seen, parent in _upwards(pid, look):
        name = _name(seen.command)
        if seen.pid <= 1 or name in NOBODY:
            break
        if _is_set_going(seen, name, parent) or (seen.pid != pid and not _is_launcher(seen, name, parent)):
            return seen
        if seen.pid != pid:
            passed.append(name)
    way = " < ".join(passed) or "nothing"
    raise NoSession(f"cannot tell which agent this is: above this command there is {way}, and then the system; {ADVICE}")


def _upwards(pid: int, look: Callable[[int], Seen | None]) -> Iterator[tuple[Seen, Seen | None]]:
    """Each process with its parent."""
    seen = look(pid)
    for _ in range(_FARTHEST):
        if seen is None:
            return
        parent = look(seen.parent) if seen.parent > 0 else None
        yield seen, parent
        seen = parent


def _is_set_going(seen: Seen, name: str, parent: Seen | None) -> bool:
    """Did a script put it into the background, or a launcher start it beside others? (Shells are looked at more closely below.)"""
    if parent is None or name in SHELLS:
        return False
    above = _name(parent.command)
    if above in SHELLS:
        # An interactive shell, which has job control, does not do this; what is typed there belongs to it also with an & behind.
        return not _ignores(parent.pid, _SIGINT) and _ignores(seen.pid, _SIGINT)
    return above == "parallel" or (above == "xargs" and any(word.startswith(("-P", "--max-procs")) for word in parent.command[1:]))


def _is_launcher(seen: Seen, name: str, parent: Seen | None) -> bool:
    if name not in SHELLS:
        return name in LAUNCHERS
    if parent is not None and _is_set_going(seen, "", parent) and _name(parent.command) not in SHELLS:
        return False
    below_shell = parent is not None and _name(parent.command) in SHELLS
    forked = below_shell and parent is not None and parent.command == seen.command
    if not forked and not _runs_a_command(seen.command):
        return False
    return not (below_shell and parent is not None and _in_background(seen, parent, forked=forked))


def _runs_a_command(command: tuple[str, ...]) -> bool:
    """`-c`, perhaps among other letters, before anything that is no option."""
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


def _in_background(seen: Seen, parent: Seen, *, forked: bool) -> bool:
    """Did the shell `parent` put it there with &?

    With job control a job has a group of its own, which is not the terminal's while it is in the background. Without, POSIX has the
    shell make it ignore SIGINT and SIGQUIT; bash ignores SIGQUIT always, but not in its subshells of the foreground. Of a shell
    that ignores SIGINT itself nothing can be told.
    """
    if seen.foreground > 0 and seen.group != parent.group:
        return seen.group != seen.foreground
    return not _ignores(parent.pid, _SIGINT) and _ignores(seen.pid, _SIGQUIT if forked else _SIGINT)


def _ignores(pid: int, signal: int) -> bool:
    try:
        with open(f"/proc/{pid}/status", "rb") as file:
            for line in file:
                if line.startswith(b"SigIgn:"):
                    return bool(int(line.split()[1], 16) >> (signal - 1) & 1)
    except OSError:
        pass
    return False


def _name(command: tuple[str, ...]) -> str:
    """What a process is by what it runs: a script or module rather than its interpreter."""
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
    """The last part of a path; of a title that a program gave itself ("npm exec x", "sshd: x") the first word."""
    words = path.lstrip("-").split()
    return os.path.basename(words[0] if words else path).removesuffix(":") or "process"


def _title(command: tuple[str, ...]) -> str:
    """What to call its agent."""
    name = _name(command)
    if name in SHELLS and len(command) > 1 and not command[1].startswith(("-", "+")):
        name = _base(command[1])
    if not any(map(str.isalpha, name)):
        name = "agent"
    for ending in (".py", ".js", ".cjs", ".mjs", ".ts", ".sh", ".rb"):
        name = name.removesuffix(ending)
    return name


def _short(name: str) -> str:
    return "".join(char if char.isprintable() and char not in "/ " else "_" for char in name)[:48] or "process"


def look(pid: int) -> Seen | None:
    """A process of this machine; None if it does not exist or may not be looked at."""
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
    return Seen(pid, int(fields[1]), int(fields[2]), int(fields[5]), words)


def look_by_ps(pid: int) -> Seen | None:
    """The same where there is no /proc. Arguments with blanks come apart there, which the rules above bear."""
    import subprocess

    columns = ["ps", "-o", "ppid=", "-o", "pgid=", "-o", "tpgid=", "-o", "args=", "-p", str(pid)]
    shown = subprocess.run(columns, capture_output=True, text=True, errors="surrogateescape", check=False).stdout.split(None, 3)
    if len(shown) < 4:
        return None
    parent, group, foreground, command = shown
    return Seen(pid, int(parent), int(group), int(foreground) or -1, tuple(command.split()))
