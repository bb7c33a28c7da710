"""`genlock work`: a fleet of coding agents on the plan."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import click

from genlock.cli import exit_codes
from genlock.cli.app import App, verb
from genlock.cli.inputs import SECONDS, lease_of, read_text
from genlock.cli.workspace_options import (
    base_option,
    copy_option,
    on_complete_option,
    states_of,
    workspaces,
    worktree_option,
    worktrees_here,
)
from genlock.core.durations import read_duration
from genlock.errors import BadArgument, GenlockError
from genlock.worker.agents.catalog import CLIENTS, OTHER, AgentClient

if TYPE_CHECKING:
    from genlock.isolation.workspaces import TaskWorkspaces
    from genlock.worker.agents.agent_pool import AgentPool, PoolSettings
    from genlock.worker.agents.agent_run import Job
    from genlock.worker.agents.template import Template

_MOST_AGENTS: Final = 200
_FRAME_SECONDS: Final = 0.25
_CODES: Final = {
    "done": exit_codes.OK,
    "max_tasks": exit_codes.OK,
    "max_cost": exit_codes.OK,
    "signal": exit_codes.OK,
    "not_allowed": exit_codes.NOT_ALLOWED,
    "unreachable": exit_codes.UNREACHABLE,
    "unread": exit_codes.NOBODY_READS,
}

_OPTIONS: Final = (
    click.option(
        "--agents", "count", type=click.IntRange(1, _MOST_AGENTS), default=1, metavar="N",
        help="How many agents work at a time; default: 1.",
    ),
    click.option(
        "--agent", "client_name", type=click.Choice(list(CLIENTS)), help="Which agent to start."
    ),
    click.option(
        "--command", "command", metavar="TEXT",
        help="Start this command instead, with fields such as {prompt_file}. With --agent, read "
        "its output as that agent's.",
    ),
    click.option("--agent-args", default="", metavar="TEXT", help="More arguments for --agent."),
    click.option("--shell", is_flag=True, help="Let a shell read --command."),
    click.option(
        "--instructions", metavar="PATH", help="A text that is added to the prompt of every task."
    ),
    worktree_option,
    base_option,
    click.option("--setup", metavar="COMMAND", help="Prepare each worktree with this command."),
    copy_option,
    on_complete_option,
    click.option(
        "--track", "tracks", multiple=True, metavar="TRACK",
        help="Only this track; may be given several times.",
    ),
    click.option(
        "--lease", type=SECONDS, metavar="SECONDS",
        help="The length of the lease; default: what suits the task.",
    ),
    click.option("--timeout", metavar="TIME", help="The most time for one task, such as 45m."),
    click.option(
        "--idle-timeout", default="15m", metavar="TIME",
        help="End an agent that has written nothing for so long; default: 15m.",
    ),
    click.option(
        "--linger", default="30", metavar="TIME",
        help="How long an agent may take to end after its result; default: 30.",
    ),
    click.option(
        "--max-turns", type=click.IntRange(1), metavar="N", help="The most turns for one task."
    ),
    click.option(
        "--max-cost", type=click.FloatRange(0, min_open=True), metavar="USD",
        help="Stop when all agents together have cost so much, as far as they say.",
    ),
    click.option(
        "--max-failures", type=click.IntRange(1), default=10, metavar="N",
        help="Stop when so many tasks in a row have failed; default: 10.",
    ),
    click.option(
        "--max-tasks", type=click.IntRange(1), metavar="N", help="Stop after so many tasks."
    ),
    click.option(
        "--until-done", is_flag=True, help="Stop when nothing is left that could be done."
    ),
    click.option(
        "--patience", type=SECONDS, default=30, metavar="SECONDS",
        help="How long to look for a coordinator that does not answer; default: 30.",
    ),
)  # fmt: skip


def _with_options(function: Callable[..., None]) -> Callable[..., None]:
    for option in reversed(_OPTIONS):
        function = option(function)
    return function


@click.command()
@_with_options
@verb(patient=True)
def work(app: App, **options: Any) -> None:
    """Run a fleet of coding agents on the plan.

    Each agent claims a task, is started with the task as its prompt, and ends when the task is
    done. Genlock renews the lease, submits the result, and ends an agent whose claim is lost. What
    an agent writes is kept in .genlock/logs.

    An agent that reaches a limit of its model's service gives its task back, and the fleet waits
    until the limit ends. An agent that is not signed in stops the fleet.

    Ctrl-C: no more tasks are taken, and the agents at work come to their end. Ctrl-C again ends
    them and gives their tasks back.

    The exit code is 0 when the fleet ended as asked, 1 when too many tasks failed or an agent could
    not be started, 4 when the agents are not allowed to work, 122 when no coordinator was reached,
    and 130 when the agents were ended.
    """
    client, template = _agent(options)
    _check(options, template)
    from genlock.worker.nursery import Nursery

    places = workspaces(
        app, always=options["worktree"], base=options["base"], copied=options["copied"]
    )
    nursery = Nursery(options["count"])  # forks: nothing before this may start a thread
    try:
        settings = _settings(app, options, client)
        _ = app.fleet  # reports a missing store before anything is created
        job = _job(app, options, client, template, places)
        fleet = _Fleet(app, nursery, job, settings)
        if options["worktree"]:
            _prune(app)
        app.leave(fleet.run())
    finally:
        nursery.close()


def _agent(options: dict[str, Any]) -> tuple[AgentClient, Template]:
    from genlock.worker.agents.template import Template

    name, command = options["client_name"], options["command"]
    if name is None and command is None:
        raise BadArgument(
            f"which agent? Name one with --agent ({', '.join(CLIENTS)}), or any command with "
            "--command 'my-agent {prompt_file}'"
        )
    client = OTHER if name is None else CLIENTS[name]
    if command is not None:
        if options["agent_args"]:
            raise BadArgument("--agent-args are for --agent; write them into --command")
        return client, Template.parse(command, shell=options["shell"])
    if options["shell"]:
        raise BadArgument("--shell is for --command")
    try:
        more = [
            word.replace("{", "{{").replace("}", "}}")
            for word in shlex.split(options["agent_args"])
        ]
    except ValueError as error:
        raise BadArgument(f"--agent-args cannot be split: {error}") from None
    limits = [*(client.max_turns if options["max_turns"] else ())]
    limits += [*(client.max_cost if options["max_cost"] else ())]
    limits += [*(client.in_worktree if options["worktree"] else ())]
    return client, Template([*client.argv, *limits, *more, *client.prompt])


def _check(options: dict[str, Any], template: Template) -> None:
    """Checks the options before anything is started."""
    given = [name for name in ("base", "setup", "copied") if options[name]]
    if given and not options["worktree"]:
        name = given[0].replace("copied", "copy")
        raise BadArgument(f"--{name} is for worktrees; give --worktree, too")
    if "branch" in template.fields and not options["worktree"]:
        raise BadArgument("{branch} is the branch of a worktree; give --worktree, too")
    program = template.words[0]
    if not template.shell and "{" not in program and shutil.which(program) is None:
        raise BadArgument(f"{program} is not installed, or not on your PATH")


def _job(
    app: App,
    options: dict[str, Any],
    client: AgentClient,
    template: Template,
    places: TaskWorkspaces,
) -> Job:
    from genlock.private_files import make_private_folder
    from genlock.project_folder import make_folder
    from genlock.work_settings import check_on_complete
    from genlock.worker.agents.agent_run import Job, Limits

    make_folder(app.project_folder)
    logs = app.project_folder / "logs"
    make_private_folder(logs)
    timeout = options["timeout"]
    limits = Limits(
        timeout=None if timeout is None else read_duration(timeout, "--timeout"),
        idle_timeout=read_duration(options["idle_timeout"], "--idle-timeout"),
        linger=read_duration(options["linger"], "--linger"),
        max_turns=options["max_turns"],
    )
    text, on_complete = options["instructions"], options["on_complete"]
    if on_complete is None:
        on_complete = app.setting("on_complete")
    check_on_complete(on_complete)
    return Job(
        client,
        template,
        limits,
        places,
        logs,
        {**os.environ, "GENLOCK_URL": app.url},
        instructions="" if text is None else read_text(text, "--instructions"),
        setup=options["setup"] or "",
        on_complete=on_complete,
    )


def _settings(app: App, options: dict[str, Any], client: AgentClient) -> PoolSettings:
    """Returns the pool's settings. Every agent is a session of its own, so that ending one affects
    no other. All sessions have this process: their claims are overdue as soon as it ends."""
    from genlock.identity import identify_process
    from genlock.worker.agents.agent_pool import PoolSettings

    app.worker = True
    app.who = who = identify_process(app.setting("session"), client.name, os.getpid())
    named = app.setting("agent")
    agent = named or who.agent
    numbers = range(1, options["count"] + 1)
    return PoolSettings(
        tuple(f"{who.session}.{number}" for number in numbers),
        tuple(f"{agent}-{number}" for number in numbers),
        named=bool(named),
        tracks=options["tracks"] or None,
        lease_seconds=lease_of(app, options["lease"]),
        patience=options["patience"],
        until_done=options["until_done"],
        max_tasks=options["max_tasks"],
        max_failures=options["max_failures"],
        max_cost=options["max_cost"],
    )


def _prune(app: App) -> None:
    """Removes worktrees that an earlier fleet kept and that are no longer needed."""
    from genlock.isolation.survey import prune

    with suppress(GenlockError):  # on an error they stay
        prune(worktrees_here(app), lambda tasks: states_of(app, tasks))


class _Fleet:
    """Runs and shows the pool in this process."""

    def __init__(self, app: App, nursery: Any, job: Job, settings: PoolSettings) -> None:
        from genlock.cli.render.fleet import viewer
        from genlock.worker.agents.agent_pool import AgentPool

        self._app = app
        self._viewer = viewer(app.answers, settings.agents)
        self._pool: AgentPool = AgentPool(app.fleet, nursery, job, settings, self._viewer.tell)
        self._interrupts = 0

    def run(self) -> int:
        """Runs the pool until it ends. Returns the exit code."""
        pool, before = self._pool, {}
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            before[number] = signal.signal(number, self._hear)
        try:
            with self._viewer.show(pool):
                pool.start()
                while not pool.is_over:
                    time.sleep(_FRAME_SECONDS)
                    self._obey()
                    self._viewer.refresh()
        finally:
            pool.close()
            for number, handler in before.items():
                signal.signal(number, handler)
        self._viewer.finish(pool)
        if self._interrupts > 1:
            return exit_codes.BROKEN_OFF
        assert pool.ending is not None
        return _CODES.get(pool.ending.reason, exit_codes.ERROR)

    def _hear(self, number: int, frame: object) -> None:
        self._interrupts += 1 if number != signal.SIGHUP else 2

    def _obey(self) -> None:
        """Handles interrupts: after the first, no more tasks are taken; the second ends the agents,
        the third kills them at once."""
        if self._interrupts:
            self._pool.stop("signal")
        if self._interrupts > 1:
            self._pool.end(at_once=self._interrupts > 2)
