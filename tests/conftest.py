"""Options of the tests."""

from __future__ import annotations

import gc
import signal
from collections.abc import Generator, Iterator

import pytest

import genlock.testing.contract  # noqa: F401 - says which modules pytest is to rewrite, before a test imports one of them

pytest_plugins = [
    "tests.servers.mariadb",
    "tests.servers.ministack",
    "tests.servers.postgres",
    "tests.servers.redis",
    "tests.servers.stores",
]


_LEAKED = pytest.StashKey[list[str]]()


def pytest_configure(config: pytest.Config) -> None:
    """Whoever begins the run says where the services log; those who run tests for it do as it says.

    pytest's own alarm, by which a test is ended that takes too long, keeps nobody from doing his work himself. And Ctrl-C means what it
    does on a terminal, also where the run was begun in the background.
    """
    from genlock.engine import uninterrupted
    from tests import logs  # not before the plugins above: pytest rewrites their assertions

    uninterrupted.OTHERS = tuple(number for number in uninterrupted.OTHERS if number != signal.SIGALRM)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if not hasattr(config, "workerinput"):
        logs.begin()


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """A run in which a service has logged a secret has failed."""
    from tests import logs

    logs.end()
    if not hasattr(session.config, "workerinput"):
        session.config.stash[_LEAKED] = leaked = logs.found()
        if leaked:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """All that is collected stays: to look for garbage in it, again and again, takes a third of the time that collecting does."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """What is given a store of the nightly ones by its name is slow, unless it belongs to the core. So is what a class names `nightly`.

    Tests whose server is not on this machine are left out, and named at the end; with CI=true they fail instead.
    """
    from tests import counting  # not before the plugins above: pytest rewrites their assertions
    from tests.servers import stores

    absent = stores.absent()
    fixtures = {stores.LASTING[name].server for name in absent}
    left_out = [
        item for item in items if counting.store_of(item.nodeid) in absent or fixtures.intersection(getattr(item, "fixturenames", ()))
    ]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in set(left_out)]
    for item in items:
        if not isinstance(item, pytest.Function):
            continue
        parameters = item.callspec.params.values() if hasattr(item, "callspec") else ()
        on_nightly = any(isinstance(value, str) and value in stores.NIGHTLY for value in parameters)
        if (on_nightly and not item.get_closest_marker("core")) or item.originalname in getattr(item.cls, "nightly", ()):
            item.add_marker(pytest.mark.slow)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--rewrite-scenarios",
        action="store_true",
        help="write the outcomes that occur into tests/scenarios instead of comparing them (as GENLOCK_REWRITE=1 does); read the diff",
    )


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """How many tests ran on which store; pytest's own closing line comes after it."""
    from tests import counting  # not before pytest has its hand on the modules of the servers
    from tests.servers import stores

    for fault in terminalreporter.config.stash.get(_LEAKED, []):
        terminalreporter.write_line(f"FAILED: a service has logged what no log may have: {fault}", red=True)
    for name in stores.absent():
        terminalreporter.write_line(f"not run: the tests on {name}, whose server is not on this machine; `make servers` gets it")
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
