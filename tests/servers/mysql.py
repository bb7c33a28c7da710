"""A real MySQL in MariaDB's place: what is tested on the one is tested on the other. Not a part of
any run but `make test-mysql`.

Debian has it in sid alone, built for another libc than most machines have: it is unpacked with all
that it needs, down to its libc, and started through its own loader.
"""

from __future__ import annotations

import os
import subprocess

from tests.servers import debian
from tests.servers.mariadb import USERS, MariaDB

SUITE, PACKAGE = "sid", "mysql-server-core"
WANTED = "GENLOCK_TEST_WITH_MYSQL"
"""The variable that says so."""

_NOT_FOR_IT = ("innodb-log-file-size", "performance-schema")
_INSTEAD = {"innodb-redo-log-capacity": "64M", "mysqlx": "OFF", "secure-file-priv": ""}


class MySQL(MariaDB):
    """One server."""

    def waiting(self) -> list[int]:
        # Its innodb_trx fails where a statement has bytes in it that are no text.
        return [
            int(str(number))
            for (number,) in self.run(
                "SELECT threads.processlist_id FROM performance_schema.data_lock_waits AS waits "
                "JOIN performance_schema.threads ON threads.thread_id = waits.requesting_thread_id"
            )
        ]

    def _setting(self, name: str, value: str) -> list[str]:
        if name in _NOT_FOR_IT:
            return []
        if name == "innodb-flush-method" and value == "nosync":
            return [f"--{name}={value}", "--innodb-flush-log-at-trx-commit=2", "--sync-binlog=0"]
        return [f"--{name}={value}"]

    def _command(self, *arguments: str) -> list[str]:
        root = debian.FOLDER / PACKAGE
        libraries = sorted({str(path.parent) for path in (root / "usr" / "lib").rglob("*.so*")})
        share = root / "usr" / "share" / "mysql"
        return [
            str(root / "usr" / "lib64" / "ld-linux-x86-64.so.2"),
            "--library-path",
            ":".join(libraries),
            str(self._program),
            "--no-defaults",
            f"--datadir={self._folder / 'data'}",
            f"--lc-messages-dir={share}",
            f"--character-sets-dir={share / 'charsets'}",
            f"--plugin-dir={root / 'usr' / 'lib' / 'mysql' / 'plugin'}",
            f"--tmpdir={self._folder}",
            f"--pid-file={self._folder / 'pid'}",
            *(f"--{name}={value}" for name, value in _INSTEAD.items()),
            *arguments,
        ]

    def _environment(self) -> dict[str, str]:
        return dict(os.environ)

    def _make_system_tables(self) -> None:
        script = self._folder / "users.sql"
        script.write_text(USERS)
        done = subprocess.run(
            self._command("--initialize-insecure", f"--init-file={script}"),
            user=self._user, env=self._environment(), cwd="/", capture_output=True, text=True,
        )  # fmt: skip
        assert done.returncode == 0, f"the system tables could not be made: {done.stderr[-3000:]}"


def is_wanted() -> bool:
    """Is it to stand in for MariaDB?"""
    return bool(os.environ.get(WANTED))


def main() -> None:
    """Makes it ready, and says where it is."""
    debian.unpack(PACKAGE, suite=SUITE)
    print(f"MySQL: {debian.program(PACKAGE, 'mysqld')}")


if __name__ == "__main__":
    main()
