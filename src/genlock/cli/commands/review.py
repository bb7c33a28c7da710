"""Reviews and roles: results that wait for a person, and which role may converge which edge."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from genlock.cli.app import App, verb
from genlock.cli.inputs import promote_accepted, read_text

if TYPE_CHECKING:
    from collections.abc import Callable

    from rich.console import Console

    from genlock.core.results import ReviewInfo, ReviewResult

_SHOWN_DIGITS = 12


@click.group()
def review() -> None:
    """List, decide and evaluate results in review.

    A result waits if a person must look at it (human_required), if the role of the claim may not
    converge the task's edge, or if an evaluator of the edge has not passed. Until somebody decides,
    no other task builds on it.
    """


@review.command("list")
@click.option("--limit", type=int, default=100, metavar="N", help="At most this many.")
@verb()
def list_(app: App, limit: int) -> None:
    """List what waits for a review, and why. As JSON: {"reviews": […]}."""
    found = app.fleet.list_reviews(limit=limit)

    def text(console: Console) -> None:
        from genlock.cli.render.tables import (
            Column,
            from_now,
            print_commands,
            print_lines,
            print_table,
        )
        from genlock.messages import review_causes

        if not found:
            print_lines(console, "nothing waits for a review")
            return
        columns = [
            Column("task", least=10),
            Column("generation", 2, least=3, right=True),
            Column("agent", 3),
            Column("since", 4),
            Column("why", 1),
            Column("title", 5),
        ]
        rows = [
            (
                one.task_id,
                one.generation,
                one.agent_id or one.session_id,
                from_now(one.submitted_at),
                review_causes(one.causes),
                one.title,
            )
            for one in found
        ]
        print_table(console, columns, rows)
        print_commands(console, app.command("review show", found[0].task_id))

    app.answers.give({"reviews": found}, text=text, bare=(one.task_id for one in found))


@review.command()
@click.argument("task")
@verb()
def show(app: App, task: str) -> None:
    """Show a result that waits for a review, and what to type.

    The commands name the generation and the digest of this very result: if another one takes its
    place meanwhile, they do nothing.
    """
    found = app.fleet.get_review(task_id=task)

    def text(console: Console) -> None:
        from genlock.cli.render.tables import print_commands, print_fields

        print_fields(console, _fields(app, found))
        named = (found.task_id, "-g", found.generation, *_digest(found.digest))
        print_commands(
            console,
            app.command("review approve", *named),
            app.command("review reject", *named, "--feedback", "WHY"),
        )

    app.answers.give(found, text=text, bare=[found.generation, found.digest])


def _digest(digest: str) -> tuple[str, ...]:
    return ("--digest", digest[:_SHOWN_DIGITS]) if digest else ()


def _products(found: ReviewInfo) -> list[tuple[str, object]]:
    """Returns the products that an approval promotes, and whose drafts they are."""
    manifest = found.manifest
    if manifest is None:
        return []
    drafts = f"drafts of {manifest.agent} in generation {manifest.generation}"
    rows = [
        (f"product {one.path}", f"{one.size:,} bytes, {one.sha256[:_SHOWN_DIGITS]}")
        for one in manifest.files
    ]
    return [("products", drafts), *rows]


def _fields(app: App, found: ReviewInfo) -> list[tuple[str, object]]:
    import msgspec

    from genlock.cli.render.tables import from_now
    from genlock.messages import review_causes

    large = app.command("show", found.task_id, "--result")
    data = msgspec.json.encode(found.result_data).decode()
    return [
        ("task", found.task_id),
        ("title", found.title),
        ("edge", found.edge or ""),
        ("waits because", review_causes(found.causes)),
        ("author", f"{found.agent_id or found.session_id} ({found.session_id})"),
        ("user", found.user_id),
        ("role", found.agent_role or "none"),
        ("submitted", f"{from_now(found.submitted_at)}, at generation {found.generation}"),
        ("result", found.work_product_ref),
        ("reference", found.reference),
        ("digest", found.digest),
        *_products(found),
        ("data", f"{found.size:,} bytes: {large}" if found.payload else data),
        ("not passed", ", ".join(found.missing_evaluators)),
        *(
            (f"evaluator {name}", f"{_verdict(one.passed)}, by {one.by}{_noted(one.note)}")
            for name, one in found.evaluations.items()
        ),
        ("inputs changed", ", ".join(found.inputs_changed)),
    ]


def _verdict(passed: bool) -> str:
    return "passed" if passed else "did not pass"


def _noted(note: str) -> str:
    return f": {note}" if note else ""


def _on_a_review(function: Callable[..., None]) -> Callable[..., None]:
    """Adds the arguments that identify the reviewed result."""
    decorate = click.option(
        "--generation", "-g", type=int, required=True, metavar="N", help="As `review show` has it."
    )
    digest = click.option(
        "--digest",
        default="",
        metavar="DIGITS",
        help="The digest of the result, or its first 12 digits.",
    )
    return click.argument("task")(decorate(digest(function)))


@review.command()
@_on_a_review
@verb(worker=True)
def approve(app: App, task: str, generation: int, digest: str) -> None:
    """Accept the result: the task is completed, in your name and the author's.

    Exit code 5 if it is not this result that waits there, or if the policy four_eyes wants another
    user's approval.
    """
    answer = app.fleet.approve_review(task_id=task, generation=generation, digest=digest)
    if answer.success:
        promote_accepted(app, task)
    _give(app, answer)


@review.command()
@_on_a_review
@click.option(
    "--feedback", default="", metavar="TEXT", help="What the next holder should do differently."
)
@verb(worker=True)
def reject(app: App, task: str, generation: int, digest: str, feedback: str) -> None:
    """Open the task again. The work is kept, and whoever claims the task next gets the feedback."""
    answer = app.fleet.reject_review(
        task_id=task, generation=generation, digest=digest, feedback=feedback
    )
    _give(app, answer)


@review.command()
@_on_a_review
@click.argument("evaluator")
@click.option("--pass/--fail", "passed", default=None, required=True, help="What it found.")
@click.option("--note", default="", metavar="TEXT", help="What there is to say about it.")
@verb(worker=True)
def evaluate(
    app: App,
    task: str,
    generation: int,
    digest: str,
    evaluator: str,
    passed: bool,
    note: str,
) -> None:
    """Say what an evaluator of the edge found of the result.

    If evaluators were all that was missing, the last of them to pass completes the task.
    """
    answer = app.fleet.report_evaluation(
        task_id=task,
        generation=generation,
        digest=digest,
        evaluator=evaluator,
        passed=passed,
        note=note,
    )
    _give(app, answer)


def _give(app: App, answer: ReviewResult) -> None:
    from genlock.messages import describe

    message = describe(answer, app.context(answer.task_id))
    if not answer.success:
        app.refuse(answer, message)

    def text(console: Console) -> None:
        from genlock.cli.render.tables import print_lines

        print_lines(console, message.text)

    app.answers.give(answer, text=text, bare=[answer.state])


@click.group()
def roles() -> None:
    """Import, show and check agent_roles.yml.

    \b
      roles:
        architect:
          converge_edges: [requirements_design, design_code]
        full_stack:
          converge_edges: [all]

    A result for an edge that the role of its claim may not converge waits for a review.
    """


@roles.command("import")
@click.argument("path", metavar="FILE")
@verb()
def import_(app: App, path: str) -> None:
    """Make FILE the project's table of roles; - is stdin. An empty `roles:` removes the table."""
    found = app.fleet.set_policy(agent_roles=_read(path))
    _show(app, found.agent_roles)


@roles.command("show")
@verb()
def show_roles(app: App) -> None:
    """Show the table of roles, as agent_roles.yml has it."""
    _show(app, app.fleet.get_policy().agent_roles)


@roles.command()
@click.argument("path", metavar="FILE")
@verb(store=False)
def check(app: App, path: str) -> None:
    """Check a file without importing it. Needs no store."""
    from genlock.core.agent_roles import as_document, check_agent_roles

    _show(app, as_document(check_agent_roles(_read(path))))


def _read(path: str) -> Any:
    from genlock.errors import BadArgument
    from genlock.plans import load_yaml
    from genlock.plans.values import Misread

    text = read_text(path, "FILE")
    try:
        found = load_yaml(text)
    except Misread as error:
        raise BadArgument(f"{path}: {error}") from None
    return {} if found is None else found


def _show(app: App, table: Any) -> None:
    def text(console: Console) -> None:
        from genlock.cli.render.tables import Column, print_lines, print_table

        if not table.get("roles") and not table.get("edges"):
            print_lines(console, "there is no table of roles: no role limits anybody")
            return
        rows = [
            (name, ", ".join(role["converge_edges"]) or "no edge")
            for name, role in table.get("roles", {}).items()
        ]
        print_table(console, [Column("role", least=8), Column("may converge", 1)], rows)
        needs = [
            (
                name,
                "yes" if rule.get("human_required") else "",
                ", ".join(rule.get("evaluators", ())),
            )
            for name, rule in table.get("edges", {}).items()
        ]
        if needs:
            print_lines(console, "")
            columns = [Column("edge", least=8), Column("a person", 2), Column("evaluators", 1)]
            print_table(console, columns, needs)

    app.answers.give(dict(table), text=text, bare=table.get("roles", {}))
