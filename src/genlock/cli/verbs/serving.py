"""Serving: serve, dev."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import click

from genlock.cli.answers import Style
from genlock.cli.app import App, verb
from genlock.service_settings import CHECKS, PREFIX

if TYPE_CHECKING:
    from collections.abc import Callable

    from genlock.service.hosting import Hosted, Options

_OPTIONS = {
    "host": ("ADDRESS", "The address to listen at; default: 127.0.0.1, for this machine alone."),
    "port": ("NUMBER", "The port; default: 8420. 0 is any that is free."),
    "allow_host": ("NAME", "A name that clients call it by, besides loopback's; may be repeated. * for any."),
    "forwarded_allow_ips": ("ADDRESSES", "The proxies that are believed about where requests come from."),
    "metrics_prefix": ("WORD", "What the names of metrics begin with; default: genlock."),
    "log_level": ("LEVEL", "debug, info, warning or error; default: info."),
    "log_format": ("FORMAT", "json or text; default: text on a terminal, else json."),
    "grace_seconds": ("SECONDS", "How long a stop may take; default: 10."),
    "connections": ("NUMBER", "The most connections at once; default: 20,000."),
    "rate": ("NUMBER", "The most requests a second of one key; default: 1,000, and any number where no keys are asked for. 0 for any."),
    "tenant_operations": ("NUMBER", "The most operations of one tenant at once; the others wait their turn. Default: 256."),
    "api_tenant": ("NAME", "The tenant that /api acts on; default: default."),
    "api_project": ("NAME", "The project that /api acts on; default: default."),
    "sign_in_file": ("FILE", "A secret of 32 bytes or more that replicas share, so that who is signed in at one page is at all."),
    "claim_config": ("NAME=MS", "A setting of claims under /api, such as defaultTTL=600000; may be repeated."),
}

_REPEATED = ("allow_host", "claim_config")


def _options(function: Callable[..., None], **others: str) -> Callable[..., None]:
    """A flag for each setting of a service; `others` are those of which this verb says something else."""
    for name, (kind, usual) in reversed(_OPTIONS.items()):
        text = others.get(name, usual)
        flag = f"--{name.replace('_', '-')}"
        function = click.option(flag, f"set_{PREFIX}{name}", metavar=kind, help=text, multiple=name in _REPEATED)(function)
    keys = click.option(
        "--keys/--no-keys", f"set_{PREFIX}keys", default=None, help="Ask for keys; default: unless only this machine can reach it."
    )
    url = click.option("--url", "set_url", metavar="URL", help="The store; default: the project's own.")
    return url(keys(_joined(function)))


def _joined(function: Callable[..., None]) -> Callable[..., None]:
    """What may be repeated becomes one setting."""
    import functools

    @functools.wraps(function)
    def run(**options: Any) -> None:
        several = {name: options[name] for name in (f"set_{PREFIX}{each}" for each in _REPEATED)}
        function(**options | {name: ",".join(given) if given else None for name, given in several.items()})

    return run


@click.command()
@_options
@verb(store=False, settings=("url", *CHECKS))
def serve(app: App) -> None:
    """Serve the store to agents on other machines, over HTTP.

    Every setting may also stand in a file (serve_port = 8420) or in the environment (GENLOCK_SERVE_PORT). On loopback no keys are
    needed; anywhere else they are. SIGTERM or Ctrl-C lets it finish what it has accepted; a second one ends it at once.
    """
    from genlock.cli.opening import by_the_short_way
    from genlock.service.hosting import host
    from genlock.service.serving import run

    def begin(hosted: Hosted) -> None:
        announce(app, hosted)
        if app.answers.style is Style.TEXT:
            app.answers.say(f"Ctrl-C ends it. From another terminal: genlock status --url {hosted.url}")

    with by_the_short_way(app):
        run(host(app.store_url, options_of(app), begin))


@click.command()
@click.option("--fresh", is_flag=True, help="On a store of its own that is gone afterwards.")
@click.option("--agents", type=click.IntRange(0, 50), default=5, show_default=True, help="How many agents work.")
@click.option("--seconds", type=click.FloatRange(min=0), metavar="SECONDS", help="End by itself after so long.")
@partial(_options, log_level="debug, info, warning or error; default: warning, so that the agents' acts are not logged one by one.")
@verb(store=False, settings=("url", *CHECKS))
def dev(app: App, fresh: bool, agents: int, seconds: float | None) -> None:
    """Try it: a service with a sample plan and agents at work.

    On the project's own store (made if there is none), in a project called demo, or with --fresh on one of its own. The agents are
    processes that speak HTTP to the service; they fail sometimes, and some are killed. When the plan is done it begins again. Ctrl-C
    ends everything. If the port is taken, another one is.
    """
    from genlock.cli.dev.stage import play

    play(app, options_of(app), fresh=fresh, agents=agents, seconds=seconds)


def options_of(app: App) -> Options:
    """The settings of a service."""
    from genlock.service.hosting import Options

    return Options(**{name.removeprefix(PREFIX): app.setting(name) for name in CHECKS})


def announce(app: App, hosted: Hosted) -> None:
    """Says where it is: one line."""
    shown = f"Genlock serves at {hosted.url}"
    app.answers.give({"url": hosted.url}, text=lambda console: console.print(shown, markup=False, soft_wrap=True), bare=[hosted.url])
