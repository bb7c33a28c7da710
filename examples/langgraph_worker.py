"""A worker whose handler is a graph of LangGraph.

    pip install langgraph && python examples/langgraph_worker.py

A graph cannot be cancelled within a node, so every node checks the claim first. The generation is
part of the thread's name: an attempt never continues the checkpoints of another one.
"""

from __future__ import annotations

import tempfile
from typing import Any, TypedDict

from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, StateGraph

import genlock
from genlock.worker import Work


class State(TypedDict):
    """What the nodes hand on."""

    draft: str


def graph_for(work: Work) -> Any:
    """The graph, whose nodes work under this claim."""

    def draft(state: State) -> State:
        work.check()  # raises ClaimLost: the graph ends here
        work.progress(0.3, "drafting")
        return {"draft": f"a draft of {work.id}"}

    def review(state: State) -> State:
        work.check()
        work.progress(0.8, "reviewing")
        return {"draft": state["draft"] + ", reviewed"}

    graph = StateGraph(State)
    graph.add_node("write", draft)
    graph.add_node("review", review)
    graph.add_edge(START, "write")
    graph.add_edge("write", "review")
    graph.add_edge("review", END)
    return graph.compile(checkpointer=InMemorySaver())


def handle(work: Work) -> Any:
    """One task."""
    thread = {"configurable": {"thread_id": f"{work.id}.gen{work.generation}"}}
    return graph_for(work).invoke({"draft": ""}, thread)


def main() -> None:
    """Works through a plan of two tasks."""
    with (
        tempfile.TemporaryDirectory() as folder,
        genlock.connect(f"sqlite://{folder}/plan.db", create=True) as fleet,
    ):
        fleet.add_tasks(tasks=["A-001-first", "A-002-second"])
        totals = fleet.work(handle, until_done=True, wait=1)
        print(f"accepted {totals.accepted}")
        for task in ("A-001-first", "A-002-second"):
            state = fleet.get_task_state(task_id=task)
            assert state.result is not None
            print(task, state.result.result_data)


if __name__ == "__main__":
    main()
