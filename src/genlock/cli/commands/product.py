"""`genlock product`: files that belong to results, from drafts to assets."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from genlock.cli import exit_codes
from genlock.cli.app import App, verb
from genlock.cli.inputs import claim_meant, place_of
from genlock.errors import BadArgument

if TYPE_CHECKING:
    from rich.console import Console

    from genlock.core.results import PromotionInfo


@click.group()
def product() -> None:
    """Put, get, list and promote work products.

    A draft belongs to one task, agent and generation. When the result that names it is accepted, a
    promoter makes it an asset, which every agent can get. The policy `products` says where they
    lie: file:///folder or s3://bucket/prefix.
    """


@product.command()
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@click.option("--as", "name", metavar="PATH", help="What to call it; default: the path as given.")
@click.option("--task", metavar="TASK", help="The task; default: $GENLOCK_TASK.")
@click.option(
    "--generation",
    "-g",
    type=int,
    metavar="N",
    help="The number that claim or next printed; default: $GENLOCK_GENERATION.",
)
@verb(holder=True)
def put(
    app: App, files: tuple[str, ...], name: str | None, task: str | None, generation: int | None
) -> None:
    """Put files among the products of your task.

    They are drafts of your claim's generation until the result is accepted. Submit them with
    `genlock submit --products`; under `genlock run` and `genlock work` that happens by itself. As
    JSON: {"products": [{"path", "sha256", "size"}]}.
    """
    import os

    from genlock.products.access import product_name
    from genlock.products.area import open_local
    from genlock.worker.products_file import VARIABLE, note_product

    task, generation = claim_meant(task, generation)
    if name is not None and len(files) > 1:
        raise BadArgument("--as names one file, and there are several")
    named = [(file, product_name(file) if name is None else name) for file in files]
    area = app.fleet.product_access.area(app.fleet, place_of(app.fleet))
    agent, found = app.agent_of(task, generation), []
    for file, path in named:
        with open_local(file) as source:
            found.append(area.put_draft(agent, task, generation, path, source))
    noted = os.environ.get(VARIABLE)
    if noted and task == os.environ.get("GENLOCK_TASK"):
        for one in found:
            note_product(noted, one)

    def text(console: Console) -> None:
        from genlock.cli.render.tables import print_lines

        print_lines(
            console, *(f"put: {one.path} ({one.size:,} bytes, {one.sha256[:12]})" for one in found)
        )

    app.answers.give({"products": found}, text=text, bare=[one.path for one in found])


@product.command()
@click.argument("path")
@click.option("--output", "-o", metavar="FILE", help="Where to; default: PATH, below this folder.")
@click.option("--force", is_flag=True, help="Replace a file that is there.")
@verb()
def get(app: App, path: str, output: str | None, force: bool) -> None:
    """Get an asset: what was last promoted at this path.

    As JSON: {"asset": {"path", "sha256", "size", "task_id", "generation", "accepted_at"}, "file"}.
    """
    area = app.fleet.product_access.area(app.fleet, place_of(app.fleet))
    asset = area.asset(path)
    file = Path(path if output is None else output)
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with area.opened_asset(asset) as source, file.open("wb" if force else "xb") as target:
            while piece := source.read(1024 * 1024):
                target.write(piece)
    except FileExistsError:
        raise BadArgument(
            f"{file} exists; replace it with --force, or name another with -o"
        ) from None
    except OSError as error:
        raise BadArgument(f"{file} cannot be written: {error.strerror}") from None

    def text(console: Console) -> None:
        from genlock.cli.render.tables import print_lines

        origin = f"{asset.task_id} at generation {asset.generation}"
        print_lines(console, f"{file}: {asset.size:,} bytes, from {origin}")

    app.answers.give({"asset": asset, "file": str(file)}, text=text, bare=[str(file)])


@product.command("list")
@click.option("--drafts", is_flag=True, help="List drafts, of all agents and generations.")
@click.option("--promotions", is_flag=True, help="List accepted products and how far they are.")
@click.option("--task", metavar="TASK", help="Only those of this task.")
@verb()
def list_(app: App, drafts: bool, promotions: bool, task: str | None) -> None:
    """List the assets; or drafts, or promotions.

    As JSON: {"assets": […]}, {"drafts": […]} or {"promotions": […]}.
    """
    if drafts and promotions:
        raise BadArgument("list either --drafts or --promotions")
    if promotions:
        _list_promotions(app, task)
        return
    area = app.fleet.product_access.area(app.fleet, place_of(app.fleet))
    if drafts:
        found = [draft._asdict() for draft in area.drafts(task_id=task)]
        for draft in found:
            del draft["name"]
        columns = {"path": "path", "task": "task_id", "gen": "generation", "agent": "agent"}
        _list(app, "drafts", found, columns)
        return
    import msgspec

    assets = [
        msgspec.structs.asdict(asset) for asset in area.assets() if task in (None, asset.task_id)
    ]
    _list(app, "assets", assets, {"path": "path", "task": "task_id", "gen": "generation"})


def _list(app: App, what: str, found: list[dict[str, Any]], columns: dict[str, str]) -> None:
    def text(console: Console) -> None:
        from genlock.cli.render.tables import Column, print_lines, print_table

        if not found:
            print_lines(console, f"there are no {what}")
            return
        heads = [Column("path", least=12), *map(Column, list(columns)[1:])]
        heads.append(Column("bytes", right=True))
        rows = [
            (*(each[field] for field in columns.values()), f"{each['size']:,}") for each in found
        ]
        print_table(console, heads, rows)

    app.answers.give({what: found}, text=text, bare=[each["path"] for each in found])


def _list_promotions(app: App, task: str | None) -> None:
    from genlock.coordinator.arguments import MOST_LINES

    found = app.fleet.list_promotions(task_id=task, limit=MOST_LINES)

    def text(console: Console) -> None:
        from genlock.cli.render.tables import Column, from_now, print_lines, print_table

        if not found:
            print_lines(console, "there are no promotions")
            return
        heads = [
            Column("task", least=10),
            Column("gen", right=True),
            Column("state"),
            Column("accepted"),
            Column("files", right=True),
            Column("reason"),
        ]
        rows = [
            (
                one.task_id,
                one.generation,
                str(one.state),
                from_now(one.accepted_at),
                len(one.manifest.files),
                one.reason,
            )
            for one in found
        ]
        print_table(console, heads, rows)

    app.answers.give(
        {"promotions": found}, text=text, bare=[f"{one.task_id}/{one.generation}" for one in found]
    )


@product.command()
@click.argument("task", required=False)
@click.option("--retry", is_flag=True, help="Also those that have failed.")
@verb()
def promote(app: App, task: str | None, retry: bool) -> None:
    """Promote what is accepted, and remove dead drafts.

    A service with --products does this by itself, and an embedded coordinator after each
    acceptance; this finishes what they could not, or does it with your credentials. Without TASK it
    also removes drafts that no result needs, after the policy draft_retention_days. As JSON:
    {"promoted": […], "failed": […], "errors": […], "dropped"}.
    """
    from datetime import UTC, datetime, timedelta

    import msgspec

    from genlock.products.promoter import Promoter

    area = app.fleet.product_access.area(app.fleet, place_of(app.fleet))
    promoter = Promoter(app.fleet, area, place_of(app.fleet))
    done = promoter.run(task_id=task, retry=retry)
    if task is None:
        days = app.fleet.get_policy().policy["draft_retention_days"]
        dropped = promoter.collect(datetime.now(UTC), timedelta(days=days))
        done = msgspec.structs.replace(done, dropped=dropped)

    def text(console: Console) -> None:
        from genlock.cli.render.tables import print_lines

        lines = [f"promoted: {_named(one)}" for one in done.promoted]
        lines += [f"failed: {_named(one)}: {one.reason}" for one in done.failed]
        lines += [f"pending: {error}" for error in done.errors]
        lines += [f"removed: {done.dropped} dead drafts"] if done.dropped else []
        print_lines(console, *(lines or ["nothing waits for a promotion"]))

    app.answers.give(done, text=text, bare=[_named(one) for one in done.promoted])
    if done.failed or done.errors:
        app.leave(exit_codes.ERROR)


def _named(one: PromotionInfo) -> str:
    return f"{one.task_id}/{one.generation}"
