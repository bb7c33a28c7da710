"""A worker whose handler is an agent of Pydantic AI.

    pip install pydantic-ai-slim && python examples/pydantic_ai_worker.py

The model is a function, so the example runs offline; put yours in its place. A lost claim cancels
the run at its next await. Tools report progress under the claim.
"""

from __future__ import annotations

import asyncio
import tempfile

from pydantic_ai import Agent, RunContext, models
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

import genlock.aio
from genlock.worker import AsyncWork

models.ALLOW_MODEL_REQUESTS = False  # nothing here leaves this machine


def scripted(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    """In the place of a model: one tool, then the answer."""
    if len(messages) == 1:
        return ModelResponse(parts=[ToolCallPart("note", {"text": "read the task"})])
    return ModelResponse(parts=[TextPart("done")])


agent = Agent(FunctionModel(scripted), deps_type=AsyncWork)


@agent.tool
async def note(context: RunContext[AsyncWork], text: str) -> str:
    """Tell the others what you have found."""
    await context.deps.progress(0.5, text)
    return "noted"


async def main() -> None:
    """Works through a plan of two tasks."""
    with tempfile.TemporaryDirectory() as folder:
        url = f"sqlite://{folder}/plan.db"
        async with genlock.aio.connect(url, create=True) as fleet:
            await fleet.add_tasks(tasks=["A-001-first", "A-002-second"])

            @fleet.worker(concurrency=2, until_done=True, wait=1)
            async def handle(work: AsyncWork) -> str:
                prompt = f"{work.task.title or work.id}\n\n{work.task.description}"
                return str((await agent.run(prompt, deps=work)).output)

            totals = await handle.run()
            print(f"accepted {totals.accepted}")
            for task in ("A-001-first", "A-002-second"):
                state = await fleet.get_task_state(task_id=task)
                assert state.result is not None
                assert state.progress is not None
                print(task, state.result.result_data, [each.text for each in state.progress.notes])


asyncio.run(main())
