"""Options of the tests."""

from __future__ import annotations

import gc
import os
import shutil
import signal
import tempfile
from collections.abc import Generator, Iterator

import hypothesis
import pytest

# Says which modules pytest is to rewrite, before a test imports one of them
import genlock.testing.contract  # noqa: F401

pytest_plugins = [
    "tests.servers.mariadb",
    "tests.servers.ministack",
    "tests.servers.postgres",
    "tests.servers.redis",
    "tests.servers.stores",
]


# How fast a draw is depends on what else the machine does, and says nothing about the product.
hypothesis.settings.register_profile(
    "genlock", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("genlock")


_LEAKED = pytest.StashKey[list[str]]()
_STATE = pytest.StashKey[str]()
"""Where the services that tests start leave their tokens."""


def pytest_configure(config: pytest.Config) -> None:
    """Whoever begins the run says where the services log; those who run tests for it do as it says.

    Ctrl-C means what it does on a terminal, also where the run was begun in the background.
    """
    from tests import logs  # not before the plugins above: pytest rewrites their assertions

    signal.signal(signal.SIGINT, signal.default_int_handler)
    if not hasattr(config, "workerinput"):
        logs.begin()
        os.environ["XDG_STATE_HOME"] = config.stash[_STATE] = tempfile.mkdtemp(
            prefix="genlock-state-"
        )


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """A run in which a service has logged a secret has failed."""
    from tests import logs

    logs.end()
    if not hasattr(session.config, "workerinput"):
        session.config.stash[_LEAKED] = leaked = logs.found()
        shutil.rmtree(session.config.stash[_STATE], ignore_errors=True)
        if leaked:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """All that is collected stays: to look for garbage in it, again and again, takes a third of the
    time that collecting does."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """What is given a store of the nightly ones by its name is slow, unless it belongs to the core.
    So is what a class names `nightly`.

    Tests whose server is not on this machine are left out, and named at the end; with CI=true they
    fail instead.
    """
    from tests import counting  # not before the plugins above: pytest rewrites their assertions
    from tests.servers import stores

    absent = stores.absent()
    fixtures = {stores.LASTING[name].server for name in absent}
    left_out = [
        item
        for item in items
        if counting.store_of(item.nodeid) in absent
        or fixtures.intersection(getattr(item, "fixturenames", ()))
    ]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in set(left_out)]
    for item in items:
        if not isinstance(item, pytest.Function):
            continue
        parameters = item.callspec.params.values() if hasattr(item, "callspec") else ()
        on_nightly = any(isinstance(value, str) and value in stores.NIGHTLY for value in parameters)
        if (on_nightly and not item.get_closest_marker("core")) or item.originalname in getattr(
            item.cls, "nightly", ()
        ):
            item.add_marker(pytest.mark.slow)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--rewrite-scenarios",
        action="store_true",
        help="write the outcomes that occur into tests/scenarios instead of comparing them (as "
        "GENLOCK_REWRITE=1 does); read the diff",
    )


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """How many tests ran on which store; pytest's own closing line comes after it."""
    from tests import counting  # not before pytest has its hand on the modules of the servers
    from tests.servers import stores

    for fault in terminalreporter.config.stash.get(_LEAKED, []):
        terminalreporter.write_line(
            f"FAILED: a service has logged what no log may have: {fault}", red=True
        )
    for name in stores.absent():
        terminalreporter.write_line(
            f"not run: the tests on {name}, whose server is not on this machine; `make servers` "
            "gets it"
        )
    found = {outcome: list(_nodeids(terminalreporter, outcome)) for outcome in counting.OUTCOMES}
    found["failed"] += _nodeids(terminalreporter, "error")
    if sum(map(len, found.values())) > 1:
        terminalreporter.ensure_newline()
        for line in counting.table(found):
            terminalreporter.write_line(line)


def _nodeids(terminalreporter: pytest.TerminalReporter, outcome: str) -> Iterator[str]:
    for report in terminalreporter.stats.get(outcome, []):
        if isinstance(report, (pytest.TestReport, pytest.CollectReport)):
            yield report.nodeid
