"""JSON Schemas of keywords. The limits come from the code that checks them, and a test compares
patterns with checks.

A schema can say less than a check: that a name must be printable Unicode is in its description.
"""

from __future__ import annotations

from typing import Any, Final, get_args

import msgspec

from genlock.coordinator import arguments as a
from genlock.coordinator.bulk_ops import ACTS
from genlock.coordinator.key_ops import MOST_SECONDS
from genlock.coordinator.review_ops import LONGEST_FEEDBACK
from genlock.core.agent_roles import LONGEST_ROLE
from genlock.core.dashboard import SortBy
from genlock.core.events import Event
from genlock.core.ids import LONGEST_DESCRIPTION, LONGEST_ID, LONGEST_SLUG
from genlock.core.key_roles import ID_CHARACTERS, MOST_OVERLAP_SECONDS, Role
from genlock.core.manifest import LONGEST_PATH, MOST_BYTES, MOST_PRODUCTS
from genlock.core.names import LONGEST_NAME, LONGEST_SCOPE, LONGEST_TRACK, RESERVED
from genlock.core.policy import PROFILES, Policy, TenantLimits
from genlock.core.process_identity import LONGEST_HOST, LONGEST_NAMESPACE, MOST_PID, MOST_STARTED
from genlock.core.reasons import PromotionState, SpawnMode, Status
from genlock.core.records.promotion import LONGEST_FAILURE

Schema = dict[str, Any]

_WORD: Final = "[A-Za-z0-9._-]"
_CHILD: Final = "[1-9][0-9]{0,14}"
_TRACK_ID: Final = rf"[A-Z]+-[0-9]{{3}}-[A-Za-z0-9_-]{{1,{LONGEST_DESCRIPTION}}}"
_WHO: Final = f"1 to {LONGEST_NAME} printable characters without `/`"


def _text(longest: int, least: int = 0) -> Schema:
    return {"type": "string", "maxLength": longest} | ({"minLength": least} if least else {})


def _number(least: float, most: float) -> Schema:
    return {"type": "number", "minimum": least, "maximum": most}


def _whole(least: int, most: int) -> Schema:
    return {"type": "integer", "minimum": least, "maximum": most}


SCOPE: Final[Schema] = {
    **_text(LONGEST_SCOPE, 1),
    "pattern": f"^{_WORD}+$",
    "not": {"enum": sorted(RESERVED)},
}
NAME: Final[Schema] = {**_text(LONGEST_NAME, 1), "pattern": r"^[^/\u0000-\u001f\u007f]+$"}
OPERATION: Final[Schema] = {
    **_text(a.LONGEST_OPERATION, 1),
    "pattern": r"^[^\u0000-\u001f\u007f]+$",
}
KEY_ID: Final[Schema] = {"type": "string", "pattern": f"^[a-z2-7]{{{ID_CHARACTERS}}}$"}
TRACK: Final[Schema] = {**_text(LONGEST_TRACK, 1), "pattern": "^[A-Za-z]+$"}
TASK_ID: Final[Schema] = {
    **_text(LONGEST_ID, 1),
    "pattern": rf"^({_WORD}{{1,{LONGEST_SLUG}}}|{_TRACK_ID}|{_WORD}+:{_WORD}+)(::{_CHILD})*$",
    "not": {"enum": [".", ".."]},
}
PROCESS: Final[Schema] = {
    "type": "object",
    "description": (
        "Which process a session is: a pid alone may be reused, with its start time it is not."
    ),
    "properties": {
        **{
            key: {**_text(LONGEST_HOST), "pattern": r"^[^\u0000-\u001f\u007f]*$"}
            for key in ("host", "boot")
        },
        "pid": _whole(1, MOST_PID),
        "started": _whole(0, MOST_STARTED),
        "namespace": {
            **_text(LONGEST_NAMESPACE),
            "pattern": r"^[^\u0000-\u001f\u007f]*$",
            "description": "The pid namespace in which the pid counts: on Linux the number in "
            "`readlink /proc/self/ns/pid`. "
            "Without it, the lease alone decides when the session's claims are over.",
        },
    },
    "required": ["host", "boot", "pid", "started"],
}
GENERATION: Final = _whole(0, a.GENERATIONS_END - 1)
_WRITTEN: Final[Schema] = {
    "type": "string",
    "maxLength": 64,
    "examples": ["90s", "5m", "1h30m"],
}
"""A length of time as people write it."""


def _seconds(number: Schema) -> Schema:
    return {"anyOf": [number, _WRITTEN]}


LEASE: Final[Schema] = _seconds(
    {"type": "number", "exclusiveMinimum": 0, "maximum": a.MOST_LEASE_SECONDS}
)

EVENT_TYPE: Final[Schema] = {
    "type": "string",
    "enum": [str(kind.__struct_config__.tag) for kind in get_args(Event)],
}
STATE: Final[Schema] = {"type": "string", "enum": list(Status)}
PRODUCT: Final[Schema] = {
    "type": "object",
    "properties": {
        "path": _text(LONGEST_PATH, 1),
        "sha256": {"type": "string", "pattern": "^[0-9a-f]{64}$"},
        "size": _whole(0, MOST_BYTES),
    },
    "required": ["path", "sha256", "size"],
}
TRACKS: Final[Schema] = {"anyOf": [TRACK, {"type": "array", "items": TRACK}]}


def _settings(kind: type[msgspec.Struct]) -> Schema:
    """Some of the fields of a policy or of limits."""
    _, parts = msgspec.json.schema_components([kind])
    fields = {
        name: _inline(schema, parts) for name, schema in parts[kind.__name__]["properties"].items()
    }
    return {"type": "object", "properties": fields, "additionalProperties": False}


def _inline(schema: Schema, parts: dict[str, Any]) -> Schema:
    found = parts[schema["$ref"].rpartition("/")[2]] if "$ref" in schema else schema
    return {key: value for key, value in found.items() if key not in ("default", "title")}


_DEFINITION: Final[Schema] = {
    "type": "object",
    "properties": {"id": {"$ref": "#/components/schemas/TaskId"}},
}

FIELDS: Final[dict[str, Schema]] = {
    "task_id": TASK_ID,
    "parent": TASK_ID,
    "around": TASK_ID,
    "task_ids": {"type": "array", "items": TASK_ID},
    "agent_id": NAME,
    "session_id": NAME,
    "user_id": NAME,
    "operation_id": OPERATION,
    "process": {"$ref": "#/components/schemas/Process"},
    "agent_role": _text(LONGEST_ROLE),
    "evaluator": _text(LONGEST_ROLE, 1),
    "evaluations": {
        "type": "object",
        "maxProperties": a.MOST_EVALUATORS,
        "propertyNames": _text(LONGEST_ROLE, 1),
        "additionalProperties": {"type": "boolean"},
    },
    "feedback": _text(LONGEST_FEEDBACK),
    "products": {"type": "array", "maxItems": MOST_PRODUCTS, "items": PRODUCT},
    "state": {"type": "string", "enum": list(PromotionState)},
    "failure": _text(LONGEST_FAILURE),
    "superseded": {"type": "array", "maxItems": MOST_PRODUCTS, "items": _text(LONGEST_PATH, 1)},
    "agent_type": _text(a.LONGEST_WORD),
    "lease_duration_seconds": LEASE,
    "wait_seconds": _seconds(_number(0, a.MOST_WAIT_SECONDS)),
    "hours": _number(0, a.MOST_HOURS),
    "fraction": _number(0, 1),
    "note": _text(a.LONGEST_NOTE),
    "worktree_path": _text(a.LONGEST_PATH),
    "cost": {
        "type": "object",
        "maxProperties": a.MOST_UNITS,
        "propertyNames": _text(a.LONGEST_WORD),
        "additionalProperties": _number(0, a.MOST_COST),
    },
    "generation": GENERATION,
    "expected_generation": GENERATION,
    "generations": {"type": "object", "propertyNames": TASK_ID, "additionalProperties": GENERATION},
    "limit": _whole(1, a.MOST_LINES),
    "back": _whole(0, a.MOST_BACK),
    "count": _whole(1, a.MOST_IDS),
    "depth": _whole(0, a.MOST_STEPS),
    "tracks": TRACKS,
    "states": {"anyOf": [STATE, {"type": "array", "items": STATE}]},
    "tag": _text(a.LONGEST_TEXT),
    "text": _text(a.LONGEST_TEXT),
    "types": {"anyOf": [EVENT_TYPE, {"type": "array", "items": EVENT_TYPE}]},
    "since": {"type": "string", "format": "date-time"},
    "until": {"type": "string", "format": "date-time"},
    "act": {"type": "string", "enum": list(ACTS)},
    "sort": {"type": "string", "enum": list(SortBy)},
    "work_product_ref": _text(a.LONGEST_REFERENCE),
    "refused_id": _text(a.LONGEST_REFERENCE),
    "key_id": KEY_ID,
    "name": NAME,
    "role": {"type": "string", "enum": list(Role)},
    "projects": _text(LONGEST_SCOPE, 1),
    "expires_in_seconds": _seconds(_number(0, MOST_SECONDS)),
    "expires_at": {"type": "string", "format": "date-time"},
    "before": {"type": "string", "format": "date-time"},
    "overlap_seconds": _seconds(_number(0, MOST_OVERLAP_SECONDS)),
    "digest": _text(a.LONGEST_DIGEST),
    "commit": {"type": "string", "pattern": "^([0-9a-f]{40}|[0-9a-f]{64})$"},
    "after": _text(a.LONGEST_TEXT),
    "reason": _text(a.LONGEST_TEXT),
    "mode": {"type": "string", "enum": list(SpawnMode)},
    "profile": {"type": "string", "enum": list(PROFILES)},
    "policy": _settings(Policy),
    "limits": _settings(TenantLimits),
    "tasks": {"type": "array", "items": {"anyOf": [TASK_ID, {**_DEFINITION, "required": ["id"]}]}},
    "subtasks": {"type": "array", "items": {"anyOf": [{"type": "string"}, _DEFINITION]}},
    "results": {
        "type": "array",
        "items": {
            "type": "object",
            "properties": {
                "task_id": TASK_ID,
                "generation": GENERATION,
                "result_data": {},
                "work_product_ref": _text(a.LONGEST_REFERENCE),
                "operation_id": {"anyOf": [OPERATION, {"type": "null"}]},
                "agent_id": {"anyOf": [NAME, {"type": "null"}]},
                "products": {"type": "array", "maxItems": MOST_PRODUCTS, "items": PRODUCT},
            },
            "required": ["task_id", "generation"],
            "additionalProperties": False,
        },
    },
}
"""Schemas by keyword."""

OF_OPERATION: Final[dict[tuple[str, str], Schema]] = {
    ("release_claim", "reason"): _text(a.LONGEST_NOTE),
    ("set_policy", "tracks"): {
        "type": "object",
        "propertyNames": TRACK,
        "additionalProperties": _text(a.LONGEST_TEXT),
    },
    ("search_events", "before"): {
        **_text(a.LONGEST_TEXT),
        "description": "Only up to this cursor: `next` of the page before, or any other.",
    },
}
"""Schemas of keywords that have another meaning in one operation."""

MEANINGS: Final[dict[str, str]] = {
    "task_id": (
        "A task: `B-003-dashboard`, `AUTH-LOGIN:design_code`, `0001_t1.1` or `any-name`; "
        "`::1` may follow."
    ),
    "session_id": (
        f"One run of one user's tool: {_WHO}. The header genlock-session says it for all."
    ),
    "agent_id": f"The worker in the session: {_WHO}. The header genlock-agent says it for all.",
    "user_id": "The person behind the session.",
    "operation_id": (
        "Made up by the caller, once an act: sent again, it is answered as before. The header "
        "Idempotency-Key says the same."
    ),
    "lease_duration_seconds": (
        "How long the claim lasts unless it is renewed: in seconds, or as 90s, 5m or 1h30m."
    ),
    "wait_seconds": (
        "How long to wait for a task if none is ready: in seconds, or as 90s, 5m or 1h30m."
    ),
    "expected_generation": "The generation that the claim was granted at.",
    "generation": "The generation that the claim was granted at.",
    "generations": "`{task id: generation}`.",
    "limit": "The most lines of the answer.",
    "after": (
        "Only what comes behind this: in the feed a cursor of an earlier answer, in a list "
        "the last id of the page before."
    ),
    "tail": "Only the cursor of the feed's end, and no events.",
    "back": "With `tail`: the cursor of so many positions before the end.",
    "tracks": "Only these tracks; several by naming them several times.",
    "states": "Only tasks in these states; several by naming them several times.",
    "tag": "Only tasks with this tag.",
    "text": "Only tasks that have each of these words in id, title, tags or description.",
    "sort": "What the list is sorted by.",
    "types": "Only events of these types; several by naming them several times.",
    "since": "From when on, as ISO 8601.",
    "until": "Until when, as ISO 8601.",
    "act": "What is done to each of the tasks.",
    "dry_run": "Do nothing, and say what would become of each task.",
    "folded": "Draw each track as one box.",
    "hide_finished": "Leave out what is completed or cancelled.",
    "reverse": "The last of the order first.",
    "around": "Only what lies around this task.",
    "depth": "How many steps before and behind the task `around`.",
    "metadata": "Anything of your own, up to 4 KiB.",
    "result_data": "The result, as any JSON. What is large becomes a payload.",
    "work_product_ref": (
        "Where the work itself lies: a commit, a file, an address. It is shown as the result's "
        "`reference`."
    ),
    "agent_role": "In which role the agent works. The holder of a key may state its roles only.",
    "agent_roles": (
        "Of a key, the roles that its holder may state; of a project, its table of roles, as "
        "agent_roles.yml has it."
    ),
    "evaluations": "Which evaluators of the task's edge have passed: `{name: true}`.",
    "evaluator": "An evaluator of the task's edge.",
    "passed": "Whether the evaluator has passed the result.",
    "products": (
        "The drafts that belong to the result, each with path, sha256 and size: an acceptance "
        "promotes exactly these."
    ),
    "state": "Only promotions in this state.",
    "failure": "Why the products cannot be promoted; empty if they were.",
    "superseded": "Paths whose asset is from a later acceptance.",
    "feedback": "What the next holder should do differently.",
    "agent_type": "What kind of tool the session is.",
    "process": (
        "Which process the session is; it is looked after if it is on the service's own machine."
    ),
    "source": (
        "The plan: its mapping, its YAML text, or files as pairs of name and content (base64)."
    ),
    "prune": "Cancel the tasks that are gone from the plan; of a comparison: say which.",
    "cascade": "Also every completed task that rests on it.",
    "take_over": (
        "Take the task even from a live holder, whose result is refused from then on, and kept."
    ),
    "include_settled": "Also those that were adopted or discarded.",
    "include_ended": "Also the sessions that have ended.",
    "refused_id": "The id of a refused result, as `refused` lists it.",
    "commit": "The full name of the commit that the branch would end at.",
    "protected": "Does the branch take accepted work only?",
    "digest": (
        "The digest of a result, if not the accepted one; of a review the one that was looked at, "
        "or its first 12 digits."
    ),
    "hours": "How long the reservation lasts.",
    "fraction": "How much of the work is done, from 0 to 1.",
    "worktree_path": "Where this generation works; empty if that place is gone.",
    "note": "What operators and the next holder should know.",
    "cost": 'What this generation has cost up to now, by unit: `{"usd": 0.12}`.',
    "keep": "Keep the claim while the subtasks are worked on.",
    "mode": "How the subtasks follow each other.",
    "subtasks": "Titles, or definitions of tasks.",
    "tasks": "Ids, or definitions of tasks.",
    "task_ids": "The tasks.",
    "results": "The results, each with its task and generation.",
    "changes": "The fields to change, with their new values.",
    "policy": "The keys of the policy to change.",
    "limits": "The limits of the tenant to change. Needs the role admin.",
    "profile": "The tenant's profile. Needs the role admin.",
    "parent": "The task below which the id is to be.",
    "count": "How many ids.",
    "key_id": "A key, by the part of its text that is no secret.",
    "name": "What the key is called: the user of whatever is done with it.",
    "role": "What the key is for. Each role may do what the one before it may.",
    "projects": "The projects that the key is for: a name, or a pattern with `*`.",
    "expires_in_seconds": "How long the key is good: in seconds, or as 90s, 5m or 2d.",
    "expires_at": "Until when the key is good, as ISO 8601.",
    "before": "Only claims whose lease was over by then, as ISO 8601; default: now.",
    "include_idle": "Also agents that hold nothing, and the tasks that each has completed.",
    "overlap_seconds": "How long the text before is still taken: in seconds, or as 90s or 5m.",
    "include_revoked": "Also the keys that were revoked.",
    "reason": "Why, for readers of the history.",
}
