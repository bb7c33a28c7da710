"""The settings of a project (policy) and the limits of a tenant."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Final, TypeVar, get_args, get_origin

import msgspec
from msgspec import Struct

from genlock.core.durations import is_duration, read_duration
from genlock.core.names import check_track, listed_with_nearest
from genlock.core.products_url import read_products_url
from genlock.errors import BadArgument
from genlock.typed_json import convert

MAX_DEFINITION_BYTES: Final = 16 * 1024
MAX_INLINE_RESULT_BYTES: Final = 32 * 1024
MAX_SPAWN_BYTES: Final = 64 * 1024
MAX_CHILDREN_BYTES: Final = 64 * 1024
"""The space that the children of one task may take in its record, see `genlock.core.task.spawn`."""
MAX_DEPENDENCIES: Final = 256
"""The dependencies of one task: each costs some bytes in every version of its record."""


class Order(StrEnum):
    """The order of ready tasks."""

    TRACK = "track"
    LEAF_FIRST = "leaf-first"
    CLOSEST_TO_DONE = "closest-to-done"


class Expired(StrEnum):
    """The treatment of an overdue claim."""

    TAKEOVER = "takeover"
    GRACE = "grace"
    HUMAN = "human"


class CancelledDependency(StrEnum):
    """The meaning of a cancelled dependency for its dependents."""

    MET = "met"
    HOLD = "hold"


class Tracks(StrEnum):
    """Whether agents that work on a track keep others off it."""

    PREFER = "prefer"
    STRICT = "strict"


class Overlapping(StrEnum):
    """The treatment of a task that shares modules with work in flight."""

    OFF = "off"
    WARN = "warn"
    AVOID = "avoid"
    FORBID = "forbid"


class TrackOrder(StrEnum):
    """Whether a task waits for those with lower numbers in its track."""

    PREFER = "prefer"
    ENFORCE = "enforce"


class Agents(StrEnum):
    """The number of agents that work on the plan: one, or a fleet."""

    FLEET = "fleet"
    SINGLE = "single"


LONE_AGENT: Final = "primary"
LONE_ROLE: Final = "full_stack"
"""Agent and role of a claim that names none, where `agents` is `single` (DDB)."""


class Ids(StrEnum):
    """The reading of bare ids."""

    AUTO = "auto"
    HIERARCHICAL = "hierarchical"


class WorktreeStart(StrEnum):
    """The commit at which the worktree of a generation starts."""

    BASE = "base"
    PREDECESSOR = "predecessor"


class Policy(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """A project's choices; every field can be set by `set_policy`."""

    order: Order = Order.TRACK
    ids: Ids = Ids.AUTO
    expired: Expired = Expired.TAKEOVER
    grace_seconds: float = 60.0
    """With `expired: grace`: how long a lapsed lease may still be renewed."""
    claim_ttl_seconds: float | None = 3600.0
    """With `expired: human`: the time after the end of the lease at which a held task may be taken
    over anyway. None: never."""
    stale_threshold_seconds: float = 1800.0
    """Silence after which a live claim is marked CLAIM_STALE (visible, but not released)."""
    breaker_threshold: int = 5
    """The number of claims in a row that end EXPIRED, ERROR or ORPHANED before the task is put on
    hold; 0 switches the breaker off."""
    cancelled_dependency: CancelledDependency = CancelledDependency.MET
    spawn_depth: int = 3
    offer_backlog: bool = False
    lock_timeout_hours: float = 4.0
    """How long an assignment reserves a task."""
    orphan_threshold_seconds: float = 600.0
    """Silence after which a session no longer counts as active."""
    tracks: Tracks = Tracks.PREFER
    """`strict`: no more than `agents_per_track` agents are granted tasks of one track at a time.
    `prefer`: tracks without a working agent come first."""
    agents_per_track: int | None = None
    """With `tracks: strict`: how many agents may work on one track. None: one."""
    agents_on_track: dict[str, int] = {}
    """The same for single tracks: `{"A": 3}`."""
    track_order: TrackOrder = TrackOrder.PREFER
    """`enforce`: a task is granted only if all those with lower numbers in its track are finished.
    `prefer`: lower numbers come first."""
    overlap: Overlapping = Overlapping.OFF
    """Of tasks that share `modules` with work in flight: `warn` names it in the grant, `avoid` also
    offers the least overlap first, `forbid` grants none."""
    four_eyes: bool = False
    """No user may approve a result of one of their own sessions."""
    worktree_start: WorktreeStart = WorktreeStart.BASE
    """`predecessor`: a worktree starts at the last commit of the generation before it, if there is
    one. `base`: each starts at the base branch."""
    products: str | None = None
    """The area for work products: `file:///folder` or `s3://bucket/prefix`. Credentials come from
    the environment. None: results have no products."""
    draft_retention_days: float = 7.0
    """The time for which drafts of dead generations are kept in the area."""
    agents: Agents = Agents.FLEET
    """`single`: one agent works alone. Claims have no lease: a claim ends when its holder ends it,
    when its session or process ends, or when an operator supersedes it. A claim that names no agent
    and role gets `primary` and `full_stack`."""

    @property
    def lone_agent(self) -> str | None:
        """Returns the agent of a claim that names none; None if a claim must name one."""
        return LONE_AGENT if self.agents is Agents.SINGLE else None

    def role_of(self, stated: str) -> str:
        """Returns the role of a claim that states this role, or ""."""
        return stated or (LONE_ROLE if self.agents is Agents.SINGLE else "")

    def most_agents_on(self, track: str) -> int:
        """Returns how many agents may work on a track with `tracks: strict`."""
        return max(1, self.agents_on_track.get(track, self.agents_per_track or 1))


def agent_for(policy: Mapping[str, Any], guess: str) -> str:
    """Returns the agent of a caller that gave no name, for edges that generate one: the agent of
    the policy from `get_policy`, or the guess."""
    return LONE_AGENT if policy.get("agents") == Agents.SINGLE else guess


class TenantLimits(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """A tenant's limits (GC 7.2); None is unlimited."""

    max_concurrent_claims: int | None = None
    max_lease_duration_seconds: float | None = None
    min_lease_duration_seconds: float = 1.0
    max_generations_per_task: int | None = None
    claim_history_retention_days: float | None = None
    max_result_size_bytes: int = 10 * 1024 * 1024
    max_active_sessions: int | None = None


PROFILES: Final[dict[str, TenantLimits]] = {
    "local": TenantLimits(),
    "default": TenantLimits(
        max_concurrent_claims=100,
        max_lease_duration_seconds=3600.0,
        min_lease_duration_seconds=30.0,
        max_generations_per_task=100,
        claim_history_retention_days=90.0,
        max_active_sessions=50,
    ),
    "enterprise": TenantLimits(
        max_concurrent_claims=1000,
        max_lease_duration_seconds=7200.0,
        min_lease_duration_seconds=30.0,
        max_generations_per_task=1000,
        claim_history_retention_days=365.0,
        max_result_size_bytes=100 * 1024 * 1024,
        max_active_sessions=500,
    ),
}

_MOST: Final = {"seconds": 3_155_760_000, "hours": 876_600, "days": 36_525}
"""A hundred years, by the unit at the end of a setting's name."""
_UNIT_SECONDS: Final = {"seconds": 1, "hours": 3600, "days": 86400}

STANDARD_TRACKS: Final[dict[str, str]] = {
    "A": "Core Architecture",
    "B": "Data Layer",
    "C": "API Layer",
    "D": "Frontend",
    "E": "Infrastructure",
    "F": "Testing",
    "G": "Documentation",
    "X": "Experimental",
    "Z": "Maintenance",
}
"""GC 3.2: the initial table of a project."""


S = TypeVar("S", bound=Struct)


def change_policy(policy: Policy, changes: dict[str, Any]) -> Policy:
    """Returns the policy with `changes` applied. Raises BadArgument that names the key and its
    possible values."""
    new = _changed(policy, changes, Policy, "policy")
    for track, number in new.agents_on_track.items():
        check_track(track)
        if number < 1:
            raise BadArgument(
                f"policy agents_on_track: {number} agents on track {track} are too few, 1 is the "
                "least"
            )
    if changes.get("products") is not None and new.products is not None:
        read_products_url(new.products)
    if new.agents_per_track == 0:
        raise BadArgument("policy agents_per_track: 0 is too few; 1 is the least, null is one")
    return new


def change_limits(limits: TenantLimits, changes: dict[str, Any]) -> TenantLimits:
    """Returns the limits with `changes` applied. Raises BadArgument that names the key and its
    possible values."""
    new = _changed(limits, changes, TenantLimits, "limit")
    if new.min_lease_duration_seconds < 1:
        raise BadArgument(
            f"limit min_lease_duration_seconds: {new.min_lease_duration_seconds:g} is too short, 1 "
            "is the least"
        )
    if (
        new.max_lease_duration_seconds is not None
        and new.max_lease_duration_seconds < new.min_lease_duration_seconds
    ):
        raise BadArgument(
            f"limit max_lease_duration_seconds: {new.max_lease_duration_seconds:g} is less than "
            "min_lease_duration_seconds, "
            f"{new.min_lease_duration_seconds:g}; no lease could be asked for"
        )
    return new


def takes(kind: type[Struct], name: str) -> str:
    """Returns in words the possible values of a policy key or limit."""
    wanted = next(field.type for field in msgspec.structs.fields(kind) if field.name == name)
    kinds = (wanted,) if get_origin(wanted) is dict else get_args(wanted) or (wanted,)
    return " or ".join(map(_in_words, kinds))


def _in_words(kind: type) -> str:
    if get_origin(kind) is dict:
        return 'whole numbers by track, as {"A": 2}'
    if issubclass(kind, StrEnum):
        return f"one of {', '.join(kind)}"
    words = {int: "a whole number", float: "a number", bool: "true or false", str: "a text"}
    return words.get(kind, "none")


def _in_unit(name: str, value: Any) -> Any:
    """Converts a duration as people write it (`5m`) to the unit at the end of the setting's
    name."""
    seconds = _UNIT_SECONDS.get(name.rpartition("_")[2])
    if seconds is None or not isinstance(value, str) or not is_duration(value):
        return value
    return read_duration(value, name) / seconds


def _complaint(changes: dict[str, Any], kind: type[Struct], noun: str) -> str | None:
    """Returns a message about the first change that is not a valid value of its key, and the valid
    ones."""
    for name, value in changes.items():
        try:
            convert(msgspec.to_builtins({name: value}), kind)
        except (msgspec.ValidationError, TypeError):
            return f"{noun} {name} is {takes(kind, name)}, not {repr(value)[:60]}"
    return None


def _changed(old: S, changes: dict[str, Any], kind: type[S], noun: str) -> S:
    unknown = sorted(set(changes) - set(kind.__struct_fields__), key=repr)
    if unknown:
        raise BadArgument(
            f"there is no {noun} {unknown[0]!r}; "
            f"{listed_with_nearest(str(unknown[0])[:60], kind.__struct_fields__)}"
        )
    changes = {name: _in_unit(name, value) for name, value in changes.items()}
    try:
        new = convert(msgspec.to_builtins(old) | msgspec.to_builtins(changes), kind)
    except (msgspec.ValidationError, TypeError) as error:
        raise BadArgument(_complaint(changes, kind, noun) or f"{noun}: {error}") from None
    for name in kind.__struct_fields__:
        value = getattr(new, name)
        # No duration may lead beyond the calendar.
        most = _MOST.get(name.rpartition("_")[2], 10**15)
        if (
            isinstance(value, (int, float))
            and not isinstance(value, bool)
            and not 0 <= value <= most
        ):
            raise BadArgument(f"{noun} {name}: {value} is out of range (0 or more)")
    return new
