"""Keys of records. Everything that is kept starts with tenant and project."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple, TypeAlias

Scope: TypeAlias = tuple[str, str]
"""A tenant and a project."""

NOWHERE = "_"
"""The reserved tenant, under which tenants and keys are listed, and the project of records that
belong to none."""

TASK = "task"
SESSION = "session"
REFUSED = "refused"
COUNTER = "counter"
PROJECT = "project"
TENANT = "tenant"
ACCESS = "access"
SETTLED = "settled"
KEY = "key"
PROMOTION = "promotion"
FEATURE = "feature"

PAYLOAD = "payload"
"""Of no record: where the bytes of a large result lie."""

KINDS = (TASK, SESSION, REFUSED, PROMOTION, COUNTER, PROJECT, TENANT, ACCESS, SETTLED, KEY, FEATURE)


class Key(NamedTuple):
    """A record's name."""

    tenant: str
    project: str
    kind: str
    id: str

    def beside(self, kind: str, id: str) -> Key:
        """The key of another record of the same project."""
        return _key((self[0], self[1], kind, id))

    @property
    def place(self) -> tuple[str, str]:
        """Tenant and project."""
        return self.tenant, self.project


_key = partial(tuple.__new__, Key)  # half of what the class itself takes


def project_key(tenant: str, project: str) -> Key:
    return Key(tenant, project, PROJECT, project)


def tenant_key(tenant: str) -> Key:
    return Key(NOWHERE, NOWHERE, TENANT, tenant)


def access_key(id: str) -> Key:
    """The record of a key that opens the service: found by its id alone, whatever its tenant is."""
    return Key(NOWHERE, NOWHERE, KEY, id)


def payload_key(task: Key, payload_id: str) -> Key:
    """Under which the bytes of a task's large result are put; those from before they had names of
    their own, under the task's."""
    return task.beside(PAYLOAD, f"{task.id}/{payload_id}") if payload_id else task


def payload_task(key: Key) -> str:
    """The id of the task whose result lies under this key."""
    return key.id.rpartition("/")[0] if key.kind == PAYLOAD else key.id


def refused_id(task: str, generation: int, session: str, digest: str) -> str:
    """The name of a refused result, the same however often the same thing is submitted."""
    return f"{task}/{generation}/{session}/{digest[:16]}"


def promotion_id(task: str, generation: int) -> str:
    """The name of a promotion: a task is accepted once in a generation."""
    return f"{task}/{generation}"
