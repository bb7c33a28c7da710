"""The user's consent to what a project says: trust."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from genlock.cli.app import App, verb

if TYPE_CHECKING:
    from pathlib import Path

    from rich.console import Console

    from genlock.trust import Request


@click.command()
@click.argument("wanted", required=False, metavar="[ADDRESS|FOLDER]")
@click.option(
    "--list", "listing", is_flag=True, help="Show everything that you trust, for every project."
)
@click.option("--revoke", is_flag=True, help="Take back your consent for this project.")
@verb(store=False)
def trust(app: App, wanted: str | None, listing: bool, revoke: bool) -> None:
    """Consent to a project's store or folder.

    A project's file may name a store outside of the project only with your consent, once for the
    folder and the address. A project that belongs to another user of the machine is obeyed only
    with your consent, once for the folder. Without an argument you are asked; where there is no
    terminal, name what you trust. As JSON: {"folder", "trusted": […]}.
    """
    from genlock.errors import BadArgument
    from genlock.trust import give_consent, requests
    from genlock.trust import revoke as take_back

    if sum((listing, revoke, wanted is not None)) > 1:
        raise BadArgument("--list and --revoke stand alone, without an address or a folder")
    folder = app.project_folder
    if listing:
        _list(app)
        return
    if revoke:
        taken = take_back(folder)
        _give(
            app,
            folder,
            "revoked",
            taken,
            [f"no longer trusted: {shown}" for shown in taken] or ["nothing here was trusted"],
        )
        return
    found = requests(folder)
    chosen = _asked(app, found) if wanted is None else _named(found, wanted)
    for request in chosen:
        give_consent(folder, request)
    shown = [request.shown for request in chosen]
    _give(
        app,
        folder,
        "trusted",
        shown,
        [f"trusted: {each}" for each in shown]
        or ["this project wants nothing that needs your consent"],
    )


def _asked(app: App, found: list[Request]) -> list[Request]:
    from genlock.cli.render.text import confirm

    for request in found:
        confirm(app, _sentence(request), "Do you trust it?", "trust", request.shown)
    return found


def _named(found: list[Request], wanted: str) -> list[Request]:
    """Returns the request with this address or folder."""
    import os

    from genlock.errors import BadArgument

    chosen = [
        each
        for each in found
        if wanted in (each.wanted, each.shown)
        or (each.is_folder and os.path.realpath(wanted) == each.wanted)
    ]
    if not chosen:
        names = ", ".join(each.shown for each in found) or "nothing that needs your consent"
        raise BadArgument(f"this project does not name {wanted!r}; it wants {names}")
    return chosen


def _sentence(request: Request) -> str:
    from genlock.credentials import credentials_file

    if request.is_folder:
        return (
            f"{request.origin} belongs to another user. What it says would be obeyed, and its "
            "store used."
        )
    service = request.wanted.lower().startswith(("http://", "https://"))
    key = (
        f" With your key, if {credentials_file()} has one for it."
        if service
        else " With the credentials that this machine has for it."
    )
    return (
        f"{request.origin} names {request.shown} as the project's store. Commands in this "
        f"project would connect to it.{key}"
    )


def _list(app: App) -> None:
    from genlock.trust import consents

    found = consents()
    value = [{"folder": folder, "trusted": shown} for folder, shown in found]
    lines = [f"{folder}  {shown}" for folder, shown in found] or ["nothing is trusted"]
    app.answers.give(
        value,
        text=lambda console: _print(console, lines),
        bare=[f"{folder} {shown}" for folder, shown in found],
    )


def _give(app: App, folder: Path, what: str, shown: list[str], lines: list[str]) -> None:
    app.answers.give(
        {"folder": str(folder), what: shown},
        text=lambda console: _print(console, lines),
        bare=shown,
    )


def _print(console: Console, lines: list[str]) -> None:
    for line in lines:
        console.print(line, markup=False, highlight=False, soft_wrap=True)
