"""One agent: a process of its own that knows the service by its URL alone, claims what comes next, works, renews and hands in.

It leaves when its standard input is closed, so that it does not outlive whoever started it.
"""

from __future__ import annotations

import argparse
import random
import sys
import threading
import time
from typing import Any
from urllib.parse import quote

import httpx2

from genlock.cli.dev.plan import PROJECT
from genlock.engine.processes import identify
from genlock.wire.headers import AGENT_HEADER, PROCESS_HEADER, SESSION_HEADER, USER_HEADER, pack_name, pack_process

RENEW_AT = 0.3
FAILS = 0.06
"""How often the work fails."""
WAIT_SECONDS = 5.0


def main() -> None:
    parser = argparse.ArgumentParser()
    for name in ("url", "agent", "session", "user"):
        parser.add_argument(f"--{name}", required=True)
    options = parser.parse_args()
    leaving = threading.Event()
    threading.Thread(target=_leave_with_our_starter, args=[leaving], daemon=True).start()
    headers = {SESSION_HEADER: options.session, AGENT_HEADER: options.agent, USER_HEADER: options.user}
    process = identify()
    sent = {name: pack_name(value) for name, value in headers.items()} | ({PROCESS_HEADER: pack_process(process)} if process else {})
    try:
        with httpx2.Client(
            base_url=f"{options.url}v1/default/{PROJECT}/", headers=sent, timeout=WAIT_SECONDS + 10, trust_env=False
        ) as service:
            Agent(service, options.session, leaving).work()
    except httpx2.HTTPError:
        if not leaving.wait(5):  # the service may have gone a moment before whoever started us both
            raise


def _leave_with_our_starter(leaving: threading.Event) -> None:
    sys.stdin.read()
    leaving.set()


class Agent:
    """Works until it is told to leave."""

    def __init__(self, service: httpx2.Client, session: str, leaving: threading.Event) -> None:
        self._service = service
        self._session = quote(session, safe="")
        self._leaving = leaving

    def work(self) -> None:
        """One task after the other."""
        self._ask("sessions", {"agent_type": "dev"})
        while not self._leaving.is_set():
            granted = self._ask("claim-next", {"wait_seconds": WAIT_SECONDS})
            if granted.get("claim") is not None:
                self._carry_out(granted)
            elif "code" in granted:
                self._leaving.wait(0.5)  # the service is about to stop, or asks us to wait
        self._ask(f"sessions/{self._session}/end", {})

    def _carry_out(self, granted: dict[str, Any]) -> None:
        task, claim = granted["task"], granted["claim"]
        at, generation = f"tasks/{quote(task['id'], safe='')}", claim["generation"]
        seconds = task.get("estimate_seconds") or 2
        if not self._pretend(at, generation, random.uniform(0.6, 1.3) * seconds, claim["lease_seconds"] * RENEW_AT):
            self._ask(f"{at}/release", {"expected_generation": generation})
        elif random.random() < FAILS:
            self._ask(f"{at}/release", {"expected_generation": generation, "reason": "ERROR"})
        else:
            result = {"task": task["id"], "made_by": claim["agent_id"], "lines": random.randint(20, 900)}
            self._ask(f"{at}/submit", {"generation": generation, "result_data": result})

    def _pretend(self, at: str, generation: int, seconds: float, renew_every: float) -> bool:
        """Takes its time, and renews meanwhile; False if it is to leave first. Who has lost the claim hands in what there is."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            if self._leaving.wait(min(left, renew_every)):
                return False
            if time.monotonic() < end and not self._ask(f"{at}/renew", {"expected_generation": generation}).get("success"):
                return True
        return True

    def _ask(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        answer: dict[str, Any] = self._service.post(path, json=body).json()
        return answer


if __name__ == "__main__":
    main()
