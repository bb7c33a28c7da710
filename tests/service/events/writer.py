"""A process that writes events into a project's feed without a pause, until it is told to stop.

Each event is a number taken from the project's counter, so whoever reads them can see whether one
is missing, doubled or out of order.
"""

from __future__ import annotations

import threading

import genlock
from tests.processes.worker import order, say


def main() -> None:
    asked = order()
    assert asked is not None
    fleet = genlock.connect(asked["url"], create=True, project_id=asked["project"])
    fleet.next_id()
    say(fact="ready")
    stop = threading.Event()

    def write() -> None:
        while not stop.is_set():
            fleet.next_id()

    writers = [threading.Thread(target=write, daemon=True) for _ in range(asked["writers"])]
    for writer in writers:
        writer.start()
    order()
    stop.set()
    for writer in writers:
        writer.join()
    fleet.close()
    say(fact="finished")


if __name__ == "__main__":
    main()
