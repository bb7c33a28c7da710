"""A keeper whose renewals are sent by a process of its own: `keeper="process"`.

A C function that holds the interpreter for longer than a lease, such as a large regular expression
or number, stops all threads of its process, and a keeper thread with them. So the renewals come
from a helper process (helper_process.py), which opens the same store or service.

    this process                                the helper
    ProcessKeeper ── socket: add, remove ─────→ an ordinary Keeper
         ↑       ←── socket: "look" ─────────── after each renewal and loss
         └────────── shared memory: until when each claim is trusted ──┘

What the helper has achieved is in shared memory, so the first look after a long C call is right. A
helper that dies is started again, and is given all claims. It ends with its owner.
"""

from __future__ import annotations

import json
import logging
import math
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from mmap import mmap
from struct import Struct
from typing import Any, Final, NamedTuple

import msgspec

from genlock.core.model import Process
from genlock.core.results import TaskClaim
from genlock.errors import Closed
from genlock.retry import Backoff
from genlock.typed_json import convert
from genlock.worker import schedule
from genlock.worker.fleet import Origin
from genlock.worker.keeper import LONGEST_SLEEP_SECONDS, Fleet, Keeper
from genlock.worker.kept_claim import KeptClaim, Loss

LOG: Final = logging.getLogger("genlock.worker")
READY: Final = b"+"
LOOK: Final = b"!"
LOSSES: Final = {1: Loss.OUTAGE, 2: Loss.TAKEN}
"""By the number that stands for them in shared memory; 0 is none."""
_MOST_CLAIMS: Final = 4096
_START_SECONDS: Final = 20.0
_STOP_SECONDS: Final = 1.0
_RESTARTS: Final = Backoff(0.05, 2.0)
_BOOTSTRAP: Final = """
import json, os, sys
told = json.loads(os.fdopen(os.dup(int(sys.argv[1])), "rb", 0).readline())
sys.path[:] = told["path"]
from genlock.worker.helper_process import serve
serve(int(sys.argv[1]), int(sys.argv[2]), told)
"""


class SlotState(NamedTuple):
    """What the helper says of one claim."""

    number: int
    """Of the claim; 0: the slot is free."""
    trusted_until: float = 0.0
    sent: float = 0.0
    lease_seconds: float = 0.0
    loss: int = 0


class Slots:
    """Shared memory with a slot for each claim. A slot is free again when the helper says so: no
    late write of its can meet another claim. Each field is read and written at once."""

    _format = Struct("=qdddq")
    SIZE: Final = _format.size * _MOST_CLAIMS

    def __init__(self, file: int) -> None:
        self._memory = mmap(file, self.SIZE)

    def read(self, at: int) -> SlotState:
        """What stands there."""
        return SlotState(*self._format.unpack_from(self._memory, at * self._format.size))

    def write(self, at: int, state: SlotState) -> None:
        """Puts it there."""
        self._format.pack_into(self._memory, at * self._format.size, *state)

    def free(self) -> int:
        """A slot in which nothing stands."""
        for at in range(_MOST_CLAIMS):
            if self.read(at).number == 0:
                return at
        raise Closed(f"a keeper in a process of its own keeps at most {_MOST_CLAIMS:,} claims")


class SharedClaim(KeptClaim):
    """A claim that the helper renews."""

    number = 0
    slots: Slots | None = None
    slot = 0

    @property
    def state(self) -> SlotState | None:
        """What the helper says of it; None if it says nothing yet."""
        state = None if self.slots is None else self.slots.read(self.slot)
        return None if state is None or state.number != self.number else state

    def take(self, state: SlotState) -> None:
        """Notes what the helper has renewed."""
        self.sent, self.lease_seconds = state.sent, state.lease_seconds
        self.leased = state.trusted_until != math.inf

    @property
    def trusted_until(self) -> float:
        """As the helper has it, which may be ahead of everything that was noticed here."""
        state = self.state
        if state is None:
            return super().trusted_until
        return state.trusted_until


class ProcessKeeper(Keeper):
    """As a Keeper, with a helper process in the place of its sender."""

    _kind = SharedClaim

    def __init__(self, fleet: Fleet, origin: Origin, process: Process | None) -> None:
        self._origin, self._process = origin, process
        self._helper: _Helper | None = None
        super().__init__(fleet)

    def _begin(self) -> None:
        super()._begin()
        helper, self._helper = self._helper, None
        if helper is not None:
            helper.abandon()  # it is the parent's
        self._number = 0
        self._handed: dict[int, SharedClaim] = {}
        self._failures = 0

    def close(self, *, release: bool = False, within: float = 5.0) -> bool:
        """Ends the renewals and the helper."""
        given_back = super().close(release=release, within=within)
        with self._lock():
            self._end_helper()
        return given_back

    def remove(self, kept: KeptClaim) -> None:
        """The claim is renewed no more."""
        super().remove(kept)
        with self._lock():
            self._tell_helper()

    def _start(self) -> None:
        """The helper has to be there before the caller goes on, perhaps into a C function."""
        if self._helper is None:
            self._helper = _Helper(self._origin, self._process)
        self._tell_helper()
        super()._start()

    def _hand_over(self, now: float) -> None:
        """There is no sender here."""

    def _seconds_to_sleep(self, now: float) -> float:
        nearest = min((kept.trusted_until for kept in self._claims), default=now)
        return min(max(nearest - now, 0.0), LONGEST_SLEEP_SECONDS)

    def _send(self) -> None:
        """Hears what the helper says, and starts it again when it has ended."""
        while True:
            with self._changed:
                if self._is_idle():
                    self._end_helper()
                    return
                helper = self._helper
            alive = helper is not None and helper.wait(LONGEST_SLEEP_SECONDS)
            self._notice_news()
            if not alive:
                self._replace(helper)

    def _notice_news(self) -> None:
        """What the helper has written into shared memory."""
        renewed, lost = [], []
        with self._changed:
            for kept in list(self._handed.values()):
                state = kept.state
                if state is None or kept.dropped:
                    continue
                if state.sent > kept.sent:
                    kept.take(state)
                    kept.wanted_seconds, self._failures = None, 0
                    renewed.append(kept)
                if state.loss and not kept.ending:
                    lost.append((kept, LOSSES[state.loss]))
            self._tell_helper()
        for kept in renewed:
            if kept.on_renewed is not None and not kept.lost.is_set():
                kept.on_renewed(kept)
        for kept, loss in lost:
            self.lose(kept, loss)

    def _replace(self, helper: _Helper | None) -> None:
        """A helper that has ended, or never was: another one takes over all claims."""
        with self._changed:
            if self._helper is not helper or self._closed:
                return
            self._end_helper()
            self._failures += 1
        time.sleep(_RESTARTS.pause(self._failures))
        LOG.warning("the process that renews the leases has ended; it is started again")
        try:
            successor = _Helper(self._origin, self._process)
        except Closed as error:
            LOG.warning("%s", error)
            return
        self._install(successor)

    def _install(self, helper: _Helper) -> None:
        with self._changed:
            if self._helper is not None or self._closed or not self._claims:
                helper.end()
                return
            self._helper = helper
            self._tell_helper()

    def _end_helper(self) -> None:
        """Called under the lock. What it knew last is noted, for its successor."""
        helper, self._helper = self._helper, None
        for kept in self._handed.values():
            state = kept.state
            if state is not None and state.sent > kept.sent:
                kept.take(state)
            kept.slots = None
        self._handed.clear()
        if helper is not None:
            helper.end()

    def _tell_helper(self) -> None:
        """Brings the helper up to date. Called under the lock."""
        helper = self._helper
        if helper is None:
            return
        claims = [kept for kept in self._claims if not kept.dropped]
        for number in [number for number, kept in self._handed.items() if kept not in claims]:
            del self._handed[number]
            helper.send({"remove": number})
        for kept in claims:
            assert isinstance(kept, SharedClaim)
            if kept.slots is None:
                self._hand_to(helper, kept)

    def _hand_to(self, helper: _Helper, kept: SharedClaim) -> None:
        self._number += 1
        kept.slot, kept.number = helper.slots.free(), self._number
        until = schedule.trusted_until(kept.sent, kept.lease_seconds, leased=kept.leased)
        helper.slots.write(kept.slot, SlotState(kept.number, until, kept.sent, kept.lease_seconds))
        kept.slots = helper.slots
        self._handed[kept.number] = kept
        claim = msgspec.to_builtins(kept.claim)
        claim["lease_seconds"] = kept.lease_seconds
        # All that it is asked is whether there is a lease.
        claim["expires_at"] = claim["claimed_at"] if kept.leased else None
        helper.send(
            {
                "add": kept.number,
                "slot": kept.slot,
                "claim": claim,
                "sent": kept.sent,
                "lease_seconds": kept.wanted_seconds,
            }
        )


class _Helper:
    """The helper, seen from its owner."""

    def __init__(self, origin: Origin, process: Process | None) -> None:
        self._socket, far = socket.socketpair()
        self._ear = self._socket.dup()
        """The same, for the thread that waits."""
        with tempfile.TemporaryFile() as memory, far:
            memory.truncate(Slots.SIZE)
            self.slots = Slots(memory.fileno())
            files = (far.fileno(), memory.fileno())
            try:
                self._process = _spawn([_BOOTSTRAP, *map(str, files)], files)
            except Closed:
                self._close()
                raise
        self.send(
            {
                "path": sys.path,
                "connect": origin.arguments,
                "folder": origin.folder,
                "process": msgspec.to_builtins(process),
                "owner": os.getpid(),
            }
        )
        self._ear.settimeout(_START_SECONDS)
        try:
            answer = self._ear.recv(4096)
        except OSError:
            answer = b""
        self._socket.setblocking(False)
        if not answer.startswith(READY):
            self.end()
            why = answer.decode(errors="replace") or f"it ended with {self._process.returncode}"
            raise Closed(f"the process that renews the leases could not be started: {why}")

    def send(self, message: Mapping[str, Any]) -> None:
        """Tells it something. If it does not listen, it is of no use and ended."""
        try:
            self._socket.sendall(json.dumps(message).encode() + b"\n")
        except OSError:
            self._process.kill()

    def wait(self, seconds: float) -> bool:
        """Until it says something, at most so long; False if it has ended."""
        try:
            self._ear.settimeout(seconds)
            return bool(self._ear.recv(4096))
        except TimeoutError:
            return True
        except OSError:
            return False

    def end(self) -> None:
        """Ends it, and reaps it."""
        with suppress(OSError):
            self._ear.shutdown(socket.SHUT_RDWR)
        self._close()
        try:
            self._process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def abandon(self) -> None:
        """In a forked child: it is the parent's, and must not miss the parent's end."""
        self._close()
        _abandoned.append(self._process)

    def _close(self) -> None:
        self._ear.close()
        self._socket.close()


_abandoned: list[subprocess.Popen[bytes]] = []
"""A Popen object complains when it is dropped while its process runs."""


def _spawn(arguments: Sequence[str], files: Sequence[int]) -> subprocess.Popen[bytes]:
    """In a session of its own: signals of the terminal are for its owner."""
    try:
        return subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", *arguments],
            pass_fds=files,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            start_new_session=True,
        )
    except OSError as error:
        raise Closed(f"the process that renews the leases could not be started: {error}") from error


def claim_of(told: Any) -> TaskClaim:
    """A claim that was sent."""
    return convert(told, TaskClaim)


def process_of(told: Any) -> Process | None:
    """A process that was sent."""
    return convert(told, Process | None)
