"""Keys and logins: keys, login, logout."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

import click

from genlock.cli.answers import forget_stdout
from genlock.cli.app import App, verb

if TYPE_CHECKING:
    from rich.console import Console

    from genlock.core.results import KeyInfo, NewKey


@click.group()
def keys() -> None:
    """Create, list, rotate and revoke keys for the service.

    A key has one tenant, a pattern of projects and a role: observer, agent, operator or admin.
    """


def _everywhere(function: Callable[..., None]) -> Callable[..., None]:
    return click.option("--all-tenants", "everywhere", is_flag=True, help="A key of all tenants.")(
        function
    )


def _expires_in(default: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    return click.option(
        "--expires-in",
        metavar="TIME",
        help=f"The lifetime: seconds, or 15m, 12h, 90d; default: {default}.",
    )


@keys.command()
@click.argument("name")
@click.option("--role", required=True, metavar="ROLE", help="observer, agent, operator or admin.")
@click.option(
    "--projects",
    default="*",
    metavar="PATTERN",
    help="A pattern of projects; * stands for anything; default: all.",
)
@click.option("--session", metavar="ID", help="Only for this session, in the role agent.")
@click.option(
    "--agent-role",
    "agent_roles",
    multiple=True,
    metavar="ROLE",
    help="A role that its agents may claim in; may be given several times.",
)
@_expires_in("until it is revoked")
@_everywhere
@verb()
def create(
    app: App,
    name: str,
    role: str,
    projects: str,
    session: str | None,
    agent_roles: tuple[str, ...],
    expires_in: str | None,
    everywhere: bool,
) -> None:
    """Create a key, and show its text once.

    NAME says whose it is, for those who read the list or the events. With --quiet only the text is
    printed, for a script to keep. A key whose text could not be written is revoked again. As JSON:
    {"key": {…}, "text"}.
    """
    new = app.fleet.create_key(
        name=name,
        role=role,
        projects=projects,
        session_id=session,
        expires_in_seconds=_seconds(expires_in),
        agent_roles=agent_roles or None,
        tenant_id=_tenant(everywhere),
    )
    try:
        _give_new(app, new)
    except (KeyboardInterrupt, OSError):
        # The text was not delivered, and cannot be shown again.
        forget_stdout()
        app.fleet.revoke_key(key_id=new.key.key_id, tenant_id=_tenant(everywhere))
        app.answers.say(f"revoked again, as its text could not be shown: {new.key.key_id}")
        raise
    _say_new(app, new)


@keys.command("list")
@click.option("--all", "every", is_flag=True, help="Also list those that were revoked.")
@_everywhere
@verb()
def list_(app: App, every: bool, everywhere: bool) -> None:
    """List the tenant's keys and what they permit.

    As JSON: {"keys": […]}. Their texts are not stored and cannot be shown.
    """
    found = app.fleet.list_keys(include_revoked=every, tenant_id=_tenant(everywhere))

    def text(console: Console) -> None:
        from genlock.cli.render.tables import print_lines

        if found:
            _print_keys(console, found, everywhere=everywhere)
        else:
            print_lines(console, "there are none")

    app.answers.give({"keys": found}, text=text, bare=(key.key_id for key in found))


@keys.command()
@click.argument("key")
@click.option(
    "--overlap",
    metavar="TIME",
    help="How long the old text stays valid, up to 24h; default: not at all.",
)
@_expires_in("as before")
@_everywhere
@verb()
def rotate(
    app: App, key: str, overlap: str | None, expires_in: str | None, everywhere: bool
) -> None:
    """Give a key a new text, and show it once.

    KEY is the id that `keys list` shows. The key keeps its end unless another one is given. As
    JSON: {"key": {…}, "text"}.
    """
    new = app.fleet.rotate_key(
        key_id=key,
        overlap_seconds=_seconds(overlap, "--overlap") or 0,
        expires_in_seconds=_seconds(expires_in),
        tenant_id=_tenant(everywhere),
    )
    try:
        _give_new(app, new)
    except (KeyboardInterrupt, OSError):
        # The previous text is not stored, so it cannot be restored; but the caller can rotate the
        # key again.
        forget_stdout()
        again = app.command("keys", "rotate", key, *(["--all-tenants"] if everywhere else []))
        app.answers.say(f"its new text could not be shown; for another one, type: {again}")
        raise
    _say_new(app, new)


@keys.command()
@click.argument("key")
@_everywhere
@verb()
def revoke(app: App, key: str, everywhere: bool) -> None:
    """Revoke a key.

    KEY is the id that `keys list` shows. It takes effect within a second wherever the store is
    served, and cannot be undone.
    """
    gone = app.fleet.revoke_key(key_id=key, tenant_id=_tenant(everywhere))

    def text(console: Console) -> None:
        from genlock.cli.render.tables import print_lines

        print_lines(console, f"{gone.key_id} ({gone.name}) opens nothing any more")

    app.answers.give({"key": gone}, text=text, bare=[gone.key_id])


def _tenant(everywhere: bool) -> str | None:
    from genlock.core.key_roles import EVERYWHERE

    return EVERYWHERE if everywhere else None


def _seconds(text: str | None, option: str = "--expires-in") -> float | None:
    from genlock.core.durations import read_duration

    return None if text is None else read_duration(text, option)


def _give_new(app: App, new: NewKey) -> None:
    def text(console: Console) -> None:
        from genlock.cli.render.tables import print_commands

        print_commands(console, new.text, indent="")

    app.answers.give(new, text=text, bare=[new.text])


def _say_new(app: App, new: NewKey) -> None:
    app.answers.say(
        f"this is key {new.key.key_id} ({new.key.name}): {_scope(new.key)}. Keep the text now: it "
        "is shown only this once"
    )


def _scope(key: KeyInfo) -> str:
    where = "all tenants" if key.tenant_id == "*" else f"tenant {key.tenant_id}"
    projects = "all projects" if key.projects == "*" else f"projects {key.projects}"
    session = f", session {key.session_id}" if key.session_id is not None else ""
    roles = f", for the roles {', '.join(key.agent_roles)}" if key.agent_roles else ""
    return f"{key.role} of {where}, {projects}{session}{roles}"


def _print_keys(console: Console, found: tuple[KeyInfo, ...], *, everywhere: bool) -> None:
    from genlock.cli.render.tables import Column, from_now, print_table

    columns = [
        Column("key", least=12),
        Column("name", least=8),
        *([Column("tenant", 6)] if everywhere else []),
        Column("role", 7, least=8),
        Column("projects", 5),
        Column("session", 4),
        Column("agent roles", 2),
        Column("state", 6, least=7),
        Column("ends", 3, least=9),
        Column("made by", 1),
        Column("made", 2, least=9),
    ]
    rows = [
        (
            key.key_id,
            key.name,
            *([key.tenant_id] if everywhere else []),
            key.role.value,
            key.projects,
            key.session_id,
            ", ".join(key.agent_roles),
            key.state.value.lower(),
            from_now(key.expires_at),
            key.created_by,
            from_now(key.created_at),
        )
        for key in found
    ]
    print_table(console, columns, rows)


# The user's keys for services: login, logout.


@click.command()
@click.argument("address")
@verb(store=False)
def login(app: App, address: str) -> None:
    """Store your key for a service.

    The key is asked for, or read from stdin; it is kept in a file that only you can read, and sent
    to this address (scheme, host and port) and nowhere else. As JSON: {"address", "file"}.
    """
    from genlock.credentials import credentials_file, origin_of, store_key

    origin = store_key(address, _key(origin_of(address)))
    _give(app, origin, f"your key for {origin} is stored in {credentials_file()}")


@click.command()
@click.argument("address")
@verb(store=False)
def logout(app: App, address: str) -> None:
    """Remove your key for a service.

    As JSON: {"address", "file", "removed"}.
    """
    from genlock.credentials import forget_key, origin_of

    origin = origin_of(address)
    removed = forget_key(origin)
    _give(
        app,
        origin,
        f"your key for {origin} is removed" if removed else f"no key is stored for {origin}",
        removed=removed,
    )


def _key(origin: str) -> str:
    """Asks for the key, or reads it from stdin. Never from the command line, which every process of
    the machine can read."""
    if not sys.stdin.isatty():
        return sys.stdin.readline().strip()
    from getpass import getpass

    return getpass(f"Key for {origin}: ", stream=sys.stderr).strip()


def _give(app: App, origin: str, line: str, **more: bool) -> None:
    from genlock.credentials import credentials_file

    app.answers.give(
        {"address": origin, "file": str(credentials_file()), **more},
        text=lambda console: console.print(line, markup=False, highlight=False, soft_wrap=True),
        bare=[origin],
    )
