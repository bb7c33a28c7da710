"""Projects: a project's policy and table of tracks.

1. The first change creates the project. A change that changes nothing writes nothing.
2. A project records each new epoch of the store in its feed, where a reader finds the reason why
   the generations jumped.
"""

from __future__ import annotations

from msgspec.structs import replace

from genlock.core import commands as c
from genlock.core import events as e
from genlock.core.agent_roles import NO_ROLES
from genlock.core.decision import Decision, RecordKind, decide_one
from genlock.core.facts import Facts
from genlock.core.keys import PROJECT
from genlock.core.model import ProjectRecord
from genlock.core.policy import change_policy
from genlock.core.reasons import Verdict


def decide_change_project(
    record: ProjectRecord | None, command: c.ChangeProject, facts: Facts
) -> Decision:
    old = record.policy if record else facts.policy
    policy = change_policy(old, command.policy) if command.policy else old
    tracks = command.tracks if command.tracks is not None else record.tracks if record else None
    known = record.agent_roles if record else None
    roles = command.agent_roles if command.agent_roles is not None else known
    if roles == NO_ROLES:
        roles = None
    if record is not None and (policy, tracks, roles) == (record.policy, record.tracks, known):
        return Decision(policy)
    epoch = facts.epoch if record is None else 0
    return decide_one(
        record,
        command,
        facts,
        _changed,
        e.ProjectChanged,
        policy,
        policy=policy,
        tracks=tracks,
        epoch=epoch,
        agent_roles=roles,
    )


def decide_note_epoch(record: ProjectRecord | None, command: c.NoteEpoch, facts: Facts) -> Decision:
    """Records a new epoch. Rule 2."""
    if record is None or facts.epoch <= record.epoch:
        return Decision(Verdict.UNCHANGED)
    return decide_one(
        record,
        command,
        facts,
        _raised,
        e.EpochRaised,
        Verdict.DONE,
        epoch=facts.epoch,
        previous=record.epoch,
    )


def _changed(record: ProjectRecord | None, event: e.ProjectChanged) -> ProjectRecord:
    return ProjectRecord(
        id=event.project_id,
        created_at=record.created_at if record else event.timestamp,
        updated_at=event.timestamp,
        policy=event.policy,
        tracks=event.tracks,
        epoch=record.epoch if record else event.epoch,
        agent_roles=event.agent_roles,
    )


def _raised(record: ProjectRecord, event: e.EpochRaised) -> ProjectRecord:
    return replace(record, updated_at=event.timestamp, epoch=event.epoch)


RECORD = RecordKind(
    kind=PROJECT,
    record=ProjectRecord,
    commands={c.ChangeProject: decide_change_project, c.NoteEpoch: decide_note_epoch},
    begins=e.ProjectChanged,
    folds={e.ProjectChanged: _changed, e.EpochRaised: _raised},
)
