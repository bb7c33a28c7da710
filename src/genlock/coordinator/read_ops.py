"""Operations that only read: tasks, results, the graph and the feed."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from genlock.coordinator.arguments import (
    LONGEST_DIGEST,
    MOST_BACK,
    MOST_STEPS,
    check_after,
    check_commit,
    check_event_types,
    check_filter,
    check_flag,
    check_generation,
    check_items,
    check_lease,
    check_limit,
    check_number,
    check_role,
    check_sorting,
    check_text,
    check_tracks,
    check_whole,
)
from genlock.coordinator.base import Base
from genlock.coordinator.drivers import Ask, Read, Script
from genlock.core.commands import ClaimTask
from genlock.core.durations import Seconds
from genlock.core.fields import check_instant
from genlock.core.ids import check_task_id
from genlock.core.keys import Scope, project_key
from genlock.core.names import check_agent, check_session, check_user
from genlock.core.reasons import RefusedState
from genlock.core.results import (
    BlockedTask,
    ClaimHistory,
    Explanation,
    Feed,
    FeedEvent,
    Lineage,
    NextPreview,
    Progress,
    PushVerdict,
    ReadyTask,
    TaskClaim,
    TaskResult,
    TaskState,
)
from genlock.engine.jobs import NextTask, Recover
from genlock.errors import BadArgument
from genlock.reads import feed, next_task, pushes, results, sessions, tasks
from genlock.reads.claims import claims_over_before
from genlock.reads.explain import explanation
from genlock.reads.graph import graph
from genlock.reads.progress import track_progress

if TYPE_CHECKING:
    from genlock.core.dashboard import Activity, EventPage, GraphLayout, Overview, TaskPage
    from genlock.core.graph import Graph

_HOUR: Final = timedelta(hours=1)


class ReadOps(Base):
    """Operations that change nothing (except what was due anyway)."""

    def get_task_state(
        self, *, task_id: str, tenant_id: str | None = None, project_id: str | None = None
    ) -> Script[TaskState]:
        """The current state of a task, in full."""
        key = self.task_key(tenant_id, project_id, task_id)
        yield from self.see_files(key.place, key)
        state: TaskState = yield Read(lambda: tasks.task_state(self.reader, key))
        return state

    def check_push(
        self,
        *,
        task_id: str,
        generation: int,
        commit: str,
        protected: bool = False,
        tenant_id: str | None = None,
        project_id: str | None = None,
    ) -> Script[PushVerdict]:
        """May a git repository take this commit, for the branch of a generation, or with
        `protected` for a branch that takes accepted work only?"""
        key = self.task_key(tenant_id, project_id, task_id)
        number, commit = check_generation(generation), check_commit(commit)
        check_flag("protected", protected)
        verdict: PushVerdict = yield Read(
            lambda: pushes.push_verdict(self.reader, key, number, commit, protected=protected)
        )
        return verdict

    def list_tasks(
        self,
        *,
        states: str | Collection[str] | None = None,
        tracks: str | Collection[str] | None = None,
        agent_id: str | None = None,
        session_id: str | None = None,
        tag: str | None = None,
        text: str = "",
        sort: str = "order",
        reverse: bool = False,
        limit: int = 100,
        after: str | None = None,
        tenant_id: str | None = None,
        project_id: str | None = None,
    ) -> Script[TaskPage]:
        """The tasks that match all filters, as rows, and how many there are by state; `after` is
        `next` of the previous page."""
        from genlock.reads.project_view import views_of
        from genlock.reads.task_rows import task_page

        scope = self.place(tenant_id, project_id)
        wanted = check_filter(states, tracks, agent_id, session_id, tag, text)
        sorting = check_sorting(sort, reverse)
        limit = check_limit(limit)
        token = None if after is None else check_text("after", after)

        def read() -> TaskPage:
            with views_of(self.engine).of(scope).current(self.reader) as view:
                return task_page(self.reader, view, wanted, sorting, limit, token)

        yield from self.see_files(scope)
        page: TaskPage = yield Read(read)
        return page

    def get_overview(
        self,
        *,
        limit: int = 100,
        tenant_id: str | None = None,
        project_id: str | None = None,
    ) -> Script[Overview]:
        """The project at a glance: counts, what needs a person, rates, sessions, what is next, and
        what was refused; at most `limit` sessions and needs."""
        from genlock.reads.overview import overview
        from genlock.reads.project_view import views_of

        scope, limit = self.place(tenant_id, project_id), check_limit(limit)

        def read() -> Overview:
            with views_of(self.engine).of(scope).current(self.reader) as view:
                return overview(self.reader, view, limit)

        yield from self.see_files(scope)
        found: Overview = yield Read(read)
        return found

    def get_activity(
        self,
        *,
        since: datetime | str | None = None,
        until: datetime | str | None = None,
        agent_id: str | None = None,
        limit: int = 5000,
        tenant_id: str | None = None,
        project_id: str | None = None,
    ) -> Script[Activity]:
        """Who held which task, and when: the claims within a period, by default the last hour."""
        from genlock.reads.claim_spans import activity
        from genlock.reads.project_view import views_of

        scope, limit = self.place(tenant_id, project_id), check_limit(limit)
        first = None if since is None else check_instant("since", since)
        last = None if until is None else check_instant("until", until)
        agent = None if agent_id is None else check_agent(agent_id)
        if first is not None and last is not None and first > last:
            raise BadArgument(f"since, {first}, is after until, {last}")

        def read() -> Activity:
            end = last or self.reader.now()
            with views_of(self.engine).of(scope).current(self.reader) as view:
                return activity(self.reader, view, first or end - _HOUR, end, agent, limit)

        found: Activity = yield Read(read)
        return found

    def search_events(
        self,
        *,
        task_id: str | None = None,
        agent_id: str | None = None,
        session_id: str | None = None,
        user_id: str | None = None,
        types: str | Collection[str] | None = None,
        before: str | None = None,
        limit: int = 100,
        tenant_id: str | None = None,
        project_id: str | None = None,
    ) -> Script[EventPage]:
        """The last events of a project that match, the newest first; `before` is `next` of the
        previous page, or a cursor."""
        from genlock.reads.event_search import EventFilter, search_events

        scope, limit = self.place(tenant_id, project_id), check_limit(limit)
        wanted = EventFilter(
            task=None if task_id is None else check_task_id(task_id),
            agent=None if agent_id is None else check_agent(agent_id),
            session=None if session_id is None else check_session(session_id),
            user=None if user_id is None else check_user(user_id),
            types=check_event_types(types),
        )
        if before is not None:
            before = check_text("before", before)
        page: EventPage = yield Read(
            lambda: search_events(self.reader, scope, wanted, limit, before)
        )
        return page

    def batch_get_states(
        self,
        *,
        task_ids: Iterable[str],
        tenant_id: str | None = None,
        project_id: str | None = None,
    ) -> Script[dict[str, TaskState]]:
        """The states of many tasks; those that do not exist are left out."""
        keys = [
            self.task_key(tenant_id, project_id, task_id)
            for task_id in check_items("task_ids", task_ids)
        ]

        if keys:
            yield from self.see_files(keys[0].place, *keys)
        states: dict[str, TaskState] = yield Read(lambda: tasks.task_states(self.reader, keys))
        return states

    def get_claim_history(
        self, *, task_id: str, tenant_id: str | None = None, project_id: str | None = None
    ) -> Script[tuple[ClaimHistory, ...]]:
        """One entry for each granted generation, in order."""
        lineage = yield from self.get_lineage(
            task_id=task_id, tenant_id=tenant_id, project_id=project_id
        )
        return lineage.generations

    def get_lineage(
        self, *, task_id: str, tenant_id: str | None = None, project_id: str | None = None
    ) -> Script[Lineage]:
        """The generations of a task, and the submissions that were refused along the way."""
        key = self.task_key(tenant_id, project_id, task_id)
        lineage: Lineage = yield Read(lambda: tasks.lineage(self.reader, key))
        return lineage

    def get_active_claims_for_session(
        self, *, session_id: str | None = None, tenant_id: str | None = None
    ) -> Script[tuple[TaskClaim, ...]]:
        """The claims a session holds, in all projects of its tenant."""
        tenant, _ = self.place(tenant_id, None)
        session = self.caller(session_id).session
        claims: tuple[TaskClaim, ...] = yield Read(
            lambda: tuple(sessions.claims_of_session(self.reader, tenant, session))
        )
        return claims

    def list_expired_claims(
        self,
        *,
        before: datetime | str | None = None,
        limit: int = 100,
        tenant_id: str | None = None,
        project_id: str | None = None,
    ) -> Script[tuple[TaskClaim, ...]]:
        """Claims whose lease ended before an instant (by default now) and whose tasks have not been
        taken over, the longest overdue first."""
        scope = self.place(tenant_id, project_id)
        limit = check_limit(limit)
        until = None if before is None else check_instant("before", before)
        found: tuple[TaskClaim, ...] = yield Read(
            lambda: claims_over_before(self.reader, scope, until)[:limit]
        )
        return found

    def ready(
        self,
        *,
        limit: int = 100,
        tracks: str | Collection[str] | None = None,
        agent_id: str | None = None,
        agent_role: str | None = None,
        tenant_id: str | None = None,
        project_id: str | None = None,
    ) -> Script[tuple[ReadyTask, ...]]:
        """The tasks that could be claimed now, in the order of the queue; with `agent_id` and
        `agent_role`, those that this agent would be offered in this role.

        Tasks whose holder's process has ended are listed only if there are no others, as in a
        request for the next task.
        """
        scope = self.place(tenant_id, project_id)
        limit = check_limit(limit)
        wanted = check_tracks(tracks)
        if agent_id is not None:
            agent_id = check_agent(agent_id)
        role = check_role(agent_role) if agent_role is not None else None
        yield from self.see_files(scope)
        found: tuple[ReadyTask, ...] = yield Read(
            lambda: tasks.ready_tasks(self.reader, scope, limit, wanted, agent_id, role)
        )
        if not found:
            # No task is ready: a crash may have cut off the reactions that open tasks, or a holder
            # may be lost.
            yield Ask([Recover(project_key(*scope))])
            found = yield Read(
                lambda: tasks.ready_tasks(
                    self.reader, scope, limit, wanted, agent_id, role, lost=True
                )
            )
        return found

    def preview_next(
        self,
        *,
        agent_id: str | None = None,
        session_id: str | None = None,
        tracks: str | Collection[str] | None = None,
        agent_role: str = "",
        tenant_id: str | None = None,
        project_id: str | None = None,
    ) -> Script[NextPreview]:
        """What `claim_next` would grant this agent now, and why. Nothing is claimed."""
        place = self.place(tenant_id, project_id)
        session = session_id if session_id is not None else self.identity.session_id or "preview"
        agent = agent_id if agent_id is not None else self.identity.agent_id
        if agent is None:
            agent = (yield from self.lone_agent(place)) or "preview"
        request = NextTask(
            project_key(*place),
            self.caller(session, agent),
            tracks=check_tracks(tracks),
            role=check_role(agent_role),
        )
        found: NextPreview = yield Read(lambda: next_task.preview_next(self.reader, request))
        return found

    def blocked(
        self,
        *,
        limit: int = 100,
        after: str | None = None,
        tenant_id: str | None = None,
        project_id: str | None = None,
    ) -> Script[tuple[BlockedTask, ...]]:
        """The blocked tasks and what each waits for, by task id; `after` is the last id of the
        previous page."""
        scope = self.place(tenant_id, project_id)
        limit, after_id = check_limit(limit), check_after(after)
        yield from self.see_files(scope)
        blocked: tuple[BlockedTask, ...] = yield Read(
            lambda: tasks.blocked_tasks(self.reader, scope, limit, after_id)
        )
        return blocked

    def explain(
        self,
        *,
        task_id: str,
        agent_id: str | None = None,
        session_id: str | None = None,
        lease_duration_seconds: Seconds = 300,
        agent_role: str = "",
        tenant_id: str | None = None,
        project_id: str | None = None,
    ) -> Script[Explanation]:
        """Why a task is not ready, or why this agent would not get it, and what would change
        that."""
        key = self.task_key(tenant_id, project_id, task_id)
        session = session_id if session_id is not None else self.identity.session_id or "explain"
        agent = agent_id if agent_id is not None else self.identity.agent_id
        if agent is None:
            agent = (yield from self.lone_agent(key.place)) or "explain"
        caller = self.caller(session, agent)
        claim = ClaimTask(
            key, caller, check_lease(lease_duration_seconds), role=check_role(agent_role)
        )
        found: Explanation = yield Read(lambda: explanation(self.reader, claim))
        return found

    def list_refused_results(
        self,
        *,
        task_id: str | None = None,
        include_settled: bool = False,
        limit: int = 100,
        after: str | None = None,
        tenant_id: str | None = None,
        project_id: str | None = None,
    ) -> Script[tuple[TaskResult, ...]]:
        """Refused results that are still kept, by id; with `include_settled` also those adopted or
        discarded.

        `after` is the last id of the previous page."""
        scope = self.place(tenant_id, project_id)
        limit, after_id = check_limit(limit), check_after(after)
        task = None if task_id is None else self.task_key(tenant_id, project_id, task_id).id
        state = None if check_flag("include_settled", include_settled) else RefusedState.KEPT
        found: tuple[TaskResult, ...] = yield Read(
            lambda: results.refused_results(self.reader, scope, task, state, limit, after_id)
        )
        return found

    def read_result(
        self,
        *,
        task_id: str,
        digest: str | None = None,
        tenant_id: str | None = None,
        project_id: str | None = None,
    ) -> Script[Any]:
        """The data of a task's accepted result, or of a result by its digest, large ones too."""
        key = self.task_key(tenant_id, project_id, task_id)
        if digest is not None:
            digest = check_text("digest", digest, LONGEST_DIGEST)
        data: Any = yield Read(lambda: results.result_data(self.reader, key, digest))
        return data

    def track_progress(
        self, *, tenant_id: str | None = None, project_id: str | None = None
    ) -> Script[dict[str, Progress]]:
        """The progress of each track ("" for tasks without a track)."""
        scope = self.place(tenant_id, project_id)
        yield from self.see_files(scope)
        progress: dict[str, Progress] = yield Read(lambda: track_progress(self.reader, scope))
        return progress

    def get_graph(
        self,
        *,
        tracks: str | Collection[str] | None = None,
        around: str | None = None,
        depth: int = 2,
        tenant_id: str | None = None,
        project_id: str | None = None,
    ) -> Script[Graph]:
        """Which tasks wait for which: in the whole plan, in some tracks, or up to `depth` steps
        before and after the task `around`."""
        scope = self.place(tenant_id, project_id)
        wanted = check_tracks(tracks)
        depth = check_whole("depth", depth, 0, MOST_STEPS)
        key = None if around is None else self.task_key(tenant_id, project_id, around)
        yield from self.see_files(scope)
        found: Graph = yield Read(
            lambda: graph(self.reader, scope, tracks=wanted, around=key, depth=depth)
        )
        return found

    def get_graph_layout(
        self,
        *,
        tracks: str | Collection[str] | None = None,
        around: str | None = None,
        depth: int = 2,
        folded: bool | None = None,
        hide_finished: bool = False,
        tenant_id: str | None = None,
        project_id: str | None = None,
    ) -> Script[GraphLayout]:
        """The graph with the position of each box, at most 500. `folded` draws tracks instead of
        tasks; without it a plan of more than 300 tasks is folded."""
        from genlock.reads.graph_boxes import graph_layout
        from genlock.reads.project_view import views_of

        scope, wanted = self.place(tenant_id, project_id), check_tracks(tracks)
        depth = check_whole("depth", depth, 0, MOST_STEPS)
        name = None if around is None else check_task_id(around)
        folded = None if folded is None else check_flag("folded", folded)
        hide = check_flag("hide_finished", hide_finished)

        def read() -> GraphLayout:
            with views_of(self.engine).of(scope).current(self.reader) as view:
                return graph_layout(
                    self.reader,
                    view,
                    tracks=wanted,
                    around=name,
                    depth=depth,
                    folded=folded,
                    hide_finished=hide,
                )

        found: GraphLayout = yield Read(read)
        return found

    def read_events(
        self,
        *,
        after: str | None = None,
        limit: int = 100,
        task_id: str | None = None,
        tail: bool = False,
        back: int = 0,
        tenant_id: str | None = None,
        project_id: str | None = None,
    ) -> Script[Feed]:
        """A page of the project's events after a cursor, or all events of one task. `CursorLost`
        says that some may be missing.

        With `tail` only the cursor of the feed's end, or of the position `back` positions before
        it."""
        scope = self.place(tenant_id, project_id)
        check_flag("tail", tail)
        back = check_whole("back", back, 0, MOST_BACK)
        if after is not None:
            after = check_text("after", after)
        record = None if task_id is None else self.task_key(tenant_id, project_id, task_id)
        limit = check_limit(limit)
        page: Feed = yield Read(
            lambda: feed.feed_page(
                self.reader, scope, after=after, limit=limit, record=record, tail=tail, back=back
            )
        )
        return page


def watch(
    operations: Base,
    scope: Scope,
    after: str | None,
    timeout_seconds: float | None,
    is_left: Callable[[], bool] = lambda: False,
) -> Iterator[FeedEvent]:
    """Yields events as they happen; see `Coordinator.watch`. Blocks the calling thread."""
    if after is not None:
        after = check_text("after", after)
    if timeout_seconds is None:
        timeout_seconds = math.inf
    else:
        check_number("timeout_seconds", timeout_seconds, 0, math.inf)
    yield from feed.follow(operations.reader, scope, after, timeout_seconds, is_left)
