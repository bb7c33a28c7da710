"""The text about the plan that a model gets at the start of a session, in under 1,000 tokens."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from genlock.core.reasons import ClaimState
from genlock.mcp import texts
from genlock.safe_text import safe_line

if TYPE_CHECKING:
    from genlock.coordinator import Coordinator

LONGEST: Final = 3800
"""Characters: 950 tokens at four characters each."""
_READY: Final = 10

_INTRODUCTION: Final = """\
This project has a plan that several agents work on, coordinated by Genlock. Only one agent at a \
time has the right to a task. Claim a task before you work on it (tool claim of the MCP server \
genlock, or `genlock next`), submit its result with the generation that you were given (submit, or \
`genlock submit TASK -g GENERATION --text RESULT`), or release it. If your claim is lost, stop."""


def prime_text(fleet: Coordinator, session: str | None) -> str:
    """Returns the introduction, the claims of this session, and the state of the plan."""
    parts = [_INTRODUCTION]
    if session is not None:
        held = [
            claim
            for claim in fleet.get_active_claims_for_session(session_id=session)
            if claim.project_id == fleet.identity.project_id and claim.state is ClaimState.ACTIVE
        ]
        if held:
            parts.append(texts.bounded(texts.own_claims(held), 600))
    progress = fleet.track_progress()
    if not progress:
        return "\n\n".join([*parts, "The plan has no tasks yet."])
    tracks = (
        f"{safe_line(track) or 'no track'} {one.completed} of "
        f"{one.completed + one.in_progress + one.pending + one.blocked + one.other}"
        for track, one in sorted(progress.items())
    )
    parts.append(texts.bounded(f"Done: {', '.join(tracks)}.", 400))
    parts.append(texts.bounded(texts.working(fleet.list_agents()), 700))
    ready = fleet.ready(limit=_READY)
    shown = texts.ready(ready, is_cut=len(ready) == _READY) if ready else "Nothing is ready now."
    parts.append(texts.bounded(shown, 1200))
    return texts.bounded("\n\n".join(parts), LONGEST)
