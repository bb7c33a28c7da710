"""The application object that every command gets."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias

import click

from genlock.cli import exit_codes
from genlock.cli.answers import Answers, check_output
from genlock.errors import BadArgument, LiveClaim, TaskNotFound

if TYPE_CHECKING:
    from msgspec import Struct
    from rich.console import Console

    from genlock.coordinator import Coordinator
    from genlock.core.model import Task
    from genlock.identity import CallerIdentity
    from genlock.messages import Context, Message
    from genlock.settings import Setting

CommandLine: TypeAlias = Callable[..., str]
"""A function that makes a command line of a command and its words: `App.command`."""


_REDRAW_SECONDS = 5.0
_GATHER_SECONDS = 0.3


class App:
    """One call of the command line: its settings, its fleet (opened on first use) and its
    output."""

    def __init__(
        self,
        *,
        as_json: bool,
        as_text: bool = False,
        quiet: bool,
        flags: dict[str, Any],
        worker: bool = False,
        holder: bool = False,
        patient: bool = False,
    ) -> None:
        check_output()
        if as_json and as_text:
            raise BadArgument("--json and --text exclude each other; give one of them")
        self.answers = Answers(as_json=as_json, as_text=as_text, quiet=quiet)
        self.worker = worker
        self.holder = holder
        self.patient = patient
        """Does the call wait for a service that does not listen yet?"""
        self._flags = flags
        self._fleet: Coordinator | None = None

    @functools.cached_property
    def project_folder(self) -> Path:
        """The project's `.genlock` folder, which need not exist."""
        from genlock.project_folder import project_folder

        return project_folder()

    @functools.cached_property
    def settings(self) -> dict[str, Setting]:
        """Every setting, with its origin."""
        from genlock.trust import trusted_settings

        return trusted_settings(self._flags, self.project_folder)

    def setting(self, name: str) -> Any:
        """One setting's value."""
        return self.settings[name].value

    @property
    def url(self) -> str:
        """The store's URL."""
        from genlock.project_folder import FILE, sqlite_url

        given: str | None = self.setting("url")
        return given if given is not None else sqlite_url(self.project_folder / FILE)

    @property
    def store_url(self) -> str:
        """Returns the URL for a command that needs the store itself. If the URL is a service's, the
        error names the setting that it came from."""
        from genlock.schemes import is_service

        if not is_service(self.url):
            return self.url
        from genlock.safe_text import without_password

        by = self.settings["url"].origin.removeprefix("flag ").removeprefix("environment ")
        unset = f", or unset {by}" if by == "GENLOCK_URL" else ""
        raise BadArgument(
            f"{by} names a service, {without_password(self.url)}, and this needs the store itself: "
            "type it where the store can be"
            f" reached, with its own URL by --url{unset}"
        )

    @property
    def options(self) -> dict[str, str]:
        """The options of this call that select store, project and caller. Suggested commands repeat
        them."""
        from genlock.safe_text import without_password

        names = ("url", "tenant", "project", "session", "agent")
        given = {name: value for name in names if (value := self._flags.get(name))}
        if "url" in given:
            given["url"] = without_password(given["url"])
        return given

    def context(self, task: str = "", generation: int | None = None, session: str = "") -> Context:
        """Returns the context of this call for messages."""
        from datetime import UTC, datetime

        from genlock.messages import Context

        return Context(task, generation, self.options, session, datetime.now(UTC))

    def words(self, verb: str, *words: object) -> tuple[str, ...]:
        """Returns a suggested command as words, with the same store and project as this call and,
        where it matters, the same session."""
        from genlock.messages import Context, command

        return command(verb, *words, context=Context(options=self.options))

    def command(self, verb: str, *words: object) -> str:
        """Returns a suggested command as a line for a shell."""
        from genlock.messages import typed

        return typed(self.words(verb, *words))

    def refuse(self, result: Struct, message: Message, what: str = "refused") -> NoReturn:
        """Writes a refusal as the answer, and ends the command."""
        from genlock.messages import typed

        def text(console: Console) -> None:
            from genlock.cli.render.tables import print_commands, print_lines

            reason = getattr(result, "reason")  # noqa: B009 - every refusal has one
            print_lines(console, f"{what}, {reason}: {message.text}")
            print_commands(console, *map(typed, message.try_next))

        self.answers.give(with_message(result, message), text=text)
        self.leave(exit_codes.CONFLICT)

    def name_store(self, url: str | None) -> None:
        """Treats a URL argument of the command like --url."""
        if url is None:
            return
        if self._flags["url"] not in (None, url):
            raise BadArgument(
                "two stores are named, one as an argument and another one by --url; name one"
            )
        self._flags["url"] = url

    def watch(self, show: Callable[[], None]) -> None:
        """Calls `show` now, after every event, and when displayed times are outdated, until the
        reader leaves. A terminal is redrawn each time."""
        import time

        from genlock.cli.answers import Style, reader_gone

        after = self.fleet.read_events(tail=True).cursor
        while not reader_gone():
            if self.answers.style is Style.TEXT:
                self.answers.console().clear()
            show()
            for event in self.fleet.watch(after=after, timeout_seconds=_REDRAW_SECONDS):
                after = event.cursor
                break
            # Events in quick succession cause one redraw.
            time.sleep(_GATHER_SECONDS)
            after = self.fleet.read_events(tail=True).cursor

    @functools.cached_property
    def who(self) -> CallerIdentity:
        """Returns the caller on whose behalf this call is made."""
        from genlock.identity import identify_caller

        return identify_caller(self.setting("session"))

    @property
    def claiming_agent(self) -> str:
        """Returns the agent of a claim: from the settings, else the lone agent of the project's
        policy, else a name derived from the caller's process."""
        from genlock.core.policy import agent_for

        found: str | None = self.setting("agent")
        return found or agent_for(self.fleet.get_policy().policy, self.who.agent)

    @property
    def own_session(self) -> str | None:
        """Returns the session of this call, for commands that do not need one; None if it is
        unknown."""

        try:
            return self.who.session
        except BadArgument:
            return None

    def agent_of(self, task: str, generation: int) -> str:
        """Returns the agent that submits at this generation: from the settings, else the agent of
        the claim."""
        from genlock.identity import agent_of_claim

        found: str | None = self.setting("agent") or agent_of_claim(
            self.fleet, self.who.session, task, generation
        )
        return found or self.who.agent

    @property
    def fleet(self) -> Coordinator:
        """The coordinator on the project's store. Only `init` creates a store; other commands
        report a missing one."""
        if self._fleet is None:
            from genlock.cli.open_fleet import open_fleet

            self._fleet = open_fleet(self)
        return self._fleet

    def close(self) -> None:
        """Closes the fleet, if it was opened."""
        if self._fleet is not None:
            self._fleet.close()

    def leave(self, code: int) -> NoReturn:
        """Ends the command with this exit code, after its answer."""
        raise click.exceptions.Exit(code)


def verb(
    *,
    worker: bool = False,
    holder: bool = False,
    patient: bool = False,
    store: bool = True,
    text: bool = True,
    settings: Sequence[str] = (),
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Decorates a command's function, whose first argument becomes the App.

    Every command has --json and --quiet; with `text` also --text (other commands have one of their
    own); with `store` also --url, --tenant and --project; with `worker` also --session, --agent and
    --user. A `holder` acts on a claim that was granted before, and so as that claim's agent unless
    another is named. `settings` names the settings for which the command has options of its own,
    called set_ and the setting's name.
    """

    worker = worker or holder

    def decorate(function: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(function)
        def run(*, as_json: bool, as_text: bool = False, quiet: bool, **options: Any) -> None:
            names = [
                *(["url", "tenant", "project"] if store else []),
                *(["session", "agent", "user"] if worker else []),
                *settings,
            ]
            app = App(
                as_json=as_json,
                as_text=as_text,
                quiet=quiet,
                flags={name: options.pop(f"set_{name}") for name in names},
                worker=worker,
                holder=holder,
                patient=patient,
            )
            click.get_current_context().find_root().obj = app
            try:
                function(app, **options)
            except TaskNotFound as error:
                from genlock.cli.suggestions import task_meant

                meant = task_meant(app, options.get("task"), error)
                function(app, **options | {"task": meant})
            finally:
                app.close()

        wrapped = run
        wrapped = click.option(
            "--quiet", "-q", is_flag=True, help="Print only ids and numbers, one per line."
        )(wrapped)
        if text:
            wrapped = click.option(
                "--text", "as_text", is_flag=True, help="Print text, also into a pipe or a file."
            )(wrapped)
        wrapped = click.option(
            "--json",
            "as_json",
            is_flag=True,
            help="Print JSON (the default when output is not a terminal).",
        )(wrapped)
        if worker:
            wrapped = click.option(
                "--user", "set_user", metavar="NAME", help="The user of the session."
            )(wrapped)
            wrapped = click.option(
                "--agent",
                "set_agent",
                metavar="NAME",
                help="The name of your agent. Name each background worker of a script: its workers "
                "share a session.",
            )(wrapped)
            wrapped = click.option(
                "--session",
                "set_session",
                metavar="ID",
                help="The id of your session; default: the script, shell or agent that calls.",
            )(wrapped)
        if store:
            wrapped = click.option(
                "--project", "set_project", metavar="NAME", help="The project; default: default."
            )(wrapped)
            wrapped = click.option(
                "--tenant", "set_tenant", metavar="NAME", help="The tenant; default: default."
            )(wrapped)
            wrapped = click.option(
                "--url",
                "set_url",
                metavar="URL",
                help="The store or service; default: the project's own store.",
            )(wrapped)
        return wrapped

    return decorate


@contextmanager
def taking_over(app: App, verb: str, *words: object) -> Iterator[None]:
    """Wraps an act that may meet a live claim: the error says what to type to revoke that claim."""
    try:
        yield
    except LiveClaim as error:
        told = str(error).replace("take_over=True", "--force")
        raise LiveClaim(f"{told}: {app.command(verb, *words, '--force')}") from None


def with_message(result: Struct, message: Message, **more: object) -> dict[str, object]:
    """Returns an answer for JSON, with its message and the commands to type next."""
    fields = {name: getattr(result, name) for name in result.__struct_fields__}
    return {**fields, **more, "message": message.text, "try_next": message.try_next}


def title_of(task: Task) -> str:
    """Returns the text shown beside a task's id."""
    return task.title or task.description.partition("\n")[0]
