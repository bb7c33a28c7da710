"""What every verb is given."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click

from genlock.cli.answers import Answers
from genlock.errors import TaskNotFound

if TYPE_CHECKING:
    from genlock.cli.identity import Who
    from genlock.coordinator import Coordinator
    from genlock.core.model import Task
    from genlock.settings import Setting


class App:
    """One call of the command line: its settings, its fleet (opened when first asked for) and its way to answer."""

    def __init__(self, *, as_json: bool, quiet: bool, flags: dict[str, Any], worker: bool = False, holder: bool = False) -> None:
        self.answers = Answers(as_json=as_json, quiet=quiet)
        self.worker = worker
        self.holder = holder
        self._flags = flags
        self._fleet: Coordinator | None = None

    @functools.cached_property
    def project_folder(self) -> Path:
        """The project's `.genlock` folder, which need not exist."""
        from genlock.places import project_folder

        return project_folder()

    @functools.cached_property
    def settings(self) -> dict[str, Setting]:
        """Every setting, with its origin."""
        from genlock.settings import resolve

        return resolve(self._flags, self.project_folder)

    def setting(self, name: str) -> Any:
        """One setting's value."""
        return self.settings[name].value

    @property
    def url(self) -> str:
        """The store's URL."""
        from genlock.places import FILE, sqlite_url

        given: str | None = self.setting("url")
        return given if given is not None else sqlite_url(self.project_folder / FILE)

    @property
    def store_url(self) -> str:
        """The same for a verb that needs the store itself: an error where a service is named, which says by what."""
        from genlock.schemes import is_service

        if not is_service(self.url):
            return self.url
        from genlock.cli.wording import without_password
        from genlock.errors import BadArgument

        by = self.settings["url"].origin.removeprefix("flag ").removeprefix("environment ")
        unset = f", or unset {by}" if by == "GENLOCK_URL" else ""
        raise BadArgument(
            f"{by} names a service, {without_password(self.url)}, and this needs the store itself: type it where the store can be"
            f" reached, with its own URL by --url{unset}"
        )

    def command(self, verb: str, *words: object) -> str:
        """A command line to be typed next: where this one was told by options to look, that one is too, and as whom where it matters."""
        from genlock.cli.wording import CLAIMING, ON_A_CLAIM, command

        names = ["url", "tenant", "project"]
        if verb in (*CLAIMING, *ON_A_CLAIM):
            names.append("session")
        if verb in CLAIMING:
            names.append("agent")  # who holds a claim is known by it
        return command(verb, *words, *self.told(*names))

    def told(self, *names: str) -> list[str]:
        """Those of these options that the call was given, as words of a command line."""
        from genlock.cli.wording import without_password

        given = {name: value for name in names if (value := self._flags.get(name))}
        if "url" in given:
            given["url"] = without_password(given["url"])
        return [word for name, value in given.items() for word in (f"--{name}", value)]

    def name_store(self, url: str | None) -> None:
        """A URL that the verb has as its argument counts as --url does."""
        if url is None:
            return
        if self._flags["url"] not in (None, url):
            from genlock.errors import BadArgument

            raise BadArgument("two stores are named, one as an argument and another one by --url; name one")
        self._flags["url"] = url

    @functools.cached_property
    def who(self) -> Who:
        """On whose behalf this call is made."""
        from genlock.cli.identity import identify_caller

        return identify_caller(self.setting("session"))

    def agent_of(self, task: str, generation: int) -> str:
        """Which agent hands something in at this generation: as set, else the one that the claim was granted to."""
        from genlock.cli.identity import agent_of_claim

        found: str | None = self.setting("agent") or agent_of_claim(self.fleet, self.who.session, task, generation)
        return found or self.who.agent

    @property
    def fleet(self) -> Coordinator:
        """The coordinator on the project's store. Only `init` makes a store: others say that there is none."""
        if self._fleet is None:
            from genlock.cli.opening import open_fleet

            self._fleet = open_fleet(self)
        return self._fleet

    def close(self) -> None:
        """Ends what was opened."""
        if self._fleet is not None:
            self._fleet.close()

    def leave(self, code: int) -> NoReturn:
        """End the verb with this exit code, after its answer."""
        raise click.exceptions.Exit(code)


def verb(
    *, worker: bool = False, holder: bool = False, store: bool = True, settings: Sequence[str] = ()
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Decorates a verb's function, whose first argument becomes the App.

    Every verb has --json and --quiet; with `store` also --url, --tenant and --project; with `worker` also --session, --agent and --user.
    A `holder` acts on a claim that was granted before, and so under that claim's agent unless another is named.
    `settings` are those that the verb has options of its own for, called set_ and the setting's name.
    """

    worker = worker or holder

    def decorate(function: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(function)
        def run(*, as_json: bool, quiet: bool, **options: Any) -> None:
            names = [
                *(["url", "tenant", "project"] if store else []),
                *(["session", "agent", "user"] if worker else []),
                *settings,
            ]
            app = App(
                as_json=as_json,
                quiet=quiet,
                flags={name: options.pop(f"set_{name}") for name in names},
                worker=worker,
                holder=holder,
            )
            click.get_current_context().find_root().obj = app
            try:
                function(app, **options)
            except TaskNotFound as error:
                from genlock.cli.slips import with_near_task

                raise with_near_task(app, options.get("task"), error) from None
            finally:
                app.close()

        wrapped = run
        wrapped = click.option("--quiet", "-q", is_flag=True, help="Only the bare answer: ids and numbers, one a line.")(wrapped)
        wrapped = click.option("--json", "as_json", is_flag=True, help="Answer as JSON (so it does off a terminal).")(wrapped)
        if worker:
            wrapped = click.option("--user", "set_user", metavar="NAME", help="Whose session it is.")(wrapped)
            wrapped = click.option("--agent", "set_agent", metavar="NAME", help="Which agent you are.")(wrapped)
            wrapped = click.option("--session", "set_session", metavar="ID", help="Which session you are.")(wrapped)
        if store:
            wrapped = click.option("--project", "set_project", metavar="NAME", help="The project; default: default.")(wrapped)
            wrapped = click.option("--tenant", "set_tenant", metavar="NAME", help="The tenant; default: default.")(wrapped)
            wrapped = click.option("--url", "set_url", metavar="URL", help="The store or service; default: the project's own store.")(
                wrapped
            )
        return wrapped

    return decorate


def title_of(task: Task) -> str:
    """What to call a task beside its id."""
    return task.title or task.description.partition("\n")[0]
