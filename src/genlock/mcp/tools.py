"""The tools: names, arguments, hints and schemas, in the form that models see.

Their text is part of every conversation, so it is short: `tools/list` stays below 2,000 tokens. The
answers tell a model what it can do next, when it matters.
"""

from __future__ import annotations

import functools
from typing import Annotated, Any, ClassVar, Final, Literal

import msgspec
from msgspec import Meta, Struct

LONGEST_WAIT_SECONDS: Final = 45
"""Clients time a call out after a minute or two; some without an error."""

TaskId = Annotated[str, Meta(description="A task's id, such as A-001-outline.")]
Generation = Annotated[
    int, Meta(ge=1, description="The generation that claim answered: your fencing token.")
]
Agent = Annotated[
    str,
    Meta(description="Your own name, if several subagents share this connection."),
]


class Tool(Struct, kw_only=True, forbid_unknown_fields=True):
    """A call of a tool: its arguments. The docstring is the description that a model reads."""

    name: ClassVar[str]
    reads_only: ClassVar[bool] = False


class Subtask(Struct, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A part of a task."""

    title: str
    description: str = ""
    id: str | None = None
    depends_on: list[str] = []


class Claim(Tool):
    """Claim a task before you work on it. Answers the task, its instructions and its generation."""

    name = "claim"
    task: Annotated[str, Meta(description="A task's id, or next: the first one that is ready.")] = (
        "next"
    )
    track: Annotated[str, Meta(description="With next: only tasks of this track.")] | None = None
    wait_seconds: Annotated[
        float,
        Meta(ge=0, le=LONGEST_WAIT_SECONDS, description="With next: wait so long for a task."),
    ] = 0
    agent: Agent | None = None


class Submit(Tool):
    """Submit the result of a task that you claimed, which completes it. A result that comes too
    late is refused and kept."""

    name = "submit"
    task: TaskId
    generation: Generation
    result: Annotated[
        Any, Meta(description="What you did: text, or any JSON value. Dependents can read it.")
    ] = None
    reference: Annotated[
        str, Meta(description="A commit, file or URL that the result refers to.")
    ] = ""


class Release(Tool):
    """Give a claimed task back unfinished, so that another agent can take it."""

    name = "release"
    task: TaskId
    generation: Generation
    failed: Annotated[
        bool, Meta(description="The work failed. After several failures a person looks at it.")
    ] = False
    note: Annotated[str, Meta(description="Why, and what the next agent should know.")] = ""


class Progress(Tool):
    """Renew your claim, check that it is still yours, and report how far you are. If it is lost,
    stop working on the task."""

    name = "progress"
    task: TaskId
    generation: Generation
    fraction: (
        Annotated[float, Meta(ge=0, le=1, description="How much is done, from 0 to 1.")] | None
    ) = None
    note: Annotated[
        str, Meta(description="What you found, for people and for the next holder.")
    ] = ""


class Spawn(Tool):
    """Split a claimed task into subtasks. Your claim ends, and the task opens again when they are
    done."""

    name = "spawn"
    task: TaskId
    generation: Generation
    subtasks: Annotated[
        list[Subtask | str], Meta(min_length=1, description="Titles, or objects with a title.")
    ]
    mode: Literal["parallel", "sequential", "fan-out-fan-in"] = "parallel"


class Add(Tool):
    """Add a task to the plan. The same call again changes nothing."""

    name = "add"
    id: Annotated[str, Meta(description="A new id in the pattern of the others, e.g. A-007-cli.")]
    title: str
    description: Annotated[str, Meta(description="All that another agent needs to do it.")] = ""
    depends_on: Annotated[list[str], Meta(description="Ids of tasks to be completed first.")] = []
    priority: Literal["critical", "high", "medium", "low"] = "medium"


class Show(Tool):
    """Show a task: instructions, state, what it waits for, earlier attempts, result."""

    name = "show"
    reads_only = True
    task: TaskId
    offset: Annotated[
        int, Meta(ge=0, description="Go on from this character, if an answer was cut.")
    ] = 0


class List(Tool):
    """List tasks: ready (can be claimed), mine (your claims), working (who does what), blocked."""

    name = "list"
    reads_only = True
    what: Literal["ready", "mine", "working", "blocked"] = "ready"
    track: Annotated[str, Meta(description="With ready: only this track.")] | None = None
    after: Annotated[str, Meta(description="With blocked: go on after this id.")] | None = None


TOOLS: Final[dict[str, type[Tool]]] = {
    tool.name: tool for tool in (Claim, Submit, Release, Progress, Spawn, Add, Show, List)
}


@functools.cache
def listed() -> tuple[dict[str, Any], ...]:
    """Returns the tools in the form of `tools/list`."""
    return tuple(
        {
            "name": name,
            "description": " ".join((tool.__doc__ or "").split()),
            "inputSchema": schema_of(tool),
            "annotations": _hints(tool),
        }
        for name, tool in TOOLS.items()
    )


def _hints(tool: type[Tool]) -> dict[str, bool]:
    """Returns a tool's hints. Codex refuses a tool without them, because it could be destructive or
    reach the network. Each call may be repeated: the same claim gets the same answer, and
    generations fence the others."""
    return {
        "readOnlyHint": tool.reads_only,
        "destructiveHint": False,
        "idempotentHint": True,
        "openWorldHint": False,
    }


def schema_of(tool: type[Tool]) -> dict[str, Any]:
    """Returns the JSON schema of a tool's arguments, without references and titles."""
    (schema,), components = msgspec.json.schema_components([tool], ref_template="{name}")
    found: dict[str, Any] = _inlined(schema, components)
    return _without(found, "description", *(() if found["required"] else ("required",)))


def _inlined(schema: Any, components: dict[str, Any]) -> Any:
    if isinstance(schema, list):
        return [_inlined(item, components) for item in schema]
    if not isinstance(schema, dict):
        return schema
    if "$ref" in schema:
        return _inlined({**components[schema["$ref"]], **_without(schema, "$ref")}, components)
    if "anyOf" in schema and {"type": "null"} in schema["anyOf"]:
        # An optional argument need not accept null.
        given = [choice for choice in schema["anyOf"] if choice != {"type": "null"}]
        schema = _without(schema, "anyOf", "default") | (
            given[0] if len(given) == 1 else {"anyOf": given}
        )
    if "enum" in schema:
        schema = {"type": "string"} | schema  # some clients refuse an argument without a type
    properties = schema.get("properties")
    plain = {
        key: _inlined(value, components)
        for key, value in schema.items()
        if key not in ("title", "properties")
    }
    if properties is not None:
        plain["properties"] = {
            name: _inlined(value, components) for name, value in properties.items()
        }
    return plain


def _without(schema: dict[str, Any], *names: str) -> dict[str, Any]:
    return {key: value for key, value in schema.items() if key not in names}
