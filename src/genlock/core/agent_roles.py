"""Agents' roles: the edges that each role may converge, and the tasks that it may take.

The table is `agent_roles.yml`, kept in the project's record. For an edge, it may also require
something before a result counts: a review by a person, or evaluators that passed.

1. If the table has no roles, no result is limited by them.
2. With roles, work on an edge counts only under a claim whose role may converge that edge. A claim
   without a role, or with one that the table does not have, may converge no edge. A task without an
   edge has nothing to converge.
3. A task that names roles is for those roles. A role that may converge all edges may take any task,
   so a lone agent can work on a plan that was made for many. If the policy `agents` is `single`,
   `full_stack` is such a role, unless the table says otherwise.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Final

import msgspec
from msgspec import Struct

from genlock.core.names import check_length, describe_character, shown
from genlock.core.policy import LONE_ROLE, Policy
from genlock.errors import BadArgument

ALL: Final = "all"
"""In `converge_edges`: every edge."""
LONGEST_ROLE: Final = 64
_MOST: Final = 64
"""The limit for the roles of a table, the edges of a role and the evaluators of an edge."""
_MOST_BYTES: Final = 16 * 1024


class EdgeRule(Struct, frozen=True, gc=False, omit_defaults=True):
    """The requirements, besides a role, that a result of an edge must meet before it counts."""

    human_required: bool = False
    evaluators: tuple[str, ...] = ()


class AgentRoles(Struct, frozen=True, gc=False, omit_defaults=True):
    """A project's table of roles."""

    roles: dict[str, tuple[str, ...]] = {}
    """The edges that each role may converge."""
    edges: dict[str, EdgeRule] = {}

    def may_converge(self, role: str, edge: str | None) -> bool:
        """May this role converge the edge? Rules 1 and 2."""
        if not self.roles or edge is None:
            return True
        edges = self.edges_of(role)
        return edge in edges or ALL in edges

    def may_take(self, role: str, wanted: Collection[str]) -> bool:
        """May this role take a task that is for the roles in `wanted`? Rule 3."""
        return not wanted or role in wanted or ALL in self.edges_of(role)

    def edges_of(self, role: str) -> tuple[str, ...]:
        """Returns the edges that a role may converge."""
        return self.roles.get(role, ())


class LoneAgentRoles(AgentRoles, frozen=True, gc=False):
    """A project's table when one agent works alone. Its role may converge every edge and take every
    task, unless the table says otherwise."""

    def edges_of(self, role: str) -> tuple[str, ...]:
        return self.roles.get(role, (ALL,) if role == LONE_ROLE else ())


NO_ROLES: Final = AgentRoles()


def roles_in_force(table: AgentRoles | None, policy: Policy) -> AgentRoles:
    """Returns the table of roles by which claims and results are decided."""
    table = table or NO_ROLES
    return table if policy.lone_agent is None else LoneAgentRoles(table.roles, table.edges)


def check_role_name(name: str, value: object) -> str:
    """Returns the name of a role, an edge or an evaluator if it is printable and has no comma or
    slash."""
    text = check_length(name, value, LONGEST_ROLE)
    for at, character in enumerate(text):
        if character in ",/" or not character.isprintable():
            raise BadArgument(
                f"{name} {shown(text)}: {describe_character(text, at)}; allowed are printable "
                "characters other than '/' and ','"
            )
    return text


def check_agent_roles(value: object) -> AgentRoles:
    """Reads the table from the content of `agent_roles.yml`. Raises BadArgument that names the
    fault."""
    table = _mapping("agent_roles", value, ("roles", "edges"))
    roles = {}
    for name, role in _entries("roles", table.get("roles")):
        given = _mapping(f"roles.{name}", role, ("converge_edges",))
        roles[name] = check_role_names(f"roles.{name}.converge_edges", given.get("converge_edges"))
    edges = {}
    for name, rule in _entries("edges", table.get("edges")):
        given = _mapping(f"edges.{name}", rule, ("human_required", "evaluators"))
        human = given.get("human_required", False)
        if not isinstance(human, bool):
            raise BadArgument(f"edges.{name}.human_required is true or false, not {human!r:.60}")
        edges[name] = EdgeRule(
            human, check_role_names(f"edges.{name}.evaluators", given.get("evaluators"))
        )
    found = AgentRoles(roles, edges)
    size = len(msgspec.json.encode(found))
    if size > _MOST_BYTES:
        raise BadArgument(f"agent_roles has {size:,} bytes, at most {_MOST_BYTES:,} are kept")
    return found


def as_document(table: AgentRoles) -> dict[str, Any]:
    """Returns the table as it stands in `agent_roles.yml`."""
    document: dict[str, Any] = {
        "roles": {name: {"converge_edges": list(edges)} for name, edges in table.roles.items()}
    }
    if table.edges:
        document["edges"] = {
            name: ({"human_required": True} if rule.human_required else {})
            | ({"evaluators": list(rule.evaluators)} if rule.evaluators else {})
            for name, rule in table.edges.items()
        }
    return document


def _mapping(what: str, value: object, keys: Collection[str]) -> Mapping[Any, Any]:
    if not isinstance(value, Mapping):
        raise BadArgument(f"{what} is a mapping with {' and '.join(keys)}, not {value!r:.60}")
    unknown = [key for key in value if key not in keys]
    if unknown:
        raise BadArgument(
            f"{what} has no key {str(unknown[0])!r:.60}; there are: {', '.join(keys)}"
        )
    return value


def _entries(what: str, value: object) -> list[tuple[str, object]]:
    if value is None:
        return []
    if not isinstance(value, Mapping):
        raise BadArgument(f"{what} is a mapping by name, not {value!r:.60}")
    if len(value) > _MOST:
        raise BadArgument(f"{what} has {len(value):,} entries, at most {_MOST} are kept")
    return [(check_role_name(f"a name in {what}", name), entry) for name, entry in value.items()]


def check_role_names(what: str, value: object) -> tuple[str, ...]:
    """Returns several names without duplicates."""
    if value is None:
        return ()
    if not isinstance(value, (list, tuple)) or len(value) > _MOST:
        raise BadArgument(f"{what} is a list of at most {_MOST} names, not {value!r:.60}")
    return tuple(dict.fromkeys(check_role_name(what, name) for name in value))
