"""A process that may open no more files: each call says so in words, and all goes on when there are
descriptors again."""

from __future__ import annotations

import errno
import subprocess
from pathlib import Path

import pytest

import genlock
from genlock.core import codec
from genlock.engine.lane import import_early
from genlock.errors import StoreError, StoreFull, StoreReadOnly, StoreUnavailable
from genlock.shortages import shortage_of
from tests.cli.console import COMMAND, environment
from tests.engine.test_shutdown import run_script
from tests.resource_limits import few_descriptors

SAID = "this process has no file descriptor left for "
REMEDY = (
    "allow it more before it is started, type: ulimit -n 4096 (in a unit of systemd: "
    "LimitNOFILE=65536)"
)
LARGE = "x" * 300_000


def work(fleet: genlock.Coordinator, task: str) -> None:
    """A task's life, with a result that becomes a file, and a wait for the next."""
    fleet.add_tasks(tasks=[task])
    claim = fleet.claim_task(task_id=task).claim
    assert claim is not None
    fleet.submit_result(task_id=task, generation=claim.generation, result_data=LARGE)
    assert fleet.claim_next(wait_seconds=0.05).claim is None
    assert list(fleet.watch(timeout_seconds=0.05)) == []


def open_fleet(url: str) -> genlock.Coordinator:
    return genlock.connect(
        url, create=True, process=None, session_id="s1", agent_id="a1", deadline_seconds=0.3
    )


@pytest.mark.parametrize("spare", range(9))
def test_without_descriptors_nothing_but_a_named_error_comes_out_and_the_next_call_works(
    tmp_path: Path, spare: int
) -> None:
    url = f"sqlite://{tmp_path / 'genlock.db'}"
    with open_fleet(url) as warm:  # what is imported when it is first needed
        work(warm, "A-001")
    error: StoreUnavailable | None = None
    with few_descriptors(spare):
        try:
            with open_fleet(url) as fleet:
                work(fleet, "A-002")
        except StoreUnavailable as refused:
            error = refused
    assert (
        spare > 1 or error is not None
    )  # another thread of this process may have closed a file meanwhile
    assert error is None or (SAID in str(error) and REMEDY in str(error))
    with open_fleet(url) as fleet:
        work(fleet, "A-003")


OPEN_WHEN_THEY_RUN_OUT = """
import sys
from genlock.errors import StoreUnavailable
from tests.engine.test_shutdown import run_script
from tests.resource_limits import few_descriptors
from tests.stores.test_descriptors import LARGE, open_fleet, work

with open_fleet(sys.argv[1]) as fleet:
    work(fleet, "A-001")
    fleet.add_tasks(tasks=["A-002"])
    print(fleet.claim_task(task_id="A-002").reason)
    with few_descriptors(0):
        try:
            fleet.submit_result(task_id="A-002", generation=1, result_data=LARGE)
        except StoreUnavailable as refused:
            print(refused)
        print(fleet.claim_next(wait_seconds=0.05).claim)
    print(fleet.submit_result(task_id="A-002", generation=1, result_data=LARGE).reason)
    work(fleet, "A-003")
    print("went on")
"""
"""In a process of its own: in this one, a thread of an earlier test may close a file meanwhile."""


def test_a_fleet_that_is_open_when_descriptors_run_out_goes_on_when_there_are_some_again(
    tmp_path: Path,
) -> None:
    shown = run_script(OPEN_WHEN_THEY_RUN_OUT, f"sqlite://{tmp_path / 'genlock.db'}")
    granted, refused, nothing, accepted, end = shown
    assert (granted, nothing, accepted, end) == ("GRANTED", "None", "ACCEPTED", "went on")
    assert SAID in refused


@pytest.mark.parametrize("files", [5, 6, 8])
def test_the_command_line_names_what_is_missing(tmp_path: Path, files: int) -> None:
    def call(*words: str, limit: int | None = None) -> subprocess.CompletedProcess[str]:
        limited = ["sh", "-c", f'ulimit -n {limit}; exec "$@"', "sh"] if limit else []
        return subprocess.run(
            [*limited, *COMMAND, *words],
            cwd=tmp_path,
            env=environment({}),
            capture_output=True,
            text=True,
            check=False,
        )

    assert call("init", "--quiet").returncode == 0
    assert call("add", "A-001", "--quiet").returncode == 0
    for words in (["ready"], ["claim", "A-001"], ["submit", "A-001", "--generation", "1"]):
        done = call(*words, "--json", limit=files)
        assert "Traceback" not in done.stderr
        assert done.returncode == 0 or (
            '"STORE_UNAVAILABLE"' in done.stderr and REMEDY in done.stderr
        ), done.stderr


@pytest.mark.parametrize(
    ("number", "kind", "said"),
    [
        (errno.EMFILE, StoreUnavailable, "ulimit -n 4096"),
        (errno.ENFILE, StoreUnavailable, "sysctl -w fs.file-max=NUMBER"),
        (errno.ENOMEM, StoreUnavailable, "no memory left for /there"),
        (errno.ENOSPC, StoreFull, "there is no room left for /there; nothing was written"),
        (errno.EDQUOT, StoreFull, "there is no room left for /there; nothing was written"),
        (errno.EROFS, StoreReadOnly, "/there cannot be written"),
    ],
)
def test_each_shortage_has_a_name_and_a_remedy(
    number: int, kind: type[StoreError], said: str
) -> None:
    error = shortage_of(OSError(number, "so says the system", "/there"))
    assert type(error) is kind
    assert said in str(error)


def test_an_error_that_is_no_shortage_is_nothing_of_the_kind() -> None:
    assert shortage_of(OSError(errno.ENOENT, "no such file")) is None


def test_an_import_that_fails_for_want_of_descriptors_ends_no_lane(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The digest is imported when it is first needed, which must not be in the midst of a batch."""

    def load(_: bytes) -> bytes:
        raise OSError(errno.EMFILE, "Too many open files", "/usr/lib/python3/hashlib.py")

    with open_fleet(f"sqlite://{tmp_path / 'genlock.db'}") as fleet:
        import_early.cache_clear()
        with monkeypatch.context() as patch:
            patch.setattr(codec, "digest_of", load)
            with pytest.raises(StoreUnavailable, match=f"{SAID}/usr/lib/python3/hashlib.py"):
                fleet.add_tasks(tasks=["A-001"])
        assert fleet.add_tasks(tasks=["A-001"])[0].verdict == "DONE"
