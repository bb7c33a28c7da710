"""gptodo's layout: a Markdown file for each task, a lock file, and a file for each agent.

    tasks/<id>.md               YAML frontmatter, then Markdown
    state/locks/<id>.lock       JSON with exactly four keys; an extra key, and gptodo ignores it
    state/agents/<agent>.status JSON
    state/genlock/              the journal

gptodo takes a lock by `flock` on the lock file, checks its content, and then writes the file by its
name. It releases a lock by unlinking the file. So Genlock changes a lock while holding gptodo's own
flock, on the file that has the name now, and writes in place: with a new inode, processes waiting
for the flock would get it on an obsolete file.

gptodo decides by itself which tasks it shows as ready. It never checks locks, and its version 0.1.0
considers `backlog` open and ignores `todo`: for that version use `unclaimed_state=backlog`.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import stat
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

from genlock.core.definition import examine_task
from genlock.core.ids import parse_task_id
from genlock.core.model import Process, TaskRecord
from genlock.core.observation import FileLock, Sighting
from genlock.core.policy import Policy
from genlock.core.reasons import ClaimState, Isolation, ReleaseReason, Status, Waiting
from genlock.errors import BadArgument
from genlock.stores.files import make_folder, make_ignored_folder, refuse_link
from genlock.stores.folder.layout import Fingerprint, TaskFiles
from genlock.stores.folder.layouts import frontmatter
from genlock.stores.folder.layouts.file_content import content_of, fault_of, json_of

UNCLAIMED_STATES: Final = ("todo", "backlog")
SESSION_PREFIX: Final = "gptodo:"

_LOCK_KEYS: Final = frozenset({"task_id", "worker", "started", "timeout_hours"})
_LONGEST_LOCK = 10_000
"""How many bytes gptodo reads of a lock."""
_MOST_OF_LOCK = 100_000
_MOST_OF_STATUS = 100_000
_FLOCK_SECONDS = 5.0
_MEANS: Final = {
    "backlog": Status.BACKLOG,
    "new": Status.BACKLOG,
    "paused": Status.BACKLOG,
    "todo": Status.PENDING,
    "active": Status.IN_PROGRESS,
    "ready_for_review": Status.IN_REVIEW,
    "waiting": Status.HELD,
    "someday": Status.HELD,
    "expired": Status.HELD,
    "done": Status.COMPLETED,
    "cancelled": Status.CANCELLED,
}
_PRIORITIES: Final = {"urgent": "critical"}
_NOBODY: Final = frozenset({"", "agent", "both", "none"})
"""Assignees in gptodo 0.1.0 that name a kind of agent rather than one agent."""
_KEPT_FIELDS: Final = (
    "parallelizable",
    "isolation",
    "worktree_path",
    "coordination_mode",
    "lock_timeout_hours",
)
_HEADING = re.compile(r"^#[ \t]+(.+?)[ \t]*#*[ \t]*$", re.MULTILINE)
_LONGEST_TITLE = 200


class GptodoLayout:
    """`genlock.stores.folder.layout.Layout` of a gptodo workspace."""

    name = "gptodo"
    policy = Policy()
    numbers = None

    def __init__(self, root: Path, *, unclaimed_state: str = "todo") -> None:
        self.root = root
        self.tasks = root / "tasks"
        self.locks = root / "state" / "locks"
        self.agents = root / "state" / "agents"
        self.state_folder = root / "state" / "genlock"
        self._unclaimed = unclaimed_state

    @staticmethod
    def is_at(root: Path) -> bool:
        """Does this look like a gptodo workspace?"""
        return (root / "tasks").is_dir()

    def refuse_links(self) -> None:
        """Raises StoreForeign if one of the folders is a symbolic link."""
        for folder in (self.tasks, self.locks.parent, self.locks, self.agents, self.state_folder):
            refuse_link(folder)

    # Reading

    def ids(self) -> Iterable[str]:
        """Returns the names of all task files."""
        with suppress(FileNotFoundError), os.scandir(self.tasks) as found:
            for entry in found:
                if entry.name.endswith(".md") and not entry.name.startswith("."):
                    yield entry.name[:-3]

    def watched(self) -> Iterable[tuple[str, str]]:
        """The folders of tasks and locks, and `state`, in which the lock folder is created."""
        found = (self.tasks, self.locks, self.locks.parent)
        return [(str(folder), "") for folder in found if folder.is_dir()]

    def task_of(self, folder: str, name: str) -> str | None:
        """Derives the task from the name of its file or lock."""
        if folder == str(self.tasks) and name.endswith(".md") and not name.startswith("."):
            return name[:-3]
        if folder == str(self.locks) and name.endswith(".lock"):
            return name[:-5]
        return None

    def fingerprint(self, id: str) -> Fingerprint:
        """Returns the metadata by two calls of `stat`."""
        file, lock = _stat(self._file(id)), _stat(self._lock(id))
        newest_file = 0 if file is None else file[2]
        newest = newest_file if lock is None else max(newest_file, lock[2])
        return Fingerprint((file, lock), newest, newest_file)

    def read(self, id: str) -> TaskFiles:
        """Reads the file and the lock. An empty lock counts as none: gptodo has created it and not
        written it yet."""
        lock = content_of(self._lock(id), _MOST_OF_LOCK) or None
        return TaskFiles(content_of(self._file(id)), lock)

    def _file(self, id: str) -> str:
        return f"{self.tasks}/{id}.md"

    def _lock(self, id: str) -> str:
        return f"{self.locks}/{id.replace('/', '-')}.lock"

    def lock_of(self, lock: bytes | None) -> FileLock | None:
        """Reads a lock as gptodo does: a lock with other keys than its four is ignored."""
        if not lock or len(lock) > _LONGEST_LOCK:
            return None
        data = json_of(lock)
        if not isinstance(data, dict) or set(data) != _LOCK_KEYS:
            return None
        try:
            since = datetime.fromisoformat(data["started"])
            since = since.replace(tzinfo=UTC) if since.tzinfo is None else since.astimezone(UTC)
            until = since + timedelta(hours=float(data["timeout_hours"]))
        except (ValueError, TypeError, OverflowError, KeyError):
            return None
        return FileLock(worker_name(str(data["worker"])), since, until)

    def interpret(self, id: str, files: TaskFiles) -> Sighting | None:
        """Returns the meaning of file and lock. A file without frontmatter is not a task."""
        if files.file is None:
            return None
        where = f"tasks/{id}.md"
        if fault := fault_of(files.file):
            return Sighting(fault=f"{where} {fault}")
        if fault := fault_of(files.lock):
            return Sighting(fault=f"state/locks/{id}.lock {fault}")
        try:
            text = files.file.decode()
            parts = frontmatter.split(text)
            values = frontmatter.read(parts.yaml)
            parse_task_id(id)
        except frontmatter.NoFrontmatter:
            return None
        except UnicodeDecodeError as error:
            return Sighting(fault=f"{where} is no UTF-8 ({error.reason} at byte {error.start})")
        except BadArgument as error:
            return Sighting(fault=f"{where}: {error}")
        state = str(values.get("state") or "backlog").lower()
        means = self._means(state)
        if means is None:
            return Sighting(
                fault=f"{where}: state {state[:40]!r} is none of gptodo's: {', '.join(_MEANS)}"
            )
        fields, fault = _definition(id, values, parts.body)
        if fault:
            return Sighting(fault=f"{where}: {fault}")
        if state == "waiting" and fields.get("waiting_for"):
            means = Status.PENDING  # it waits for its dependencies
        return Sighting(state, means, _assignee(values), self.lock_of(files.lock), fields)

    def _means(self, state: str) -> Status | None:
        if state == self._unclaimed:
            return Status.PENDING
        return _MEANS.get(state)

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
        """Returns file and lock for this record. The other tool itself shows a foreign claim."""
        claim = record.claim
        active = claim is not None and claim.state is ClaimState.ACTIVE
        if active and claim is not None and claim.session.startswith(SESSION_PREFIX):
            lock = files.lock
        elif active and claim is not None:
            lock = _lock_text(id, claim.agent, claim.renewed_at, claim.expires_at)
        else:
            lock = None if own_lock or _was_taken_away(record) else files.lock
        if files.file is None:
            file = self._new_file(id, record) if new and _can_be_file(id) else None
            return TaskFiles(file, lock if file is not None else files.lock)
        return TaskFiles(self._changed_file(id, record, files, own=own_lock), lock)

    def _new_file(self, id: str, record: TaskRecord) -> bytes:
        task = record.task
        values: dict[str, Any] = {
            "state": "todo",
            "created": record.created_at.isoformat(timespec="seconds"),
            "priority": _priority_word(task.priority),
            "tags": list(task.tags) or None,
            "requires": list(task.depends_on) or None,
            "parallelizable": task.parallelizable or None,
            "isolation": None if task.isolation is Isolation.NONE else str(task.isolation),
            "worktree_path": task.worktree_path or None,
            "lock_timeout_hours": task.lock_timeout_hours,
            "spawned_from": task.spawned_from or task.parent,
            "waiting_for": task.waiting_for or None,
            "wait": task.not_before and task.not_before.isoformat(timespec="seconds"),
        }
        values |= self._managed(record, "", {})
        body = f"# {task.title or id}\n\n{task.description}"
        return frontmatter.new_file(values, body).encode()

    def _changed_file(
        self, id: str, record: TaskRecord, files: TaskFiles, *, own: bool
    ) -> bytes | None:
        """Returns the file, changed only where it differs from the record. `own`: Genlock wrote
        what the file says about a claim."""
        assert files.file is not None
        try:
            parts = frontmatter.split(files.file.decode())
            values = frontmatter.read(parts.yaml)
            said = self.interpret(id, files)
            if said is None or said.fault:
                return files.file
            managed = self._managed(record, said.state, values, own=own)
            wanted = managed | _defined(record, said, values)
            changes = {key: value for key, value in wanted.items() if values.get(key) != value}
            if not changes:
                return files.file
            return frontmatter.change(parts, changes).encode()
        except (frontmatter.NoFrontmatter, UnicodeDecodeError, BadArgument):
            return files.file

    def _managed(
        self, record: TaskRecord, state: str, values: dict[str, Any], *, own: bool = False
    ) -> dict[str, Any]:
        """Returns the state and assignee for the record; `state` is what the file says."""
        claim, task = record.claim, record.task
        active = claim is not None and claim.state is ClaimState.ACTIVE
        if active and claim is not None:
            if claim.session.startswith(SESSION_PREFIX):
                named = state == "active" and values.get("assigned_to")
                return {"assigned_to": claim.agent} if named else {}
            return {
                "state": "active",
                "assigned_to": claim.agent,
                "assigned_at": claim.claimed_at.isoformat(timespec="seconds"),
            }
        wanted: dict[str, Any] = {"state": self._state(record, state, values, own=own)}
        if record.state is Status.HELD and wanted["state"] == "waiting" and record.hold:
            wanted["waiting_for"] = record.hold.reason
        elif state == "waiting" and wanted["state"] != "waiting":
            wanted["waiting_for"] = task.waiting_for or None
        if record.state not in (Status.COMPLETED, Status.CANCELLED):
            if task.assigned_to is not None and _assignee(values) != task.assigned_to:
                wanted["assigned_to"] = task.assigned_to
            elif task.assigned_to is None and _assignee(values):
                wanted |= {"assigned_to": None, "assigned_at": None}
            elif task.assigned_to is None and values.get("assigned_at"):
                wanted["assigned_at"] = None
        return wanted

    def _state(self, record: TaskRecord, state: str, values: dict[str, Any], *, own: bool) -> str:
        match record.state:
            case Status.COMPLETED:
                return "done"
            case Status.CANCELLED:
                return "cancelled"
            case Status.IN_REVIEW:
                return "ready_for_review"
            case Status.HELD:
                stays = ("waiting", "someday", "expired", "ready_for_review")
                by_itself = state == "active" and not values.get("assigned_to")
                return state if state in stays or by_itself else "waiting"
            case _:
                pass
        if self._means(state) is Status.BACKLOG and record.backlog:
            return state
        if record.backlog:
            return "backlog"
        if self._means(state) is Status.PENDING:
            return state
        reserved = record.task.assigned_to
        if state == "active" and not own and reserved and _assignee(values) == reserved:
            return state  # the assignee works on it without a lock
        if state == "waiting" and record.waiting is not Waiting.NOTHING:
            return state
        return self._unclaimed

    # Writing

    def reserve(self, id: str, before: TaskFiles, after: TaskFiles) -> bool:
        """Writes or removes the lock, under gptodo's flock."""
        make_ignored_folder(self.locks)
        refuse_link(self.locks)
        path = self._lock(id)
        with _flocked(path, make=after.lock is not None) as fd:
            if fd is None:
                return before.lock is None and after.lock is None
            present = os.pread(fd, _MOST_OF_LOCK + 1, 0) or None
            if present != before.lock:
                if present is None and before.lock is not None and after.lock is None:
                    os.unlink(path)  # created by the open above
                return False
            if after.lock is None:
                os.unlink(path)
            else:
                os.pwrite(fd, after.lock, 0)
                os.ftruncate(fd, len(after.lock))
        return True

    def write(self, id: str, before: TaskFiles, after: TaskFiles, aside: Path) -> None:
        """Replaces the task's file."""
        if after.file is None:
            return
        path = Path(self._file(id))
        make_folder(path.parent)
        temporary = path.parent / f".genlock-{os.getpid()}-{os.urandom(4).hex()}"
        mode = 0o644
        with suppress(OSError):
            mode = stat.S_IMODE(path.lstat().st_mode)
        fd = os.open(
            temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644
        )
        try:
            with os.fdopen(fd, "wb") as file:
                file.write(after.file)
                if before.file is not None:
                    os.fchmod(file.fileno(), mode)
            if before.file is None:
                os.link(temporary, path, follow_symlinks=False)
                os.unlink(temporary)
            else:
                self._replace(temporary, path, before.file, aside / id.replace("/", "-"))
        except BaseException:
            with suppress(OSError):
                os.unlink(temporary)
            raise

    def _replace(self, temporary: Path, path: Path, before: bytes, aside: Path) -> None:
        """Replaces the old file by the new one and keeps the old one under another name. If the old
        file was changed in between, it is put back: that is an edit not observed yet."""
        make_folder(aside.parent)
        with suppress(FileNotFoundError):
            os.unlink(aside)
        with suppress(OSError):
            os.link(path, aside, follow_symlinks=False)
        os.replace(temporary, path)
        landed = content_of(aside)
        if landed is not None and landed != before:
            again = aside.with_name(f".{aside.name}-{os.urandom(4).hex()}")
            again.write_bytes(landed)
            os.replace(again, path)

    def mirror(self, id: str, was: Sighting | None, record: TaskRecord) -> None:
        """Writes the `.status` file of the agent that has the task, or had it."""
        claim = record.claim
        if claim is not None and claim.state is ClaimState.ACTIVE:
            if not claim.session.startswith(SESSION_PREFIX):
                self._write_agent(claim.agent, "working", id, record.updated_at, done=False)
        elif was is not None and was.lock is not None:
            done = record.state is Status.COMPLETED
            self._write_agent(was.lock.worker, "idle", None, record.updated_at, done=done)

    def _write_agent(
        self, agent: str, status: str, task: str | None, now: datetime, *, done: bool
    ) -> None:
        path = self.agents / f"{agent}.status"
        known = json_of(content_of(path, _MOST_OF_STATUS) or b"")
        if not isinstance(known, dict):
            known = {}
        count = known.get("tasks_completed")
        instant = now.isoformat(timespec="seconds")
        text = json.dumps(
            known
            | {
                "agent_id": agent,
                "instance_type": known.get("instance_type", "genlock"),
                "started": known.get("started", instant),
                "last_heartbeat": instant,
                "current_task": task,
                "tasks_completed": (count if isinstance(count, int) else 0) + done,
                "status": status,
                "workspace": str(self.root),
            },
            indent=2,
        )
        make_ignored_folder(self.agents)
        refuse_link(self.agents)
        temporary = self.agents / f".genlock-{os.getpid()}-{os.urandom(4).hex()}"
        temporary.write_text(text)
        os.replace(temporary, path)


def worker_name(worker: str) -> str:
    """Converts a worker's name to an agent's name, and replaces invalid characters."""
    name = "".join(char if char.isprintable() and char != "/" else "-" for char in worker).strip()
    return name[:100] or "somebody"


def _was_taken_away(record: TaskRecord) -> bool:
    """Has an operator taken the task from a gptodo worker? Then the worker's lock is removed,
    too."""
    last = record.released
    return (
        record.claim is None
        and last is not None
        and last.reason is ReleaseReason.SUPERSEDED
        and last.session.startswith(SESSION_PREFIX)
    )


def _can_be_file(id: str) -> bool:
    """Would gptodo find the task under this name? It takes digits for a number in its own list."""
    return not (id.isdigit() or id.endswith(".md") or id.startswith(".") or "/" in id)


def _definition(id: str, values: dict[str, Any], body: str) -> tuple[dict[str, Any], str]:
    """Returns the fields of the definition, and what is wrong with them. An unusable value is left
    out if its field decides nothing."""
    fields: dict[str, Any] = {"id": id}
    title = values.get("title") or values.get("name")
    if not isinstance(title, str):
        heading = _HEADING.search(body[:4000])
        title = heading[1] if heading else ""
    if title:
        fields["title"] = title[:_LONGEST_TITLE]
    priority = str(values.get("priority") or "medium").lower()
    priority = _PRIORITIES.get(priority, priority)
    if priority in ("critical", "high", "low"):
        fields["priority"] = priority
    requires = [*_texts(values.get("requires")), *_texts(values.get("depends"))]
    fields["depends_on"] = [each for each in dict.fromkeys(requires) if each != id]
    if tags := _texts(values.get("tags")):
        fields["tags"] = tags
    if waiting := _waiting(values.get("waiting_for")):
        fields["waiting_for"] = waiting
    if wait := _instant(values.get("wait")):
        fields["not_before"] = wait
    parent = values.get("spawned_from") or values.get("parent")
    if isinstance(parent, str) and parent != id:
        fields["parent"] = parent
    fields |= {name: values[name] for name in _KEPT_FIELDS if values.get(name) is not None}
    return _without_faults(fields)


def _without_faults(fields: dict[str, Any]) -> tuple[dict[str, Any], str]:
    for _ in range(3):
        examined = examine_task(fields)
        if not examined.faults:
            return {name: value for name, value in fields.items() if value != []}, ""
        needed = [fault for fault in examined.faults if (*fault.at, "")[0] in ("id", "depends_on")]
        if needed:
            return fields, needed[0].text
        dropped = {fault.at[0] for fault in examined.faults if fault.at}
        if not dropped:
            return fields, examined.faults[0].text
        fields = {name: value for name, value in fields.items() if name not in dropped}
    return fields, ""


def _texts(value: Any) -> list[str]:
    """Returns a list of texts. A single text counts as a list of one. gptodo itself fails on
    anything else."""
    if isinstance(value, str):
        return [value] if value else []
    if not isinstance(value, list):
        return []
    return [str(each) for each in value if isinstance(each, (str, int)) and str(each)]


def _waiting(value: Any) -> str:
    if isinstance(value, str):
        return value
    return json.dumps(value, sort_keys=True, default=str) if value else ""


def _instant(value: Any) -> str:
    """Returns a date or time with its zone. Without a zone it is taken as UTC."""
    try:
        instant = datetime.fromisoformat(str(value)) if value else None
    except ValueError:
        return ""
    if instant is None:
        return ""
    return (instant if instant.tzinfo else instant.replace(tzinfo=UTC)).isoformat()


def _assignee(values: dict[str, Any]) -> str:
    assignee = values.get("assigned_to")
    if not isinstance(assignee, str) or assignee.lower() in _NOBODY:
        return ""
    return worker_name(assignee)


def _priority_word(priority: str) -> str:
    return "high" if priority == "critical" else priority


def _defined(record: TaskRecord, said: Sighting, values: dict[str, Any]) -> dict[str, Any]:
    """Returns the fields of the definition in which the file differs."""
    task, fields = record.task, said.fields
    wanted: dict[str, Any] = {}
    if set(fields.get("depends_on", ())) != set(task.depends_on):
        wanted |= {"requires": list(task.depends_on) or None, "depends": None}
    if fields.get("priority", "medium") != task.priority:
        wanted["priority"] = _priority_word(task.priority)
        if wanted["priority"] == values.get("priority"):
            del wanted["priority"]
    if list(fields.get("tags", ())) != list(task.tags):
        wanted["tags"] = list(task.tags) or None
    if record.spawn_mode is not None and record.children:
        wanted["spawned_tasks"] = sorted(record.children)
    mode = fields.get("coordination_mode")
    if task.coordination_mode is not None and mode != task.coordination_mode:
        wanted["coordination_mode"] = str(task.coordination_mode)
    return wanted


_NO_END_HOURS = 876_600.0
"""A hundred years: every gptodo lock has an end."""


def _lock_text(id: str, worker: str, since: datetime, until: datetime | None) -> bytes:
    """Returns the text of a gptodo lock, with its four keys and no others."""
    hours = _NO_END_HOURS if until is None else max(0.0, (until - since).total_seconds()) / 3600
    return json.dumps(
        {
            "task_id": id,
            "worker": worker,
            "started": since.astimezone(UTC).isoformat(),
            "timeout_hours": hours,
        },
        indent=2,
    ).encode()


def _stat(path: str) -> tuple[int, int, int] | None:
    try:
        found = os.stat(path, follow_symlinks=False)
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns


@contextmanager
def _flocked(path: str, *, make: bool) -> Iterator[int | None]:
    """Opens the lock file under gptodo's flock; None if there is no such file. Ensures that the
    file still has the name: gptodo unlinks locks, and a flock on an unlinked file protects
    nothing."""
    end = time.monotonic() + _FLOCK_SECONDS
    flags = os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC | (os.O_CREAT if make else 0)
    while True:
        try:
            fd = os.open(path, flags, 0o644)
        except FileNotFoundError:
            yield None
            return
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            named = _stat(path)
            if named is not None and named[0] == os.fstat(fd).st_ino:
                yield fd
                return
        except BlockingIOError:
            time.sleep(0.001)
        finally:
            os.close(fd)
        if time.monotonic() > end:
            raise OSError(11, f"{path} stays locked by another process")
