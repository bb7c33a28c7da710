"""The plan that the agents work on, again and again. `estimate_seconds` is how long an agent pretends to work."""

from __future__ import annotations

PROJECT = "demo"

PLAN = """
project: demo
tracks:
  A:
    - {id: A-001-core-framework, title: Core framework, estimate_seconds: 3, lease_seconds: 6}
    - {id: A-002-di-container, title: Dependency injection, estimate_seconds: 5, lease_seconds: 6, depends_on: [A-001-core-framework]}
    - {id: A-003-event-bus, title: Event bus, estimate_seconds: 4, lease_seconds: 6, depends_on: [A-002-di-container]}
    - {id: A-004-plugin-loader, title: Plugin loader, estimate_seconds: 4, lease_seconds: 6, depends_on: [A-002-di-container]}
  B:
    - {id: B-001-schema-design, title: Schema design, estimate_seconds: 4, lease_seconds: 6}
    - {id: B-002-entity-models, title: Entity models, estimate_seconds: 6, lease_seconds: 6,
       depends_on: [B-001-schema-design, A-001-core-framework]}
    - {id: B-003-repositories, title: Repositories, estimate_seconds: 5, lease_seconds: 6, depends_on: [B-002-entity-models]}
    - {id: B-004-migrations, title: Migrations, estimate_seconds: 3, lease_seconds: 6, depends_on: [B-002-entity-models]}
  C:
    - {id: C-001-design-tokens, title: Design tokens, estimate_seconds: 3, lease_seconds: 6}
    - {id: C-002-component-library, title: Component library, estimate_seconds: 6, lease_seconds: 6, depends_on: [C-001-design-tokens]}
    - {id: C-003-checkout-page, title: Checkout page, estimate_seconds: 5, lease_seconds: 6,
       depends_on: [C-002-component-library, B-003-repositories]}
  F:
    - {id: F-001-test-suite, title: Test it all, estimate_seconds: 5, lease_seconds: 6,
       depends_on: [A-003-event-bus, A-004-plugin-loader, B-004-migrations, C-003-checkout-page]}
"""

ROOTS = ("A-001-core-framework", "B-001-schema-design", "C-001-design-tokens")
"""What everything else waits for: resetting these with all that follows begins another round."""
