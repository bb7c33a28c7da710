"""The helper of a ProcessKeeper: it renews the leases of another process, and ends with it.

It does not renew while its owner is stopped. A stopped process cannot detect the loss of its claim
either, so its claims expire as they do with a keeper thread.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import threading
from collections.abc import Mapping
from importlib import import_module
from typing import Any, NoReturn

from genlock.core.results import ReleaseResult, RenewalResult
from genlock.errors import GenlockError, StoreUnavailable
from genlock.worker.keeper import Answer, Keeper
from genlock.worker.kept_claim import KeptClaim
from genlock.worker.process_keeper import (
    LOOK,
    LOSSES,
    READY,
    Slots,
    SlotState,
    claim_of,
    process_of,
)
from genlock.worker.readable import readable


def serve(channel: int, memory: int, told: Mapping[str, Any]) -> NoReturn:
    """The main function of the helper."""
    way = socket.socket(fileno=channel)
    slots = Slots(memory)
    try:
        os.chdir(told["folder"])
        # By name, because the package itself depends on all layers, including this one.
        connect, process = import_module("genlock").connect, process_of(told["process"])
        fleet = connect(**told["connect"], process=process)
    except (GenlockError, OSError) as error:
        way.sendall(str(error).encode())
        os._exit(1)
    way.sendall(READY)
    way.setblocking(False)
    _Helper(way, slots, _WhileInUse(fleet, told["owner"]), told["owner"]).run()
    os._exit(0)


class _WhileInUse:
    """The fleet, usable only while the owner is not stopped."""

    def __init__(self, fleet: Any, owner: int) -> None:
        self._fleet, self._owner = fleet, owner

    def _check(self) -> None:
        if is_stopped(self._owner):
            raise StoreUnavailable("the owner of the claims is stopped")

    def renew_lease(self, **arguments: Any) -> RenewalResult:
        self._check()
        answer: RenewalResult = self._fleet.renew_lease(**arguments)
        return answer

    def batch_renew(self, **arguments: Any) -> Mapping[str, Answer]:
        self._check()
        answers: Mapping[str, Answer] = self._fleet.batch_renew(**arguments)
        return answers

    def release_claim(self, **arguments: Any) -> ReleaseResult:
        """The owner releases its claims itself."""
        raise NotImplementedError


class _Helper:
    def __init__(self, way: socket.socket, slots: Slots, fleet: _WhileInUse, owner: int):
        self._way, self._slots, self._owner = way, slots, owner
        self._keeper = Keeper(fleet)
        self._lock = threading.Lock()
        self._live: dict[int, tuple[int, KeptClaim | None]] = {}
        """The slot and claim by claim number."""
        self._unread = b""

    def run(self) -> None:
        """Runs until the owner has ended: the socket is closed, or this process has another parent,
        in case a forked child of the owner has the socket, too."""
        while True:
            ready = readable([self._way.fileno()], 1.0)
            if os.getppid() != self._owner:
                return
            if ready:
                data = self._way.recv(65536)
                if not data:
                    return
                self._read(data)

    def _read(self, data: bytes) -> None:
        *lines, self._unread = (self._unread + data).split(b"\n")
        for line in lines:
            message = json.loads(line)
            if "add" in message:
                self._add(message)
            else:
                self._remove(message["remove"])

    def _add(self, message: dict[str, Any]) -> None:
        number, claim = message["add"], claim_of(message["claim"])
        with self._lock:
            self._live[number] = (message["slot"], None)
        kept = self._keeper.add(
            claim,
            asked=message["sent"],
            lease_seconds=message["lease_seconds"] or claim.lease_seconds,
            on_lost=lambda kept: self._write(number, kept),
            on_renewed=lambda kept: self._write(number, kept),
            known=True,
        )
        with self._lock:
            self._live[number] = (message["slot"], kept)

    def _remove(self, number: int) -> None:
        with self._lock:
            slot, kept = self._live.pop(number, (None, None))
            if slot is not None:
                self._slots.write(slot, SlotState(0))
        if kept is not None:
            self._keeper.remove(kept)

    def _write(self, number: int, kept: KeptClaim) -> None:
        """Writes the state of a claim, unless it was removed meanwhile."""
        loss = next((n for n, each in LOSSES.items() if each is kept.reason), 0)
        state = SlotState(number, kept.trusted_until, kept.sent, kept.lease_seconds, loss)
        with self._lock:
            found = self._live.get(number)
            if found is None:
                return
            self._slots.write(found[0], state)
        try:
            self._way.send(LOOK)
        except OSError:  # full: the owner has not read for long, and will check all claims
            return


def is_stopped(pid: int) -> bool:
    """Has a signal stopped this process? False if that cannot be seen."""
    if sys.platform != "linux":
        return False
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            stat = file.read()
    except OSError:
        return False
    return stat[stat.rindex(b")") + 2 :].split()[0] in (b"T", b"t", b"Z", b"X")
