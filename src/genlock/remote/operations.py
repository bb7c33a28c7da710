"""Every operation, as a script. All but two are what their call says."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from genlock.core.model import Process
from genlock.core.results import PlanResult, SessionInfo
from genlock.errors import BadArgument
from genlock.remote.asking import ask, ask_next, asking
from genlock.remote.link import Link
from genlock.remote.scripts import Script
from genlock.wire import calls as c

claim_task = asking(c.ClaimTask)
renew_lease = asking(c.RenewLease)
release_claim = asking(c.ReleaseClaim)
submit_result = asking(c.SubmitResult)
claim_next = asking(c.ClaimNext, ask_next)
batch_claim = asking(c.BatchClaim)
batch_renew = asking(c.BatchRenew)
batch_submit = asking(c.BatchSubmit)
spawn_subtasks = asking(c.SpawnSubtasks)
get_task_state = asking(c.GetTaskState)
batch_get_states = asking(c.BatchGetStates)
get_claim_history = asking(c.GetClaimHistory)
get_lineage = asking(c.GetLineage)
get_active_claims_for_session = asking(c.GetActiveClaimsForSession)
ready = asking(c.Ready)
blocked = asking(c.Blocked)
explain = asking(c.Explain)
list_refused_results = asking(c.ListRefusedResults)
read_result = asking(c.ReadResult)
track_progress = asking(c.TrackProgress)
add_tasks = asking(c.AddTasks)
edit_task = asking(c.EditTask)
diff_plan = asking(c.DiffPlan)
check_plan = asking(c.CheckPlan)
get_plan = asking(c.GetPlan)
get_graph = asking(c.GetGraph)
next_id = asking(c.NextId)
reset_task = asking(c.ResetTask)
preview_reset = asking(c.PreviewReset)
cancel_task = asking(c.CancelTask)
assign_task = asking(c.AssignTask)
force_release = asking(c.ForceRelease)
hold_task = asking(c.HoldTask)
reopen_task = asking(c.ReopenTask)
adopt_result = asking(c.AdoptResult)
discard_result = asking(c.DiscardResult)
get_policy = asking(c.GetPolicy)
set_policy = asking(c.SetPolicy)
sweep = asking(c.Sweep)
heartbeat_session = asking(c.HeartbeatSession)
end_session = asking(c.EndSession)
list_sessions = asking(c.ListSessions)
list_agents = asking(c.ListAgents)
get_session_memory = asking(c.GetSessionMemory)
read_events = asking(c.ReadEvents)
create_key = asking(c.CreateKey)
list_keys = asking(c.ListKeys)
rotate_key = asking(c.RotateKey)
revoke_key = asking(c.RevokeKey)
list_tenants = asking(c.ListTenants)
get_tenant = asking(c.GetTenant)
set_tenant = asking(c.SetTenant)


def import_plan(
    link: Link,
    *,
    source: Mapping[str, Any] | str | Sequence[tuple[str, bytes]],
    prune: bool = False,
    progress: Callable[[int, int], None] | None = None,
    tenant_id: str | None = None,
    project_id: str | None = None,
) -> Script[PlanResult]:
    """Import a plan: a mapping, YAML text, or files. Importing again is a diff; `progress` is called when all is written."""
    if progress is not None and not callable(progress):
        raise BadArgument("progress is a function of two numbers: how many of how many tasks are written")
    result = yield from ask(link, c.ImportPlan(source=source, prune=prune, tenant_id=tenant_id, project_id=project_id))
    if progress is not None:
        written = len(result.added) + len(result.changed) + len(result.cancelled)
        progress(written, written)
    return result


def register_session(
    link: Link,
    *,
    session_id: str | None = None,
    user_id: str | None = None,
    agent_type: str = "",
    pid: int | None = None,
    process: Process | None = None,
    metadata: Mapping[str, Any] | None = None,
    tenant_id: str | None = None,
    project_id: str | None = None,
) -> Script[SessionInfo]:
    """Say that a session begins, and which process it is: `pid` on this machine, or a `process` identity from elsewhere."""
    if process is not None and not isinstance(process, Process):
        raise BadArgument(f"process is a Process, not {process!r}")
    if pid is not None:
        if type(pid) is not int or not 1 <= pid < 2**31:
            raise BadArgument(f"pid is a whole number from 1 to {2**31 - 1:,}, not {pid!r}")
        process = link.identify(pid)
        if process is None:
            raise BadArgument(f"there is no process {pid} on this machine")
    call = c.RegisterSession(
        session_id=session_id,
        user_id=user_id,
        agent_type=agent_type,
        process=process,
        metadata=metadata,
        tenant_id=tenant_id,
        project_id=project_id,
    )
    return (yield from ask(link, call))
