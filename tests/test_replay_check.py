"""The replay check finds whatever is not as it was written, and names the record that it happened
to.

One file, written by real operations of every kind; then damage by plain statements behind the
store's back, one at a time, each undone before the next. A statement keeps SQLite's own structures
whole: what is damaged is what Genlock wrote.
"""

from __future__ import annotations

import random
from collections.abc import Collection
from pathlib import Path
from typing import Any, NamedTuple

import apsw
import pytest

import genlock
from genlock.core.keys import KINDS, SETTLED
from genlock.engine.replay_check import Fault, check
from genlock.stores.sqlite import SQLiteStore, file_identity
from genlock.stores.sqlite.commit import POSITION_BITS, POSITIONS
from genlock.testing.clock import ManualClock

DAY = 86400


def write_a_fleet(url: str, clock: ManualClock, large: int = 40_000) -> None:
    """Operations that leave records of every kind but one, and entries in every index. One result
    has `large` bytes."""
    alice: dict[str, Any] = {"session_id": "s1", "agent_id": "alice"}
    bob: dict[str, Any] = {"session_id": "s2", "agent_id": "bob"}
    with genlock.connect(
        url, create=True, clock=clock, tenant_id="acme", project_id="apollo", user_id="ann", **alice
    ) as fleet:
        fleet.set_policy(
            policy={"breaker_threshold": 3, "grace_seconds": 10},
            tracks={"A": "Core", "B": "Data"},
            limits={},
        )
        fleet.register_session(
            session_id="s2", user_id="bob", agent_type="robot", metadata={"model": "m"}
        )
        fleet.add_tasks(
            tasks=[
                {"id": "A-001-core", "title": "Core", "tags": ["x"], "roles": ["dev"]},
                {"id": "A-002-bus", "depends_on": ["A-001-core"], "priority": "high"},
                {"id": "A-003-end", "depends_on": ["A-001-core", "A-002-bus"]},
                {"id": "B-001-schema", "metadata": {"a": [1, 2, {"b": None}]}},
                {"id": "B-002-models", "depends_on": ["B-001-schema"], "assigned_to": "bob"},
                {"id": "B-003-later", "not_before": "2030-01-01T00:00:00Z"},
                {"id": "split", "state": "backlog"},
                *["gone", "held", "failing", "unlocked", "reset"],
                *[
                    {
                        "id": f"C-{number:03}-more",
                        "depends_on": [f"C-{number - 1:03}-more"] if number % 3 else [],
                    }
                    for number in range(3, 15)
                ],
            ]
        )
        fleet.claim_task(task_id="A-001-core", lease_duration_seconds=30)
        fleet.renew_lease(task_id="A-001-core", expected_generation=1)
        clock.advance(60)
        fleet.claim_task(task_id="A-001-core", **bob)
        fleet.submit_result(
            task_id="A-001-core", generation=2, session_id="s2", result_data={"by": "bob"}
        )
        for data in ({"by": "alice"}, {"text": "x" * large}, {"by": "alice again"}):
            assert fleet.submit_result(task_id="A-001-core", generation=1, result_data=data).kept
        fleet.claim_task(task_id="split", **bob)
        fleet.spawn_subtasks(
            task_id="split",
            generation=1,
            session_id="s2",
            subtasks=["one", "two", "three"],
            mode="sequential",
        )
        fleet.claim_task(task_id="split::1", **bob)
        fleet.submit_result(
            task_id="split::1", generation=1, session_id="s2", result_data=[1, "ü", None]
        )
        fleet.claim_task(task_id="split::2", lease_duration_seconds=3600)
        assert not fleet.claim_task(task_id="split::2", **bob).success
        assert not fleet.claim_task(task_id="A-003-end").success
        assert fleet.claim_next(tracks="B").success
        fleet.cancel_task(task_id="gone", reason="not needed")
        fleet.hold_task(task_id="held", reason="a question")
        fleet.claim_task(task_id="failing")
        fleet.release_claim(task_id="failing", expected_generation=1, reason="ERROR")
        fleet.claim_task(task_id="unlocked")
        fleet.force_release(task_id="unlocked", take_over=True)
        fleet.claim_task(task_id="reset")
        fleet.submit_result(task_id="reset", generation=1)
        fleet.reset_task(task_id="reset")
        fleet.edit_task(task_id="C-003-more", changes={"title": "Another title", "priority": "low"})
        refused = fleet.list_refused_results(task_id="A-001-core")
        fleet.discard_result(task_id="A-001-core", refused_id=refused[0].id)
        fleet.next_id()
        fleet.next_id(parent="split")
        fleet.register_session(session_id="s3")
        fleet.heartbeat_session(session_id="s3", metadata={"phase": "tests"})
        fleet.end_session(session_id="s3")
        fleet.create_key(name="ops", role="admin", tenant_id="*")
        bound = fleet.create_key(
            name="Ωmega", role="agent", projects="ap*", session_id="s3", expires_in_seconds=3600
        ).key.key_id
        fleet.rotate_key(key_id=bound, overlap_seconds=60)
        fleet.revoke_key(key_id=bound)
    with genlock.connect(url, create=True, clock=clock, tenant_id="umbrella", **alice) as other:
        other.add_tasks(tasks=["A-001-core", {"id": "A-002-bus", "depends_on": ["A-001-core"]}])
        other.set_policy(policy={"order": "closest-to-done"})
        other.add_tasks(tasks=["AUTH:design", "AUTH:code"])
        other.claim_next()
        other.set_policy(policy={"products": "s3://bucket/area"})
        other.add_tasks(tasks=["made"])
        other.claim_task(task_id="made")
        made = {"path": "a.txt", "sha256": "5e" * 32, "size": 1}
        assert other.submit_result(task_id="made", generation=1, products=[made]).accepted


COLUMNS = {
    "record": (
        "body",
        "digest",
        "version",
        "state",
        "pool",
        "ord",
        "due_at",
        "session",
        "parent",
        "waits",
        "name",
        "kind",
        "project",
    ),
    "event": ("body", "digest", "version", "record", "at"),
    "waits": ("dependency", "record", "project"),
    "pool": ("name", "project", "id"),
    "session": ("name", "tenant", "id"),
    "project": ("project", "tenant", "id", "head"),
}
FLIPS_A_COLUMN = 34
"""Together a little more than a thousand."""

CELLS = {
    "record": "SELECT id, id, {column} FROM record WHERE length({column}) > 0",
    "event": "SELECT at, record, {column} FROM event",
    "waits": "SELECT project || ' ' || dependency || ' ' || record, record, {column} FROM waits",
    "pool": (
        "SELECT pool.id, record.id, pool.{column} FROM pool JOIN record ON record.pool = pool.id"
    ),
    "session": (
        "SELECT session.id, record.id, session.{column} FROM session JOIN record ON "
        "record.session = session.id"
    ),
    "project": (
        "SELECT project.id, record.id, project.{column} FROM project JOIN record ON "
        "record.project = project.id"
    ),
}
"""Every value of a column: by which key to find it, a record that it belongs to, and the value.
Names that are not in use are left out."""

KEYS = {
    "record": "id",
    "event": "at",
    "waits": "project || ' ' || dependency || ' ' || record",
    "pool": "id",
    "session": "id",
    "project": "id",
}

Value = int | str | bytes


@pytest.fixture(autouse=True)
def _same_file(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each damage is done to the file as it was. A store would take that for an older state of it,
    and wait for the next second to begin another epoch."""
    monkeypatch.setattr(file_identity, "inode_of", lambda path: None)


class Prepared(NamedTuple):
    """A file that is as it should be, and how to look at it after it was damaged."""

    path: Path
    content: bytes
    names: dict[int, str]
    """What each record is called, by its row."""
    places: dict[int, str]
    """What each project is called, by its number."""

    def faults_after(self, *damage: tuple[str, tuple[Any, ...]]) -> list[Fault]:
        """What the check finds in a copy that was damaged by these statements."""
        self.path.write_bytes(self.content)
        db = apsw.Connection(str(self.path))
        try:
            db.execute("PRAGMA synchronous = OFF; BEGIN")
            for statement, values in damage:
                before = db.total_changes()
                db.execute(statement, values)
                assert db.total_changes() == before + 1 or statement.startswith("DROP"), (
                    f"nothing was damaged: {statement}"
                )
            db.execute("COMMIT")
        finally:
            db.close()
        store = SQLiteStore(self.path)
        try:
            return check(store)
        finally:
            store.close()

    def query(self, statement: str) -> list[tuple[Any, ...]]:
        self.path.write_bytes(self.content)
        db = apsw.Connection(str(self.path))
        try:
            return db.execute(statement).fetchall()
        finally:
            db.close()


NAMES = """
SELECT record.id, tenant || '/' || project.project || ' ' || kind || ' ' || name FROM record JOIN project ON project.id = record.project
"""


def prepare(folder: Path, name: str) -> Prepared:
    """The file without its log, in memory."""
    path = folder / name
    db = apsw.Connection(str(path))
    db.pragma("wal_checkpoint(truncate)")
    names = dict(db.execute(NAMES))
    places = dict(db.execute("SELECT id, tenant || '/' || project FROM project"))
    db.close()
    return Prepared(folder / f"damaged {name}", path.read_bytes(), names, places)


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Prepared:
    folder = tmp_path_factory.mktemp("replay")
    clock = ManualClock()
    write_a_fleet(f"sqlite://{folder}/fleet.db", clock)
    return prepare(folder, "fleet.db")


def names_one_of(faults: list[Fault], wanted: Collection[str]) -> bool:
    """Does some fault say one of these?"""
    return any(text in f"{fault.where}: {fault.what}" for fault in faults for text in wanted)


def flip(value: Value, chance: random.Random) -> Value:
    """The value with one bit changed; of a text, one bit of its UTF-8."""
    if isinstance(value, int):
        return value ^ (1 << chance.randrange(max(8, value.bit_length() + 1)))
    raw = bytearray(value.encode() if isinstance(value, str) else value)
    bit = chance.randrange(8 * len(raw))
    raw[bit // 8] ^= 1 << bit % 8
    return bytes(raw)


def test_a_fleet_that_nobody_damaged_has_no_faults(prepared: Prepared) -> None:
    assert prepared.faults_after() == []
    kinds = {name.split()[1] for name in prepared.names.values()}
    # `settled` is written only when a crash has cut reactions off.
    assert kinds == set(KINDS) - {SETTLED}


def test_a_thousand_flips_are_tried() -> None:
    assert FLIPS_A_COLUMN * sum(map(len, COLUMNS.values())) >= 1000


@pytest.mark.parametrize(
    ("table", "column"),
    [(table, column) for table, columns in COLUMNS.items() for column in columns],
)
def test_a_flipped_bit_is_found_and_named(prepared: Prepared, table: str, column: str) -> None:
    cells: dict[Any, tuple[Value, set[str]]] = {}
    for key, record, value in prepared.query(CELLS[table].format(column=column)):
        cells.setdefault(key, (value, set()))[1].add(prepared.names[record])
    assert cells
    chance = random.Random(f"{table} {column}")
    missed: list[str] = []
    tried = 0
    while tried < FLIPS_A_COLUMN:
        key = chance.choice(list(cells))
        value, names = cells[key]
        flipped = flip(value, chance)
        change = (
            f"UPDATE {table} SET {column} = "
            f"{'CAST(?1 AS TEXT)' if isinstance(value, str) else '?1'} WHERE {KEYS[table]} = "
            "?2"
        )
        try:
            faults = prepared.faults_after((change, (flipped, key)))
        except apsw.ConstraintError:
            continue  # SQLite itself would not have taken it
        # Whatever the check dies of, it has named nothing
        except Exception as error:  # noqa: BLE001
            missed.append(
                f"{table}.{column} of {key}: {value!r} → {flipped!r}: the check raised "
                f"{type(error).__name__}: {error}"
            )
        else:
            if not names_one_of(faults, names | also_named(prepared, table, column, key, flipped)):
                missed.append(
                    f"{table}.{column} of {key} ({min(names)}): {value!r} → {flipped!r}: {faults}"
                )
        tried += 1
    assert not missed, f"{len(missed)} of {tried} were not found and named:\n" + "\n".join(
        line[:400] for line in missed
    )


def also_named(prepared: Prepared, table: str, column: str, key: Any, flipped: Value) -> set[str]:
    """What else points to the damage: the record by its damaged name, or the event by its
    position."""
    match table, column:
        case ("record", "name" | "kind"):
            text = flipped.decode(errors="replace") if isinstance(flipped, bytes) else str(flipped)
            tenant_and_project, kind, name = prepared.names[key].split(" ", 2)
            return {
                f"{tenant_and_project} {kind} {text}",
                f"{tenant_and_project} {text} {name}",
                repr(flipped),
            }
        case ("event", "at") if isinstance(flipped, int):
            return {
                text
                for at in (key & POSITIONS, flipped & POSITIONS)
                for text in (f"position {at} ", f"the next one is {at}")
            }
        case ("record", "project"):
            return {f"record {key},", f"belongs to project {flipped!r},"}
        case ("project", "id"):
            return {f"belongs to project {key},"}
        case ("project", _):
            # All that is in it is elsewhere now, or nowhere.
            moved = (
                {flipped.decode(errors="replace") + "/"} if isinstance(flipped, bytes) else set()
            )
            return {prepared.places[key], repr(flipped)} | moved
        case ("event" | "waits", "record") if isinstance(flipped, int):
            return {prepared.names.get(flipped, f"record {flipped},")}
        case _:
            # Text that cannot be read as such: who sees its bytes can find it.
            return (
                {repr(flipped)}
                if isinstance(flipped, bytes) and column not in ("body", "digest")
                else set()
            )


# Events that are gone, there twice, or in each other's place

EVENTS = "SELECT at, record, version, digest, body FROM event ORDER BY at"
ADD_EVENT = "INSERT INTO event (at, record, version, digest, body) VALUES (?, ?, ?, ?, ?)"


def test_a_dropped_event_is_found_and_named(prepared: Prepared) -> None:
    for at, record, *_ in prepared.query(EVENTS):
        faults = prepared.faults_after(("DELETE FROM event WHERE at = ?", (at,)))
        assert names_one_of(faults, {prepared.names[record]}), (
            f"the event at {at & POSITIONS} of {prepared.names[record]}: {faults}"
        )


def test_an_event_that_is_there_twice_is_found_and_named(prepared: Prepared) -> None:
    events = prepared.query(EVENTS)
    heads = {at >> POSITION_BITS: at for at, *_ in events}
    for at, record, version, digest, body in events:
        # SQLite's own index would not take the same version twice: an event that came back has lost
        # that too.
        again = (heads[at >> POSITION_BITS] + 1, record, version, digest, body)
        faults = prepared.faults_after(("DROP INDEX event_record", ()), (ADD_EVENT, again))
        assert names_one_of(faults, {prepared.names[record]}), (
            f"the event at {at & POSITIONS} of {prepared.names[record]}: {faults}"
        )


def test_an_event_that_is_there_again_under_the_next_number_is_found_and_named(
    prepared: Prepared,
) -> None:
    events = prepared.query(EVENTS)
    heads = {at >> POSITION_BITS: at for at, *_ in events}
    lasts = {record: version for _, record, version, *_ in events}
    for at, record, _, digest, body in events:
        again = (heads[at >> POSITION_BITS] + 1, record, lasts[record] + 1, digest, body)
        faults = prepared.faults_after((ADD_EVENT, again))
        assert names_one_of(faults, {prepared.names[record]}), (
            f"the event at {at & POSITIONS} of {prepared.names[record]}: {faults}"
        )


def pairs(
    prepared: Prepared, *, of_one_record: bool
) -> list[tuple[tuple[Any, ...], tuple[Any, ...]]]:
    """Each event with the next one of the same record, or with the next one of another."""
    events = prepared.query(EVENTS)
    found = []
    for number, first in enumerate(events):
        second = next(
            (event for event in events[number + 1 :] if (event[1] == first[1]) is of_one_record),
            None,
        )
        if second is not None:
            found.append((first, second))
    assert len(found) > 20
    return found


@pytest.mark.parametrize("with_digests", [False, True], ids=["bodies", "bodies and digests"])
@pytest.mark.parametrize("of_one_record", [True, False], ids=["of one record", "of two records"])
def test_events_with_swapped_contents_are_found_and_named(
    prepared: Prepared, of_one_record: bool, with_digests: bool
) -> None:
    for first, second in pairs(prepared, of_one_record=of_one_record):
        damage: list[tuple[str, tuple[Any, ...]]] = []
        for (at, *_), (*_, digest, body) in ((first, second), (second, first)):
            damage.append(("UPDATE event SET body = ? WHERE at = ?", (body, at)))
            if with_digests:
                damage.append(("UPDATE event SET digest = ? WHERE at = ?", (digest, at)))
        faults = prepared.faults_after(*damage)
        for _, record, *_ in (first, second):
            assert names_one_of(faults, {prepared.names[record]}), (
                f"{prepared.names[record]}: {faults}"
            )


def test_events_of_one_record_with_swapped_positions_are_found_and_named(
    prepared: Prepared,
) -> None:
    for (one, record, *_), (other, *_) in pairs(prepared, of_one_record=True):
        move = "UPDATE event SET at = ? WHERE at = ?"
        faults = prepared.faults_after((move, (-1, one)), (move, (one, other)), (move, (other, -1)))
        assert names_one_of(faults, {prepared.names[record]}), f"{prepared.names[record]}: {faults}"


def test_events_of_one_record_with_swapped_numbers_are_found_and_named(prepared: Prepared) -> None:
    for (one, record, version, *_), (other, _, later, *_) in pairs(prepared, of_one_record=True):
        number = "UPDATE event SET version = ? WHERE at = ?"
        faults = prepared.faults_after(
            (number, (-1, one)), (number, (version, other)), (number, (later, one))
        )
        assert names_one_of(faults, {prepared.names[record]}), f"{prepared.names[record]}: {faults}"


# Records that are gone, or somebody else's


def test_a_missing_record_is_found_and_named(prepared: Prepared) -> None:
    firsts = dict(reversed([(record, at & POSITIONS) for at, record, *_ in prepared.query(EVENTS)]))
    for record, name in prepared.names.items():
        faults = prepared.faults_after(("DELETE FROM record WHERE id = ?", (record,)))
        # Nothing but its events can tell of it.
        assert names_one_of(faults, {name, f"position {firsts[record]} "}), f"{name}: {faults}"


def test_a_record_with_a_foreign_body_is_found_and_named(prepared: Prepared) -> None:
    rows = prepared.query("SELECT id, kind, version, digest, body FROM record ORDER BY kind, id")
    for (record, kind, *_), (_, other_kind, version, digest, body) in zip(
        rows, [*rows[1:], rows[0]], strict=True
    ):
        faults = prepared.faults_after(("UPDATE record SET body = ? WHERE id = ?", (body, record)))
        assert names_one_of(faults, {prepared.names[record]}), f"{prepared.names[record]}: {faults}"
        if kind == other_kind:
            whole = (
                "UPDATE record SET body = ?, version = ?, digest = ? WHERE id = ?",
                (body, version, digest, record),
            )
            faults = prepared.faults_after(whole)
            assert names_one_of(faults, {prepared.names[record]}), (
                f"{prepared.names[record]}: {faults}"
            )


def test_a_record_that_went_back_to_an_earlier_state_is_found_and_named(prepared: Prepared) -> None:
    for record, version, digest in prepared.query(
        "SELECT record, version, digest FROM event WHERE version = 1"
    ):
        if prepared.query(f"SELECT max(version) FROM event WHERE record = {record}") != [(1,)]:
            faults = prepared.faults_after(
                (
                    "UPDATE record SET version = ?, digest = ? WHERE id = ?",
                    (version, digest, record),
                )
            )
            assert names_one_of(faults, {prepared.names[record]}), (
                f"{prepared.names[record]}: {faults}"
            )


def test_an_index_entry_that_is_gone_or_should_not_be_there_is_found_and_named(
    prepared: Prepared,
) -> None:
    entries = prepared.query("SELECT project, dependency, record FROM waits")
    for entry in entries:
        faults = prepared.faults_after(
            ("DELETE FROM waits WHERE project = ? AND dependency = ? AND record = ?", entry)
        )
        assert names_one_of(faults, {prepared.names[entry[2]]}), f"{entry}: {faults}"
    for project, _, record in entries:
        faults = prepared.faults_after(
            (
                "INSERT INTO waits (project, dependency, record) VALUES (?, 'nobody', ?)",
                (project, record),
            )
        )
        assert names_one_of(faults, {prepared.names[record], "nobody"}), (
            f"{prepared.names[record]}: {faults}"
        )


# After a purge


@pytest.fixture(scope="module")
def purged(tmp_path_factory: pytest.TempPathFactory) -> Prepared:
    folder = tmp_path_factory.mktemp("purged")
    clock = ManualClock()
    write_a_fleet(f"sqlite://{folder}/fleet.db", clock)
    clock.advance(2 * DAY)
    with genlock.connect(
        f"sqlite://{folder}/fleet.db",
        create=True,
        clock=clock,
        tenant_id="acme",
        project_id="apollo",
    ) as fleet:
        fleet.set_policy(limits={"claim_history_retention_days": 1})
        assert fleet.sweep().purged > 10
    return prepare(folder, "fleet.db")


def test_a_fleet_whose_old_events_were_purged_has_no_faults(purged: Prepared) -> None:
    assert purged.faults_after() == []


def test_a_flipped_bit_in_a_base_is_found_and_named(purged: Prepared) -> None:
    bases = purged.query("SELECT id, base FROM record WHERE base IS NOT NULL")
    chance = random.Random("base")
    for _ in range(FLIPS_A_COLUMN):
        record, base = chance.choice(bases)
        faults = purged.faults_after(
            ("UPDATE record SET base = ? WHERE id = ?", (flip(base, chance), record))
        )
        assert names_one_of(faults, {purged.names[record]}), f"{purged.names[record]}: {faults}"


def test_an_event_that_is_gone_after_a_purge_is_found_and_named(purged: Prepared) -> None:
    for at, record, *_ in purged.query(EVENTS):
        faults = purged.faults_after(("DELETE FROM event WHERE at = ?", (at,)))
        assert names_one_of(faults, {purged.names[record]}), (
            f"the event at {at & POSITIONS} of {purged.names[record]}: {faults}"
        )
