"""Keys of records. Every key starts with tenant and project."""

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
"""The kind of a payload, the bytes of a large result. It is not a record."""

KINDS = (TASK, SESSION, REFUSED, PROMOTION, COUNTER, PROJECT, TENANT, ACCESS, SETTLED, KEY, FEATURE)


class Key(NamedTuple):
    """A record's name."""

    tenant: str
    project: str
    kind: str
    id: str

    def beside(self, kind: str, id: str) -> Key:
        """Returns the key of another record of the same project."""
        return _key((self[0], self[1], kind, id))

    @property
    def place(self) -> tuple[str, str]:
        """Tenant and project."""
        return self.tenant, self.project


_key = partial(tuple.__new__, Key)  # takes half the time of the class itself


def project_key(tenant: str, project: str) -> Key:
    return Key(tenant, project, PROJECT, project)


def tenant_key(tenant: str) -> Key:
    return Key(NOWHERE, NOWHERE, TENANT, tenant)


def access_key(id: str) -> Key:
    """Returns the key of an access key's record: it is found by its id alone, whatever its tenant
    is."""
    return Key(NOWHERE, NOWHERE, KEY, id)


def payload_key(task: Key, payload_id: str) -> Key:
    """Returns the key under which the bytes of a task's large result are stored. Payloads from
    before they had their own names are stored under the task's name."""
    return task.beside(PAYLOAD, f"{task.id}/{payload_id}") if payload_id else task


def payload_task(key: Key) -> str:
    """Returns the id of the task whose result is stored under this key."""
    return key.id.rpartition("/")[0] if key.kind == PAYLOAD else key.id


def refused_id(task: str, generation: int, session: str, digest: str) -> str:
    """Returns the name of a refused result. Submitting the same result again gives the same
    name."""
    return f"{task}/{generation}/{session}/{digest[:16]}"


def promotion_id(task: str, generation: int) -> str:
    """Returns the name of a promotion: a task is accepted once in a generation."""
    return f"{task}/{generation}"
