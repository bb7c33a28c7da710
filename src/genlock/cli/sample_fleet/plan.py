"""The plans that the sample fleet works on.

`estimate_seconds` is how long an agent pretends to work, `lease_seconds` how long its claim lasts
without renewal. `split` is no field of Genlock's: unknown fields are kept in the task's metadata,
and these agents understand it as "fan this out".
"""

from __future__ import annotations

from typing import Any

DEMO_PLAN = """
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
      lease_seconds: 30          # long: a takeover within moments is not the lease's doing
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

_ISOLATION_TASKS: tuple[tuple[str, float, float, tuple[str, ...]], ...] = (
    ("A-001-core-framework", 3, 20, ()),
    ("A-002-event-bus", 4, 20, ("A-001-core-framework",)),
    ("B-001-schema-design", 4, 20, ()),
    ("B-002-entity-models", 24, 2, ()),  # a short lease: who stops renewing loses it soon
    ("C-001-log-in-page", 5, 20, ()),
    ("C-002-checkout-page", 4, 20, ("D-001-payments",)),
    ("D-001-payments", 3, 20, ()),
)
"""Id, seconds of work, lease, dependencies."""

REVIEWED = "D-001-payments"
"""The task whose result a person must review."""

ISOLATION_PLAN: dict[str, Any] = {
    "project": "shop-rebuild",
    "tracks": {
        track: [
            {
                "id": task_id,
                "estimate_seconds": seconds,
                "lease_seconds": lease,
                "depends_on": list(depends_on),
                "isolation": "worktree",
                "human_required": task_id == REVIEWED,
            }
            for task_id, seconds, lease, depends_on in _ISOLATION_TASKS
            if task_id.startswith(track)
        ]
        for track in "ABCD"
    },
}

# The tasks of the demo with an accident.
RESERVED = "B-001-schema-design"
CRASHED = "A-002-di-container"
ZOMBIE = "B-002-entity-models"


def short(task_id: str) -> str:
    """`B-002-entity-models` → `B-002`, `F-001-test-suite::2` → `F-001::2`."""
    name, _, child = task_id.partition("::")
    return name[:5] + (f"::{child}" if child else "")


# The plan of `genlock dev`, which begins again when it is done.

DEV_PROJECT = "demo"

_DEV_TRACKS = {
    "A": "Framework",
    "B": "Data",
    "C": "Shop pages",
    "D": "Payments",
    "F": "Tests",
}
_DEV_TASKS: tuple[tuple[str, str, float, tuple[str, ...]], ...] = (
    ("A-001-core-framework", "Core framework", 4, ()),
    ("A-002-di-container", "Dependency injection", 7, ("A-001-core-framework",)),
    ("A-003-event-bus", "Event bus", 6, ("A-002-di-container",)),
    ("A-004-plugin-loader", "Plugin loader", 8, ("A-002-di-container",)),
    ("A-005-configuration", "Configuration", 5, ("A-001-core-framework",)),
    ("B-001-schema-design", "Schema design", 6, ()),
    ("B-002-entity-models", "Entity models", 9, ("B-001-schema-design", "A-001-core-framework")),
    ("B-003-repositories", "Repositories", 7, ("B-002-entity-models",)),
    ("B-004-migrations", "Migrations", 5, ("B-002-entity-models",)),
    ("B-005-search-index", "Search index", 8, ("B-003-repositories", "A-003-event-bus")),
    ("C-001-design-tokens", "Design tokens", 4, ()),
    ("C-002-component-library", "Component library", 9, ("C-001-design-tokens",)),
    ("C-003-checkout-page", "Checkout page", 7, ("C-002-component-library", "B-003-repositories")),
    ("C-004-product-page", "Product page", 8, ("C-002-component-library", "B-003-repositories")),
    ("C-005-search-page", "Search page", 6, ("C-002-component-library", "B-005-search-index")),
    ("D-001-provider-contract", "Contract of the provider", 5, ()),
    ("D-002-ledger", "Ledger", 9, ("D-001-provider-contract", "B-001-schema-design")),
    ("D-003-refunds", "Refunds", 6, ("D-002-ledger",)),
    ("D-004-invoices", "Invoices", 7, ("D-002-ledger", "A-005-configuration")),
    ("F-001-test-suite", "Test it all", 5, ("C-003-checkout-page", "D-003-refunds")),
    ("F-002-load-tests", "Load tests", 8, ("C-005-search-page", "A-004-plugin-loader")),
    ("F-003-release", "Release", 4, ("F-001-test-suite", "F-002-load-tests", "D-004-invoices")),
)
"""Id, title, seconds of work, dependencies."""
_DEV_LEASE_SECONDS = 6.0
_DEV_PRIORITIES = {"D-002-ledger": "high", "C-003-checkout-page": "high", "F-003-release": "low"}
_DEV_PHASES = {"A": "base", "B": "base", "C": "pages", "D": "pages", "F": "release"}

DEV_ROOTS = tuple(task_id for task_id, _, _, depends_on in _DEV_TASKS if not depends_on)
"""The tasks that all others wait for: resetting these with `cascade` begins another round."""

DEV_HELD = "C-003-checkout-page"
"""An operator holds this one until everything else is done."""
DEV_REVIEWED = "A-004-plugin-loader"
"""The result of this one waits for a review until all other work is done."""


def dev_plan(pace: float) -> dict[str, Any]:
    """The plan, with seconds of work and leases times `pace`."""
    tracks: dict[str, Any] = {
        track: {"purpose": purpose, "tasks": []} for track, purpose in _DEV_TRACKS.items()
    }
    for task_id, title, seconds, depends_on in _DEV_TASKS:
        tracks[task_id[0]]["tasks"].append(
            {
                "id": task_id,
                "title": title,
                "estimate_seconds": seconds * pace,
                "lease_seconds": _DEV_LEASE_SECONDS * pace,
                "depends_on": list(depends_on),
                "priority": _DEV_PRIORITIES.get(task_id, "medium"),
                "phase": _DEV_PHASES[task_id[0]],
                "human_required": task_id == DEV_REVIEWED,
            }
        )
    return {"project": DEV_PROJECT, "tracks": tracks}
