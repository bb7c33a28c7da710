"""The entry point: the table of commands, and the exit code of a call.

A command's module is imported when the command is called, so that a call does not pay for others.
That is why its line of help is here. `version` is answered here, because people time it.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress

SECTIONS: dict[str, dict[str, tuple[str, str]]] = {
    "Start": {
        "init": ("init:init", "Create the project's store here."),
        "dev": ("serve:dev", "Try it: a service with a sample plan and agents at work."),
        "serve": ("serve:serve", "Serve the store to agents on other machines, over HTTP."),
        "link": ("serve:link", "Print a link that signs a browser in to your service."),
        "demo": ("serve:demo", "Watch a real fleet: a crash, a zombie, a takeover."),
        "doctor": ("doctor:doctor", "Check the store and say what to type."),
    },
    "Plan": {
        "plan": ("plan:plan", "Check, import, compare, show and export plans."),
        "add": ("task:add", "Add a task."),
        "edit": ("task:edit", "Change a task's definition."),
        "next-id": ("task:next_id", "Take the next free id."),
        "graph": ("graph:graph", "Draw the dependencies between tasks."),
        "blocking": ("graph:blocking", "Show what a task waits for, and what waits for it."),
    },
    "Work": {
        "ready": ("show:ready", "List the tasks that can be claimed now."),
        "next": ("claims:next_task", "Claim the next task."),
        "claim": ("claims:claim", "Claim a task."),
        "renew": ("claims:renew", "Renew a lease."),
        "submit": ("results:submit", "Submit a result."),
        "product": ("product:product", "Put, get, list and promote work products."),
        "release": ("claims:release", "Release a claim."),
        "spawn": ("results:spawn", "Split a task into subtasks."),
        "run": ("run:run", "Run a command under a claim."),
        "work": ("work:work", "Run a fleet of coding agents on the plan."),
    },
    "Agents": {
        "setup": ("setup:setup", "Register Genlock with an agent's client, for this project."),
        "mcp": ("mcp:mcp", "Serve the plan to an agent over MCP, on stdin and stdout."),
        "hook": ("hook:hook", "React to an event of an agent's session; clients call this."),
        "prime": ("prime:prime", "Print what an agent should know of the plan when it begins."),
    },
    "Inspect": {
        "status": (
            "status:status",
            "Show the plan: who does what, what is stuck, what is next.",
        ),
        "list": ("show:list_tasks", "List tasks: filtered, sorted and by page."),
        "show": ("show:show", "Show everything about a task."),
        "history": ("show:history", "Show a task's generations and its refused results."),
        "explain": ("show:explain", "Explain why a task is not ready, and what would change that."),
        "agents": ("status:agents", "List the agents and what each does."),
        "session": ("session:session", "Start, keep alive, show, end or run a session."),
        "sessions": ("status:sessions", "List the sessions and what they hold."),
        "events": ("events:events", "Show the project's events."),
        "refused": ("status:refused", "List the refused results."),
    },
    "Operate": {
        "assign": ("operator:assign", "Reserve a task for an agent."),
        "unlock": ("operator:unlock", "Take a claim away from its holder."),
        "reset": ("operator:reset", "Reopen a completed task, to be done again."),
        "cancel": ("operator:cancel", "Cancel a task."),
        "hold": ("operator:hold", "Keep a task from being claimed."),
        "reopen": ("operator:reopen", "Reopen a held task."),
        "adopt": ("results:adopt", "Make a refused result the task's result."),
        "discard": ("results:discard", "Discard a refused result."),
        "review": ("review:review", "List, decide and evaluate results in review."),
        "sweep": ("operator:sweep", "Process overdue claims, and finish what a crash cut off."),
        "policy": ("policy:policy", "Show and set a project's policy."),
        "roles": ("review:roles", "Import, show and check agent_roles.yml."),
        "guard": ("guard:guard", "Keep stale work out of a git repository."),
        "worktree": ("worktree:worktree", "Make, list and remove the git worktrees of tasks."),
    },
    "Access": {
        "keys": ("keys:keys", "Create, list, rotate and revoke keys for the service."),
        "tenant": ("tenant:tenant", "List tenants, show and set their limits."),
        "login": ("keys:login", "Store your key for a service."),
        "logout": ("keys:logout", "Remove your key for a service."),
        "trust": ("trust:trust", "Consent to a project's store or folder."),
    },
    "Maintain": {
        "export": ("backup:export", "Export everything as JSON lines."),
        "backup": ("backup:backup", "Make a consistent copy of the live store."),
        "restore": ("backup:restore", "Replace the store by a backup."),
        "db": ("db:db", "Create, migrate, check and describe a store."),
        "folder": ("folder:folder", "Compare task files with their records, and decide."),
        "copy": ("backup:copy", "Copy a store to one of any kind."),
        "config": ("config:config", "Show and change settings."),
        "completion": ("config:completion", "Print the completion script for your shell."),
        "version": ("config:version", "Print the version."),
    },
}


def main(arguments: list[str] | None = None) -> None:
    """The command `genlock`."""
    arguments = sys.argv[1:] if arguments is None else arguments
    _open_closed_streams()
    if arguments[:1] in (["version"], ["--version"]) and set(arguments[1:]) <= {
        "--json",
        "--quiet",
        "-q",
    }:
        _leave(_say_version(arguments))
    code = 1
    try:
        _hurry(arguments[0] if arguments else "")
        from genlock.cli.group import run

        code = run(arguments)
    except KeyboardInterrupt:  # too early for the usual handling
        print("genlock: broken off", file=sys.stderr)
        code = 130
    finally:
        if code:
            from genlock.cli.inputs import fail_export

            fail_export(arguments, code)
    _leave(code)


def _hurry(verb: str) -> None:
    """Skips work that a short-lived process does not need: together a third of the time of a
    call."""
    import gc
    import gettext

    from genlock.cli.deferred_imports import defer_imports

    # Imports create tens of thousands of permanent objects; a garbage collection would find
    # nothing.
    gc.set_threshold(100_000, 50, 100)
    # Click searches the disk for translations of its messages; it has none, and ours are in
    # English.
    gettext.gettext = lambda message: message
    defer_imports(verb)


def _leave(code: int) -> None:
    """Exits without the interpreter's teardown of all modules. Everything opened is closed by now;
    functions registered with `atexit` still run."""
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
        wanted = os.environ.get("GENLOCK_OUTPUT", "").lower()
        in_text = wanted == "text" or (wanted != "json" and sys.stdout.isatty())
        as_json, quiet = "--json" in arguments, len(arguments) > 1
        show_version(as_json=as_json or not (quiet or in_text), quiet=quiet)
        sys.stdout.flush()
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return _unwritten(error)
    return 0


def _unwritten(error: OSError) -> int:
    """Returns the exit code if the answer cannot be written. A reader that has gone is not
    reported."""
    if isinstance(error, BrokenPipeError):
        return 141
    with suppress(OSError):
        print(
            f"genlock: the answer cannot be written: {error.strerror}", file=sys.stderr, flush=True
        )
    return 1


def show_version(*, as_json: bool, quiet: bool) -> None:
    """Prints the version, with as few imports as possible."""
    from genlock import __version__

    if as_json:
        python = ".".join(map(str, sys.version_info[:3]))
        print(f'{{"python":"{python}","version":"{__version__}"}}')
    else:
        print(__version__ if quiet else f"genlock {__version__}")


def _open_closed_streams() -> None:
    """Reopens closed standard streams on /dev/null: otherwise output for stdout or stderr could end
    up in the other, or in a file opened later.

    A closed stdin reads as empty.
    """
    if sys.stdin is None:
        sys.stdin = open(os.devnull, encoding="utf-8")  # noqa: SIM115 - until the end
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            # Stays open until the process ends
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115
