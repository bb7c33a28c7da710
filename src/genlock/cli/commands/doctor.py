"""Checking the store: doctor."""

from __future__ import annotations

import click

from genlock.cli.app import App, verb


@click.command()
@click.option(
    "--fix",
    "fixing",
    is_flag=True,
    help="Fix what is safe: record overdue claims, repeat what was cut off, empty the log.",
)
@verb()
def doctor(app: App, fixing: bool) -> None:
    """Check the store and say what to type.

    Reads everything and changes nothing. With --fix it does what is safe first, and never removes a
    lock or a file. Exits with 0 if there is no trouble, with 1 if there is. As JSON: {"url",
    "healthy", "findings": [{"check", "level": "ok" | "note" | "trouble", "what", "means",
    "try_next": […], "items": […]}], "fixed": […]}.
    """
    from genlock.cli import exit_codes
    from genlock.cli.doctor.examination import Examination
    from genlock.cli.doctor.findings import Level, show
    from genlock.cli.open_fleet import must_exist
    from genlock.cli.render.progress import bars
    from genlock.errors import GenlockError

    must_exist(app)
    fixed: list[str] = []
    with bars(app.answers) as tell:
        examination = Examination(app.store_url, tell)
        if fixing and examination.obstacle is not None:
            app.answers.say(f"nothing was fixed: {examination.obstacle}")
        elif fixing:
            from genlock.cli.doctor.examination import fix

            try:
                fixed = fix(app.store_url, examination.path, examination.places)
            except GenlockError as error:
                app.answers.say(f"not all could be fixed: {error}")
            examination = Examination(app.store_url, tell)
    report = examination.report(fixed, app.options.get("url"))
    troubles = [
        f"{finding.check}: {finding.what}"
        for finding in report.findings
        if finding.level is Level.TROUBLE
    ]
    app.answers.give(report, text=lambda console: show(console, report), bare=troubles)
    if not report.healthy:
        app.leave(exit_codes.ERROR)
