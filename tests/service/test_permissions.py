"""What a caller may do: every role, own and foreign tenants, projects and sessions."""

from __future__ import annotations

from itertools import product

import pytest

from genlock.core.key_roles import Role
from genlock.service.auth.permissions import NOTHING, OPEN, Grant


@pytest.mark.parametrize(("role", "needed"), list(product(Role, Role)))
def test_a_role_may_what_those_before_it_may(role: Role, needed: Role) -> None:
    order = list(Role)
    assert Grant(role=role).may(needed) == (order.index(role) >= order.index(needed))
    assert Grant(role=role).may(str(needed)) == Grant(role=role).may(needed)


SEEN = [
    (Grant(tenant="acme"), "acme", "shop", True),
    (Grant(tenant="acme"), "globex", "shop", False),
    (Grant(tenant="acme", projects="team-*"), "acme", "team-a", True),
    (Grant(tenant="acme", projects="team-*"), "acme", "shop", False),
    (Grant(tenant="acme", projects="team-*"), "globex", "team-a", False),
    (Grant(tenant="acme", projects="shop"), "acme", "Shop", False),
    (Grant(), "globex", "shop", True),
    (Grant(), "*", "*", True),
    (Grant(tenant="acme"), "*", "*", False),
]


@pytest.mark.parametrize(("grant", "tenant", "project", "seen"), SEEN)
def test_a_caller_sees_its_own_tenants_projects_and_no_others(
    grant: Grant, tenant: str, project: str, seen: bool
) -> None:
    assert grant.sees(tenant, project) is seen


def test_whoever_is_on_this_machine_may_all_and_whoever_is_unknown_nothing() -> None:
    assert OPEN.sees("acme", "shop")
    assert OPEN.may("admin")
    assert not NOTHING.sees("acme", "shop")
    assert not NOTHING.sees("*", "*")
    assert not NOTHING.may("agent")
