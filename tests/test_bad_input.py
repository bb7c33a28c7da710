"""Whatever is passed to a public method: a clear error, nothing changed, and the coordinator goes
on.

The cases are made from the methods' signatures. A new method needs a line in `GOOD`, a new
parameter one in `BAD`: without them the tests fail.
"""

from __future__ import annotations

import hashlib
import inspect
import math
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import apsw
import pytest

import genlock
from genlock import Coordinator
from genlock.coordinator.arguments import pack
from genlock.core.manifest import digest_of, manifest_of
from genlock.core.model import Process, Product, Task
from genlock.errors import (
    BadArgument,
    CursorLost,
    GenlockError,
    NotAllowed,
    NotFound,
    PlanInvalid,
    ResultTooLarge,
    TaskNotFound,
)
from genlock.testing.clock import ManualClock

SURROGATE = "\ud800"
"""Half a character: a text that cannot be written as UTF-8."""

MINE, FREE, DONE, SPLIT = "A-001-mine", "A-002-free", "A-003-done", "B-001-split"
REVIEWED = "FEATURE:code"
DIGEST = pack({"done": True})[0].digest
PRODUCTS = [{"path": "a/b.txt", "sha256": "0" * 64, "size": 1}]
MANIFEST = digest_of(manifest_of("alice", 1, [Product("a/b.txt", "0" * 64, 1)]))


class Odd:
    """An object that nobody has heard of."""

    def __repr__(self) -> str:
        return "<odd>"


def cycle() -> dict[str, Any]:
    itself: dict[str, Any] = {}
    itself["again"] = itself
    return itself


def nested(levels: int) -> Any:
    value: Any = 0
    for _ in range(levels):
        value = [value]
    return value


DAY = date(2026, 1, 31)
INSTANT = ["", "yesterday", "2026-01-01T00:00:00", DAY, 5, True, b"a", ["a"]]
SCOPE = [
    "",
    "x" * 65,
    "a\0b",
    "a/b",
    "..",
    ".",
    "_",
    "a b",
    "🙂",
    SURROGATE,
    5,
    True,
    ["a"],
    b"a",
    {"a": 1},
]
NAME = ["", "x" * 129, "a\0b", "a/b", "a\nb", SURROGATE, 5, True, ["a"], b"a", {"a": 1}]
TASK_ID = [
    "",
    "x" * 129,
    "x" * 100_000,
    "a\0b",
    "a/b",
    "..",
    ".",
    "a b",
    "🙂",
    SURROGATE,
    "a::0",
    "a::",
    "a:",
    5,
    True,
    ["a"],
    b"a",
    {"a": 1},
]
GENERATION = ["1", True, -1, 2**53, 1.0, math.nan, [1], b"1"]
LEASE = [0, -1, math.nan, math.inf, True, "30 s", [30], b"30", 10**12]
LIMIT = [0, -1, "10", True, 1.5, math.nan, 10**9, None, [1]]
OPERATION = ["", "x" * 129, "a\0b", SURROGATE, 5, True, ["a"], b"a"]
TEXT = [DAY, "x" * 100_000, "a\0b", SURROGATE, 5, True, ["a"], b"a", {"a": 1}]
FLAG = ["yes", "", 1, ["a"], None]
NOT_JSON = [math.nan, math.inf, Odd(), cycle(), SURROGATE, {(1, 2): 3}, nested(100_000)]
METADATA = [
    5,
    "text",
    [1],
    b"a",
    Odd(),
    cycle(),
    {"a": "x" * 5000},
    *({"a": value} for value in NOT_JSON),
]
RESULT = [
    DAY,
    [DAY],
    {"a": datetime(2026, 1, 31, tzinfo=UTC)},
    {1, 2},
    b"bytes",
    *NOT_JSON,
    *([value] for value in NOT_JSON),
    {"a": {1}},
    {"a": b"b"},
]
SECONDS = [-1, math.nan, math.inf, True, "1w", [1], 10**12]
PATHS = [
    *["", "/etc/passwd", "../x", "a/../b", "a/./b", "a//b", "a/", ".", "a\\b", "a\0b", "a\nb"],
    *["x" * 513, "x" * 81, "ä" * 41, SURROGATE, 5, None, b"a"],
]
REQUIRED_ID = [*TASK_ID, None]
REQUIRED_GENERATION = [*GENERATION, None]
CURSOR = ["", "nonsense", "x" * 2000, "🙂", SURROGATE, "a\0b", 5, True, ["a"], b"a"]
TRACKS = [
    "",
    "A1",
    "A/B",
    "x" * 201,
    "🙂",
    SURROGATE,
    b"A",
    5,
    True,
    [5],
    [None],
    ["a1"],
    [["A"]],
]

GOOD: dict[str, dict[str, Any]] = {
    "claim_task": {"task_id": FREE},
    "renew_lease": {"task_id": MINE, "generation": 1},
    "report_progress": {"task_id": MINE, "generation": 1, "fraction": 0.5},
    "release_claim": {"task_id": MINE, "generation": 1},
    "submit_result": {"task_id": MINE, "generation": 1, "result_data": {"fine": True}},
    "claim_next": {},
    "batch_claim": {"task_ids": [FREE]},
    "batch_renew": {"generations": {MINE: 1}},
    "batch_submit": {"results": [{"task_id": MINE, "generation": 1}]},
    "spawn_subtasks": {"task_id": SPLIT, "generation": 1, "subtasks": ["one"]},
    "list_tasks": {},
    "get_overview": {},
    "get_activity": {},
    "search_events": {},
    "get_task_state": {"task_id": MINE},
    "batch_get_states": {"task_ids": [MINE]},
    "get_claim_history": {"task_id": MINE},
    "get_lineage": {"task_id": MINE},
    "get_active_claims_for_session": {},
    "ready": {},
    "blocked": {},
    "check_push": {"task_id": MINE, "generation": 1, "commit": "0" * 40},
    "explain": {"task_id": MINE},
    "list_refused_results": {},
    "read_result": {"task_id": DONE},
    "track_progress": {},
    "add_tasks": {"tasks": ["new"]},
    "edit_task": {"task_id": FREE, "changes": {"title": "fine"}},
    "import_plan": {"source": {"tasks": [{"id": "new"}]}},
    "diff_plan": {"source": {"tasks": [{"id": "new"}]}},
    "check_plan": {"source": {"tasks": [{"id": "new"}]}},
    "get_plan": {},
    "get_graph": {},
    "get_graph_layout": {},
    "next_id": {},
    "reset_task": {"task_id": DONE},
    "preview_reset": {"task_id": DONE},
    "cancel_task": {"task_id": FREE},
    "assign_task": {"task_id": FREE, "agent_id": "bob"},
    "force_release": {"task_id": MINE, "take_over": True},
    "hold_task": {"task_id": FREE},
    "reopen_task": {"task_id": FREE},
    "batch_act": {"act": "hold", "task_ids": [FREE]},
    "adopt_result": {"task_id": MINE, "generation": 1},
    "discard_result": {"task_id": MINE},
    "preview_next": {},
    "list_reviews": {},
    "get_review": {"task_id": REVIEWED},
    "approve_review": {"task_id": REVIEWED, "generation": 1, "digest": DIGEST},
    "reject_review": {"task_id": REVIEWED, "generation": 1, "digest": DIGEST},
    "report_evaluation": {
        "task_id": REVIEWED,
        "generation": 1,
        "digest": DIGEST,
        "evaluator": "lint",
        "passed": True,
    },
    "list_promotions": {},
    "settle_promotion": {"task_id": DONE, "generation": 1, "digest": MANIFEST},
    "get_policy": {},
    "set_policy": {},
    "sweep": {},
    "register_session": {},
    "heartbeat_session": {},
    "end_session": {},
    "list_sessions": {},
    "get_session": {},
    "list_expired_claims": {},
    "list_agents": {},
    "get_session_memory": {},
    "read_events": {},
    "create_key": {"name": "ci", "role": "agent"},
    "list_keys": {},
    "rotate_key": {},
    "revoke_key": {},
    "list_tenants": {},
    "get_tenant": {},
    "set_tenant": {},
    "watch": {"timeout_seconds": 0},
}
"""A call of each method that is right. `refused_id` and `key_id` are filled in: they are known only
when the fleet stands."""

WRONG_FIELDS: list[dict[str, Any]] = [
    {"description": "x" * 20_000},
    {"title": 5},
    {"title": SURROGATE},
    {"priority": "urgent"},
    {"track": "a1"},
    {"lease_seconds": "x"},
    {"lease_seconds": -1},
    {"lease_seconds": math.nan},
    {"human_required": "yes"},
    {"isolation": "jail"},
    {"roles": ["a/b"]},
    {"roles": "dev"},
    {"tags": [5]},
    {"not_before": "tomorrow"},
    {"not_before": "2026-01-01T00:00:00"},
    {"assigned_to": "a/b"},
    {"state": "FINISHED"},
    {"metadata": []},
    {"metadata": {"a": math.nan}},
    {"metadata": {"a": Odd()}},
    {"metadata": cycle()},
    {"metadata": {"a": nested(1000)}},
    {"parent": "nobody"},
    {"depth": 5},
    {"generation": SURROGATE},
]

BAD: dict[str, list[Any]] = {
    "tenant_id": SCOPE,
    "project_id": SCOPE,
    "session_id": NAME,
    "agent_id": NAME,
    "user_id": NAME,
    "task_id": REQUIRED_ID,
    "read_events task_id": TASK_ID,
    "list_refused_results task_id": TASK_ID,
    "assign_task agent_id": [*NAME, None],
    "parent": TASK_ID,
    "expected_generation": GENERATION,
    "generation": REQUIRED_GENERATION,
    "adopt_result generation": GENERATION,
    "spawn_subtasks generation": GENERATION,
    "lease_duration_seconds": LEASE,
    "claim_task lease_duration_seconds": [*LEASE, None],
    "limit": LIMIT,
    "operation_id": OPERATION,
    "agent_role": TEXT,
    "agent_roles": [5, "x", [5], [None], [SURROGATE], ["a/b"], ["x" * 65], {"rolls": {}}],
    "feedback": [*TEXT, "x" * 4001, None],
    "evaluator": [*TEXT, "", "a/b", None],
    "passed": FLAG,
    "evaluations": [5, "x", [1], {"lint": 1}, {"a/b": True}, {SURROGATE: True}, {5: True}],
    "agent_type": TEXT,
    "metadata": METADATA,
    "result_data": RESULT,
    "work_product_ref": [*TEXT, None],
    "reason": [*TEXT, None],
    "release_claim reason": [
        "COMPLETED",
        "completed: all of it",
        "x" * 501,
        SURROGATE,
        5,
        ["ERROR"],
        b"ERROR",
        None,
    ],
    "note": [*TEXT, None],
    "worktree_path": [*TEXT, "x" * 4097],
    "fraction": [-0.1, 1.1, math.nan, math.inf, True, "0.5", [1]],
    "cost": [
        *[5, "x", ["usd"], {5: 1}, {"usd": -1}, {"usd": "x"}, {"usd": None}, {"usd": math.nan}],
        *[{"x" * 65: 1}, {SURROGATE: 1}, {str(unit): 1 for unit in range(9)}],
    ],
    "mode": ["nonsense", "", "PARALLEL", SURROGATE, 5, ["parallel"], b"parallel", None],
    "keep": FLAG,
    "prune": FLAG,
    "cascade": FLAG,
    "take_over": FLAG,
    "tail": FLAG,
    "back": [-1, "1", True, 1.5, None, [1], 10**13],
    "include_ended": FLAG,
    "include_idle": FLAG,
    "before": ["tomorrow", "2026-01-01", "2026-01-01T00:00:00", 5, True, ["a"], SURROGATE],
    "include_settled": FLAG,
    "hours": SECONDS,
    "wait_seconds": [*SECONDS, None],
    "timeout_seconds": [-1, math.nan, True, "1", [1]],
    "count": [0, -1, "1", True, 1.5, 10**9, None, [1]],
    "pid": ["1", "self", -1, 0, True, 1.5, 2**40, [1], b"1", SURROGATE],
    "process": [
        *["x", 5, {"pid": 1}, ["a"], Odd()],
        *[Process(text, "boot", 1, 1) for text in ("x" * 256, "a\0b", "a\nb", "x" * 500_000)],
        *[Process("host", text, 1, 1) for text in ("x" * 256, "a\0b")],
        *[Process("host", "boot", pid, 1) for pid in (0, -1, 2**31, 2**70)],
        *[Process("host", "boot", 1, started) for started in (-1, 2**53, 10**4000)],
        *[Process("host", "boot", 1, 1, text) for text in ("x" * 65, "a\0b")],
    ],
    "tracks": TRACKS,
    "around": TASK_ID,
    "depth": [-1, 1001, "1", True, 1.5, None, [1]],
    "progress": [5, "x", True, [print]],
    "set_policy tracks": [
        "x",
        5,
        ["A"],
        {"a1": "x"},
        {"A": 5},
        {"A": "x" * 2000},
        {"A": SURROGATE},
        {5: "x"},
        {"A": None},
    ],
    "policy": [
        *[
            5,
            "x",
            ["order"],
            {"nonsense": 1},
            {5: 1},
            {5: 1, "order": "track"},
            {"order": "random"},
            {"order": 5},
            {"expired": "never"},
        ],
        *[{"grace_seconds": value} for value in (-1, "x", math.nan, math.inf, True, None, [1])],
        *[
            {"breaker_threshold": 1.5},
            {"breaker_threshold": True},
            {"offer_backlog": "yes"},
            {"spawn_depth": 10**20},
            {"ids": Odd()},
        ],
        *[
            {"products": url}
            for url in (
                *["", "x", "/folder", "file://host/x", "file:///", "file:///a/../b", "ftp://x/y"],
                *[
                    "s3://",
                    "s3://key:secret@bucket/x",
                    "s3://b?aws_secret_access_key=x",
                    "s3://b#x",
                ],
                *["s3://b?endpoint_url=ftp://x", "gs://b?region=x", 5, True, ["s3://b"], SURROGATE],
            )
        ],
    ],
    "limits": [
        *[5, "x", ["max_concurrent_claims"], {"nonsense": 1}, {5: 1}],
        *[{"max_concurrent_claims": value} for value in (-1, "x", 1.5, True, 10**20)],
        *[{"min_lease_duration_seconds": value} for value in (0.5, -1, math.nan, None)],
    ],
    "profile": ["nonsense", "", "LOCAL", 5, ["local"], SURROGATE],
    "name": [*NAME, DAY, None],
    "role": [
        "boss",
        "",
        "ADMIN",
        "x" * 1000,
        SURROGATE,
        5,
        True,
        ["agent"],
        b"agent",
        {"a": 1},
        None,
    ],
    "projects": [
        "",
        "x" * 65,
        "a\0b",
        "a/b",
        "a b",
        "a?b",
        "[ab]",
        "🙂",
        SURROGATE,
        5,
        True,
        ["*"],
        b"*",
        None,
    ],
    "expires_in_seconds": [0, *SECONDS],
    "expires_at": [
        DAY,
        "",
        "tomorrow",
        "2026-02-01T00:00:00",
        "2020-01-01T00:00:00Z",
        SURROGATE,
        5,
        True,
        ["a"],
        b"a",
        math.nan,
    ],
    "overlap_seconds": [*SECONDS, 86_401, None],
    "key_id": [
        "",
        "nonsense",
        "x" * 600,
        "A" * 12,
        "a\0b",
        "🙂",
        SURROGATE,
        5,
        True,
        b"a",
        ["a"],
        {"a": 1},
        None,
    ],
    "include_revoked": FLAG,
    "after": CURSOR,
    "list_tasks after": CURSOR,
    "states": ["", "pending", "A", SURROGATE, b"PENDING", 5, True, [5], [None], [["PENDING"]]],
    "tag": TEXT,
    "text": [*TEXT, None],
    "sort": ["", "age", "ORDER", SURROGATE, 5, True, None, b"id", ["id"]],
    "reverse": FLAG,
    "hide_finished": FLAG,
    "folded": [value for value in FLAG if value is not None],
    "act": ["", "HOLD", "delete", SURROGATE, 5, True, None, b"hold", ["hold"]],
    "dry_run": FLAG,
    "batch_act task_ids": [5, FREE, b"a", [""], [5], [None], [["a"]], ["a/b"], {"a": 1}],
    "search_events task_id": TASK_ID,
    "search_events before": CURSOR,
    "types": ["", "claim_acquired", "CLAIM", SURROGATE, b"A", 5, True, [5], [None], [["A"]]],
    "since": INSTANT,
    "until": INSTANT,
    **{
        f"{method} after": TEXT
        for method in (
            "blocked",
            "list_refused_results",
            "list_sessions",
            "list_reviews",
            "list_promotions",
        )
    },
    **{
        f"{method} digest": ["nonsense", "../../../etc/passwd", "0" * 11, "A" * 64, *TEXT, None]
        for method in ("approve_review", "reject_review", "report_evaluation", "settle_promotion")
    },
    "products": [
        *[5, "x", {"a": 1}, [5], [None], [{}], [{"path": "a"}], [PRODUCTS]],
        *[[PRODUCTS[0] | {"path": path}] for path in PATHS],
        *[[PRODUCTS[0] | {"sha256": text}] for text in ("", "0" * 63, "G" * 64, 5, SURROGATE)],
        *[[PRODUCTS[0] | {"size": size}] for size in (-1, "1", 1.5, True, None, 2**60)],
        [PRODUCTS[0], PRODUCTS[0]],
        [{"path": f"{number}", "sha256": "0" * 64, "size": 1} for number in range(257)],
    ],
    "state": ["", "pending", "DONE", SURROGATE, 5, True, b"PENDING", ["PENDING"]],
    "failure": [*TEXT, "x" * 501, None],
    "superseded": [5, "x", [5], [None], *[[path] for path in PATHS], ["a"] * 257],
    "list_promotions task_id": TASK_ID,
    "commit": ["", "HEAD", "0" * 39, "G" * 40, 7, None, ["0" * 40]],
    "protected": [1, "yes", None],
    "digest": [
        "",
        "nonsense",
        "../../../etc/passwd",
        "a\0b",
        SURROGATE,
        5,
        True,
        b"a",
        ["a"],
        Odd(),
    ],
    "refused_id": ["", "nonsense", "x" * 600, "a\0b", SURROGATE, 5, True, b"a", ["a"], None],
    "tasks": [
        *[
            DAY,
            [DAY],
            [{"id": "new", "title": DAY}],
            [{"id": DAY}],
            [{"id": "new", "not_before": DAY}],
        ],
        *[
            None,
            5,
            "A-001-x",
            {"id": "new"},
            b"new",
            [None],
            [5],
            [["new"]],
            [b"new"],
            [{}],
            [{1: 2}],
            ["new", "new"],
            [Odd()],
        ],
        *[[task_id] for task_id in ("", "a/b", "..", "🙂", SURROGATE)],
        *[["new", {"id": task_id}] for task_id in REQUIRED_ID],
        *[
            ["new", {"id": "other", "depends_on": others}]
            for others in ("new", 5, ["nobody"], ["other"], [""], [5], [None])
        ],
        [{"id": "new", "depends_on": ["other"]}, {"id": "other", "depends_on": ["new"]}],
        [{"id": FREE, "title": "another definition"}],
        *[[{"id": "new", **fields}] for fields in WRONG_FIELDS],
    ],
    "changes": [
        *[
            None,
            5,
            "x",
            [],
            ["title"],
            {"nonsense": 1},
            {5: 1},
            {5: 1, "a": 2},
            {"id": "other"},
            {"track": "B"},
            {"parent": MINE},
        ],
        *[{"depends_on": others} for others in (["nobody"], [FREE], [""], "x", [5])],
        *[
            {"title": 5},
            {"title": DAY},
            {"title": SURROGATE},
            {"priority": "urgent"},
            {"description": "x" * 20_000},
            {"metadata": 5},
            {"assigned_to": "bob"},
        ],
        *[
            {"metadata": {"a": math.nan}},
            {"lease_seconds": -1},
            {"lease_seconds": True},
            {"title": "fine", "priority": "urgent"},
        ],
    ],
    "source": [
        *[
            DAY,
            {"tasks": [{"id": "new", "title": DAY}]},
            {"project": DAY, "tasks": [{"id": "new"}]},
        ],
        *[
            None,
            5,
            [],
            b"tasks: []",
            "",
            "just text",
            "tracks: [",
            "- a",
            "\0",
            SURROGATE,
            "a: &a [*a]",
            Odd(),
        ],
        *[
            {},
            {"nonsense": 1},
            {"tracks": 5},
            {"tasks": 5},
            {"tasks": [5]},
            {"tasks": [{"id": ""}]},
            {"tracks": {"two words": []}},
        ],
        {"tasks": [{"id": "new"}, {"id": "other", "depends_on": ["nobody"]}]},
        {"tasks": [{"id": "new"}, {"id": "new"}]},
        {"tasks": [{"id": "new", "depends_on": ["other"]}, {"id": "other", "depends_on": ["new"]}]},
        {"project": "a/b", "tasks": [{"id": "new"}]},
        {"tasks": [{"id": "new"}, {"id": "huge", "description": "x" * 20_000}]},
    ],
    "subtasks": [
        *[
            None,
            5,
            [],
            "text",
            b"text",
            {"title": "one"},
            [5],
            [None],
            [["a"]],
            [b"a"],
            [{"id": ""}],
            [{"id": 5}],
            [{"id": "a/b"}],
        ],
        *[
            [{"id": "C-001-x::1"}],
            [{"id": "one"}, {"id": "one"}],
            [{"title": 5}],
            [{"title": SURROGATE}],
            [{"priority": "urgent"}],
        ],
        *[
            [{"title": "fine"}, {"id": ""}],
            [{"description": "x" * 20_000}],
            [{"description": "x" * 15_000} for _ in range(5)],
        ],
        *[
            [{"id": SPLIT}],
            [{"id": FREE}],
            [SURROGATE],
            [{"title": "one", "depends_on": [5]}],
            [Odd()],
        ],
    ],
    "task_ids": [
        None,
        5,
        FREE,
        b"a",
        [None],
        [""],
        [5],
        ["a/b"],
        [FREE, ".."],
        [["a"]],
        [{"a": 1}],
        {"a/b": 1},
    ],
    "generations": [
        None,
        5,
        "x",
        [],
        [MINE],
        {MINE: "1"},
        {MINE: -1},
        {MINE: True},
        {MINE: None},
        {"": 1},
        {5: 1},
        {MINE: 1, "a/b": 1},
    ],
    "results": [
        *[
            None,
            5,
            "x",
            {"task_id": MINE, "generation": 1},
            [5],
            [None],
            [{}],
            [{"task_id": MINE}],
            [{"generation": 1}],
            [["task_id"]],
        ],
        *[
            [{"task_id": MINE, "generation": 1, "result_data": {"fine": True}} | wrong]
            for wrong in (
                {"task_id": "a/b"},
                {"task_id": None},
                {"generation": "1"},
                {"generation": None},
                {"nonsense": 1},
                {5: 1, "nonsense": 1},
                {"result_data": {1, 2}},
                {"result_data": math.nan},
                {"work_product_ref": 5},
                {"operation_id": 5},
                {"agent_id": "a/b"},
                {"products": 5},
                {"products": [{"path": "../x", "sha256": "0" * 64, "size": 1}]},
            )
        ],
        [{"task_id": MINE, "generation": 1}, {"task_id": "a/b", "generation": 1}],
    ],
}
"""What is wrong for each parameter; with the method's name before it, for that method alone."""

WANTED: dict[str, type[GenlockError]] = {"source": PlanInvalid}
"""Where it must be this one."""

ALLOWED: dict[str, tuple[type[GenlockError], ...]] = {
    "refused_id": (BadArgument, NotFound),
    "digest": (BadArgument, NotFound),
    "after": (BadArgument, CursorLost),
    "subtasks": (BadArgument, NotAllowed),
    "tasks": (BadArgument, NotAllowed),
}
"""Where something else than BadArgument is as clear."""

WORDS: dict[str, tuple[str, ...]] = {
    "tenant_id": ("tenant",),
    "project_id": ("project",),
    "session_id": ("session",),
    "agent_id": ("agent",),
    "user_id": ("user",),
    "task_id": ("task id",),
    "around": ("task id",),
    "parent": ("task id", "parent"),
    "task_ids": ("task_ids", "task id"),
    "generations": ("generation", "task id"),
    "results": (
        "product",
        "result",
        "task id",
        "generation",
        "work_product_ref",
        "operation_id",
        "agent",
    ),
    "tasks": ("task", "new", "depend", *Task.__struct_fields__, "state", "generation"),
    "changes": (
        "changes",
        "field",
        "of a task",
        "depend",
        "title",
        "priority",
        "definition",
        "metadata",
        "lease_seconds",
    ),
    "source": ("plan", "mapping", "text", "line", "YAML"),
    "subtasks": ("subtask", "id", "title", "priority", "definition", "depends_on", "mapping"),
    "tracks": ("track", "purpose"),
    "set_policy tracks": ("track", "purpose"),
    "products": ("product",),
    "superseded": ("superseded", "product"),
    "after": ("cursor", "after"),
    "before": ("cursor", "before"),
    "digest": ("digest", "payload", "result"),
    "refused_id": ("refused",),
    "key_id": ("key",),
    "pid": ("process", "pid"),
    "policy": ("policy",),
    "limits": ("limit",),
}
"""What the message must speak of; where nothing stands here, the parameter by its name."""


def methods() -> dict[str, Callable[..., Any]]:
    """The public methods that do something to a fleet."""
    return {
        name: method
        for name, method in vars(Coordinator).items()
        if callable(method) and not name.startswith("_") and name != "close"
    }


def parameters(method: str) -> list[str]:
    signature = inspect.signature(getattr(Coordinator, method))
    return [
        name
        for name, parameter in signature.parameters.items()
        if parameter.kind is parameter.KEYWORD_ONLY
    ]


class Fleet:
    """A coordinator with something of everything, and a look at all that is stored."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "genlock.db"
        clock = ManualClock()
        self.coordinator = genlock.connect(
            f"sqlite://{self.file}", create=True, clock=clock, session_id="s1", agent_id="alice"
        )
        fleet = self.coordinator
        fleet.add_tasks(tasks=[MINE, FREE, DONE, SPLIT, REVIEWED])
        for task in (MINE, DONE, SPLIT):
            assert fleet.claim_task(task_id=task).success
        fleet.set_policy(policy={"products": "s3://bucket/area"})
        assert fleet.submit_result(
            task_id=DONE, generation=1, result_data={"done": True}, products=PRODUCTS
        ).accepted
        fleet.set_policy(agent_roles={"edges": {"code": {"evaluators": ["lint"]}}})
        assert fleet.claim_task(task_id=REVIEWED).success
        assert fleet.submit_result(
            task_id=REVIEWED, generation=1, result_data={"done": True}
        ).accepted
        refused = fleet.submit_result(task_id=MINE, generation=0, result_data={"early": True})
        assert refused.refused_id is not None
        self.refused_id: str = refused.refused_id
        self.key_id = fleet.create_key(name="ops", role="operator").key.key_id
        self.raw = apsw.Connection(str(self.file), flags=apsw.SQLITE_OPEN_READONLY)

    def good(self, method: str) -> dict[str, Any]:
        arguments = dict(GOOD[method])
        if "refused_id" in parameters(method):
            arguments["refused_id"] = self.refused_id
        if "key_id" in parameters(method):
            arguments["key_id"] = self.key_id
        return arguments

    def content(self) -> str:
        """A digest of every row of every table, and of the names of all payloads."""
        digest = hashlib.sha256()
        for table in ("record", "event", "project", "pool", "session", "waits", "meta"):
            for row in self.raw.execute(f"SELECT * FROM {table}"):
                digest.update(repr(row).encode())
        payloads = self.file.with_name("genlock.db.payloads")
        for file in sorted(payloads.rglob("*")):
            digest.update(str(file).encode())
        return digest.hexdigest()

    def works(self) -> bool:
        """Does the lane still decide?"""
        try:
            self.coordinator.renew_lease(task_id="nobody-knows-it", expected_generation=1)
        except TaskNotFound:
            return True
        except GenlockError:
            return False
        return False

    def close(self) -> None:
        self.raw.close()
        self.coordinator.close()


@pytest.fixture
def fleets(tmp_path: Path) -> Iterator[Callable[[], Fleet]]:
    """Makes fleets; one that was broken by a call is of no use for the next."""
    made: list[Fleet] = []

    def make() -> Fleet:
        folder = tmp_path / str(len(made))
        folder.mkdir()
        made.append(Fleet(folder))
        return made[-1]

    yield make
    for fleet in made:
        fleet.close()


def call(fleet: Fleet, method: str, arguments: dict[str, Any]) -> Any:
    """Calls it, in time; what a method gives one by one is asked for."""
    outcome: list[Any] = []

    def run() -> None:
        try:
            answer = getattr(fleet.coordinator, method)(**arguments)
            outcome.append(next(answer, None) if method == "watch" else answer)
        except BaseException as error:  # noqa: BLE001 - judged by the caller
            outcome.append(error)

    if method != "watch":
        run()
    else:
        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        thread.join(5)
    return outcome[0] if outcome else TimeoutError("it never came back")


def complaint(fleet: Fleet, method: str, parameter: str, value: Any) -> str | None:
    """What is wrong with the answer to a wrong value; None if it is as it should be."""
    before = fleet.content()
    answer = call(fleet, method, fleet.good(method) | {parameter: value})
    special = f"{method} {parameter}"
    if not isinstance(answer, BaseException):
        return f"accepted: {answer!r}"
    if not isinstance(answer, GenlockError):
        return f"raised {type(answer).__name__}: {answer}"
    if not isinstance(answer, ALLOWED.get(parameter, (BadArgument,))):
        return f"raised {type(answer).__name__}: {answer}"
    if not isinstance(answer, WANTED.get(parameter, GenlockError)):
        return f"raised {type(answer).__name__}, which is not all that could be said: {answer}"
    words = WORDS.get(special, WORDS.get(parameter, (parameter,)))
    if not any(word.lower() in str(answer).lower() for word in words):
        return f"does not say what is wrong ({' or '.join(words)}): {answer}"
    if len(str(answer)) > 2000:
        return f"says it in {len(str(answer)):,} characters"
    if fleet.content() != before:
        return f"changed something: {answer}"
    return None


@pytest.mark.parametrize("method", list(GOOD))
def test_wrong_arguments_are_refused_by_name_and_change_nothing(
    method: str, fleets: Callable[[], Fleet]
) -> None:
    fleet = fleets()
    complaints: list[str] = []
    for parameter in parameters(method):
        for value in BAD.get(f"{method} {parameter}", BAD.get(parameter, [])):
            found = complaint(fleet, method, parameter, value)
            if not fleet.works():
                found = f"{found or 'refused'}; and the coordinator is dead"
            if found is not None:
                complaints.append(f"{method}({parameter}={shown(value)}) {found}"[:300])
                fleet = fleets()
    assert not complaints, f"{len(complaints)} wrong arguments:\n" + "\n".join(complaints)


def shown(value: Any) -> str:
    try:
        text = repr(value)
    except RecursionError:
        return "<deeply nested>"
    return text if len(text) < 80 else f"{text[:77]}..."


@pytest.mark.parametrize("method", list(GOOD))
def test_the_right_call_that_the_wrong_ones_are_made_from_is_right(
    method: str, fleets: Callable[[], Fleet]
) -> None:
    fleet = fleets()
    answer = call(fleet, method, fleet.good(method))
    assert not isinstance(answer, BaseException), answer
    assert fleet.works()


class _Text(str):
    """As numpy and YAML readers have them."""

    __slots__ = ()


class _Number(int):
    """The same of numbers."""

    __slots__ = ()


def _of_other_kinds(value: Any) -> Any:
    """The same value, made of subclasses."""
    if type(value) is str:
        return _Text(value)
    if type(value) is int:
        return _Number(value)
    if isinstance(value, dict):
        return {_of_other_kinds(name): _of_other_kinds(inner) for name, inner in value.items()}
    return [_of_other_kinds(inner) for inner in value] if type(value) is list else value


@pytest.mark.parametrize("method", list(GOOD))
def test_texts_and_numbers_of_a_subclass_are_what_they_are(
    method: str, fleets: Callable[[], Fleet]
) -> None:
    fleet = fleets()
    good = fleet.good(method)
    optional = {
        "session_id": "s1",
        "agent_id": "a1",
        "operation_id": "o1",
        "agent_role": "r",
        "reason": "why",
        "work_product_ref": "w",
    }
    more = {
        name: value
        for name, value in optional.items()
        if name in parameters(method) and name not in good and f"{method} {name}" not in BAD
    }
    answer = call(
        fleet, method, {name: _of_other_kinds(value) for name, value in (more | good).items()}
    )
    assert not isinstance(answer, BaseException), answer
    assert fleet.works()


def test_every_public_method_and_parameter_has_its_wrong_values() -> None:
    assert set(GOOD) == set(methods()), "a method without a line in GOOD, or one that is gone"
    named = {(method, parameter) for method in GOOD for parameter in parameters(method)}
    without = sorted(
        f"{method} {parameter}"
        for method, parameter in named
        if parameter not in BAD and f"{method} {parameter}" not in BAD
    )
    assert not without, "parameters without a line in BAD"
    gone = sorted(key for key in BAD if " " in key and tuple(key.split()) not in named)
    assert not gone, "lines in BAD for parameters that are gone"


@pytest.mark.parametrize("method", list(GOOD))
def test_arguments_are_keywords_only(method: str, fleets: Callable[[], Fleet]) -> None:
    fleet = fleets()
    with pytest.raises(TypeError):
        getattr(fleet.coordinator, method)("default")


def test_a_result_over_the_limit_is_refused_and_leaves_no_payload_behind(
    fleets: Callable[[], Fleet],
) -> None:
    fleet = fleets()
    before = fleet.content()
    with pytest.raises(ResultTooLarge, match=r"10,485,\d+ bytes.*max_result_size_bytes.*reference"):
        fleet.coordinator.submit_result(
            task_id=MINE, generation=1, result_data="x" * (10 * 1024 * 1024)
        )
    assert fleet.content() == before
    assert fleet.coordinator.submit_result(
        task_id=MINE, generation=1, result_data="x" * 1000
    ).accepted


def test_a_large_result_of_a_task_that_does_not_exist_leaves_no_payload_behind(
    fleets: Callable[[], Fleet],
) -> None:
    fleet = fleets()
    before = fleet.content()
    with pytest.raises(TaskNotFound, match="nobody-knows-it"):
        fleet.coordinator.submit_result(
            task_id="nobody-knows-it", generation=1, result_data="x" * 100_000
        )
    assert fleet.content() == before


def test_what_has_no_time_to_tell_is_no_clock() -> None:
    wrong: Any = time.time
    with pytest.raises(BadArgument, match=r"clock is something whose now\(\)"):
        genlock.connect("memory://", clock=wrong)


def test_policy_and_limits_of_which_one_is_wrong_change_nothing(
    fleets: Callable[[], Fleet],
) -> None:
    fleet = fleets()
    before = fleet.content()
    with pytest.raises(BadArgument, match="nonsense"):
        fleet.coordinator.set_policy(policy={"spawn_depth": 1}, limits={"nonsense": 1})
    assert fleet.content() == before


def test_a_limit_that_is_wrong_only_beside_those_in_force_changes_no_policy_either(
    fleets: Callable[[], Fleet],
) -> None:
    fleet = fleets()
    fleet.coordinator.set_policy(profile="default")
    before = fleet.content()
    with pytest.raises(BadArgument, match="less than min_lease_duration_seconds"):
        fleet.coordinator.set_policy(
            policy={"spawn_depth": 1}, limits={"max_lease_duration_seconds": 20}
        )
    assert fleet.content() == before


@pytest.mark.parametrize("levels", [50, 100, 500, 900, 2000])
def test_a_nested_result_is_refused_or_can_be_read_again(
    levels: int, fleets: Callable[[], Fleet]
) -> None:
    fleet = fleets().coordinator
    try:
        accepted = fleet.submit_result(
            task_id=MINE, generation=1, result_data=nested(levels)
        ).accepted
    except BadArgument:
        accepted = False
    if not accepted:
        assert levels > 100, "that is not deep"
        return
    assert fleet.read_result(task_id=MINE) == nested(levels)
    state = fleet.get_task_state(task_id=MINE)
    assert state.result is not None
    assert state.result.result_data == nested(levels)


def test_wrong_names_of_the_connection_are_refused(tmp_path: Path) -> None:
    scopes, names = (
        dict.fromkeys(("tenant_id", "project_id"), SCOPE),
        dict.fromkeys(("session_id", "agent_id", "user_id"), NAME),
    )
    for parameter, values in (scopes | names).items():
        for value in values:
            wrong: dict[str, Any] = {parameter: value}
            with pytest.raises(BadArgument, match=WORDS[parameter][0]):
                genlock.connect(f"sqlite://{tmp_path}/genlock.db", create=True, **wrong)
    assert not list(tmp_path.iterdir()), "a connection that was refused has made a file"


def test_without_a_session_or_an_agent_the_error_says_where_to_give_it() -> None:
    with genlock.connect("memory://") as fleet:
        fleet.add_tasks(tasks=[FREE])
        with pytest.raises(BadArgument, match=r"session_id is missing.*connect"):
            fleet.claim_task(task_id=FREE, agent_id="alice")
        with pytest.raises(BadArgument, match=r"agent_id is missing.*connect"):
            fleet.claim_task(task_id=FREE, session_id="s1")


def test_a_session_is_not_guessed_from_the_process_or_its_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Two workers of one session and agent would both be told that they hold the task."""
    monkeypatch.setenv("GENLOCK_SESSION", "s1")
    monkeypatch.setenv("GENLOCK_AGENT", "alice")
    with genlock.connect("memory://") as fleet:
        fleet.add_tasks(tasks=[FREE])
        with pytest.raises(BadArgument, match="session_id is missing"):
            fleet.claim_task(task_id=FREE)
        who: dict[str, Any] = {"session_id": "s1", "agent_id": "alice"}
        assert not fleet.claim_task(task_id=FREE, **who).already_held
        assert fleet.claim_task(task_id=FREE, **who).already_held
