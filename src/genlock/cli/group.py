"""The click group of all commands, and the handling of every error that a command raises."""

from __future__ import annotations

import errno
import os
import sys
from typing import TYPE_CHECKING, Any

import click

from genlock.cli import exit_codes
from genlock.cli.answers import Answers
from genlock.cli.app import App
from genlock.cli.main import SECTIONS
from genlock.cli.render.text import tell
from genlock.errors import GenlockError

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

COMPLETE = "_GENLOCK_COMPLETE"
"""The variable with which a shell requests completions."""

VERBS = {name: entry for section in SECTIONS.values() for name, entry in section.items()}


class Verbs(click.Group):
    """The group of commands; imports a command when it is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in VERBS:
            return None
        from importlib import import_module

        module, _, function = VERBS[cmd_name][0].partition(":")
        command: Any = getattr(import_module(f"genlock.cli.commands.{module}"), function)
        assert isinstance(command, click.Command)
        if COMPLETE in os.environ:
            from genlock.cli.completion import offer_values

            offer_values(command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in VERBS and not args[0].startswith("-"):
            raise UnknownCommand(args[0], ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for section, verbs in SECTIONS.items():
            with formatter.section(section):
                formatter.write_dl([(name, line) for name, (_, line) in verbs.items()])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Completes commands from the table: click would import every command."""
        from click.shell_completion import CompletionItem

        if incomplete.startswith("-"):
            return super().shell_complete(ctx, incomplete)
        return [
            CompletionItem(name, help=line)
            for name, (_, line) in VERBS.items()
            if name.startswith(incomplete)
        ]


CALLED: dict[str, tuple[str, ...]] = {
    "check": ("plan check", "doctor"),
    "close": ("submit",),
    "complete": ("submit",),
    "create": ("add",),
    "delete": ("cancel",),
    "diff": ("plan diff",),
    "done": ("submit",),
    "fail": ("release --error",),
    "finish": ("submit",),
    "get": ("show",),
    "import": ("plan import",),
    "info": ("status", "show", "db status"),
    "key": ("keys",),
    "load": ("plan import",),
    "lock": ("claim",),
    "log": ("events",),
    "logs": ("events",),
    "ls": ("list", "ready"),
    "migrate": ("db migrate",),
    "new": ("add",),
    "redo": ("reset",),
    "remove": ("cancel",),
    "retry": ("reset",),
    "rm": ("cancel",),
    "server": ("serve",),
    "start": ("serve", "next"),
    "stat": ("status", "db status"),
    "summary": ("status",),
    "take": ("claim",),
    "task": ("show",),
    "tasks": ("list", "ready"),
    "tenants": ("tenant list",),
    "tree": ("graph",),
    "validate": ("plan check",),
    "watch": ("events --follow",),
    "who": ("agents",),
    "whoami": ("config show",),
    "why": ("explain",),
    "workers": ("agents",),
}
"""Names of commands in other tools, and our names for them."""


class UnknownCommand(click.UsageError):
    """There is no such command; the message suggests similar ones."""

    def __init__(self, name: str, ctx: click.Context) -> None:
        from difflib import get_close_matches

        self.near = CALLED.get(name) or tuple(get_close_matches(name, VERBS, n=1))
        *others, last = [repr(verb) for verb in self.near] or [""]
        either = f"{', '.join(others)} or {last}" if others else last
        meant = f" Did you mean {either}?" if either else ""
        super().__init__(f"unknown command {name!r}.{meant} All commands: genlock --help", ctx)

    @property
    def try_next(self) -> list[list[str]]:
        """The commands to try next, each as a tuple of words."""
        return [["genlock", *verb.split()] for verb in self.near] + [["genlock", "--help"]]


@click.group(cls=Verbs, context_settings={"help_option_names": ["-h", "--help"]})
def genlock() -> None:
    """One plan, many agents, one authoritative result."""


def run(arguments: list[str]) -> int:
    """Runs a call and returns its exit code."""
    if COMPLETE in os.environ:
        from genlock.cli.completion import complete

        return complete(genlock, os.environ[COMPLETE])
    if arguments[:1] == ["help"]:
        arguments = [*arguments[1:], "--help"]
    context: click.Context | None = None
    try:
        with genlock.make_context("genlock", list(arguments)) as context:
            genlock.invoke(context)
        sys.stdout.flush()
    except click.exceptions.Exit as left:
        return left.exit_code
    except click.exceptions.NoArgsIsHelpError as wrong:
        wrong.show()
        return exit_codes.USAGE
    except click.ClickException as wrong:
        _refuse(wrong, _answers(context, arguments), arguments)
        return wrong.exit_code
    except (click.Abort, KeyboardInterrupt):
        tell("genlock: broken off")
        return exit_codes.BROKEN_OFF
    except GenlockError as error:
        app = context.obj if context is not None else None
        told = app.context() if isinstance(app, App) else None
        _answers(context, arguments).fail(error, told)
        return exit_codes.code_of(error)
    except BrokenPipeError:
        _forget_stdout()
        return exit_codes.NOBODY_READS
    except OSError as error:
        _forget_stdout()
        return _fail(error, _answers(context, arguments))
    # The last place that can turn the exception into one line; a variable brings the traceback
    except Exception as error:  # noqa: BLE001
        _forget_stdout()
        _answers(context, arguments).complain("UNEXPECTED", _unexpected(error))
        return exit_codes.ERROR
    return exit_codes.OK


def _answers(context: click.Context | None, arguments: list[str]) -> Answers:
    """Returns the output of the call, or the likely one if the call failed before it had one."""
    if context is not None and isinstance(context.obj, App):
        return context.obj.answers
    return Answers(
        as_json="--json" in arguments,
        as_text="--text" in arguments and "submit" not in arguments,
        quiet="--quiet" in arguments or "-q" in arguments,
    )


def _fail(error: OSError, answers: Answers) -> int:
    """Reports an OS error, as a shortage if it is one. Returns the exit code."""
    from genlock.shortages import shortage_of

    if error.errno == errno.ENOSPC and error.filename is None:
        # Stores report their own shortages. This one concerns stdout, so the act itself may be
        # done.
        answers.complain("UNEXPECTED", f"the answer cannot be written: {error.strerror}")
        return exit_codes.ERROR
    shortage = shortage_of(error)
    if shortage is None or os.environ.get("GENLOCK_DEBUG"):
        answers.complain("UNEXPECTED", _unexpected(error))
        return exit_codes.ERROR
    answers.fail(shortage)
    return exit_codes.code_of(shortage)


def _refuse(wrong: click.ClickException, answers: Answers, arguments: list[str]) -> None:
    """Reports a wrongly typed call, and where to find the correct form."""
    from genlock.cli.usage_hints import explain_usage

    message = explain_usage(wrong, arguments)
    try_next = wrong.try_next if isinstance(wrong, UnknownCommand) else []
    if isinstance(wrong, click.UsageError) and wrong.ctx is not None and "--help" not in message:
        message += (
            f"{'' if message.endswith(('.', '?', '!')) else '.'} To see how: "
            f"{wrong.ctx.command_path} --help"
        )
        try_next = [[*wrong.ctx.command_path.split(), "--help"]]
    answers.complain("USAGE", message, try_next)


def _unexpected(error: Exception) -> str:
    if os.environ.get("GENLOCK_DEBUG"):
        import traceback

        return "".join(traceback.format_exception(error)).rstrip()
    told = " ".join(str(error).split())
    if isinstance(error, OSError):
        return told
    return (
        f"something went wrong that should not have: {type(error).__name__}: {told}; to see "
        "where, set GENLOCK_DEBUG=1"
    )


def _forget_stdout() -> None:
    """Discards the rest of stdout if its reader has gone or writing failed, so that the interpreter
    does not try again at exit."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
