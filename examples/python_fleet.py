"""Four workers of a Python program on one plan.

    python examples/python_fleet.py

`fleet.worker` takes one task after the other and submits what the handler returns. The lease is
kept meanwhile. What a handler raises releases the task with the error, and the next attempt finds
it in `work.previous`.
"""

from __future__ import annotations

import tempfile

import genlock
from genlock.worker import Work

PLAN = """
tracks:
  A:
    - id: A-001-fetch
    - {id: A-002-parse, depends_on: [A-001-fetch]}
    - {id: A-003-index, depends_on: [A-001-fetch]}
    - {id: A-004-report, depends_on: [A-002-parse, A-003-index]}
"""


def main() -> None:
    """Works through the plan, and prints what came of it."""
    with (
        tempfile.TemporaryDirectory() as folder,
        genlock.connect(f"sqlite://{folder}/plan.db", create=True) as fleet,
    ):
        fleet.import_plan(source=PLAN)

        @fleet.worker(concurrency=4, until_done=True, wait=1)
        def handle(work: Work) -> dict[str, object]:
            work.progress(0.5, f"half of {work.id}")
            if work.id == "A-002-parse" and work.attempt == 1:
                raise ValueError("line 7 is not JSON")
            return {"task": work.id, "learned": work.previous.feedback}

        totals = handle.run()
        print(f"accepted {totals.accepted}, failed {totals.failed}")
        for task in ("A-002-parse", "A-004-report"):
            state = fleet.get_task_state(task_id=task)
            assert state.result is not None
            print(task, state.generation, state.result.result_data)


if __name__ == "__main__":
    main()
