"""Checks of arguments from outside, whose types are not guaranteed. Each error says what is
expected."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from genlock.core import codec
from genlock.core.agent_roles import check_role_name
from genlock.core.commands import EMPTY_RESULTS, SHORTEST_DIGEST, Content
from genlock.core.durations import lease_bounds, read_seconds
from genlock.core.fields import describe_value
from genlock.core.manifest import digest_with, manifest_of
from genlock.core.model import NO_DATA, Manifest, Product
from genlock.core.names import as_plain, check_agent, check_session, check_track, shown
from genlock.core.policy import MAX_INLINE_RESULT_BYTES, PROFILES
from genlock.core.reasons import Status
from genlock.errors import BadArgument, ResultTooLarge
from genlock.typed_json import convert

if TYPE_CHECKING:
    from genlock.reads.task_rows import Sorting, TaskFilter

LEASE_SECONDS = 300.0
MOST_LEASE_SECONDS = 366 * 86400
MOST_WAIT_SECONDS = 86400
MOST_HOURS = 366 * 24
MOST_LINES = 100_000
STATES: Final = tuple(Status)
MOST_IDS = 1000
MOST_BACK = 10**12
MOST_STEPS = 1000
MOST_NESTING = 64
LONGEST_TEXT = 1000
LONGEST_NOTE = 500
LONGEST_PATH = 4096
LONGEST_WORD = 64
MOST_UNITS = 8
MOST_EVALUATORS = 64
MOST_COST = 1e15
LONGEST_REFERENCE = 512
_COMMIT: Final = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
LONGEST_DIGEST = 128
LONGEST_OPERATION = 128
GENERATIONS_END = 2**53
"""The first integer beyond those that a double holds exactly: numbers travel as JSON."""
_LARGEST_METADATA = 4096
_NUMBERS: Final = (int, float)


@cache
def _canonical() -> Callable[[Any], str]:
    from json import encoder

    plain = encoder.JSONEncoder(
        ensure_ascii=False, allow_nan=False, sort_keys=True, separators=(",", ":")
    )
    make: Any = getattr(encoder, "c_make_encoder", None)
    if make is None:
        return plain.encode
    # The stubs do not know it
    default, quoted = plain.default, getattr(encoder, "encode_basestring")  # noqa: B009

    def encode(value: Any) -> str:
        # Does what `plain.encode` does, without its checks, which take as long again. The encoder
        # notes the open containers in the dictionary, to detect cycles. After an error the entries
        # stay there, so every call has its own dictionary.
        return "".join(make({}, default, quoted, None, ":", ",", True, False, False)(value, 0))

    return encode


def check_number(name: str, value: Any, least: float, most: float) -> float:
    """Checks a number between two bounds."""
    if (
        isinstance(value, bool)
        or not isinstance(value, (int, float))
        or not math.isfinite(value)
        or not least <= value <= most
    ):
        raise BadArgument(f"{name} is a number from {least:g} to {most:g}, not {value!r}")
    # Always a float: a stored value must read back as the same bytes.
    return float(value)


def check_role(role: Any) -> str:
    """Checks the role that a caller states, if any."""
    return "" if role == "" else check_role_name("agent_role", role)


def check_digest(digest: Any) -> str:
    """Checks the digest of a reviewed result, or its first characters; empty for a result without
    one."""
    text = check_text("digest", digest, LONGEST_DIGEST)
    if text and (len(text) < SHORTEST_DIGEST or text.strip("0123456789abcdef")):
        raise BadArgument(
            f"digest is {SHORTEST_DIGEST} or more digits of 0-9a-f, as the review has them, not "
            f"{shown(text)}"
        )
    return text


def check_evaluations(value: Any) -> dict[str, bool]:
    """Checks which evaluators have passed, by name."""
    given = check_mapping("evaluations", value)
    if len(given) > MOST_EVALUATORS:
        raise BadArgument(f"evaluations has {len(given)} entries, at most {MOST_EVALUATORS}")
    return {
        check_role_name("a name in evaluations", name): check_flag(f"evaluations.{name}", passed)
        for name, passed in given.items()
    }


def check_whole(name: str, value: Any, least: int, most: int) -> int:
    """Checks a whole number between two bounds."""
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise BadArgument(f"{name} is a whole number from {least:,} to {most:,}, not {value!r}")
    return int(value)


def check_text(name: str, text: Any, longest: int = LONGEST_TEXT) -> str:
    """Checks a text that a person or a program wrote."""
    if not isinstance(text, str) or len(text) > longest or "\0" in text or not _is_utf8(text):
        raise BadArgument(
            f"{name} is a text of at most {longest:,} characters, not "
            f"{text if isinstance(text, str) else describe_value(text)!s:.60}"
        )
    return as_plain(text)


def _is_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def check_flag(name: str, value: Any) -> bool:
    """Checks a boolean; truthy values of other types are refused."""
    if not isinstance(value, bool):
        raise BadArgument(f"{name} is True or False, not {describe_value(value)}")
    return value


def check_mapping(name: str, value: Any) -> Mapping[Any, Any]:
    """A mapping."""
    # Nearly always a dict; `isinstance` with `Mapping` takes ten times as long.
    if type(value) is not dict and not isinstance(value, Mapping):
        raise BadArgument(f"{name} is a mapping, not {describe_value(value)}")
    return value


def check_items(name: str, value: Any) -> list[Any]:
    """Checks a sequence of items: not a text, and not a mapping."""
    if isinstance(value, (str, bytes, Mapping)) or not isinstance(value, Iterable):
        raise BadArgument(f"{name} is a list, not {describe_value(value)}")
    return list(value)


def check_tracks(tracks: Any) -> frozenset[str] | None:
    """Checks some tracks, or one; None for all."""
    if tracks is None:
        return None
    return frozenset(
        check_track(track)
        for track in ([tracks] if isinstance(tracks, str) else check_items("tracks", tracks))
    )


_STATES_ELSEWHERE = {
    "ACTIVE": "IN_PROGRESS",
    "CLOSED": "COMPLETED",
    "DOING": "IN_PROGRESS",
    "DONE": "COMPLETED",
    "OPEN": "PENDING",
    "READY": "PENDING",
    "REVIEW": "IN_REVIEW",
    "TODO": "PENDING",
    "WAITING": "BLOCKED",
}
"""The names that other tools use for states."""


def _state_meant(given: Any) -> str:
    word = given.strip().upper().replace("-", "_") if isinstance(given, str) else ""
    meant = _STATES_ELSEWHERE.get(word) or (word if word in STATES else None)
    return f"; did you mean {meant}?" if meant else ""


def check_states(states: Any) -> frozenset[Status]:
    """Checks some states, or one; no states for all."""
    if states is None:
        return frozenset()
    given = [states] if isinstance(states, str) else check_items("states", states)
    unknown = [state for state in given if not isinstance(state, str) or state not in STATES]
    if unknown:
        raise BadArgument(
            f"states are of {', '.join(STATES)}; {describe_value(unknown[0])!s:.60} is none of them"
            f"{_state_meant(unknown[0])}"
        )
    return frozenset(map(Status, given))


def check_event_types(types: Any) -> frozenset[str]:
    """Checks some types of events, or one; no types for all."""
    from difflib import get_close_matches
    from typing import get_args

    from genlock.core.events import Event

    if types is None:
        return frozenset()
    known = {str(kind.__struct_config__.tag) for kind in get_args(Event)}
    given = [types] if isinstance(types, str) else check_items("types", types)
    for one in given:
        if not isinstance(one, str) or one not in known:
            near = get_close_matches(str(one).upper()[:60], known, 1)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise BadArgument(
                f"types has {describe_value(one)!s:.60}, which is no type of event{hint}"
            )
    return frozenset(given)


def check_filter(
    states: Any, tracks: Any, agent_id: Any, session_id: Any, tag: Any, text: Any
) -> TaskFilter:
    """Checks a filter for tasks."""
    from genlock.reads.task_rows import TaskFilter

    return TaskFilter(
        states=check_states(states),
        tracks=check_tracks(tracks),
        agent=None if agent_id is None else check_agent(agent_id),
        session=None if session_id is None else check_session(session_id),
        tag=None if tag is None else check_text("tag", tag),
        text=check_text("text", text),
    )


def check_sorting(sort: Any, reverse: Any) -> Sorting:
    """Checks the order in which tasks are listed."""
    from genlock.core.dashboard import SortBy
    from genlock.reads.task_rows import Sorting

    if not isinstance(sort, str) or sort not in list(SortBy):
        raise BadArgument(f"sort is one of {', '.join(SortBy)}, not {describe_value(sort)!s:.60}")
    return Sorting(SortBy(sort), check_flag("reverse", reverse))


def check_lease(seconds: Any, name: str = "lease_duration_seconds") -> float:
    """Checks that a lease is a duration. Whether it is within the tenant's limits is a rule of the
    core."""
    if type(seconds) in _NUMBERS and 0 < seconds <= MOST_LEASE_SECONDS:
        return float(seconds)
    length = read_seconds(name, seconds, -math.inf, math.inf)
    if not 0 < length <= MOST_LEASE_SECONDS:
        raise BadArgument(f"{name}: {lease_bounds(length, 0, MOST_LEASE_SECONDS)}")
    return length


def check_generation(generation: Any, name: str = "generation") -> int:
    """Checks that a generation is a whole number. Which one counts is a rule of the core."""
    if (
        isinstance(generation, bool)
        or not isinstance(generation, int)
        or not 0 <= generation < GENERATIONS_END
    ):
        raise BadArgument(f"{name} is the number that the claim was granted at, not {generation!r}")
    return int(generation)


def check_commit(commit: Any) -> str:
    """Checks the full hash of a git commit."""
    text = check_text("commit", commit, 64)
    if not _COMMIT.fullmatch(text):
        raise BadArgument(
            f"commit is the full name of a commit, 40 or 64 of 0-9 a-f, not {shown(text)}"
        )
    return text


def one_generation(generation: Any, expected: Any) -> int:
    """Returns the generation, under our name or GC's. Both may be given if they agree."""
    if expected is None:
        if generation is None:
            raise BadArgument(
                "generation is missing: it is the number that the claim was granted at"
            )
        return check_generation(generation)
    meant = check_generation(expected, "expected_generation")
    if generation is not None and check_generation(generation) != meant:
        raise BadArgument(
            f"generation and expected_generation mean the same, and are {generation} and "
            f"{meant}: give one of them"
        )
    return meant


def check_cost(cost: Any) -> dict[str, float]:
    """Checks the cost of work, by unit."""
    if cost is None:
        return {}
    units = check_mapping("cost", cost)
    if len(units) > MOST_UNITS:
        raise BadArgument(f"cost has at most {MOST_UNITS} units, not {len(units)}")
    return {
        check_text("a unit of cost", unit, LONGEST_WORD): check_number("cost", amount, 0, MOST_COST)
        for unit, amount in units.items()
    }


def check_operation(operation_id: Any) -> str:
    """Checks an operation id: a short text that the caller makes up, one for each act."""
    if operation_id is None:
        return ""
    if (
        not isinstance(operation_id, str)
        or not 1 <= len(operation_id) <= LONGEST_OPERATION
        or not operation_id.isprintable()
    ):
        raise BadArgument(
            f"operation_id is a text of 1 to {LONGEST_OPERATION} printable characters, not "
            f"{operation_id!r}"
        )
    return as_plain(operation_id)


def check_profile(profile: Any) -> str:
    """Checks the name of a profile."""
    if not isinstance(profile, str) or profile not in PROFILES:
        raise BadArgument(f"there is no profile {profile!r}; there are: {', '.join(PROFILES)}")
    return profile


def check_limit(limit: Any) -> int:
    """Checks the maximum number of lines in a listing."""
    return check_whole("limit", limit, 1, MOST_LINES)


def check_after(after: str | None) -> str:
    """Checks the last id of the previous page; "" for none."""
    return "" if after is None else check_text("after", after)


def plain(metadata: Any) -> dict[str, Any]:
    """Returns metadata as plain JSON values."""
    if metadata is None:
        return {}
    check_nesting("metadata", metadata)
    text = _json("metadata", dict(check_mapping("metadata", metadata)))
    values: dict[str, Any] = msgspec.json.decode(text)
    if len(text) > _LARGEST_METADATA:
        raise BadArgument(
            f"metadata has {len(text):,} bytes, at most {_LARGEST_METADATA:,} are kept; keep it "
            "elsewhere and name it"
        )
    return values


def check_nesting(name: str, value: Any) -> None:
    """Checks the nesting of metadata. It is decoded with every read of its record, so it may not be
    nested deeper than any reader can follow."""
    level = [value]
    for _ in range(MOST_NESTING):
        level = [inner for outer in level for inner in _inside(outer)]
        if not level:
            return
    raise BadArgument(f"{name} is nested more than {MOST_NESTING} levels deep")


def _inside(value: Any) -> Iterable[Any]:
    if isinstance(value, Mapping):
        return value.values()
    return value if isinstance(value, (list, tuple)) else ()


def _in_pieces(value: Any) -> str:
    """Returns the same text as `_canonical`, but encodes long values piece by piece.

    The encoder holds the interpreter's lock until it is done: ten megabytes of small numbers would
    stop all other threads for seconds, including an event loop.
    """
    if type(value) is list and _is_long(value):
        pieces = [_listed(value[at : at + _PIECE]) for at in range(0, len(value), _PIECE)]
        return f"[{','.join(pieces)}]"
    if type(value) is dict and _is_long(value) and all(type(key) is str for key in value):
        pairs = sorted(value.items(), key=itemgetter(0))
        pieces = [_paired(pairs[at : at + _PIECE]) for at in range(0, len(pairs), _PIECE)]
        return f"{{{','.join(pieces)}}}"
    return _canonical()(value)


def _listed(values: list[Any]) -> str:
    if not _is_long(values):
        return _canonical()(values)[1:-1]
    if len(values) == 1:
        return _in_pieces(values[0])
    half = len(values) // 2
    return f"{_listed(values[:half])},{_listed(values[half:])}"


def _paired(pairs: list[tuple[str, Any]]) -> str:
    if not _is_long([value for _, value in pairs]):
        return _canonical()(dict(pairs))[1:-1]
    if len(pairs) == 1:
        return f"{_canonical()(pairs[0][0])}:{_in_pieces(pairs[0][1])}"
    half = len(pairs) // 2
    return f"{_paired(pairs[:half])},{_paired(pairs[half:])}"


def _is_long(value: Any) -> bool:
    """Does it contain more values than can be encoded in a moment?"""
    left, found = _PIECE, [value] if type(value) in _CONTAINERS else []
    for one in found:  # the loop also visits items that it appends
        left -= len(one)
        if left < 0:
            return True
        for inner in one.values() if type(one) is dict else one:
            if type(inner) in _CONTAINERS:
                # Most have so few items that building a list would take longer
                found.append(inner)  # noqa: PERF401
    return False


_PIECE: Final = 10_000
_CONTAINERS: Final = (list, dict)


def pack(result_data: Any) -> tuple[Content, bytes]:
    """Returns a result in its stored form: canonical bytes, their digest, and whether they are a
    payload."""
    data = _json("result_data", result_data if result_data is not None else {}, _in_pieces)
    digest = codec.digest_of(data).hex()
    payload = len(data) > MAX_INLINE_RESULT_BYTES
    content = Content(
        digest, len(data), NO_DATA if payload else Raw(data), payload, empty=data in EMPTY_RESULTS
    )
    return content, data


def check_products(value: Any, agent: str, generation: int) -> Manifest | None:
    """Checks the products of a result, each a mapping with path, sha256 and size; None if there are
    none."""
    found: list[Product] = []
    if value is None:
        return None
    for entry in check_items("products", value):
        try:
            found.append(entry if isinstance(entry, Product) else convert(entry, Product))
        except (msgspec.ValidationError, TypeError) as error:
            raise BadArgument(
                "each of products has path, sha256 and size, as `product put` answers them: "
                f"{error}"
            ) from None
    return manifest_of(agent, generation, found) if found else None


def pack_with_products(content: Content, data: bytes, manifest: Manifest) -> Content:
    """Adds products to a result; its digest then covers them as well. Large results cannot have
    products, because their bytes are stored under the digest of the bytes alone."""
    if content.payload:
        raise ResultTooLarge(
            f"the result has {content.size:,} bytes, with products at most "
            f"{MAX_INLINE_RESULT_BYTES:,}; put the large part as a product, too"
        )
    digest = digest_with(data, manifest)
    return replace(content, digest=digest, empty=False, manifest=manifest)


def _json(name: str, value: Any, encode: Callable[[Any], str] | None = None) -> bytes:
    """Returns canonical bytes. Does not use msgspec, which writes a set as a list, bytes as base64
    and NaN as null: a value must read back as it was given."""
    try:
        try:
            return (encode or _canonical())(value).encode()
        except RecursionError:
            # The piecewise encoder allows less nesting than the plain one.
            return _canonical()(value).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise BadArgument(f"{name} cannot be written as JSON: {error}") from None
