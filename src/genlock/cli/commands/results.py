"""Commands for results: submit and spawn for workers, adopt and discard for refused results."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from genlock.cli.app import App, taking_over, verb
from genlock.cli.inputs import (
    claim_meant,
    claim_or_task,
    on_a_claim,
    parse_json,
    place_of,
    promote_accepted,
    read_text,
)
from genlock.errors import BadArgument, GenlockError, ResultNotFound

if TYPE_CHECKING:
    from rich.console import Console

    from genlock.core.results import SubmissionResult


# Workers' commands: submit, spawn.


_operation = click.option(
    "--operation", metavar="ID", help="Idempotency key: a retry returns the first answer."
)


@click.command()
@on_a_claim
@click.option("--result", metavar="JSON", help="The result.")
@click.option("--result-file", metavar="PATH", help="A file with the result as JSON; - is stdin.")
@click.option("--text", metavar="TEXT", help="The result as text.")
@click.option(
    "--ref",
    "reference",
    default="",
    metavar="WORK_PRODUCT",
    help="A commit, file or address: where the work lies. It is shown beside the generated name.",
)
@click.option(
    "--passed",
    multiple=True,
    metavar="EVALUATOR",
    help="An evaluator of the task's edge that has passed; may be given several times.",
)
@click.option(
    "--products",
    "with_products",
    is_flag=True,
    help="With all that you have put in this generation (genlock product put).",
)
@_operation
@verb(holder=True, text=False)
def submit(
    app: App,
    task: str | None,
    generation: int | None,
    result: str | None,
    result_file: str | None,
    text: str | None,
    reference: str,
    passed: tuple[str, ...],
    with_products: bool,
    operation: str | None,
) -> None:
    """Submit a result.

    The result counts if the generation is still the highest, even if the lease has run out.
    Otherwise Genlock refuses and keeps it: exit code 5. It waits for a review if a person must look
    at it, or if your role may not converge the task's edge; that ends your claim, too.

    As JSON: {"accepted", "reason", "work_product_ref", "unblocked": […], …}; `unblocked` names the
    tasks that waited for this one and are ready now. Under `genlock run` and `genlock work`, what
    was put before belongs to the result without --products.
    """
    task, generation = claim_meant(task, generation)
    data = _result(result, result_file, text)
    products = _products(app, task, generation, wanted=with_products)
    answer = app.fleet.submit_result(
        task_id=task,
        generation=generation,
        result_data=data,
        agent_id=app.agent_of(task, generation),
        work_product_ref=reference,
        operation_id=operation,
        evaluations=dict.fromkeys(passed, True) or None,
        products=products or None,
    )

    if not answer.accepted:
        from genlock.messages import describe

        app.refuse(answer, describe(answer, app.context(task, generation, app.who.session)))

    if products:
        promote_accepted(app, task)
    else:
        _discard_slips(app, task, data)
    unblocked = _unblocked(app, answer, task)

    def say(console: Console) -> None:
        from genlock.cli.render.tables import print_lines

        _print_outcome(app, console, answer, task)
        print_lines(console, f"work product: {answer.work_product_ref}")
        if unblocked:
            print_lines(console, f"now ready: {', '.join(unblocked)}")

    fields = {name: getattr(answer, name) for name in answer.__struct_fields__}
    app.answers.give({**fields, "unblocked": unblocked}, text=say, bare=[answer.work_product_ref])


def _unblocked(app: App, answer: SubmissionResult, task: str) -> list[str]:
    """Returns the tasks that waited for this one and can be claimed now."""
    if answer.reason.value != "ACCEPTED":
        return []
    try:
        around = app.fleet.get_graph(around=task, depth=1).tasks
    except GenlockError:  # the result counts even if this query fails
        return []
    return [
        other.id
        for other in around
        if other.distance == 1 and other.state.value == "PENDING" and not other.waits_for
    ]


def _products(app: App, task: str, generation: int, *, wanted: bool) -> list[dict[str, Any]]:
    """Returns the products of the result: all drafts of this generation, or those put under the
    claim of the command that runs this one."""
    from msgspec.structs import asdict

    from genlock.worker.products_file import VARIABLE, read_products

    noted = os.environ.get(VARIABLE)
    if wanted:
        area = app.fleet.product_access.area(app.fleet, place_of(app.fleet))
        found = area.products(app.agent_of(task, generation), task, generation)
        if not found:
            raise BadArgument(
                f"there are no drafts of {task} in generation {generation}; put some first, type: "
                "genlock product put FILE"
            )
    elif noted and task == os.environ.get("GENLOCK_TASK"):
        found = read_products(noted)
    else:
        return []
    return [asdict(product) for product in found]


def _discard_slips(app: App, task: str, data: Any) -> None:
    """Discards refused copies of a result that is accepted now: those that this session submitted
    with a mistyped generation that the task never had."""
    from contextlib import suppress

    from genlock.coordinator.arguments import pack

    own, digest = app.who.session, ""
    # The result counts even if this fails; over HTTP the key may not allow it.
    with suppress(GenlockError):
        for kept in app.fleet.list_refused_results(task_id=task):
            if (kept.session_id, kept.rejection_reason) != (own, "FUTURE_GENERATION"):
                continue
            digest = digest or pack(data)[0].digest
            if kept.digest == digest:
                app.fleet.discard_result(task_id=task, refused_id=kept.id)


def _print_outcome(app: App, console: Console, answer: SubmissionResult, task: str) -> None:
    """Prints whether a submitted result counts already, or waits for a review."""
    from genlock.cli.render.tables import print_lines
    from genlock.messages import describe

    if answer.reason.value == "CONVERGENCE_ESCALATED":
        print_lines(console, f"in review: {describe(answer, app.context(task)).text}")
    else:
        print_lines(console, f"accepted: {task} is completed")


@click.command()
@on_a_claim
@click.argument("subtasks", nargs=-1, metavar="[SUBTASK]...")
@click.option(
    "--subtasks",
    "listed",
    metavar="TITLES",
    help='The titles in one word, with commas between them: "parser,writer,docs".',
)
@click.option(
    "--mode",
    default="parallel",
    metavar="MODE",
    help="sequential, parallel (the default) or fan-out-fan-in.",
)
@click.option("--keep", is_flag=True, help="Keep the claim instead of releasing it.")
@click.option(
    "--from",
    "path",
    metavar="FILE",
    help="A JSON list of subtasks, each a title or an object; - is stdin.",
)
@_operation
@verb(holder=True)
def spawn(
    app: App,
    task: str | None,
    generation: int | None,
    subtasks: tuple[str, ...],
    listed: str | None,
    mode: str,
    keep: bool,
    path: str | None,
    operation: str | None,
) -> None:
    """Split a task into subtasks.

    Each SUBTASK is a title, after the task's id; only with --subtasks and --from may the id be left
    out. The task is released and opens again when they are done; with fan-out-fan-in it is then
    completed. A task that nobody holds is split without -g.
    """
    if sum([path is not None, bool(subtasks), listed is not None]) > 1:
        raise BadArgument("give the subtasks as titles, with --subtasks or with --from, not both")
    task, generation = claim_or_task(task, generation)
    given = _listed(listed) if listed is not None else list(subtasks)
    given = given if path is None else _subtasks(path)
    if not given:
        held = () if generation is None else ("-g", generation)
        example = app.command("spawn", task, *held, "first part", "second part")
        raise BadArgument(f"which subtasks? After the task come their titles: {example}")
    agent = None if generation is None else app.agent_of(task, generation)
    answer = app.fleet.spawn_subtasks(
        task_id=task,
        generation=generation,
        subtasks=given,
        mode=mode,
        keep=keep,
        agent_id=agent,
        operation_id=operation,
    )

    if not answer.success:
        from genlock.messages import describe

        app.refuse(answer, describe(answer, app.context(task, generation, app.who.session)))

    def say(console: Console) -> None:
        from genlock.cli.render.tables import print_lines

        print_lines(
            console,
            f"{task} {'is kept and ' if keep else ''}waits for:",
            *(f"  {child}" for child in answer.children),
        )

    app.answers.give(answer, text=say, bare=answer.children)


def _other_than_json(given: str) -> str:
    """Returns the advice for a value that is not valid JSON: how to submit it otherwise."""
    path = given.removeprefix("@")
    if given.startswith("@") or os.path.isfile(path):
        return f"; if it is a file, use --result-file {shlex.quote(path)}"
    return "; if it is a plain text, use --text"


def _result(result: str | None, path: str | None, text: str | None) -> Any:
    if sum(given is not None for given in (result, path, text)) > 1:
        raise BadArgument("give the result by one of --result, --result-file and --text")
    if text is not None:
        return text
    if result is not None:
        return parse_json(result, "--result", _other_than_json(result))
    return (
        None
        if path is None
        else parse_json(read_text(path, "--result-file"), f"--result-file {path}")
    )


def _listed(titles: str) -> list[Any]:
    """Parses titles such as `a,b,c`; an empty one between two commas is a typing error and
    ignored."""
    return [title.strip() for title in titles.split(",") if title.strip()]


def _subtasks(path: str) -> list[Any]:
    found = parse_json(read_text(path, "--from"), f"--from {path}")
    if not isinstance(found, list):
        raise BadArgument(
            f"--from {path}: it holds no list; subtasks are a JSON list of titles or objects"
        )
    return found


# Commands for refused results: adopt, discard.


@click.command()
@click.argument("task")
@click.argument("refused_id")
@click.option(
    "--generation", "-g", type=int, metavar="N", help="The generation at which you hold the task."
)
@click.option(
    "--force", is_flag=True, help="As an operator: do it even if the task has a live holder."
)
@verb(worker=True)
def adopt(app: App, task: str, refused_id: str, generation: int | None, force: bool) -> None:
    """Make a refused result the task's result.

    With -g this is the holder's submission. Without -g it is an operator's act, and needs --force
    if the task has a live holder. The session whose result was refused cannot overrule that:
    an operator decides, in a terminal of its own.
    """
    if force and generation is not None:
        raise BadArgument(
            "--force is for operators, who give no -g; the holder has nothing to take over"
        )
    with _found(app, task, refused_id) as whole, taking_over(app, "adopt", task, refused_id):
        answer = app.fleet.adopt_result(
            task_id=task, refused_id=whole, generation=generation, take_over=force
        )

    if not answer.accepted:
        from genlock.messages import describe

        app.refuse(answer, describe(answer, app.context(task, generation, app.who.session)))

    promote_accepted(app, task)

    def text(console: Console) -> None:
        from genlock.cli.render.tables import print_lines

        print_lines(
            console, f"adopted: {task} is completed", f"work product: {answer.work_product_ref}"
        )

    app.answers.give(answer, text=text, bare=[answer.work_product_ref])


@click.command()
@click.argument("task")
@click.argument("refused_id")
@verb()
def discard(app: App, task: str, refused_id: str) -> None:
    """Discard a refused result.

    Deletes its data. The history keeps a record of it.
    """
    with _found(app, task, refused_id) as refused_id:
        app.fleet.discard_result(task_id=task, refused_id=refused_id)

    def text(console: Console) -> None:
        from genlock.cli.render.tables import print_lines

        print_lines(console, f"discarded: {refused_id}")

    app.answers.give(
        {"task_id": task, "refused_id": refused_id, "discarded": True}, text=text, bare=[refused_id]
    )


@contextmanager
def _found(app: App, task: str, typed: str) -> Iterator[str]:
    """Completes a refused result's name, which begins with its task: that need not be typed twice.
    If there is no such result, the error says what to type."""
    try:
        yield typed if typed.startswith(f"{task}/") else f"{task}/{typed}"
    except ResultNotFound as error:
        raise ResultNotFound(f"{error}: {app.command('refused', task)}") from error
