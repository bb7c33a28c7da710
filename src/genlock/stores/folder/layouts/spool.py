"""The spool layout: folders that shell scripts move from one state to the next.

    ai_comms/<agent>/tasks/to_execute/<id>/<id>.md
    ai_comms/<agent>/tasks/in_progress/<id>/<id>.<pid>.md    the pid of the holder
    ai_comms/<agent>/tasks/completed/<id>/<id>.md
    ai_comms/<agent>/tasks/stale/<id>/<id>.<pid>.md          the process is gone
    ai_comms/counters/                                       see `spool_counters`
    ai_comms/genlock/                                        the journal

A process takes a task by moving its folder out of `to_execute`. If two try, one finds the folder
gone. So this move is the lock of this layout, and Genlock moves the folder before its journal
entry. While Genlock has a task, `genlock.json` beside the task's file names the claim. Until the
file has its pid, `genlock.json` also shows that the folder was not left there by a script.

The folder of an agent is the pool of that agent. Tasks for any agent are in the pool `any`.
"""

from __future__ import annotations

import json
import os
import re
import stat
from collections.abc import Iterable
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, NamedTuple

from genlock.core.definition import examine_task
from genlock.core.ids import parse_task_id
from genlock.core.model import Process, Task, TaskRecord
from genlock.core.observation import FileLock, Sighting
from genlock.core.policy import Ids, Order, Policy
from genlock.core.reasons import ClaimState, Status
from genlock.errors import BadArgument
from genlock.failpoints import hit
from genlock.stores.files import refuse_link
from genlock.stores.folder.layout import LOCK_GONE, Fingerprint, TaskFiles
from genlock.stores.folder.layouts.file_content import content_of, fault_of, json_of
from genlock.stores.folder.layouts.gptodo import worker_name
from genlock.stores.folder.layouts.spool_counters import SpoolCounters
from genlock.stores.folder.layouts.spool_processes import pid_gone, this_machine, ticks_at_start

COMMS: Final = "ai_comms"
ANYBODY: Final = "any"
"""The pool of tasks that any agent may take."""
STATES: Final = ("to_execute", "in_progress", "completed", "stale")
"""In the order in which a task moves: a reader that checks the states in this order cannot miss a
folder that moves meanwhile."""
SESSION_PREFIX: Final = "spool:"

_CLAIM: Final = "genlock.json"
_REASON: Final = "reason.txt"
_NO_POOLS: Final = frozenset({"counters", "genlock"})
_POOL = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._@-]*")
_SINCE: Final = datetime(2000, 1, 1, tzinfo=UTC)
_UNTIL: Final = datetime(2100, 1, 1, tzinfo=UTC)
"""A pid counts as a lock for as long as its process runs."""
_RESERVED_HOURS: Final = 87_600
"""A pool belongs to its agent permanently, but a reservation needs an end. This one is in ten
years."""
_MOST_TEXT: Final = 8_000
"""How many bytes of a task's file become its description. The file itself may be of any length."""
_LONGEST_TITLE: Final = 200
_MOST_OF_CLAIM: Final = 100_000
_HEADING = re.compile(r"#[ \t]+(.+?)[ \t]*#*[ \t]*(?:\n|\Z)")
_MEANS: Final = {
    "to_execute": Status.PENDING,
    "completed": Status.COMPLETED,
    "stale": Status.HELD,
}


class _Spot(NamedTuple):
    """The place of a task's folder."""

    agent: str
    state: str
    file: str = ""
    """The name of the task's file; empty while there is none."""
    pid: int | None = None

    @property
    def place(self) -> str:
        return f"{self.agent}/{self.state}"


class SpoolLayout:
    """`genlock.stores.folder.layout.Layout` of a folder `ai_comms`."""

    name = "spool"
    policy = Policy(order=Order.LEAF_FIRST, ids=Ids.HIERARCHICAL)
    """The policy of a new project in this layout."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.comms = root / COMMS
        self.state_folder = self.comms / "genlock"
        self.numbers = SpoolCounters(self.comms / "counters", self.state_folder / "counters")
        self._agents: tuple[int, list[str]] = (0, [])

    @staticmethod
    def is_at(root: Path) -> bool:
        """Does this look like the root of an orchestra?"""
        return (root / COMMS).is_dir()

    def refuse_links(self) -> None:
        """Raises StoreForeign if one of the folders is a symbolic link."""
        folders = [self.comms, self.state_folder, self.comms / "counters"]
        with suppress(FileNotFoundError), os.scandir(self.comms) as found:
            folders += [Path(entry.path) for entry in found if entry.is_symlink()]
        for agent in self._pools():
            tasks = self.comms / agent / "tasks"
            folders += [tasks, *(tasks / state for state in STATES)]
        for folder in folders:
            refuse_link(folder)

    # Places of tasks

    def _pools(self) -> list[str]:
        try:
            changed = os.stat(self.comms).st_mtime_ns
        except FileNotFoundError:
            return []
        if changed != self._agents[0]:
            with os.scandir(self.comms) as found:
                names = sorted(each.name for each in found if each.is_dir(follow_symlinks=False))
            pools = [each for each in names if _POOL.fullmatch(each) and each not in _NO_POOLS]
            self._agents = changed, pools
        return self._agents[1]

    def _folder(self, place: str, id: str) -> Path:
        agent, _, state = place.partition("/")
        return self.comms / agent / "tasks" / state / id

    def _spots(self, id: str) -> list[_Spot]:
        """Returns all places where the task is. If there seem to be two places or none, the folder
        may have been moved between two checks."""
        found: list[_Spot] = []
        if id.startswith(".") or "/" in id:
            return found
        for _ in range(2):
            found = self._look(id)
            if len(found) == 1 and found[0].file:
                break
        return found

    def _look(self, id: str) -> list[_Spot]:
        found = []
        for state in STATES:
            for agent in self._pools():
                spot = _spot(f"{self.comms}/{agent}/tasks/{state}/{id}", id, agent, state)
                if spot is not None:
                    found.append(spot)
        return found

    def ids(self) -> Iterable[str]:
        """Returns the names of all folders."""
        for agent in self._pools():
            for state in STATES:
                with (
                    suppress(FileNotFoundError, NotADirectoryError),
                    os.scandir(self.comms / agent / "tasks" / state) as found,
                ):
                    for entry in found:
                        if not entry.name.startswith(".") and entry.is_dir(follow_symlinks=False):
                            yield entry.name

    def watched(self) -> Iterable[tuple[str, str]]:
        """The folders of all agents and states, and those of the tasks in progress, where a script
        renames the file to contain its pid."""
        yield str(self.comms), ""
        for agent in self._pools():
            tasks = f"{self.comms}/{agent}/tasks"
            for folder in (f"{self.comms}/{agent}", tasks, *(f"{tasks}/{each}" for each in STATES)):
                if os.path.isdir(folder):
                    yield folder, ""
            with suppress(OSError), os.scandir(f"{tasks}/in_progress") as found:
                for entry in found:
                    if not entry.name.startswith(".") and entry.is_dir(follow_symlinks=False):
                        yield entry.path, entry.name

    def task_of(self, folder: str, name: str) -> str | None:
        """Derives the task from the name of its folder."""
        is_state = folder.rpartition("/")[2] in STATES and not name.startswith(".")
        return name if is_state else None

    # Reading

    def fingerprint(self, id: str) -> Fingerprint:
        """Returns the metadata, including whether the process of the pid exists."""
        parts: list[tuple[int, ...] | str | None] = []
        newest = 0
        for spot in self._spots(id):
            folder = f"{self.comms}/{spot.agent}/tasks/{spot.state}/{id}"
            seen = [_stat(f"{folder}/{spot.file}"), _stat(f"{folder}/{_CLAIM}")]
            newest = max([newest, *(each[2] for each in seen if each is not None)])
            ticks = ticks_at_start(spot.pid) if spot.state == "in_progress" and spot.pid else None
            parts += [spot.place, spot.file, *seen, (ticks or 0,)]
        return Fingerprint(tuple(parts), newest, newest)

    def read(self, id: str) -> TaskFiles:
        """Reads the text, the lock, and the place as `agent/state`. An empty folder is not a task
        yet."""
        for _ in range(3):
            spots = self._spots(id)
            if len(spots) > 1:
                return TaskFiles(b"", None, " and ".join(spot.place for spot in spots))
            if not spots or not spots[0].file:
                return TaskFiles()
            folder = self._folder(spots[0].place, id)
            text = content_of(folder / spots[0].file)
            if text is not None:
                return TaskFiles(text, _lock_in(folder, spots[0]), spots[0].place)
        return TaskFiles()  # it keeps moving

    def lock_of(self, lock: bytes | None) -> FileLock | None:
        """Returns a claim of Genlock's, or a pid whose process runs."""
        if lock is None or lock.startswith(LOCK_GONE):
            return None
        own = _own(lock)
        if own is not None:
            return FileLock(str(own["agent"]), _SINCE, _UNTIL)
        return FileLock(worker_name(lock.decode()), _SINCE, _UNTIL)

    def interpret(self, id: str, files: TaskFiles) -> Sighting | None:
        """Returns the meaning of the place and the pid."""
        if files.file is None:
            return None
        agent, _, state = files.place.partition("/")
        where = f"{COMMS}/{agent}/tasks/{state}/{id}"
        if " and " in files.place:
            return Sighting(fault=f"{id} lies in two places: {files.place}; leave one of them")
        if fault := fault_of(files.file):
            return Sighting(fault=f"{where} has a file that {fault}")
        if not files.file.strip():
            return Sighting(fault=f"{where} has an empty file: nobody has written the task yet")
        try:
            parse_task_id(id)
            text = files.file.decode()
        except UnicodeDecodeError as error:
            return Sighting(fault=f"{where} is no UTF-8 ({error.reason} at byte {error.start})")
        except BadArgument as error:
            return Sighting(fault=f"{where}: {error}")
        assignee = "" if agent == ANYBODY else worker_name(agent)
        fields: dict[str, Any] = {"id": id, **_texts(id, text)}
        if assignee:
            fields["lock_timeout_hours"] = _RESERVED_HOURS
        word, means = state, _MEANS.get(state, Status.IN_PROGRESS)
        if state == "in_progress" and files.lock is None:
            word, means = "in_progress, without a pid,", Status.HELD
        elif state == "in_progress" and files.lock is not None and files.lock.startswith(LOCK_GONE):
            pid = _pid_in(files.lock)
            word, means = f"in_progress by process {pid}, which is gone,", Status.HELD
        return Sighting(word, means, assignee, self.lock_of(files.lock), fields)

    # The files for a record

    def wanted(
        self,
        id: str,
        record: TaskRecord,
        files: TaskFiles,
        *,
        new: bool,
        own_lock: bool,
        holder: Process | None = None,
    ) -> TaskFiles:
        """Returns the folder at the place for the record's state."""
        if (files.file is None and not new) or " and " in files.place or fault_of(files.file):
            return files
        claim = record.claim
        active = claim is not None and claim.state is ClaimState.ACTIVE
        if active and claim is not None and claim.session.startswith(SESSION_PREFIX):
            return files
        agent, state = self._pool_of(record.task, files.place, active), _state_of(record, files)
        lock = None
        if active and claim is not None:
            own = _own(files.lock)
            if own is not None and own["claim"] == claim.id:
                lock = files.lock
            else:
                lock = _claim_text(record, holder, before=_pid_in(files.lock))
        return TaskFiles(_text_for(id, record.task, files.file), lock, f"{agent}/{state}")

    def _pool_of(self, task: Task, place: str, active: bool) -> str:
        """Returns the pool for a task. A task leaves a pool only for the pool of the agent that it
        is reserved for."""
        agent = place.partition("/")[0]
        assigned = task.assigned_to or ""
        usable = _POOL.fullmatch(assigned) and assigned not in _NO_POOLS
        if usable and not active and assigned != worker_name(agent):
            return assigned
        return agent or (assigned if usable else ANYBODY)

    # Writing

    def reserve(self, id: str, before: TaskFiles, after: TaskFiles) -> bool:
        """Moves the folder out of the scripts' reach, or back."""
        present = self.read(id)
        if (present.lock, present.place) != (before.lock, before.place):
            return False
        own = _own(after.lock)
        try:
            if present.file is None and after.file is not None:
                self._make(id, after)
            elif present.file is not None and own is not None and after.lock is not None:
                self._take(id, after.place, after.lock, int(own["pid"]))
            elif present.file is not None:
                self._give_back(id, before, after)
        except FileNotFoundError:
            return False  # a script was first
        return True

    def _take(self, id: str, place: str, claim: bytes, pid: int) -> None:
        """Takes the task: the process that renames the folder first has it."""
        spot = self._only_spot(id)
        folder, target = self._folder(spot.place, id), self._folder(place, id)
        _replace(folder / _CLAIM, claim)
        hit("spool.noted")
        if target != folder:
            os.makedirs(target.parent, exist_ok=True)
            os.rename(folder, target)
            hit("spool.moved")
        _rename(target, spot.file, f"{id}.{pid}.md")

    def _give_back(self, id: str, before: TaskFiles, after: TaskFiles) -> None:
        """Shows an unfinished task's new state before it is in the journal: if the commit fails,
        the task has been released. A finished task leaves `in_progress` afterwards, in `write`."""
        spot = self._only_spot(id)
        agent, _, state = (after.place or before.place).partition("/")
        folder = self._folder(spot.place, id)
        gone = before.lock is not None and before.lock.startswith(LOCK_GONE)
        if after.place == before.place or not after.place:
            state = "to_execute"  # an intended claim that never reached the journal
        if not (gone and state == "stale"):
            _rename(folder, spot.file, f"{id}.md")
        if state in ("to_execute", "stale"):
            target = self._folder(f"{agent}/{state}", id)
            os.makedirs(target.parent, exist_ok=True)
            os.rename(folder, target)
            folder = target
        with suppress(FileNotFoundError):
            os.unlink(folder / _CLAIM)

    def _only_spot(self, id: str) -> _Spot:
        spots = self._spots(id)
        if len(spots) != 1 or not spots[0].file:
            raise FileNotFoundError
        return spots[0]

    def _make(self, id: str, after: TaskFiles) -> None:
        """Creates a folder, which appears together with its file."""
        assert after.file is not None
        target = self._folder(after.place, id)
        own = _own(after.lock)
        new = self.state_folder / f"new-{os.getpid()}-{os.urandom(4).hex()}"
        new.mkdir(0o755)
        try:
            (new / (f"{id}.md" if own is None else f"{id}.{own['pid']}.md")).write_bytes(after.file)
            if own is not None and after.lock is not None:
                (new / _CLAIM).write_bytes(after.lock)
            os.makedirs(target.parent, exist_ok=True)
            os.rename(new, target)
        except BaseException:
            for each in new.iterdir() if new.exists() else ():
                each.unlink()
            with suppress(OSError):
                new.rmdir()
            raise

    def write(self, id: str, before: TaskFiles, after: TaskFiles, aside: Path) -> None:
        """Moves the folder to its place and replaces the text. A folder that a script has moved in
        the meantime stays: that is an edit."""
        if after.file is None:
            return
        spots = self._spots(id)
        if not spots and before.file is None:
            self._make(id, after)
            return
        spot = self._only_spot(id)
        if spot.place not in (before.place, after.place):
            return
        folder = self._folder(spot.place, id)
        if before.file is not None and after.file != before.file:
            aside.mkdir(0o700, exist_ok=True)
            _replace_text(folder / spot.file, before.file, after.file, aside / id)
        if spot.place == after.place:
            return
        state = after.place.partition("/")[2]
        if spot.pid is not None and state != "stale":
            _rename(folder, spot.file, f"{id}.md")
        target = self._folder(after.place, id)
        os.makedirs(target.parent, exist_ok=True)
        os.rename(folder, target)
        for name in (_CLAIM, *((_REASON,) if spot.state == "stale" else ())):
            with suppress(FileNotFoundError):
                os.unlink(target / name)

    def mirror(self, id: str, was: Sighting | None, record: TaskRecord) -> None:
        """Writes a file in `stale` that says why the task is there."""
        spot = self._only_spot(id)
        if record.hold is not None and spot.state == "stale":
            text = f"{record.updated_at.isoformat(timespec='seconds')} {record.hold.reason}\n"
            _replace(self._folder(spot.place, id) / _REASON, text.encode())


def _spot(folder: str, id: str, agent: str, state: str) -> _Spot | None:
    """Returns the task in this folder; None if it is not a folder. Among several files of the
    task's name, one with a pid counts rather than the one without."""
    try:
        if not stat.S_ISDIR(os.lstat(folder).st_mode):
            return None
        names = os.listdir(folder)
    except (FileNotFoundError, NotADirectoryError):
        return None
    start = len(id) + 1
    for name in sorted(names):
        if name.startswith(f"{id}.") and name.endswith(".md") and name[start:-3].isdigit():
            return _Spot(agent, state, name, int(name[start:-3]))
    return _Spot(agent, state, f"{id}.md" if f"{id}.md" in names else "")


def _state_of(record: TaskRecord, files: TaskFiles) -> str:
    """Returns the folder for the state of a record that no script has."""
    claim = record.claim
    if claim is not None and claim.state is ClaimState.ACTIVE:
        return "in_progress"
    if record.state in (Status.COMPLETED, Status.CANCELLED):
        return "completed"
    if record.state is Status.IN_REVIEW:
        return "stale"
    if record.state is Status.HELD:
        # A script that has just taken the folder may not have written its pid yet, and some never
        # do.
        is_taken = files.place.endswith("/in_progress") and files.lock is None
        return "in_progress" if is_taken else "stale"
    return "to_execute"


# Locks


def _lock_in(folder: Path, spot: _Spot) -> bytes | None:
    """Returns Genlock's claim, or `<agent>-<pid>` of a script, prefixed by LOCK_GONE if the process
    has ended."""
    if spot.state != "in_progress":
        return None
    lock = content_of(folder / _CLAIM, _MOST_OF_CLAIM)
    own = _own(lock)
    if lock is not None and own is not None and spot.pid in (None, own["pid"], own["before"]):
        return LOCK_GONE + lock if _is_gone(own) else lock
    if spot.pid is None:
        return None
    script = f"{spot.agent}-{spot.pid}".encode()
    return LOCK_GONE + script if pid_gone(spot.pid, folder / spot.file) else script


def _own(lock: bytes | None) -> dict[str, Any] | None:
    """Returns a claim of Genlock's; None if this is another lock."""
    if not lock or not lock.startswith(b"{"):
        return None
    own = json_of(lock)
    wanted = {"claim": str, "agent": str, "pid": int, "started": int, "machine": str}
    fits = isinstance(own, dict) and all(isinstance(own.get(k), v) for k, v in wanted.items())
    return own if fits and "before" in own else None


def _is_gone(own: dict[str, Any]) -> bool:
    """Has its process ended? True only with proof: the process was seen on this machine, since it
    booted."""
    if not own["started"] or own["machine"] != this_machine():
        return False
    return ticks_at_start(int(own["pid"])) != int(own["started"])


def _claim_text(record: TaskRecord, holder: Process | None, before: int | None) -> bytes:
    """Returns the content of `genlock.json`. If no process is known, the pid is that of this
    process's parent, and is not used to detect that the process has ended."""
    claim = record.claim
    assert claim is not None
    pid = started = None
    if holder is not None and holder.host == os.uname().nodename:
        pid, started = holder.pid, ticks_at_start(holder.pid)
    if started is None:
        parent = os.getppid()
        pid, started = parent if parent > 1 else os.getpid(), 0
    return json.dumps(
        {
            "agent": claim.agent,
            "session": claim.session,
            "generation": claim.generation,
            "claim": claim.id,
            "pid": pid,
            "started": started,
            "machine": this_machine(),
            "before": before,
        },
        indent=1,
    ).encode()


def _pid_in(lock: bytes | None) -> int | None:
    """Returns the pid that is in the file's name until it is renamed."""
    lock = (lock or b"").removeprefix(LOCK_GONE)
    own = _own(lock)
    if own is not None:
        return int(own["pid"])
    text = lock.rpartition(b"-")[2]
    return int(text) if text.isdigit() else None


# The text


def _texts(id: str, text: str) -> dict[str, str]:
    """Returns title and description: a heading and the text below it, or the first line and the
    whole text."""
    text = text.lstrip("\ufeff").strip().replace("\r\n", "\n")
    heading = _HEADING.match(text)
    title = heading[1] if heading else text.partition("\n")[0]
    body = text[heading.end() :].strip() if heading else text
    body = body.encode()[:_MOST_TEXT].decode(errors="ignore").strip()
    given = {"title": title[:_LONGEST_TITLE].strip(), "description": body}
    for fault in examine_task({"id": id, **given}).faults:
        given.pop(str((*fault.at, "")[0]), None)
    return {name: value for name, value in given.items() if value}


def _text_for(id: str, task: Task, text: bytes | None) -> bytes:
    """Returns the file of this definition. It stays unchanged if it says the same, or is longer
    than the description in a record."""
    new = task.description
    if task.title and task.title != new.partition("\n")[0]:
        new = f"# {task.title}\n\n{new}".strip() if new else task.title
    made = f"{new or id}\n"
    if text is None:
        return made.encode()
    try:
        same = _texts(id, text.decode()) == _texts(id, made)
    except UnicodeDecodeError:
        return text
    return text if same or len(text) > _MOST_TEXT else made.encode()


# Files


def _rename(folder: Path, name: str, to: str) -> None:
    if name != to:
        os.rename(folder / name, folder / to)


def _replace(path: Path, data: bytes) -> None:
    temporary = path.with_name(f".genlock-{os.getpid()}-{os.urandom(4).hex()}")
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o644)
    with os.fdopen(fd, "wb") as file:
        file.write(data)
    os.replace(temporary, path)


def _replace_text(path: Path, before: bytes, after: bytes, aside: Path) -> None:
    """Replaces a file, and keeps the old one under another name for a moment. If the old file was
    changed in between, it is put back: that is an edit not observed yet."""
    with suppress(FileNotFoundError):
        os.unlink(aside)
    os.link(path, aside, follow_symlinks=False)
    _replace(path, after)
    landed = content_of(aside)
    if landed is not None and landed != before:
        _replace(path, landed)


def _stat(path: str) -> tuple[int, int, int] | None:
    try:
        found = os.lstat(path)
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns
