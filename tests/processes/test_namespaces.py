"""A holder is succeeded before its lease is over only if it has ended: not if it is merely out of
sight.

With real pid namespaces, a real /proc with hidepid, and real processes that are dead, half dead or
alive. All of them run on one machine and so have one hostname and one boot id, as agents in
sandboxes and in containers on the host's network do.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from msgspec.structs import replace

import genlock
from genlock.core.model import Process
from genlock.engine.processes import gone, identify
from tests.processes import resident
from tests.servers import namespaces, stores
from tests.servers.service import serving

PATIENCE = 60
PROGRAM = Path(resident.__file__)


class Resident:
    """One such process, seen from here."""

    def __init__(self, before: list[str]) -> None:
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
        command = [*before, sys.executable, str(PROGRAM)]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )

    def __call__(self, do: str, **more: Any) -> Any:
        """Gives an order; what it answers."""
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.write(json.dumps({"do": do, **more}) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, (
            f"the process ended at {do!r} with {self._process.wait(PATIENCE)}; its words are above"
        )
        return json.loads(line)["answer"]

    def end(self) -> None:
        """It ends as if it was killed: nothing is released."""
        self._process.kill()
        self._process.communicate(timeout=PATIENCE)


@pytest.fixture
def places() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


@contextmanager
def living(*options: str) -> Iterator[Resident]:
    """A process in namespaces that these options of `unshare` make, or without any beside us."""
    process = Resident(namespaces.into(*options) if options else [])
    try:
        yield process
    finally:
        process.end()


@pytest.fixture(params=["sqlite", "postgres", "http"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """A store, or a service on a file of this machine."""
    kind = "sqlite" if request.param == "http" else request.param
    stores.need(request, kind)
    url = stores.LASTING[kind].url(tmp_path / "genlock.db")
    if request.param != "http":
        yield url
        return
    with serving(url) as service:
        yield service.url


def keeps_its_claim(holder: Resident, rival: Resident, url: str) -> None:
    """Nobody takes T from a holder that lives, whatever is asked, and its result counts."""
    assert holder("open", url=url, session="holder") == rival("open", url=url, session="rival"), (
        "the test needs one hostname"
    )
    holder("add", task="T")
    assert holder("claim", task="T") == 1
    assert rival("claim", task="T") == "DENIED_ACTIVE_CLAIM"
    assert rival("next") == "NOTHING_READY"
    assert rival("sweep") == 0
    assert rival("sessions")["holder"] is False
    assert holder("submit", task="T", generation=1) is True


@pytest.mark.parametrize(
    ("holder", "rival"),
    [(namespaces.SANDBOX, ()), ((), namespaces.SANDBOX), (namespaces.SANDBOX, namespaces.SANDBOX)],
    ids=["holder in a sandbox", "rival in a sandbox", "each in its own"],
)
def test_a_holder_in_another_pid_namespace_keeps_its_claim(
    url: str, holder: tuple[str, ...], rival: tuple[str, ...], places: ExitStack
) -> None:
    keeps_its_claim(
        places.enter_context(living(*holder)), places.enter_context(living(*rival)), url
    )


def test_a_session_that_two_processes_register_is_not_lost_with_one_of_them(
    url: str, places: ExitStack
) -> None:
    first, rival = places.enter_context(living()), places.enter_context(living())
    first("open", url=url, session="crew")
    rival("open", url=url, session="rival")
    assert first("enroll") == first("pid")
    first("add", task="T")
    assert first("claim", task="T") == 1
    with living() as second:
        second("open", url=url, session="crew")
        assert second("enroll") is None

    assert rival("claim", task="T") == "DENIED_ACTIVE_CLAIM"
    assert rival("sweep") == 0
    assert first("submit", task="T", generation=1) is True


@pytest.mark.parametrize(
    ("holder", "rival"),
    [
        (namespaces.BORROWED_PROC, ()),
        (namespaces.BORROWED_PROC, namespaces.BORROWED_PROC),
        ((), namespaces.LATER_CLOCK),
    ],
    ids=["/proc of another namespace", "both with that /proc", "another clock"],
)
def test_a_holder_whose_pid_or_start_time_reads_otherwise_keeps_its_claim(
    holder: tuple[str, ...], rival: tuple[str, ...], places: ExitStack, tmp_path: Path
) -> None:
    keeps_its_claim(
        places.enter_context(living(*holder)),
        places.enter_context(living(*rival)),
        f"sqlite://{tmp_path}/genlock.db",
    )


def test_a_holder_whose_number_is_somebody_elses_in_proc_keeps_its_claim_when_that_one_ends(
    places: ExitStack, tmp_path: Path
) -> None:
    url = f"sqlite://{tmp_path}/genlock.db"
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as other:
        number = f'echo {other.pid - 1} > /proc/sys/kernel/ns_last_pid && "$@"; exit'
        holder = places.enter_context(living(*namespaces.BORROWED_PROC, "sh", "-c", number, "sh"))
        holder("open", url=url, session="holder")
        assert holder("pid") == other.pid
        holder("add", task="T")
        assert holder("claim", task="T") == 1
    rival = places.enter_context(living())
    rival("open", url=url, session="rival")

    assert rival("claim", task="T") == "DENIED_ACTIVE_CLAIM"
    assert holder("submit", task="T", generation=1) is True


def test_a_holder_in_a_container_with_its_own_boot_id_keeps_its_claim(
    places: ExitStack, tmp_path: Path
) -> None:
    """`systemd-nspawn` mounts one over the machine's: that is no proof that the machine was
    restarted."""
    own = f'mount --bind {tmp_path}/boot /proc/sys/kernel/random/boot_id && exec "$@"'
    (tmp_path / "boot").write_text("8f4c0c0e-7c0a-4a6f-9d0e-000000000001\n")
    holder = places.enter_context(living(*namespaces.SANDBOX, "sh", "-c", own, "sh"))
    rival = places.enter_context(living())
    assert holder("identify")["boot"] != rival("identify")["boot"]
    keeps_its_claim(holder, rival, f"sqlite://{tmp_path}/genlock.db")


def test_after_a_dead_holder_in_another_pid_namespace_the_lease_decides(
    url: str, places: ExitStack
) -> None:
    with living(*namespaces.SANDBOX) as holder:
        holder("open", url=url, session="holder")
        holder("add", task="T")
        assert holder("claim", task="T", lease=1) == 1
        holder("add", task="U")
        assert holder("claim", task="U") == 1
    rival = places.enter_context(living())
    rival("open", url=url, session="rival")

    assert rival("claim", task="U") == "DENIED_ACTIVE_CLAIM"
    assert rival("next", wait=30) == 2


@pytest.mark.parametrize("options", [(), namespaces.SANDBOX], ids=["beside us", "in a sandbox"])
def test_a_dead_holder_in_the_rivals_namespace_is_succeeded_at_once(
    url: str, options: tuple[str, ...], places: ExitStack
) -> None:
    """Over HTTP the observer is the service, to which the sandbox is another namespace."""
    expected = "DENIED_ACTIVE_CLAIM" if options and url.startswith("http") else 2
    rival = places.enter_context(living(*options))
    rival("open", url=url, session="rival")
    rival("add", task="T")
    rival("bear")
    rival("register", session="holder")
    assert rival("claim", task="T", session="holder") == 1
    assert rival("claim", task="T") == "DENIED_ACTIVE_CLAIM"
    rival("bury")

    assert rival("claim", task="T") == expected


def test_where_proc_hides_a_living_holder_it_keeps_its_claim_and_a_dead_one_does_not(
    places: ExitStack, tmp_path: Path
) -> None:
    """`hidepid=2`, and an observer who is another user, as under systemd's ProtectProc."""
    namespaces.need_root()
    folder = tempfile.mkdtemp()  # pytest's own folders are closed to others
    places.callback(shutil.rmtree, folder)
    os.chmod(folder, 0o777)
    victim = subprocess.Popen(["sleep", "600"])
    places.callback(victim.kill)
    rival = places.enter_context(living(*namespaces.HIDEPID))
    process = rival("identify", pid=victim.pid)
    rival("open", url=f"sqlite://{tmp_path}/other.db", session="rival")
    rival("add", task="T")
    assert rival("claim", task="T") == 1, "so that it has loaded all that another user may not read"
    rival("become", user=65534)
    assert rival("identify", pid=victim.pid) is None, "the test needs a process that cannot be seen"
    rival("open", url=f"sqlite://{folder}/genlock.db", session="rival")
    rival("add", task="T")
    rival("register", session="holder", process=process)
    assert rival("claim", task="T", session="holder") == 1

    assert rival("claim", task="T") == "DENIED_ACTIVE_CLAIM"
    assert rival("sessions")["holder"] is False
    victim.kill()
    victim.wait()
    assert rival("claim", task="T") == 2


def test_a_client_on_another_machine_of_this_name_keeps_its_claim(tmp_path: Path) -> None:
    """The service's store is a file of its machine, and yet its clients are anywhere."""
    mine = identify()
    assert mine is not None
    far = replace(mine, boot="that-of-another-machine")
    with (
        serving(f"sqlite://{tmp_path}/genlock.db") as service,
        genlock.connect(service.url, session_id="rival", agent_id="rival") as rival,
    ):
        rival.add_tasks(tasks=["T", "U"])
        with genlock.connect(
            service.url, session_id="holder", agent_id="holder", process=far
        ) as holder:
            assert holder.claim_task(task_id="T").success
            holder.register_session(session_id="said", process=far)
            assert holder.claim_task(task_id="U", session_id="said").success
            assert rival.claim_task(task_id="T").reason == "DENIED_ACTIVE_CLAIM"
            assert rival.claim_task(task_id="U").reason == "DENIED_ACTIVE_CLAIM"
            assert rival.sweep().orphaned == 0
    with genlock.connect(
        f"sqlite://{tmp_path}/genlock.db", create=True, session_id="rival", agent_id="rival"
    ) as beside:
        assert beside.claim_task(task_id="T").reason == "DENIED_ACTIVE_CLAIM"


@pytest.mark.parametrize(
    "header", ["{host}/{boot}/{pid}/{started}", "{host}/{boot}/{pid}/{started}/"]
)
def test_after_an_older_client_the_lease_decides(tmp_path: Path, header: str) -> None:
    """It sends no namespace."""
    with subprocess.Popen(["sleep", "600"]) as child:
        process = known(child.pid)
        child.kill()
    sent = {"genlock-session": "holder", "genlock-agent": "holder"}
    sent["genlock-process"] = header.format(
        host=process.host, boot=process.boot, pid=process.pid, started=process.started
    )
    with (
        serving(f"sqlite://{tmp_path}/genlock.db") as service,
        genlock.connect(service.url, session_id="rival", agent_id="rival") as rival,
    ):
        rival.add_tasks(tasks=["T"])
        claimed = httpx2.post(
            f"{service.url}/v1/default/default/tasks/T/claim", headers=sent, json={}
        )
        assert claimed.status_code == 200, claimed.text
        assert rival.claim_task(task_id="T").reason == "DENIED_ACTIVE_CLAIM"


# Single processes, as they are seen from here


def known(pid: int) -> Process:
    process = identify(pid)
    assert process is not None
    return process


def test_a_child_that_nobody_reaped_is_gone() -> None:
    with subprocess.Popen(["sleep", "600"]) as child:
        process = known(child.pid)
        assert not gone(process, shared=True)
        child.kill()
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        assert gone(process, shared=True)


LEADERLESS = """
import ctypes, sys, threading
def work():
    with open("/proc/self/stat") as file:
        while file.read().rpartition(")")[2].split()[0] != "Z":
            file.seek(0)
    print("alone", flush=True)
    sys.stdin.read()
threading.Thread(target=work).start()
ctypes.CDLL(None).pthread_exit(None)
"""


def test_a_process_whose_first_thread_has_ended_lives() -> None:
    """/proc shows its state as that of a zombie."""
    with subprocess.Popen(
        [sys.executable, "-c", LEADERLESS], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        process = known(child.pid)
        assert child.stdout
        assert child.stdout.readline() == "alone\n"
        assert not gone(process, shared=True)
        child.kill()
    assert gone(process, shared=True)
