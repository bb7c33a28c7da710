"""The plan that the fleet works on.

`estimate_seconds` is how long a worker pretends to work, `lease_seconds` how long its claim lasts unrenewed. `split` is no field of
Genlock's: what it does not know it keeps in the task's metadata, and our workers understand it as "fan this out".
"""

from __future__ import annotations

PLAN = """
project: shop-rebuild
tracks:
  A:
    - id: A-001-core-framework
      description: Initialize core application framework
      estimate_seconds: 2
      lease_seconds: 4
    - id: A-002-di-container
      description: Setup dependency injection container
      estimate_seconds: 6
      lease_seconds: 30          # long: that it is taken over within moments is none of the lease's doing
      depends_on: [A-001-core-framework]
    - id: A-003-event-bus
      description: Implement event bus for async communication
      estimate_seconds: 2
      lease_seconds: 4
      depends_on: [A-002-di-container]
  B:
    - id: B-001-schema-design
      description: Design database schema
      estimate_seconds: 4
      lease_seconds: 4
    - id: B-002-entity-models
      description: Create entity models from schema
      estimate_seconds: 8
      lease_seconds: 1.2         # short: who stops renewing loses it soon
      depends_on: [B-001-schema-design, A-001-core-framework]   # across tracks
    - id: B-003-repositories
      description: Implement repository pattern
      estimate_seconds: 2
      lease_seconds: 4
      depends_on: [B-002-entity-models, A-002-di-container]     # across tracks
  F:
    - id: F-001-test-suite
      description: Test it all
      lease_seconds: 4
      depends_on: [A-003-event-bus, B-003-repositories]
      split: [unit tests, integration tests, load tests]
"""

# The tasks to which something is made to happen.
RESERVED = "B-001-schema-design"
CRASHED = "A-002-di-container"
ZOMBIE = "B-002-entity-models"


def short(task_id: str) -> str:
    """`B-002-entity-models` → `B-002`, `F-001-test-suite::2` → `F-001::2`."""
    name, _, child = task_id.partition("::")
    return name[:5] + (f"::{child}" if child else "")
