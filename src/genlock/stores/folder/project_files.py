"""The tasks of a project as files: detects edits by other tools, and writes records to the files.

The state of a file when the store last wrote or observed it is its *image*, which is in the journal
beside the record. A file that differs from its image was edited, except:

cosmetics   it means the same as before (a tool has sorted its keys): nothing has happened
pending     it equals the previous image, and the process that was to write the last one has died,
            or the disk was full: it is written again
checkout    it equals one of its earlier images, in a repository whose index was written since: git
            has restored it. Record and file both stay until a person says which is right
unreadable  its meaning is unclear: the record stays, and no new claim is granted

The other tool's lock is on disk before the claim is in the journal. If the process dies in between,
the lock belongs to no claim. So the process first notes the lock that it is about to write (an
*intent*), and the next writer removes an intended lock that never reached the journal.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from enum import Enum, auto
from pathlib import Path
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from genlock.core.codec import decode_record
from genlock.core.keys import SESSION, TASK
from genlock.core.model import Process, SessionRecord, TaskRecord
from genlock.core.observation import Observation, Sighting
from genlock.core.reasons import Status
from genlock.core.task.fold import rest
from genlock.core.task.observe import GONE
from genlock.errors import GenlockError, OutcomeUnknown, StoreCorrupt, StoreError, StoreForeign
from genlock.failpoints import hit
from genlock.private_files import create_file, read_regular
from genlock.store import Change, Clock, Key, Observed
from genlock.stores.clock import SystemClock
from genlock.stores.files import os_fault_of, refuse_link
from genlock.stores.folder.contents import Contents
from genlock.stores.folder.entries import Image
from genlock.stores.folder.layout import LOCK_GONE, Fingerprint, Layout, TaskFiles
from genlock.stores.folder.layouts.file_content import fault_of
from genlock.stores.folder.writer_lock import start_time
from genlock.typed_json import decoder, packed_decoder

_ENDED = frozenset({Status.COMPLETED, Status.CANCELLED, Status.IN_REVIEW})
_MANY = 200
"""Fingerprints are saved once this many files had to be read."""
FRESH_NS = 2_000_000_000
"""A file written this recently may change without a change of its fingerprint."""

_encode = msgspec.json.Encoder().encode
_sighting = decoder(Sighting)
_locks = packed_decoder(dict[str, bytes])


class Seen(NamedTuple):
    """The digests of a task's files."""

    file: bytes | None
    lock: bytes | None


NOTHING = Seen(None, None)


class State(Enum):
    """How the files of a task compare with their image."""

    SAME = auto()
    PENDING = auto()
    CHECKOUT = auto()
    UNREADABLE = auto()
    EDITED = auto()


class Comparison(NamedTuple):
    """A comparison of one task's files with their image."""

    state: State
    seen: Seen
    observation: Observation | None = None
    """The edit, or the fault of an unreadable file."""


class _Known(NamedTuple):
    fingerprint: Fingerprint
    seen: Seen


_all_known = packed_decoder(dict[str, _Known])


class ProjectFiles:
    """The files of the tasks of one project."""

    def __init__(
        self,
        layout: Layout,
        place: tuple[str, str],
        *,
        git_index: Path | None = None,
        clock: Clock | None = None,
    ) -> None:
        """`git_index` is the index of the repository that contains the files."""
        self.layout = layout
        self.place = place
        self._git_index = git_index
        self._clock = clock or SystemClock()
        self._folder = layout.state_folder
        self._known: dict[str, _Known] = {}
        self._recalled = False
        self._kept = 0
        """How many fingerprints were saved."""
        self._intent = (
            self._folder
            / "intents"
            / (f"{os.getpid()}-{start_time(os.getpid()) or 0}-{os.urandom(4).hex()}")
        )
        self._has_intent = False

    # Edits by other tools

    def observe(self, keys: Iterable[Key], contents: Contents) -> Sequence[Observed]:
        """Returns the observations of those tasks that were edited or cannot be read."""
        found = []
        for key in keys:
            if not self._is_ours(key):
                continue
            compared = self.compare(key.id, contents)
            if compared.observation is not None:
                found.append(Observed(key, compared.observation, compared.seen))
        return found

    def scan(self, tenant: str, project: str, contents: Contents) -> Sequence[Key]:
        """Returns all tasks that were edited. Unreadable ones do not count as edited."""
        if (tenant, project) != self.place:
            return ()
        self._recall()
        edited = self.edited(self.ids(contents), contents)
        self._keep_known()
        return edited

    def edited(self, ids: Iterable[str], contents: Contents) -> Sequence[Key]:
        """Filters for the tasks that were edited."""
        return [
            Key(*self.place, TASK, id)
            for id in ids
            if self.compare(id, contents).state is State.EDITED
        ]

    # Fingerprints of large folders are saved in a file, so that the next process need not read
    # every task. The file is only a cache: a missing entry means that the task is read.

    def _recall(self) -> None:
        if self._recalled:
            return
        self._recalled = True
        with suppress(OSError, msgspec.MsgspecError):
            data = read_regular(self._folder / "fingerprints", follow=False)
            kept = _all_known.decode(data)
            self._known = kept | self._known
            self._kept = len(kept)

    def _keep_known(self) -> None:
        if len(self._known) < 1.1 * self._kept + _MANY:
            return
        with suppress(StoreError, OSError):
            text = msgspec.msgpack.encode(
                {id: known for id, known in self._known.items() if is_text(id)}
            )
            temporary = self._folder / f".fingerprints-{os.getpid()}-{os.urandom(4).hex()}"
            fd = create_file(temporary)
            try:
                os.write(fd, text)
            finally:
                os.close(fd)
            os.replace(temporary, self._folder / "fingerprints")
            self._kept = len(self._known)

    def ids(self, contents: Contents) -> list[str]:
        """Returns every task that has a file, or had one."""
        ids = set(self.layout.ids())
        ids.update(id for id, image in contents.images.items() if image.file is not None)
        return sorted(ids)

    def is_missing(self, id: str, contents: Contents) -> bool:
        """Was its file deleted?"""
        image = contents.images[id]
        return bool(image.sighting) and self._look(id)[0].file is None

    def has_never_had(self, id: str, contents: Contents) -> bool:
        """Is it a task that cannot have a file?"""
        image = contents.images[id]
        return image.file is None and not image.sighting

    def image_if_restored(self, id: str, contents: Contents) -> Image | None:
        """Returns the image of a file that is to be written from its record; None for a deleted
        file, which is observed when it is back."""
        image, record = contents.images.get(id), self._record(id, contents)
        if image is None or image.file is None or record is None:
            return None
        before = self.layout.read(id)
        after = self.layout.wanted(id, record, before, new=True, own_lock=image.own_lock)
        return self._image_after(id, image, State.SAME, before, after._replace(lock=before.lock))

    def image_if_edited(self, id: str, contents: Contents) -> Image | None:
        """Returns an image with which the present file counts as edited."""
        image, seen = contents.images.get(id), self._look(id)[0]
        if image is None:
            return None
        earlier = tuple(each for each in image.earlier if each != seen.file)
        return replace(image, earlier=earlier or (b"",))

    def _record(self, id: str, contents: Contents) -> TaskRecord | None:
        row = contents.rows.get(Key(*self.place, TASK, id))
        if row is None:
            return None
        record = decode_record(TASK, row.body)
        assert isinstance(record, TaskRecord)
        return record

    def compare(self, id: str, contents: Contents) -> Comparison:
        """Compares the files of a task with their image."""
        seen, files = self._look(id)
        image = contents.images.get(id)
        was = NOTHING if image is None else Seen(image.file, image.lock)
        if seen == was:
            return self._with_standing_lock(id, image, seen, contents)
        if image is not None and seen.lock == image.lock:
            held_back = self._held_back(id, image, seen, contents)
            if held_back is not None:
                return Comparison(held_back, seen)
        return self._interpret(id, image, seen, files or self.layout.read(id))

    def _with_standing_lock(
        self, id: str, image: Image | None, seen: Seen, contents: Contents
    ) -> Comparison:
        """Another tool's live lock may remain on a task that was finished and reopened. Such a lock
        counts as a new edit."""
        same = Comparison(State.SAME, seen)
        if image is None or image.lock is None or image.own_lock or not image.sighting:
            return same
        row = contents.rows.get(Key(*self.place, TASK, id))
        now = _sighting.decode(image.sighting)
        if row is None or row.index.state in _ENDED or now.lock is None:
            return same
        holder = f"{self.layout.name}:{now.lock.worker}"
        if row.index.session == holder or now.lock.until <= self._clock.now():
            return same
        observation = Observation(self.layout.name, replace(now, lock=None), now)
        return Comparison(State.EDITED, seen, observation)

    def _held_back(self, id: str, image: Image, seen: Seen, contents: Contents) -> State | None:
        """Is the file an earlier image of ours that was not edited?"""
        if image.file is None or seen.file not in image.earlier:
            return None
        pending = contents.changed_at.get(id, 0) > self.projected()
        if pending and seen.file == image.earlier[0]:
            return State.PENDING
        return State.CHECKOUT if self._was_checked_out(id) else None

    def _interpret(self, id: str, image: Image | None, seen: Seen, files: TaskFiles) -> Comparison:
        was = _sighting.decode(image.sighting) if image is not None and image.sighting else None
        now = self.layout.interpret(id, files)
        if now is None:
            if was is None:
                return Comparison(State.SAME, seen)
            now = replace(was, gone=True, lock=None)
            if files.file is not None:
                # Another tool may have truncated it, and be about to write it.
                now = Sighting(fault=f"the file of {id} has no task in it any more")
        observation = Observation(self.layout.name, was, now)
        if now.fault:
            return Comparison(State.UNREADABLE, seen, observation)
        if was == now:
            return Comparison(State.SAME, seen)
        if image is not None and was is not None and now.lock != was.lock:
            # A lock is never checked out: it is not under version control.
            held = self._held_back_file(id, image, seen)
            if held:
                now = replace(was, lock=now.lock)
                observation = Observation(self.layout.name, was, now)
        return Comparison(State.EDITED, seen, observation)

    def _held_back_file(self, id: str, image: Image, seen: Seen) -> bool:
        return seen.file in image.earlier and self._was_checked_out(id)

    def _was_checked_out(self, id: str) -> bool:
        """Has git written its index since this file was written, or is it writing it now? Git
        writes the index after the files."""
        if self._git_index is None:
            return False
        if self._git_index.with_name("index.lock").exists():
            return True
        try:
            return self._git_index.stat().st_mtime_ns >= self.layout.fingerprint(id).newest_file
        except OSError:
            return False

    def _look(self, id: str) -> tuple[Seen, TaskFiles | None]:
        """Returns the digests of the files, and their content if they had to be read."""
        fingerprint = self.layout.fingerprint(id)
        known = self._known.get(id)
        if known is not None and known.fingerprint == fingerprint:
            return known.seen, None
        files = self.layout.read(id)
        seen = _seen(files)
        self._remember(id, fingerprint, seen)
        return seen, files

    def _remember(self, id: str, fingerprint: Fingerprint, seen: Seen) -> None:
        """Remembers the digests, except for a file that is fresh or changed while it was read: it
        is read again the next time."""
        is_old = time.time_ns() - fingerprint.newest > FRESH_NS
        if is_old and self.layout.fingerprint(id) == fingerprint:
            self._known[id] = _Known(fingerprint, seen)
        else:
            self._known.pop(id, None)

    def _is_ours(self, key: Key) -> bool:
        return key.kind == TASK and key.place == self.place

    # Writing

    def prepare(self, changes: Sequence[Change], contents: Contents) -> Projection:
        """Checks the files of these changes again, and writes the other tool's locks. Leaves out a
        change if its files differ from those it was decided on."""
        projection = Projection(self, self.projected() >= contents.last_imaged)
        sessions = {change.key: change.body for change in changes if change.key.kind == SESSION}
        for change in changes:
            if not self._is_ours(change.key):
                projection.fitting.append(change)
                continue
            step = self._step(change, contents, sessions)
            if step is not None:
                projection.add(change, step)
        projection.reserve()
        return projection

    def _step(
        self, change: Change, contents: Contents, sessions: Mapping[Key, bytes]
    ) -> Step | None:
        """Returns the files to write for this change; None if it was decided on other files."""
        id = change.key.id
        seen, files = self._look(id)
        state = State.SAME
        if change.seen is None:
            state = self.compare(id, contents).state
        if state is State.EDITED or (change.seen is not None and change.seen != seen):
            return None
        try:
            record = decode_record(TASK, change.body)
        except (StoreCorrupt, StoreForeign):
            return Step(change.key)  # written by a test, or by a newer version
        assert isinstance(record, TaskRecord)
        before = files or self.layout.read(id)
        if _seen(before) != seen:
            return None
        if fault_of(before.lock):
            return Step(change.key)  # the lock's owner is unknown
        image = contents.images.get(id)
        after = self.layout.wanted(
            id,
            record,
            before,
            new=image is None,
            own_lock=image is not None and image.own_lock,
            holder=_holder(change.key, record, contents, sessions),
        )
        if state in (State.CHECKOUT, State.UNREADABLE):
            after = after._replace(file=before.file, place=before.place)
        return Step(
            change.key,
            record,
            before,
            after,
            self._image_after(id, image, state, before, after),
            _sighting.decode(image.sighting) if image is not None and image.sighting else None,
        )

    def _image_after(
        self, id: str, image: Image | None, state: State, before: TaskFiles, after: TaskFiles
    ) -> Image:
        lock = _digest(after.lock)
        own = after.lock is not None and (
            before.lock != after.lock
            or (image is not None and image.own_lock and image.lock == lock)
        )
        if image is not None and state in (State.CHECKOUT, State.UNREADABLE):
            was = _sighting.decode(image.sighting) if image.sighting else Sighting()
            held_back = replace(was, lock=self.layout.lock_of(after.lock))
            return Image(image.file, lock, _encode(held_back), own, image.earlier)
        sighting = self.layout.interpret(id, after)
        if sighting is None and image is not None and image.sighting:
            sighting = replace(_sighting.decode(image.sighting), gone=True, lock=None)
        said = b"" if sighting is None else _encode(sighting)
        return Image(_seen(after).file, lock, said, own)

    def project(self, id: str, before: TaskFiles, after: TaskFiles) -> None:
        """Writes a task's file."""
        if before._replace(lock=None) != after._replace(lock=None):
            self.layout.write(id, before, after, self._folder / "aside")
        self._known.pop(id, None)

    # After a crash

    def repair(self, contents: Contents) -> None:
        """Removes intended locks that never reached the journal, and writes the files that are
        older than their records."""
        self._drop_intents(contents)
        projected = self.projected()
        if projected >= contents.last_imaged:
            return
        done = True
        for id, at in list(contents.changed_at.items()):
            if at > projected:
                done = self._repair_file(id, contents) and done
        if done:
            self.note_projected(contents.last_imaged)

    def _repair_file(self, id: str, contents: Contents) -> bool:
        key = Key(*self.place, TASK, id)
        row = contents.rows.get(key)
        if row is None or self.compare(id, contents).state is not State.PENDING:
            return True
        return self.restore(id, contents)

    def restore(self, id: str, contents: Contents) -> bool:
        """Writes a task's file from its record, and discards the file's content."""
        record = self._record(id, contents)
        if record is None:
            return False
        if record.hold is not None and record.hold.reason == GONE:
            record = replace(record, state=rest(replace(record, hold=None)), hold=None)
        before = self.layout.read(id)
        after = self.layout.wanted(id, record, before, new=True, own_lock=False)
        try:
            self.project(id, before, after._replace(lock=before.lock))
        except OSError:
            return False
        return True

    def _drop_intents(self, contents: Contents) -> None:
        try:
            names = os.listdir(self._intent.parent)
        except FileNotFoundError:
            return
        for name in names:
            if name == self._intent.name and not self._has_intent:
                continue
            path = self._intent.parent / name
            pid, _, rest = name.partition("-")
            if name != self._intent.name and _is_alive(pid, rest.partition("-")[0]):
                continue
            self._drop_intent(path, contents)
            with suppress(OSError):
                path.unlink()
        self._has_intent = False

    def _drop_intent(self, path: Path, contents: Contents) -> None:
        try:
            data = read_regular(path, follow=False)
            intended = _locks.decode(data)
        except (OSError, msgspec.MsgspecError):
            return
        for id, lock in intended.items():
            files = self.layout.read(id)
            image = contents.images.get(id)
            present = (files.lock or b"").removeprefix(LOCK_GONE)
            if present == lock and (image is None or image.lock != _digest(lock)):
                self.layout.reserve(id, files, files._replace(lock=None))
                self._known.pop(id, None)

    def intend(self, locks: dict[str, bytes]) -> None:
        """Records locks that are about to be written."""
        refuse_link(self._intent.parent)
        self._intent.parent.mkdir(0o700, exist_ok=True)
        with suppress(FileNotFoundError):
            self._intent.unlink()
        fd = create_file(self._intent)
        try:
            os.write(fd, msgspec.msgpack.encode(locks))
        finally:
            os.close(fd)
        self._has_intent = True
        hit("journal.intended")

    def intent_done(self) -> None:
        """Removes the intent: its locks are in the journal, or were removed."""
        self._has_intent = False
        with suppress(OSError):
            self._intent.unlink()

    def projected(self) -> int:
        """Returns the last commit whose files are all written."""
        try:
            return int((self._folder / "projected").read_bytes())
        except (OSError, ValueError):
            return 0

    def note_projected(self, commits: int) -> None:
        """Records that all files are written up to this commit."""
        path = self._folder / "projected"
        with suppress(OSError):
            try:
                fd = create_file(path)
            except FileExistsError:
                fd = os.open(path, os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                os.pwrite(fd, b"%020d\n" % commits, 0)
            finally:
                os.close(fd)

    def is_projected(self, contents: Contents) -> bool:
        """Are all files written?"""
        return self.projected() >= contents.last_imaged

    def close(self) -> None:
        """Removes its intent, unless the outcome of its commit is unknown."""
        if not self._has_intent:
            with suppress(OSError):
                self._intent.unlink()


def _holder(
    key: Key, record: TaskRecord, contents: Contents, sessions: Mapping[Key, bytes]
) -> Process | None:
    """Returns the process of the session that has the claim. A commit that grants a claim contains
    the session's record, too."""
    if record.claim is None:
        return None
    session = key.beside(SESSION, record.claim.session)
    row = contents.rows.get(session)
    body = sessions.get(session) or (None if row is None else row.body)
    found = None if body is None else decode_record(SESSION, body)
    return found.process if isinstance(found, SessionRecord) else None


class Step(NamedTuple):
    """The files to write for one change."""

    key: Key
    record: TaskRecord | None = None
    before: TaskFiles = TaskFiles()
    after: TaskFiles = TaskFiles()
    image: Image | None = None
    was: Sighting | None = None


class Projection:
    """The files of one commit."""

    def __init__(self, files: ProjectFiles, all_before_done: bool) -> None:
        self._files = files
        self._all_before_done = all_before_done
        self._steps: list[Step] = []
        self.fitting: list[Change] = []
        """The changes whose files are the ones that they were decided on."""
        self.images: dict[str, Image] = {}

    def add(self, change: Change, step: Step) -> None:
        """Adds the files of a change to the projection."""
        self.fitting.append(change)
        if step.image is not None:
            self._steps.append(step)
            self.images[step.key.id] = step.image

    def reserve(self) -> None:
        """Writes the other tool's locks. Leaves out a change whose lock was changed in the
        meantime."""
        locking = [step for step in self._steps if step.before.lock != step.after.lock]
        locks = {step.key.id: step.after.lock for step in locking if step.after.lock}
        if locks:
            try:
                self._files.intend(locks)
            except OSError as error:
                raise os_fault_of(error, self._files.layout.state_folder) from error
        done: list[Step] = []
        for step in locking:
            try:
                fits = self._files.layout.reserve(step.key.id, step.before, step.after)
            except OSError as error:
                self._undo(done)
                raise os_fault_of(error, self._files.layout.state_folder) from error
            if fits:
                done.append(step)
            else:
                self.fitting = [change for change in self.fitting if change.key != step.key]
                self._steps.remove(step)
                del self.images[step.key.id]
        hit("journal.reserved")

    def take_back(self, error: GenlockError) -> None:
        """Restores the locks, because the journal was not written. If it may have been written, the
        locks stay, and the next writer decides."""
        if isinstance(error, OutcomeUnknown):
            return
        self._undo([step for step in self._steps if step.before.lock != step.after.lock])

    def _undo(self, steps: Iterable[Step]) -> None:
        for step in steps:
            with suppress(OSError):
                self._files.layout.reserve(step.key.id, step.after, step.before)
        self._files.intent_done()

    def finish(self, contents: Contents) -> None:
        """Writes the files. The commit stands even if that fails; the next writer then writes the
        rest."""
        hit("journal.committed")
        complete = True
        for step in self._steps:
            try:
                self._files.project(step.key.id, step.before, step.after)
            except (OSError, StoreError):
                complete = False
            hit("journal.projected")
        self._files.intent_done()
        if complete and self._steps and self._all_before_done:
            self._files.note_projected(contents.last_imaged)
        for step in self._steps:
            if step.record is not None:
                with suppress(OSError):
                    self._files.layout.mirror(step.key.id, step.was, step.record)


def is_text(name: str) -> bool:
    """Is this file name text? Names may be any bytes."""
    return not any("\udc80" <= char <= "\udcff" for char in name)


def _is_alive(pid: str, started: str) -> bool:
    return pid.isdigit() and started.isdigit() and start_time(int(pid)) == int(started)


def _digest(data: bytes | None) -> bytes | None:
    return None if data is None else hashlib.sha256(data).digest()[:16]


def _seen(files: TaskFiles) -> Seen:
    file = files.file
    if file is not None and files.place:
        file = files.place.encode() + b"\0" + file
    return Seen(_digest(file), _digest(files.lock))
