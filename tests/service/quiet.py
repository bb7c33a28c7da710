"""A tenant that claims one task after the other, from a process of its own: says what each claim
took, alone and beside others.

In the service's own process it would measure how long it waits for the interpreter.
"""

from __future__ import annotations

import http.client
import threading
import time
from collections.abc import Callable

from tests.processes.worker import order, say
from tests.service.process import PATIENCE_SECONDS, ask

PLACE = "/v1/quiet/default/tasks"


def claims(
    connection: http.client.HTTPConnection,
    names: list[str],
    is_over: Callable[[], bool] = lambda: False,
) -> list[float]:
    """What each took, until it is over."""
    times = []
    for name in names:
        began = time.perf_counter()
        status, _ = ask(
            connection, "POST", f"{PLACE}/{name}/claim", {"agent_id": "q", "session_id": "q"}
        )
        times.append(time.perf_counter() - began)
        assert status == 200
        if is_over():
            break
    return times


def main() -> None:
    asked = order()
    assert asked is not None
    connection = http.client.HTTPConnection("127.0.0.1", asked["port"], timeout=PATIENCE_SECONDS)
    alone, beside = (
        [f"{kind}{number}" for number in range(asked[kind])] for kind in ("alone", "beside")
    )
    assert ask(connection, "POST", PLACE, {"tasks": alone + beside})[0] == 200
    say(fact="alone", times=claims(connection, alone))
    order()
    told = threading.Thread(target=order, daemon=True)
    told.start()
    say(fact="beside", times=claims(connection, beside, lambda: not told.is_alive()))
    connection.close()


if __name__ == "__main__":
    main()
