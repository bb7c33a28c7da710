"""`make servers`: makes ready what can be had without touching the machine, and says what is
missing and how to get it."""

from __future__ import annotations

from collections.abc import Callable

from tests.servers import bubblewrap, chromium, mariadb, ministack, pgbouncer, postgres, redis
from tests.servers.debian import NotToBeHad

READY: dict[str, Callable[[], str]] = {
    "PostgreSQL": postgres.ready,
    "MariaDB": mariadb.ready,
    "Redis": redis.ready,
    "DynamoDB and S3": ministack.ready,
    "PgBouncer": pgbouncer.ready,
    "Chromium": chromium.ready,
    "Bubblewrap": bubblewrap.ready,
}
"""Each says where its server is; `NotToBeHad` if it is nowhere."""


def main() -> None:
    """Every server in turn; the exit status is 1 if one is missing."""
    missing = 0
    for name, ready in READY.items():
        try:
            print(f"{name}: {ready()}")
        except NotToBeHad as error:
            missing += 1
            print(f"{name}: missing. {error}")
    raise SystemExit(1 if missing else 0)


if __name__ == "__main__":
    main()
