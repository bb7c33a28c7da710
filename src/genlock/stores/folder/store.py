"""A store made of files: a journal as the source of truth, and tasks as files for other tools.

Implementation notes:

- **The journal is the source of truth**, in the layout's state folder. Every process reads it into
  memory when it opens the store, and later reads the entries that others have appended. So
  generations, history and refused results survive any change or loss of the task files.
- **Readers lock, too**, where files can be locked, so that a reader sees only durable entries.
- **Task files are images of the records.** With a layout, a commit first writes the other tool's
  lock, then the journal, then the task's file. The commit is done when the journal is synced; the
  next writer repairs files that were not written after it (`project_files`).
- **Other tools edit these files.** `load` compares them with the last image, and returns the
  changed ones in `Snapshot.observed`. `commit` checks again, under the lock: a change that was
  decided without such an edit is a conflict.
- **A fork would share the descriptors**, and with them the locks, so in a child every call is an
  error.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple, TypeVar

from genlock.core.policy import Policy
from genlock.errors import (
    BadArgument,
    Closed,
    StoreError,
    StoreReadOnly,
    StoreUnavailable,
)
from genlock.retry import Backoff
from genlock.store import (
    Audit,
    Change,
    Clock,
    Committed,
    Conflict,
    EventPage,
    EventQuery,
    Key,
    Limits,
    Page,
    Payloads,
    Query,
    Snapshot,
    Stored,
)
from genlock.stores.checks import check_changes
from genlock.stores.clock import SystemClock
from genlock.stores.cursors import decode_cursor
from genlock.stores.files import os_errors_translated, refuse_link
from genlock.stores.folder.contents import Contents, uncollected
from genlock.stores.folder.entries import Entry, Noted, Purged, Raised, Wrote
from genlock.stores.folder.folder_watch import FolderWatch
from genlock.stores.folder.journal import AppendedJournal, Journal, Raced, Replaced
from genlock.stores.folder.project_files import ProjectFiles, State
from genlock.stores.folder.writer_lock import WriterLock
from genlock.stores.payloads import FolderPayloads
from genlock.stores.rows import Row

T = TypeVar("T")

_COMPACT_BYTES = 256 * 1024
"""A journal with a smaller appended part is not compacted. Every process that opens it reads the
whole appended part."""
_COMPACT_SHARE = 4
"""Nor is a journal whose appended part is smaller than the rest divided by this number, because a
compaction rewrites all of it."""
_LOOKS = Backoff(first=0.002, longest=0.02, jitter=0)
"""The pauses of a waiter between polls. A poll is one `stat`."""


class FilesReport(NamedTuple):
    """How the files of a folder compare with their records."""

    journal_bytes: int
    tasks: int
    unreadable: dict[str, str]
    edited: tuple[str, ...] = ()
    checked_out: tuple[str, ...] = ()
    unwritten: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    without_file: tuple[str, ...] = ()


class FolderStore:
    """`genlock.store.Store` in a folder."""

    limits: Limits

    def __init__(
        self,
        folder: Path,
        journal: Journal,
        lock: WriterLock,
        *,
        files: ProjectFiles | None = None,
        clock: Clock | None = None,
        read_only: bool = False,
    ) -> None:
        """`folder` contains the journal. `files` are the tasks that other tools see."""
        layout = None if files is None else files.layout
        self._numbers = None if layout is None else layout.numbers
        self.limits = Limits(
            batch=1024,
            observes=files is not None,
            read_only=read_only,
            policy=Policy() if layout is None else layout.policy,
            counts=self._numbers is not None,
        )
        self.folder = folder
        self.files = files
        self.lock = lock
        self._journal = journal
        self._clock: Clock = clock or SystemClock()
        self._contents = Contents()
        self._mutex = threading.RLock()
        self._pid = os.getpid()
        self._closed = False
        self._watch = None if files is None else FolderWatch(files.layout)
        self._payloads = FolderPayloads(
            folder / "payloads", read_only=read_only, check=self._check_open
        )

    # Reading

    def load(
        self, keys: Sequence[Key], queries: Sequence[Query] = (), *, with_index: bool = False
    ) -> Snapshot:
        """Returns the records among `keys`, the clock and the epoch; then one page for each
        query."""
        with self._entered() as contents:
            now = self._clock.now()
            observed = () if self.files is None else self.files.observe(keys, contents)
            found = {
                key: _stored(key, contents.rows[key], with_index=with_index)
                for key in keys
                if key in contents.rows
            }
            epoch = contents.epoch
            pages = [contents.find(query, None) for query in queries]
        return Snapshot(found, pages, now, epoch, observed)

    def find(self, query: Query, *, count_by: str | None = None) -> Page:
        """Finds records by an index field, or counts them by its value."""
        with self._entered() as contents:
            return contents.find(query, count_by)

    def read_events(self, query: EventQuery) -> EventPage:
        """Reads events of a record, or of a project after a cursor."""
        with self._entered() as contents:
            return contents.read_events(query)

    def scan(self, tenant: str, project: str) -> Sequence[Key]:
        """Returns the tasks of this project whose files are new, gone or edited."""
        if self.files is None:
            return ()
        with self._entered() as contents:
            return self.files.scan(tenant, project, contents)

    def await_edits(self, seconds: float) -> Sequence[Key] | None:
        """Waits until task files are written to, and returns the edited tasks; an empty list after
        `seconds`. None if edits may have been missed: then `scan` finds them."""
        self._check_open()
        if self._watch is None:
            return ()
        ids = self._watch.wait(seconds)
        self._check_open()
        if ids is None or self.files is None:
            return None
        if not ids:
            return ()
        with self._entered() as contents:
            return self.files.edited(sorted(ids), contents)

    def take_numbers(self, prefix: str, count: int) -> int:
        """Takes numbers from a counter that other tools use, too. Returns the last of them."""
        self._check_open()
        assert self._numbers is not None
        if self.limits.read_only:
            raise StoreReadOnly(f"{self.folder} cannot be written")
        return self._numbers.take(prefix, count)

    def wait(
        self,
        projects: Sequence[tuple[str, str]],
        after: Sequence[str],
        timeout: float,
        *,
        others: bool = False,
    ) -> Sequence[tuple[str, str]]:
        """Returns when one of the feeds has moved past its cursor, or after `timeout` seconds. It
        does not report who committed."""
        deadline = time.monotonic() + timeout
        cursors = map(decode_cursor, after)
        places = list(zip(projects, cursors, strict=True))
        while True:
            with self._entered() as contents:
                if any(contents.has_moved(*place, cursor) for place, cursor in places):
                    return ()
                applied = contents.applied
            quiet = 1
            while True:
                left = deadline - time.monotonic()
                if left <= 0:
                    return ()
                self._check_open()
                if self._contents.applied != applied or self._journal.has_grown():
                    break
                time.sleep(min(left, _LOOKS.pause(quiet)))
                quiet += 1

    # Writing

    def commit(
        self, changes: Sequence[Change], *, epoch: int | None = None
    ) -> Sequence[Committed | Conflict]:
        """Writes each change that still fits."""
        check_changes(changes, self.limits)

        def attempt(contents: Contents) -> Sequence[Committed | Conflict]:
            if epoch is not None and epoch != contents.epoch:
                return [Conflict()] * len(changes)
            fitting = [change for change in changes if contents.fits(change)]
            return self._write(contents, changes, fitting)

        return self._writing(attempt)

    def _write(
        self, contents: Contents, changes: Sequence[Change], fitting: list[Change]
    ) -> Sequence[Committed | Conflict]:
        projection = None
        if self.files is not None and fitting:
            projection = self.files.prepare(fitting, contents)
            fitting = projection.fitting
        if fitting:
            entry = Wrote(
                tuple([change._replace(seen=None) for change in fitting]),
                projection.images if projection is not None else {},
            )
            try:
                self._append(contents, entry)
            except StoreError as error:
                if projection is not None:
                    projection.take_back(error)
                raise
            if projection is not None:
                projection.finish(contents)
        done = {change.key for change in fitting}
        return [
            Committed(contents.position_after(change)) if change.key in done else Conflict()
            for change in changes
        ]

    def note_images(self, make: Callable[[Contents], Entry | None]) -> None:
        """Appends the entry that `make` returns about the files, if any."""

        def attempt(contents: Contents) -> None:
            entry = make(contents)
            if entry is not None:
                self._append(contents, entry)

        self._writing(attempt)

    def examine(self) -> FilesReport:
        """Compares every task file with its record."""
        with self._entered() as contents:
            tasks = [] if self.files is None else self.files.ids(contents)
            report = FilesReport(self._journal.size, len(tasks), {})
            if self.files is None:
                return report
            found: dict[State, list[str]] = {state: [] for state in State}
            unreadable = {}
            for id in tasks:
                compared = self.files.compare(id, contents)
                found[compared.state].append(id)
                if compared.state is State.UNREADABLE and compared.observation is not None:
                    unreadable[_shown(id)] = _shown(compared.observation.now.fault)
            known = contents.images
            return report._replace(
                edited=tuple(found[State.EDITED]),
                checked_out=tuple(found[State.CHECKOUT]),
                unwritten=tuple(found[State.PENDING]),
                missing=tuple(id for id in known if self.files.is_missing(id, contents)),
                unreadable=unreadable,
                without_file=tuple(id for id in known if self.files.has_never_had(id, contents)),
            )

    def restore_file(self, id: str) -> bool:
        """Writes a task's file from its record. A deleted file is created again, which lifts its
        hold."""
        files, written = self.files, [False]
        assert files is not None

        def make(contents: Contents) -> Entry | None:
            image = files.image_if_restored(id, contents)
            return None if image is None else Noted({id: image})

        self.note_images(make)
        with self._entered(writes=True) as contents:
            written[0] = files.restore(id, contents)
        return written[0]

    def adopt_file(self, id: str) -> bool:
        """Makes the present file count as edited."""
        files = self.files
        assert files is not None

        def make(contents: Contents) -> Entry | None:
            image = files.image_if_edited(id, contents)
            return None if image is None else Noted({id: image})

        self.note_images(make)
        return True

    def purge(self, key: Key, before_version: int, base: bytes) -> None:
        """Drops the record's events below `before_version`, and swaps `base` in."""

        def attempt(contents: Contents) -> None:
            row = contents.rows.get(key)
            if row is not None and any(event.version < before_version for event in row.events):
                self._append(contents, Purged(key, before_version, base))

        self._writing(attempt)

    def payloads(self) -> Payloads:
        """One file each, beside the journal."""
        self._check_open()
        return self._payloads

    def set_epoch(self, epoch: int) -> None:
        """Raises the epoch. Never lowers it."""

        def attempt(contents: Contents) -> None:
            if epoch <= contents.epoch:
                raise BadArgument(
                    f"the epoch goes only upwards, and {epoch} is not above {contents.epoch}"
                )
            self._append(contents, Raised(epoch))

        self._writing(attempt)

    def audit(self) -> Audit:
        """Returns all tenants and projects. No record can be misplaced in this store."""
        with self._entered() as contents:
            return Audit(contents.places())

    def close(self) -> None:
        """Closes this handle. Other handles stay open."""
        with self._mutex:
            if self._closed:
                return
            self._closed = True
            if os.getpid() == self._pid:
                if self._watch is not None:
                    self._watch.close()
                if self.files is not None:
                    self.files.close()
                self._journal.close()
                self._contents.close()
                self.lock.close()

    # The journal

    def _append(self, contents: Contents, entry: Entry) -> None:
        self._journal.append(entry)
        contents.apply(entry)
        if isinstance(self._journal, AppendedJournal):
            appended = self._journal.size - self._journal.compacted_size
            is_large = appended > max(
                _COMPACT_BYTES, self._journal.compacted_size // _COMPACT_SHARE
            )
            if is_large and (self.files is None or self.files.is_projected(contents)):
                # The commit before it stands even if this fails.
                with suppress(OSError, StoreError):
                    self._compact(contents, self._journal)

    def _compact(self, contents: Contents, journal: AppendedJournal) -> None:
        journal.replace(contents.born(), contents.kept(), contents.kept_feeds(), contents.commits)

    def compact(self) -> None:
        """Rewrites the journal without obsolete entries. A numbered journal stays unchanged,
        because a stalled writer could write a number that was removed."""

        def attempt(contents: Contents) -> None:
            if isinstance(self._journal, AppendedJournal):
                with os_errors_translated(self._journal.path):
                    self._compact(contents, self._journal)

        self._writing(attempt)

    def _writing(self, attempt: Callable[[Contents], T]) -> T:
        """Calls `attempt` under the writer lock, and again if another writer has taken the same
        number of a numbered journal."""
        if self.limits.read_only:
            self._check_open()
            raise StoreReadOnly(f"{self.folder} cannot be written")
        while True:
            with self._entered(writes=True) as contents:
                if self.files is not None:
                    self.files.repair(contents)
                try:
                    return attempt(contents)
                except Raced:
                    continue

    @contextmanager
    def _entered(self, *, writes: bool = False) -> Iterator[Contents]:
        """Yields the present contents, under the lock."""
        self._check_open()
        with self._mutex:
            self._check_open()
            try:
                with self.lock.held(writes=writes):
                    self._catch_up()
                    yield self._contents
            except FileNotFoundError as error:
                if error.filename is None or Path(error.filename) != self._journal.path:
                    raise
                raise StoreUnavailable(
                    f"{self._journal.path} is gone: the folder was moved or cleaned up while it "
                    "was open; open it again"
                ) from None

    def _catch_up(self) -> None:
        while True:
            try:
                with os_errors_translated_but_missing(self._journal.path), uncollected():
                    for entry in self._journal.read_new():
                        self._contents.apply(entry)
                return
            except Replaced:
                birth = self._contents.birth
                self._contents.close()
                self._contents = Contents()
                first = next(iter(self._journal.read_new()), None)
                if first is not None:
                    self._contents.apply(first)
                if self._contents.birth != birth:
                    raise StoreUnavailable(
                        f"{self._journal.path} is another store's by now; open it again"
                    ) from None

    def _check_open(self) -> None:
        if self._closed:
            raise Closed(f"{self.folder} is closed")
        if os.getpid() != self._pid:
            raise StoreError(
                f"{self.folder} was opened by process {self._pid}; a store does not survive fork: "
                "open it again"
            )


@contextmanager
def os_errors_translated_but_missing(path: Path) -> Iterator[None]:
    """Translates all errors of the operating system except for a missing file."""
    try:
        with os_errors_translated(path):
            yield
    except StoreError as error:
        if isinstance(error.__cause__, FileNotFoundError):
            refuse_link(path)
            raise error.__cause__ from None
        raise


def _shown(name: str) -> str:
    """Returns a file name as text. Names may be any bytes."""
    return name.encode(errors="backslashreplace").decode()


def _stored(key: Key, row: Row, *, with_index: bool) -> Stored:
    return Stored(key, row.version, row.digest, row.body, index=row.index if with_index else None)
