"""Serving and trying it: serve, dev, demo, link."""

from __future__ import annotations

import http.client
import json
import re
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

import click

from genlock import token_files
from genlock.cli.answers import Style
from genlock.cli.app import App, verb
from genlock.cli.inputs import SECONDS
from genlock.errors import KeyRefused, NotFound, ServiceUnreachable
from genlock.service_settings import CHECKS, PREFIX

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from rich.console import Console

    from genlock.cli.sample_fleet.screen import Stage
    from genlock.service.host import Hosted, Options


_OPTIONS = {
    "host": ("ADDRESS", "The address to listen at; default: 127.0.0.1, for this machine alone."),
    "port": ("NUMBER", "The port; default: 8420. 0 is any that is free."),
    "allow_host": (
        "NAME",
        "A name that clients call it by, besides loopback's; may be repeated. * for any.",
    ),
    "forwarded_allow_ips": (
        "ADDRESSES",
        "The proxies that are believed about where requests come from.",
    ),
    "metrics_prefix": ("WORD", "What the names of metrics begin with; default: genlock."),
    "log_level": ("LEVEL", "debug, info, warning or error; default: info."),
    "log_format": ("FORMAT", "json or text; default: text on a terminal, else json."),
    "grace_seconds": ("SECONDS", "How long a stop may take; default: 10."),
    "connections": ("NUMBER", "The most connections at once; default: 20,000."),
    "rate": (
        "NUMBER",
        (
            "The most requests a second of one key; default: 1,000, and any number where no keys "
            "are asked for. 0 for any."
        ),
    ),
    "tenant_operations": (
        "NUMBER",
        "The most operations of one tenant at once; the others wait their turn. Default: 256.",
    ),
    "streams": (
        "NUMBER",
        (
            "The most event streams of one key, or of one address where no keys are asked for. "
            "Default: 128."
        ),
    ),
    "api_tenant": ("NAME", "The tenant that /api acts on; default: default."),
    "api_project": ("NAME", "The project that /api acts on; default: default."),
    "sign_in_file": (
        "FILE",
        (
            "A secret of 32 bytes or more that replicas share, so that who is signed in at one "
            "page is at all."
        ),
    ),
    "products": (
        "URL",
        (
            "Promote work products in areas below this address, each tenant's below its own name: "
            "s3://bucket/areas for s3://bucket/areas/TENANT/…; default: in none."
        ),
    ),
    "claim_config": (
        "NAME=MS",
        "A setting of claims under /api, such as defaultTTL=600000; may be repeated.",
    ),
}

_REPEATED = ("allow_host", "claim_config")


def _options(function: Callable[..., None], **others: str) -> Callable[..., None]:
    """Adds a flag for each setting of a service; `others` are help texts that differ for this
    command."""
    for name, (kind, usual) in reversed(_OPTIONS.items()):
        text = others.get(name, usual)
        flag = f"--{name.replace('_', '-')}"
        function = click.option(
            flag, f"set_{PREFIX}{name}", metavar=kind, help=text, multiple=name in _REPEATED
        )(function)
    keys = click.option(
        "--keys/--no-keys",
        f"set_{PREFIX}keys",
        default=None,
        help="Ask for keys; default: unless only this machine can reach it.",
    )
    # A flag and not a setting: a file by another author must not open a service to everyone.
    trust = click.option(
        "--trust-local",
        is_flag=True,
        help="Let every user of this machine do everything, without token or key.",
    )
    url = click.option(
        "--url", "set_url", metavar="URL", help="The store; default: the project's own."
    )
    return url(keys(trust(_joined(function))))


def _joined(function: Callable[..., None]) -> Callable[..., None]:
    """Joins the values of repeatable flags into one setting."""
    import functools

    @functools.wraps(function)
    def run(**options: Any) -> None:
        several = {name: options[name] for name in (f"set_{PREFIX}{each}" for each in _REPEATED)}
        function(
            **options
            | {name: ",".join(given) if given else None for name, given in several.items()}
        )

    return run


@click.command()
@_options
@verb(store=False, settings=("url", *CHECKS))
def serve(app: App, trust_local: bool) -> None:
    """Serve the store to agents on other machines, over HTTP.

    Every setting may also stand in a file (serve_port = 8420) or in the environment
    (GENLOCK_SERVE_PORT). On loopback the service is for the user who started it: it writes a token
    that only this user can read, and the command line and clients send it by themselves. The link
    that is printed signs a browser in. Everyone else needs a key. SIGTERM or Ctrl-C lets it finish
    what it has accepted; a second one ends it at once.

    As JSON: {"url", "link", "header_file"}; curl -H @FILE sends the token.
    """
    from genlock import token_files
    from genlock.cli.open_fleet import by_the_short_way

    with _server_packages():
        from genlock.service.host import host
        from genlock.service.server import run

    def begin(hosted: Hosted) -> None:
        announce(app, hosted)
        if app.answers.style is Style.TEXT:
            app.answers.say(
                f"Ctrl-C ends it. From another terminal: genlock status --url {hosted.url}"
            )

    with by_the_short_way(app):
        run(
            host(
                app.store_url,
                options_of(app, trust_local=trust_local),
                begin,
                token_folders=token_files.folders(app.project_folder),
            )
        )


@click.command()
@click.option("--fresh", is_flag=True, help="Use a store of its own, and delete it afterwards.")
@click.option(
    "--agents",
    type=click.IntRange(0, 50),
    default=5,
    show_default=True,
    help="The number of agents.",
)
@click.option(
    "--seconds",
    type=SECONDS,
    metavar="SECONDS",
    help="End after this long.",
)
@click.option("--quick", is_flag=True, help="Play it faster.")
@partial(
    _options,
    log_level="debug, info, warning or error; default: warning, so that the agents' acts are not "
    "logged one by one.",
)
@verb(store=False, settings=("url", *CHECKS))
def dev(
    app: App, trust_local: bool, fresh: bool, agents: int, seconds: float | None, quick: bool
) -> None:
    """Try it: a service with a sample plan and agents at work.

    On the project's own store (made if there is none), in a project called demo, or with --fresh on
    one of its own. The agents are processes that speak HTTP to the service; they fail sometimes.
    Some are killed, and some are stopped past their lease and come back as zombies. One task is
    held until an operator reopens it. Prints one line for each grant, crash, takeover and refusal;
    as JSON, lines of {"kind", "text", "agent_id", "task_id", "generation", "at"} after the first.
    When the plan is done it begins again. Ctrl-C ends everything. If the port is taken, another
    one is.
    """
    with _server_packages():
        from genlock.cli.sample_fleet.dev import play

    play(
        app,
        options_of(app, trust_local=trust_local),
        fresh=fresh,
        agents=agents,
        seconds=seconds,
        pace=QUICK_DEV_PACE if quick else 1.0,
    )


@click.command()
@click.option(
    "--url",
    "set_url",
    metavar="URL",
    help="The service; default: the one that `genlock serve` starts here.",
)
@verb(store=False, settings=("url",))
def link(app: App) -> None:
    """Print a link that signs a browser in to your service.

    To one on this machine that you started. The link opens the status page, once and within a
    minute. As JSON: {"link", "expires_in_seconds"}.
    """
    from genlock import token_files
    from genlock.schemes import is_service

    given = app.setting("url")
    service = (
        given
        if given is not None and is_service(given)
        else f"http://{app.setting('serve_host')}:{app.setting('serve_port')}/"
    )
    found = ask_for_link(service, token_files.folders(app.project_folder))
    app.answers.give(
        found,
        text=lambda console: console.print(found["link"], markup=False, soft_wrap=True),
        bare=[found["link"]],
    )


def _server_packages() -> AbstractContextManager[None]:
    from genlock.extras import needs_extra

    packages = ("httptools", "prometheus_client", "starlette", "structlog", "uvicorn", "uvloop")
    return needs_extra("server", *packages, purpose="a package that the service needs")


def options_of(app: App, *, trust_local: bool = False) -> Options:
    """The settings of a service."""
    from genlock.service.host import Options

    return Options(
        **{name.removeprefix(PREFIX): app.setting(name) for name in CHECKS}, trust_local=trust_local
    )


def announce(app: App, hosted: Hosted) -> None:
    """Prints the service's address, and how to sign in."""
    opened = hosted.make_link()
    answer = {"url": hosted.url, "link": opened, "header_file": hosted.header_file}
    shown = f"Genlock serves at {opened}"
    app.answers.give(
        answer,
        text=lambda console: console.print(shown, markup=False, soft_wrap=True),
        bare=[hosted.url],
    )
    if app.answers.style is Style.TEXT and hosted.token is not None:
        app.answers.say(
            "The link signs a browser in, once and within a minute. For a new one: genlock link "
            f"--url {hosted.url}"
        )
        app.answers.say(f"For curl: -H @{hosted.header_file}")


# Watching a fleet: demo.


QUICK_PACE = 0.15
QUICK_DEV_PACE = 0.4


@click.command()
@click.option("--quick", is_flag=True, help="Play it faster.")
@click.option("--keep", is_flag=True, help="Keep the store, and print where it is.")
@click.option(
    "--isolation", is_flag=True, help="Another scene: worktrees, a guarded repository, a review."
)
@verb(store=False)
def demo(app: App, quick: bool, keep: bool, isolation: bool) -> None:
    """Watch a real fleet: a crash, a zombie, a takeover.

    Five processes work on one plan, on a store of their own in a temporary folder. One is killed,
    one is stopped until its lease has run out and comes back, an operator fences one off and adopts
    its result after all. Then every event that was written is checked for what Genlock promises.
    Exits with 0 only if all of it held. As JSON: {"held", "invariants": [{"promise", "faults":
    […]}], "lineages": […], "seconds", "store"}.

    With --isolation the five share a git repository, which Genlock guards. Each works in a worktree
    of its own, the push of a zombie is refused, and main takes accepted commits only: one of them
    after a person has approved it.
    """
    import shutil
    import signal
    import tempfile
    from pathlib import Path

    from msgspec.structs import replace

    from genlock.cli import exit_codes
    from genlock.cli.sample_fleet.demo import Outcome, play
    from genlock.cli.sample_fleet.isolation import IsolationOutcome, play_isolation

    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(
            number, signal.default_int_handler
        )  # however we are ended, no worker and no folder is left behind
    folder = Path(tempfile.mkdtemp(prefix="genlock-demo-"))
    try:
        pace = QUICK_PACE if quick else 1.0
        outcome: Outcome | IsolationOutcome = (
            play_isolation(folder, _stage(app, "five workers, one repository"), pace)
            if isolation
            else play(folder, _stage(app, "five workers, one plan"), pace)
        )
    except BaseException:
        shutil.rmtree(folder)
        raise
    if keep:
        kept = str(folder) if isolation else f"sqlite://{folder}/genlock.db"
        outcome = replace(outcome, store=kept)
    else:
        shutil.rmtree(folder)

    def text(console: Console) -> None:
        from genlock.cli.sample_fleet.screen import show, show_isolation

        if isinstance(outcome, IsolationOutcome):
            show_isolation(console, outcome)
        else:
            show(console, outcome)

    app.answers.give(
        outcome,
        text=text,
        bare=[finding.promise for finding in outcome.invariants if finding.faults],
    )
    if not outcome.held:
        app.leave(exit_codes.ERROR)


def _stage(app: App, title: str) -> Stage:
    from genlock.cli.answers import Style
    from genlock.cli.sample_fleet.screen import Lines, Picture, fits

    if app.answers.style is Style.TEXT:
        console = app.answers.console()
        if fits(console):
            return Picture(console, title)
    return Lines(app.answers.say)


# A link that signs a browser in: requested from a service on this machine, with the token of the
# user who started it.


_PATH: Final = "/sign-in/link"
_SECONDS: Final = 10.0
_LINK: Final = re.compile(r"/sign-in\?code=[\w-]{1,100}", re.ASCII)
_LONGEST: Final = 10_000


class NoService(NotFound):
    """This user has no running service."""


def ask_for_link(url: str, folders: Sequence[Path]) -> dict[str, Any]:
    """Requests a link. Returns it with its lifetime."""
    found = token_files.find(url, folders)
    if found is None:
        raise NoService(
            f"there is no token of a service that you started at {url}; if it asks for keys, open "
            f"{url.rstrip('/')}/sign-in in a browser "
            "and enter one. For a service at another port, add --url http://127.0.0.1:PORT/"
        )
    address = urlsplit(found.url)
    connection = http.client.HTTPConnection(address.hostname or "", address.port, timeout=_SECONDS)
    try:
        connection.request("POST", _PATH, headers={"authorization": f"Bearer {found.token}"})
        answer = connection.getresponse()
        body = answer.read(_LONGEST)
    except (OSError, http.client.HTTPException) as error:
        raise ServiceUnreachable(
            f"nothing answers at {url}: {error}. To start a service: genlock serve"
        ) from None
    finally:
        connection.close()
    told = _told(body) if answer.status == 200 else None
    if told is None:
        raise KeyRefused(
            f"what answers at {url} is not the service that you started: it was started anew by "
            "somebody else, or ended"
        )
    return {
        "link": f"http://{address.netloc}{told['link']}",
        "expires_in_seconds": told["expires_in_seconds"],
    }


def _told(body: bytes) -> dict[str, Any] | None:
    """Parses the answer; None if it is not one of our service. Any other text appended to the
    address could lead the browser to another site."""
    try:
        told = json.loads(body)
        fits = _LINK.fullmatch(told["link"]) and isinstance(
            told["expires_in_seconds"], (int, float)
        )
    except (ValueError, KeyError, TypeError):
        return None
    return told if fits else None
