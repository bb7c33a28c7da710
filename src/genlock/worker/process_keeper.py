"""A keeper whose renewals are sent by a process of its own: `keeper="process"`.

A C function that holds the interpreter for longer than a lease, such as a large regular expression
or number, stops all threads of its process, and a keeper thread with them. So the renewals come
from a helper process (helper_process.py), which opens the same store or service.

    this process                                the helper
    ProcessKeeper ── socket: add, remove ─────→ an ordinary Keeper
         ↑       ←── socket: "look" ─────────── after each renewal and loss
         └────────── shared memory: until when each claim is trusted ──┘

The helper's renewals are in shared memory, so the first check after a long C call is correct. A
helper that dies is started again, and gets all claims. It ends with its owner.
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
"""Losses by their number in shared memory; 0 is none."""
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
    """The helper's state of one claim."""

    number: int
    """The number of the claim; 0: the slot is free."""
    trusted_until: float = 0.0
    sent: float = 0.0
    lease_seconds: float = 0.0
    loss: int = 0


class Slots:
    """Shared memory with a slot for each claim. Only the helper frees a slot, so none of its late
    writes can affect another claim. Each field is read and written atomically."""

    _format = Struct("=qdddq")
    SIZE: Final = _format.size * _MOST_CLAIMS

    def __init__(self, file: int) -> None:
        self._memory = mmap(file, self.SIZE)

    def read(self, at: int) -> SlotState:
        """Reads a slot."""
        return SlotState(*self._format.unpack_from(self._memory, at * self._format.size))

    def write(self, at: int, state: SlotState) -> None:
        """Writes a slot."""
        self._format.pack_into(self._memory, at * self._format.size, *state)

    def free(self) -> int:
        """Returns a free slot."""
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
        """The helper's state of the claim; None if there is none yet."""
        state = None if self.slots is None else self.slots.read(self.slot)
        return None if state is None or state.number != self.number else state

    def take(self, state: SlotState) -> None:
        """Takes over a renewal by the helper."""
        self.sent, self.lease_seconds = state.sent, state.lease_seconds
        self.leased = state.trusted_until != math.inf

    @property
    def trusted_until(self) -> float:
        """The helper's value, which may be later than what this process has read."""
        state = self.state
        if state is None:
            return super().trusted_until
        return state.trusted_until


class ProcessKeeper(Keeper):
    """A Keeper with a helper process instead of a sender."""

    _kind = SharedClaim

    def __init__(self, fleet: Fleet, origin: Origin, process: Process | None) -> None:
        self._origin, self._process = origin, process
        self._helper: _Helper | None = None
        super().__init__(fleet)

    def _begin(self) -> None:
        super()._begin()
        helper, self._helper = self._helper, None
        if helper is not None:
            helper.abandon()  # it belongs to the parent
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
        """Stops renewing the claim."""
        super().remove(kept)
        with self._lock():
            self._tell_helper()

    def _start(self) -> None:
        """Starts the helper, which must run before the caller continues, perhaps into a C
        function."""
        if self._helper is None:
            self._helper = _Helper(self._origin, self._process)
        self._tell_helper()
        super()._start()

    def _hand_over(self, now: float) -> None:
        """Does nothing: there is no sender in this process."""

    def _seconds_to_sleep(self, now: float) -> float:
        nearest = min((kept.trusted_until for kept in self._claims), default=now)
        return min(max(nearest - now, 0.0), LONGEST_SLEEP_SECONDS)

    def _send(self) -> None:
        """Reads the helper's messages, and starts it again when it has ended."""
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
        """Applies the changes that the helper has written to shared memory."""
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
        """Replaces a helper that has ended or never started. The new one takes over all claims."""
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
        """Ends the helper. Its last state is saved for its successor. Called under the lock."""
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
        # Only used to tell whether there is a lease.
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
    """The owner's end of the helper."""

    def __init__(self, origin: Origin, process: Process | None) -> None:
        self._socket, far = socket.socketpair()
        self._ear = self._socket.dup()
        """A duplicate for the waiting thread."""
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
        """Sends it a message. A helper that does not read is useless and is ended."""
        try:
            self._socket.sendall(json.dumps(message).encode() + b"\n")
        except OSError:
            self._process.kill()

    def wait(self, seconds: float) -> bool:
        """Waits for a message, for at most `seconds`. Returns False if the helper has ended."""
        try:
            self._ear.settimeout(seconds)
            return bool(self._ear.recv(4096))
        except TimeoutError:
            return True
        except OSError:
            return False

    def end(self) -> None:
        """Ends and reaps the helper."""
        with suppress(OSError):
            self._ear.shutdown(socket.SHUT_RDWR)
        self._close()
        try:
            self._process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def abandon(self) -> None:
        """Closes the inherited descriptors in a forked child, because the parent's helper must
        detect the parent's end."""
        self._close()
        _abandoned.append(self._process)

    def _close(self) -> None:
        self._ear.close()
        self._socket.close()


_abandoned: list[subprocess.Popen[bytes]] = []
"""A Popen object complains when it is dropped while its process runs."""


def _spawn(arguments: Sequence[str], files: Sequence[int]) -> subprocess.Popen[bytes]:
    """Starts a process in a session of its own, because signals of the terminal are for its
    owner."""
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
    """Decodes a claim that was sent."""
    return convert(told, TaskClaim)


def process_of(told: Any) -> Process | None:
    """Decodes a process that was sent."""
    return convert(told, Process | None)
