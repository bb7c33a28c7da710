"""Tenants: a tenant's profile and limits.

1. The first change creates the tenant, with the `initial` profile unless it names another.
2. Naming a profile sets all limits to those of the profile; limits named in the same change
   override them.
3. A change that changes nothing writes nothing.
"""

from __future__ import annotations

from genlock.core import commands as c
from genlock.core import events as e
from genlock.core.decision import Decision, RecordKind, decide_one
from genlock.core.facts import Facts
from genlock.core.keys import TENANT
from genlock.core.model import TenantRecord
from genlock.core.policy import PROFILES, change_limits
from genlock.errors import BadArgument


def decide_change_tenant(
    record: TenantRecord | None, command: c.ChangeTenant, facts: Facts
) -> Decision:
    profile = command.profile or (record.profile if record else command.initial)
    if profile not in PROFILES:
        raise BadArgument(f"there is no profile {profile!r}; there are: {', '.join(PROFILES)}")
    fresh = record is None or command.profile is not None
    limits = PROFILES[profile] if fresh else record.limits if record else PROFILES[profile]
    if command.limits:
        limits = change_limits(limits, command.limits)
    if record is not None and (profile, limits) == (record.profile, record.limits):
        return Decision(limits)
    return decide_one(
        record,
        command,
        facts,
        _changed,
        e.TenantChanged,
        limits,
        tenant=command.key.id,
        profile=profile,
        limits=limits,
    )


def _changed(record: TenantRecord | None, event: e.TenantChanged) -> TenantRecord:
    return TenantRecord(
        id=event.tenant,
        created_at=record.created_at if record else event.timestamp,
        updated_at=event.timestamp,
        profile=event.profile,
        limits=event.limits,
    )


RECORD = RecordKind(
    kind=TENANT,
    record=TenantRecord,
    commands={c.ChangeTenant: decide_change_tenant},
    begins=e.TenantChanged,
    folds={e.TenantChanged: _changed},
)
