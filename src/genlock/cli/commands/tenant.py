"""Tenants and their limits: list, show, set."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from genlock.cli.app import App, verb
from genlock.errors import BadArgument

if TYPE_CHECKING:
    from rich.console import Console

    from genlock.core.results import TenantInfo


@click.group()
def tenant() -> None:
    """List tenants, show and set their limits.

    A profile sets every limit of a tenant: local, default or enterprise.
    """


@tenant.command("list")
@verb()
def list_(app: App) -> None:
    """The tenants of the store.

    As JSON: {"tenants": [{"tenant_id", "profile", "limits": {…}, "created_at", "updated_at"}]}.
    """
    found = app.fleet.list_tenants()

    def text(console: Console) -> None:
        from genlock.cli.render.tables import Column, print_lines, print_table, stamp

        if not found:
            print_lines(console, "there are none")
            return
        columns = [
            Column("tenant", least=8),
            Column("profile", 3),
            Column("made", 1),
            Column("changed", 2),
        ]
        print_table(
            console,
            columns,
            [
                (each.tenant_id, each.profile, stamp(each.created_at), stamp(each.updated_at))
                for each in found
            ],
        )

    app.answers.give({"tenants": found}, text=text, bare=(each.tenant_id for each in found))


@tenant.command()
@click.argument("name", required=False)
@verb()
def show(app: App, name: str | None) -> None:
    """A tenant's profile and limits.

    Without a name: the tenant that the settings name.
    """
    _give(app, app.fleet.get_tenant(tenant_id=name))


@tenant.command("set")
@click.argument("name")
@click.argument("limits", nargs=-1, metavar="[LIMIT=VALUE]...")
@click.option(
    "--profile", metavar="PROFILE", help="Sets every limit: local, default or enterprise."
)
@verb()
def set_(app: App, name: str, limits: tuple[str, ...], profile: str | None) -> None:
    """Make a tenant, or set its profile or some limits.

    VALUE is a number, or `none` where there need be no limit: max_concurrent_claims=250
    max_active_sessions=none.
    """
    from genlock.cli.inputs import read_assignments

    if "=" in name:
        meant = app.setting("tenant")
        raise BadArgument(
            "which tenant? Its name stands before its limits, type: "
            f"{app.command('tenant set', meant, name, *limits)}"
        )
    _give(
        app,
        app.fleet.set_tenant(
            tenant_id=name, profile=profile, limits=read_assignments(limits, "limit", "LIMIT=VALUE")
        ),
    )


def _give(app: App, found: TenantInfo) -> None:
    shown = {
        name: "none" if value is None else f"{value:.15g}" for name, value in found.limits.items()
    }

    def text(console: Console) -> None:
        from genlock.cli.render.tables import print_fields

        print_fields(
            console, [("tenant", found.tenant_id), ("profile", found.profile), *shown.items()]
        )

    app.answers.give(found, text=text, bare=[f"{name}={value}" for name, value in shown.items()])
