"""Completion in the shell: commands from the table, options from the command, tasks and tracks from
the project's store."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, ClassVar, Final

import click
from click.shell_completion import (
    BashComplete,
    CompletionItem,
    ShellComplete,
    get_completion_class,
    split_arg_string,
)

from genlock.cli.answers import Answers
from genlock.errors import GenlockError
from genlock.safe_text import safe_line

if TYPE_CHECKING:
    from genlock.cli.app import App

NAME = "genlock"
VARIABLE = "_GENLOCK_COMPLETE"
SHELLS = ("bash", "zsh", "fish")

_PLAIN: Final = re.compile(r"[\w@%+=:,./-]*")
"""Names that are safe on a command line without quotes. A service may return anything as the name
of a task, even a command or a line break."""

_OPTION: Final = "-"
"""Names that begin with this are not offered: a completed `--url=…` would lead the call to another
service."""

_MOST_OFFERED = 200
_MOST_LOOKED_AT = 5_000


_BASH: Final = """\
%(complete_func)s() {
    local IFS=$'\\n'
    local response completion type value

    response=$(env COMP_LINE="${COMP_LINE:0:$COMP_POINT}" \\
        COMP_WORD="${COMP_WORDS[COMP_CWORD]}" %(complete_var)s=bash_complete "$1")

    for completion in $response; do
        IFS=',' read -r type value <<< "$completion"
        if [[ $type == 'dir' ]]; then
            COMPREPLY=()
            compopt -o dirnames
        elif [[ $type == 'file' ]]; then
            COMPREPLY=()
            compopt -o default
        elif [[ $type == 'plain' ]]; then
            COMPREPLY+=("$value")
        fi
    done
}

complete -o nosort -F %(complete_func)s %(prog_name)s
"""
"""Click's own script, except that it passes the line as typed: bash splits a word with a colon,
such as `feature:edge` or a URL, into three."""


class _Bash(BashComplete):
    """Completion for bash. Splits the line into the words that the command would get. Bash replaces
    only the text after the last colon, so completions are cut accordingly."""

    source_template: ClassVar[str] = _BASH
    _cut = 0

    def get_completion_args(self) -> tuple[list[str], str]:
        line = os.environ.get("COMP_LINE")
        if line is None:
            return super().get_completion_args()
        # With text behind the cursor, the last word is present even if it is still empty.
        *words, last = split_arg_string(f"{line}_")
        incomplete = last[:-1]
        typed = incomplete.partition("=")[2] if incomplete.startswith("--") else incomplete
        seen = os.environ.get("COMP_WORD", "")
        if seen != typed and not seen.startswith(("'", '"')):
            self._cut = typed.rfind(":") + 1
        return words[1:], incomplete

    def format_completion(self, item: CompletionItem) -> str:
        return f"{item.type},{item.value[self._cut :]}"


def _completion_class(shell: str) -> type[ShellComplete]:
    found = _Bash if shell == "bash" else get_completion_class(shell)
    assert found is not None
    return found


def script(group: click.Group, shell: str) -> str:
    """Returns the completion script that the shell loads."""
    kind = _completion_class(shell)
    made = kind(group, {}, NAME, VARIABLE)
    # Not made by click's `source`, which starts bash to check its version: a caller that asks for
    # the script has the shell.
    return str(made.source_template % made.source_vars()).strip() + "\n"


def complete(group: click.Group, instruction: str) -> int:
    """Answers a completion request such as `bash_complete`. Errors are suppressed: a shell cannot
    show one while a line is being typed."""
    shell, _, what = instruction.partition("_")
    if shell not in SHELLS or what != "complete":
        return 1
    made = _completion_class(shell)(group, {}, NAME, VARIABLE)
    offered = [
        item
        for item in made.get_completions(*made.get_completion_args())
        if item.type != "plain" or _PLAIN.fullmatch(item.value)
    ]
    for item in offered:
        item.help = safe_line(item.help) or None
    if offered:
        Answers(quiet=True).write_text(
            "".join(f"{made.format_completion(item)}\n" for item in offered)
        )
    return 0


def offer_values(command: click.Command) -> None:
    """Adds completion of tasks, tracks, roles, profiles and files to a command, including
    subcommands."""
    for parameter in command.params:
        offered = _OFFERED.get(parameter.name or "")
        if offered is not None:
            parameter.shell_complete = offered  # type: ignore[method-assign, assignment]
    for inner in command.commands.values() if isinstance(command, click.Group) else ():
        offer_values(inner)


def _tasks(ctx: click.Context, incomplete: str) -> list[CompletionItem]:
    try:
        return [
            CompletionItem(name)
            for name in _names(_app(ctx), incomplete)
            if not name.startswith(_OPTION)
        ]
    except (GenlockError, OSError):
        return []


def _tracks(ctx: click.Context, incomplete: str) -> list[CompletionItem]:
    """Completes the tracks of existing tasks, with their purposes."""
    app = _app(ctx)
    try:
        found = {task.track for task in app.fleet.get_graph().tasks if task.track is not None}
        purposes = app.fleet.get_policy().track_titles if found else {}
    except (GenlockError, OSError):
        return []
    finally:
        app.close()
    offered = [
        track
        for track in sorted(found)
        if track.startswith(incomplete) and not track.startswith(_OPTION)
    ]
    return [CompletionItem(track, help=purposes.get(track)) for track in offered]


def _roles(ctx: click.Context, incomplete: str) -> list[CompletionItem]:
    from genlock.core.key_roles import Role

    return [CompletionItem(role.value) for role in Role if role.value.startswith(incomplete)]


def _profiles(ctx: click.Context, incomplete: str) -> list[CompletionItem]:
    from genlock.core.policy import PROFILES

    return [CompletionItem(name) for name in PROFILES if name.startswith(incomplete)]


def _files(ctx: click.Context, incomplete: str) -> list[CompletionItem]:
    """Leaves the completion of files to the shell."""
    return [CompletionItem(incomplete, type="file")]


_OFFERED: Final[dict[str, Callable[[click.Context, str], list[CompletionItem]]]] = {
    "task": _tasks,
    "track": _tracks,
    "tracks": _tracks,
    "role": _roles,
    "profile": _profiles,
    "files": _files,
    "result_file": _files,
    "path": _files,
}
"""Completers by parameter name."""


def _app(ctx: click.Context) -> App:
    from genlock.cli.app import App

    flags = {name: ctx.params.get(f"set_{name}") for name in ("url", "tenant", "project")}
    return App(as_json=False, quiet=True, flags=flags)


def _names(app: App, incomplete: str) -> list[str]:
    from itertools import islice

    from genlock.schemes import is_service

    if is_service(app.url):
        return _names_by_service(app, incomplete)
    scope = app.setting("tenant"), app.setting("project")
    try:
        first = islice(app.fleet.reader.task_ids(scope), _MOST_LOOKED_AT)
        return list(islice((id for id in first if id.startswith(incomplete)), _MOST_OFFERED))
    finally:
        app.close()


def _names_by_service(app: App, incomplete: str) -> list[str]:
    try:
        tasks = app.fleet.get_graph().tasks
    finally:
        app.close()
    return [task.id for task in tasks if task.id.startswith(incomplete)][:_MOST_OFFERED]
