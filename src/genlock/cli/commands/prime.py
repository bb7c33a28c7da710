"""The introduction to the plan for a model: prime."""

from __future__ import annotations

import click

from genlock.cli.app import App, verb


@click.command()
@verb(holder=True)
def prime(app: App) -> None:
    """Print what an agent should know of the plan when it begins.

    Under 1,000 tokens: how to work with Genlock, what its session holds, who works on what, and
    what is ready. The output is text wherever it goes.
    """
    from genlock.cli.agents.prime_text import prime_text

    app.answers.write_text(prime_text(app.fleet, app.own_session) + "\n")
