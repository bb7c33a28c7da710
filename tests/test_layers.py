"""Small things that keep the code tidy: what is exported, which version this is, and what tests may
not do."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import tomllib
from pathlib import Path
from types import ModuleType

import pytest

import genlock
import genlock.aio
import genlock.coordinator

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def modules() -> list[str]:
    return [module.name for module in pkgutil.walk_packages(genlock.__path__, "genlock.")]


@pytest.mark.parametrize("module", [genlock, genlock.aio], ids=lambda module: module.__name__)
def test_what_is_public_is_what_all_says(module: ModuleType) -> None:
    visible = {
        name
        for name, value in vars(module).items()
        if not name.startswith("_") and not isinstance(value, ModuleType)
    }
    listed = set(module.__all__)
    assert visible <= listed
    assert all(hasattr(module, name) for name in listed)
    assert list(module.__all__) == sorted(module.__all__)


@pytest.mark.parametrize("name", [name for name in genlock.__all__ if not name.startswith("_")])
def test_every_public_name_says_what_it_is(name: str) -> None:
    assert inspect.getdoc(getattr(genlock, name))


@pytest.mark.parametrize(
    "face", [genlock.coordinator.Coordinator, genlock.coordinator.AsyncCoordinator]
)
def test_every_operation_is_documented_and_takes_keywords_only(face: type) -> None:
    operations = [
        method
        for name, method in vars(face).items()
        if inspect.isfunction(method) and not name.startswith("_")
    ]
    assert len(operations) > 40
    for operation in operations:
        assert inspect.getdoc(operation), operation.__name__
        parameters = list(inspect.signature(operation).parameters.values())[1:]
        assert all(parameter.kind is inspect.Parameter.KEYWORD_ONLY for parameter in parameters), (
            operation.__name__
        )


def test_both_faces_have_the_same_operations() -> None:
    plain, awaited = (
        {name for name, _ in inspect.getmembers(face, callable) if not name.startswith("_")}
        for face in (genlock.coordinator.Coordinator, genlock.coordinator.AsyncCoordinator)
    )
    assert plain == awaited


GC_5_1_AND_THE_ISSUE = [
    "claim_task",
    "renew_lease",
    "release_claim",
    "submit_result",
    "get_task_state",
    "get_claim_history",
    "get_active_claims_for_session",
    "add_tasks",
    "edit_task",
    "claim_next",
    "batch_claim",
    "batch_renew",
    "batch_submit",
    "batch_get_states",
    "ready",
    "blocked",
    "explain",
    "spawn_subtasks",
    "reset_task",
    "cancel_task",
    "assign_task",
    "force_release",
    "adopt_result",
    "discard_result",
    "list_refused_results",
    "hold_task",
    "reopen_task",
    "get_policy",
    "set_policy",
    "register_session",
    "heartbeat_session",
    "end_session",
    "list_sessions",
    "list_agents",
    "get_session_memory",
    "track_progress",
    "next_id",
    "get_lineage",
    "read_events",
    "watch",
    "sweep",
    "import_plan",
]


@pytest.mark.parametrize("name", GC_5_1_AND_THE_ISSUE)
def test_every_promised_operation_is_there_by_name(name: str) -> None:
    assert callable(getattr(genlock.coordinator.Coordinator, name))


@pytest.mark.parametrize("name", modules())
def test_every_module_says_what_it_is_for(name: str) -> None:
    module = importlib.import_module(name)
    source = Path(module.__file__ or "").read_text(encoding="utf-8")
    assert module.__doc__ or not source.strip()


def test_the_version_is_the_same_everywhere() -> None:
    assert genlock.__version__ == PROJECT["project"]["version"]
