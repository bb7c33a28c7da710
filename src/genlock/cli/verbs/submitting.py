"""What workers hand in: submit, spawn."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from genlock.cli import exits
from genlock.cli.app import App, verb
from genlock.cli.inputs import claim_meant, on_a_claim, parse_json, read_text
from genlock.errors import BadArgument

if TYPE_CHECKING:
    from rich.console import Console

_operation = click.option("--operation", metavar="ID", help="The same id again is answered alike: for calls whose answer was lost.")


@click.command()
@on_a_claim
@click.option("--result", metavar="JSON", help="The result.")
@click.option("--result-file", metavar="PATH", help="A file with the result as JSON; - is stdin.")
@click.option("--text", metavar="TEXT", help="A result that is a text.")
@click.option("--ref", "reference", default="", metavar="WORK_PRODUCT", help="What the result refers to: a commit, a file, an address.")
@_operation
@verb(holder=True)
def submit(
    app: App,
    task: str | None,
    generation: int | None,
    result: str | None,
    result_file: str | None,
    text: str | None,
    reference: str,
    operation: str | None,
) -> None:
    """Hand in a result.

    It counts if the generation is still the highest, even if the lease has run out. If not it is refused and kept: exit code 5.
    """
    task, generation = claim_meant(task, generation)
    data = _result(result, result_file, text)
    answer = app.fleet.submit_result(
        task_id=task,
        generation=generation,
        result_data=data,
        agent_id=app.agent_of(task, generation),
        work_product_ref=reference,
        operation_id=operation,
    )

    def say(console: Console) -> None:
        from genlock.cli.tables import print_commands, print_lines
        from genlock.cli.wording import after_submission, is_finished, refusal

        if answer.accepted:
            print_lines(console, f"accepted: {task} is completed", f"work product: {answer.work_product_ref}")
            return
        why = refusal(task, answer.reason, answer.current_generation, answer.waits_for, session=app.who.session)
        print_lines(console, f"refused, {answer.reason}: {why}")
        if answer.kept:
            print_lines(console, "the result is kept; to make it count, or to give it up:")
        # A late result is refused as stale also where the task is finished: the reason alone does not tell.
        finished = answer.kept and is_finished(app.fleet.get_task_state(task_id=task))
        print_commands(console, *after_submission(app.command, task, answer, finished=finished))

    app.answers.give(answer, text=say, bare=[answer.work_product_ref] if answer.accepted else [])
    if not answer.accepted:
        app.leave(exits.CONFLICT)


@click.command()
@on_a_claim
@click.argument("subtasks", nargs=-1, metavar="[SUBTASK]...")
@click.option("--mode", default="parallel", metavar="MODE", help="sequential, parallel (the default) or fan-out-fan-in.")
@click.option("--keep", is_flag=True, help="Keep the claim instead of giving it back.")
@click.option("--from", "path", metavar="FILE", help="A JSON list of subtasks, each a title or an object; - is stdin.")
@_operation
@verb(holder=True)
def spawn(
    app: App,
    task: str | None,
    generation: int | None,
    subtasks: tuple[str, ...],
    mode: str,
    keep: bool,
    path: str | None,
    operation: str | None,
) -> None:
    """Split a task into subtasks.

    Each SUBTASK is a title, after the task's id; only with --from may the id be left out.
    The task is released and opens again when they are done; with fan-out-fan-in it is then completed.
    """
    if path is not None and subtasks:
        raise BadArgument("give the subtasks as titles or with --from, not both")
    task, generation = claim_meant(task, generation)
    given = list(subtasks) if path is None else _subtasks(path)
    if not given:
        example = app.command("spawn", task, "-g", generation, "first part", "second part")
        raise BadArgument(f"which subtasks? After the task come their titles: {example}")
    agent = app.agent_of(task, generation)
    answer = app.fleet.spawn_subtasks(
        task_id=task, generation=generation, subtasks=given, mode=mode, keep=keep, agent_id=agent, operation_id=operation
    )

    def text(console: Console) -> None:
        from genlock.cli.tables import print_lines
        from genlock.cli.wording import refusal

        if answer.success:
            print_lines(console, f"{task} {'is kept and ' if keep else ''}waits for:", *(f"  {child}" for child in answer.children))
        else:
            why = refusal(task, answer.reason, answer.current_generation, session=app.who.session)
            print_lines(console, f"refused, {answer.reason}: {why}")

    app.answers.give(answer, text=text, bare=answer.children)
    if not answer.success:
        app.leave(exits.CONFLICT)


def _result(result: str | None, path: str | None, text: str | None) -> Any:
    if sum(given is not None for given in (result, path, text)) > 1:
        raise BadArgument("give the result by one of --result, --result-file and --text")
    if text is not None:
        return text
    if result is not None:
        return parse_json(result, "--result", "; if it is a plain text, use --text")
    return None if path is None else parse_json(read_text(path, "--result-file"), f"--result-file {path}")


def _subtasks(path: str) -> list[Any]:
    found = parse_json(read_text(path, "--from"), f"--from {path}")
    if not isinstance(found, list):
        raise BadArgument(f"--from {path}: it holds no list; subtasks are a JSON list of titles or objects")
    return found
