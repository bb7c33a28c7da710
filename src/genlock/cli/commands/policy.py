"""A project's policy: show, set."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from genlock.cli.app import App, verb

if TYPE_CHECKING:
    from rich.console import Console

    from genlock.core.results import Settings


@click.group()
def policy() -> None:
    """Show and set a project's policy.

    The policy says what happens to overdue claims, which task comes first, and the like. For the
    limits of a tenant see `genlock tenant`.
    """


@policy.command()
@verb()
def show(app: App) -> None:
    """Show the policy in force, and what each key takes.

    As JSON: {"policy": {…}, "limits": {…}, "profile", "tracks": {…}}, the limits and the profile
    being the tenant's.
    """
    _give(app, app.fleet.get_policy())


@policy.command("set")
@click.argument("choices", nargs=-1, required=True, metavar="KEY=VALUE...")
@verb()
def set_(app: App, choices: tuple[str, ...]) -> None:
    """Set some keys of the policy; the others stay.

    They take effect at once, for every agent of the project: expired=grace grace_seconds=120. VALUE
    may be `none` for an optional key.
    """
    from genlock.cli.inputs import read_assignments

    wanted = read_assignments(choices, "policy", "KEY=VALUE")
    found = app.fleet.set_policy(policy=wanted)
    if isinstance(wanted.get("products"), str):
        from genlock.trust import give_area_consent

        give_area_consent(app.url, wanted["products"])
    _give(app, found)


def _give(app: App, found: Settings) -> None:
    from genlock.core.policy import Policy, takes

    shown = {name: _shown(value) for name, value in found.policy.items()}

    def text(console: Console) -> None:
        from genlock.cli.render.tables import Column, print_table

        usual = Policy()
        # A service of another version may have policy keys that this version does not know.
        known = {
            name: (_shown(getattr(usual, name)), takes(Policy, name))
            for name in usual.__struct_fields__
        }
        columns = [
            Column("policy", least=8),
            Column("value", least=8),
            Column("default", 2),
            Column("takes", 1),
        ]
        print_table(
            console,
            columns,
            [(name, value, *known.get(name, ("", ""))) for name, value in shown.items()],
        )

    app.answers.give(found, text=text, bare=[f"{name}={value}" for name, value in shown.items()])


def _shown(value: Any) -> str:
    """Returns a value as it would be typed."""
    if value is None or isinstance(value, bool):
        return "none" if value is None else str(value).lower()
    if isinstance(value, dict):
        from json import dumps

        return dumps(value, separators=(",", ":"))
    return f"{value:.15g}" if isinstance(value, (int, float)) else str(value)
