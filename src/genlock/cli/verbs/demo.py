"""Watching a fleet: demo."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from genlock.cli.app import App, verb

if TYPE_CHECKING:
    from rich.console import Console

    from genlock.cli.demo.stage import Stage

QUICK_PACE = 0.15


@click.command()
@click.option("--quick", is_flag=True, help="The same, hurried.")
@click.option("--keep", is_flag=True, help="Keep the store, and say where it is.")
@verb(store=False)
def demo(app: App, quick: bool, keep: bool) -> None:
    """Watch a real fleet: a crash, a zombie, a takeover.

    Five processes work on one plan, on a store of their own in a temporary folder. One is killed, one is stopped until its lease has
    run out and comes back, an operator fences one off and adopts its result after all. Then every event that was written is checked
    for what Genlock promises. Exits with 0 only if all of it held. As JSON: {"held", "invariants": [{"promise", "faults": […]}],
    "lineages": […], "seconds", "store"}.
    """
    import shutil
    import signal
    import tempfile
    from pathlib import Path

    from msgspec.structs import replace

    from genlock.cli import exits
    from genlock.cli.demo.play import play

    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler)  # whoever ends us, no worker and no folder is left behind
    folder = Path(tempfile.mkdtemp(prefix="genlock-demo-"))
    try:
        outcome = play(folder, _stage(app), QUICK_PACE if quick else 1.0)
    except BaseException:
        shutil.rmtree(folder)
        raise
    if keep:
        outcome = replace(outcome, store=f"sqlite://{folder}/genlock.db")
    else:
        shutil.rmtree(folder)

    def text(console: Console) -> None:
        from genlock.cli.demo.report import show

        show(console, outcome)

    app.answers.give(outcome, text=text, bare=[finding.promise for finding in outcome.invariants if finding.faults])
    if not outcome.held:
        app.leave(exits.ERROR)


def _stage(app: App) -> Stage:
    from genlock.cli.answers import Style
    from genlock.cli.demo.stage import Lines, Picture, fits

    if app.answers.style is Style.TEXT:
        console = app.answers.console()
        if fits(console):
            return Picture(console)
    return Lines(app.answers.say)
