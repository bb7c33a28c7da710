"""The entry point: which verbs there are, and what became of one.

A verb's module is imported when the verb is called, so that a call pays for itself alone; that is why its line of help stands here.
`version` is answered from here: it is what people time.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress

SECTIONS: dict[str, dict[str, tuple[str, str]]] = {
    "Start": {
        "init": ("start:init", "Make a project's store here."),
        "dev": ("serving:dev", "Try it: a service with a sample plan and agents at work."),
        "serve": ("serving:serve", "Serve the store to agents on other machines, over HTTP."),
        "demo": ("demo:demo", "Watch a real fleet: a crash, a zombie, a takeover."),
        "doctor": ("doctor:doctor", "Check the store and say what to type."),
    },
    "Plan": {
        "plan": ("plan:plan", "Check, import, compare, show and export plans."),
        "add": ("planning:add", "Add a task."),
        "edit": ("planning:edit", "Change a task's definition."),
        "next-id": ("planning:next_id", "Take the next free id."),
        "graph": ("graph:graph", "Draw who waits for whom."),
        "blocking": ("graph:blocking", "What a task waits for, and what waits for it."),
    },
    "Work": {
        "ready": ("reading:ready", "What could be claimed now."),
        "next": ("working:next_task", "Claim whatever comes first."),
        "claim": ("working:claim", "Claim a task."),
        "renew": ("working:renew", "Renew a lease."),
        "submit": ("submitting:submit", "Hand in a result."),
        "release": ("working:release", "Give a claim back."),
        "spawn": ("submitting:spawn", "Split a task into subtasks."),
    },
    "Look": {
        "status": ("watching:status", "How it stands: who is on what, what is stuck, what is next."),
        "show": ("reading:show", "All about a task."),
        "history": ("reading:history", "A task's generations, and the results refused."),
        "explain": ("reading:explain", "Why a task is not ready, and what would change that."),
        "agents": ("watching:agents", "Who is at work."),
        "sessions": ("watching:sessions", "The sessions, and what they hold."),
        "events": ("events:events", "The feed of the project."),
        "refused": ("watching:refused", "Refused results that are kept."),
    },
    "Operate": {
        "assign": ("operating:assign", "Reserve a task for an agent."),
        "unlock": ("operating:unlock", "Take a claim away from its holder."),
        "reset": ("operating:reset", "Have a task done again."),
        "cancel": ("operating:cancel", "Cancel a task."),
        "hold": ("operating:hold", "Let nobody have a task."),
        "reopen": ("operating:reopen", "Open a held task again."),
        "adopt": ("refusals:adopt", "Make a refused result count."),
        "discard": ("refusals:discard", "Give a refused result up."),
        "sweep": ("operating:sweep", "Look once for what fell due or was cut off."),
        "policy": ("policy:policy", "Show and set a project's policy."),
    },
    "Admit": {
        "keys": ("keys:keys", "Create, list, rotate and revoke keys that open the service."),
        "tenant": ("tenant:tenant", "List tenants, show and set their limits."),
    },
    "Keep": {
        "export": ("keeping:export", "Everything as JSON lines."),
        "backup": ("keeping:backup", "A consistent copy of the live store."),
        "restore": ("keeping:restore", "Put a backup in the store's place."),
        "db": ("db:db", "Create, migrate and check a store, and say what it is."),
        "copy": ("copying:copy", "Copy a store to another, of any kind."),
        "config": ("config:config", "Settings, and where they come from."),
        "completion": ("config:completion", "Completion for your shell."),
        "version": ("config:version", "The version."),
    },
}


def main(arguments: list[str] | None = None) -> None:
    """The command `genlock`."""
    arguments = sys.argv[1:] if arguments is None else arguments
    _open_closed_streams()
    if arguments[:1] in (["version"], ["--version"]) and set(arguments[1:]) <= {"--json", "--quiet", "-q"}:
        _leave(_say_version(arguments))
    try:
        _hurry()
        from genlock.cli.group import run

        _leave(run(arguments))
    except KeyboardInterrupt:  # so early that there is nobody yet to say it properly
        print("genlock: broken off", file=sys.stderr)
        _leave(130)


def _hurry() -> None:
    """Spare what a short-lived process has no use for: together it is a quarter of the time of a call."""
    import gc
    import gettext

    # Importing makes tens of thousands of objects that stay; looking for garbage among them finds none.
    gc.set_threshold(100_000, 50, 100)
    # click looks on the disk for translations of its messages; it has none, and ours are in English.
    gettext.gettext = lambda message: message


def _leave(code: int) -> None:
    """End without taking every module apart first. What was opened has been closed by then; what was registered for the end is run."""
    import atexit

    atexit._run_exitfuncs()
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except OSError as error:
        code = code or _unwritten(error)
    os._exit(code)


def _say_version(arguments: list[str]) -> int:
    try:
        show_version(as_json="--json" in arguments, quiet=len(arguments) > 1)
        sys.stdout.flush()
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return _unwritten(error)
    return 0


def _unwritten(error: OSError) -> int:
    """The exit code if the answer cannot be written. That nobody reads it any more is not worth a word."""
    if isinstance(error, BrokenPipeError):
        return 141
    with suppress(OSError):
        print(f"genlock: the answer cannot be written: {error.strerror}", file=sys.stderr, flush=True)
    return 1


def show_version(*, as_json: bool, quiet: bool) -> None:
    """The version, without any import that could be spared."""
    from genlock import __version__

    if as_json or not (quiet or sys.stdout.isatty()):
        python = ".".join(map(str, sys.version_info[:3]))
        print(f'{{"python":"{python}","version":"{__version__}"}}')
    else:
        print(__version__ if quiet else f"genlock {__version__}")


def _open_closed_streams() -> None:
    """A caller may have closed stdout or stderr; what is meant for one must not land in the other, or in a file opened later.

    In a closed stdin there is nothing to be read.
    """
    if sys.stdin is None:
        sys.stdin = open(os.devnull, encoding="utf-8")  # noqa: SIM115 - until the end
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115 - until the end
