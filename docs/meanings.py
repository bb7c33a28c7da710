"""What states, settings and exit codes mean, for the pages that `generate.py` makes. The reasons of
answers have their sentences in `genlock.messages`, and only remarks here.

A name without a meaning, or a meaning without a name, is an error there.
"""

from __future__ import annotations

from enum import StrEnum

from genlock.core import events, key_roles, policy, reasons

MEANINGS: dict[type[StrEnum], dict[str, str]] = {
    reasons.Status: {
        "BACKLOG": (
            "Planned, and not offered by `claim_next` (unless the policy says "
            "`offer_backlog`); `claim_task` grants it."
        ),
        "PENDING": "Ready: the next claim is granted.",
        "BLOCKED": "Waits for a dependency, for its own subtasks, or for its `not_before`.",
        "IN_PROGRESS": (
            "Claimed. Also after the lease has run out, until someone writes that down "
            "or takes over."
        ),
        "IN_REVIEW": "Its result waits for a person or an evaluator. Nothing rests on it yet.",
        "COMPLETED": "Has its one accepted result.",
        "CANCELLED": (
            "Will not be done. For its dependents it counts as done, unless the policy "
            "says `cancelled_dependency: hold`."
        ),
        "HELD": "Nobody is granted it until a person reopens it, or until the hold ends by itself.",
    },
    reasons.ClaimState: {
        "ACTIVE": "The claim of the present holder.",
        "EXPIRED": (
            "Overdue, and written down as such. Still the claim at its generation: its "
            "result counts until someone takes over."
        ),
        "RELEASED": "Given back, or ended by an accepted result.",
        "SUPERSEDED": (
            "Taken away without being given to anyone: unlock, assign, reset, cancel, adopt."
        ),
    },
    reasons.ReleaseReason: {
        "COMPLETED": "Its result was accepted.",
        "EXPIRED": "The lease ran out.",
        "SUPERSEDED": "Someone took the right away.",
        "ERROR": (
            "The holder gave it back because its work failed. The circuit breaker counts this."
        ),
        "VOLUNTARY": "The holder gave it back.",
        "ORPHANED": "The holder's session has ended, or its process is gone.",
        "SPAWNED": (
            "The holder split the task; it opens again, or completes, when the subtasks are done."
        ),
    },
    reasons.RefusedState: {
        "KEPT": "It waits for someone to adopt or discard it.",
        "ADOPTED": "It became the task's result after all.",
        "DISCARDED": "Someone decided that it is not needed; its data is gone from the record.",
    },
    reasons.PromotionState: {
        "PENDING": "Accepted, and not promoted yet: the next promoter does it.",
        "FAILED": "A draft is missing, or is not what was accepted. Nothing was promoted.",
        "PROMOTED": "The products are the assets of their paths, or later ones are.",
    },
    reasons.KeyState: {
        "REVOKED": "Someone said that it opens nothing any more. It does not come back.",
        "EXPIRED": "Its time is over. A rotation may give it more.",
        "ACTIVE": "It opens what it says.",
    },
    key_roles.Role: {
        "observer": "Looks: states, history, events, the plan.",
        "agent": "Works: claims, renews, releases, submits, spawns; registers sessions.",
        "operator": (
            "Operates: plans, resets, cancels, assigns, unlocks, adopts; sets the project's policy."
        ),
        "admin": (
            "Has the keys of its tenant in hand; one of the whole store, those of all tenants and "
            "their limits."
        ),
    },
    reasons.SpawnMode: {
        "sequential": (
            "Each subtask depends on the one before; then the parent opens for the agent that merges."
        ),
        "parallel": "In any order; then the parent opens for the agent that merges.",
        "fan-out-fan-in": (
            "In any order; the last one completes the parent, whose result reads as "
            "`{subtask: its reference}`."
        ),
    },
    reasons.Cause: {
        "LEASE_OVER": "Not renewed in time.",
        "CLOCK_STEPPED": (
            "The lease would end later than its whole length from now: the clock was set back."
        ),
        "SESSION_ENDED": "The holder's session has ended.",
        "PROCESS_GONE": "The holder's process, on this machine, is gone.",
        "SESSION_SILENT": "The holder's session was registered under `/api`, without a process, and "
        "has been silent for `orphanThreshold`.",
    },
    reasons.Verdict: {
        "DONE": "Something was changed.",
        "UNCHANGED": "It was so already; nothing was written.",
    },
    policy.Order: {
        "track": (
            "By priority, then by the number in the track, subtasks by their own; tracks that "
            "nobody works on come first."
        ),
        "leaf-first": "The deepest tasks first, and tasks without subtasks before those with.",
        "closest-to-done": "The tasks of the feature with the fewest unfinished tasks first.",
    },
    policy.Ids: {
        "auto": "A bare `0001` is an id of the counter, a bare `A000` a name like any other.",
        "hierarchical": "Both are ids of the counter.",
    },
    policy.Expired: {
        "takeover": "The next caller is granted it.",
        "grace": (
            "The same, `grace_seconds` after the lease has run out; until then the holder may "
            "renew."
        ),
        "human": (
            "The task is held until a person reopens it, or until `claim_ttl_seconds` have passed."
        ),
    },
    policy.CancelledDependency: {
        "met": "It counts as done.",
        "hold": "The dependents are held until a person reopens them.",
    },
}

REMARKS = {
    "DENIED_COMPLETED": "To have it done again, reset it.",
    "DENIED_HELD": "`detail` says why.",
    "DENIED_ACTIVE_CLAIM": "`holder` says who has it, since when, and whether it looks alive.",
    "DENIED_BLOCKED": "`waits_for` names them.",
    "DENIED_LIMIT": "`limit` names it.",
    "GRANTED": "`claim.generation` is what every later write must show.",
    "NOTHING_READY": "Answered by `claim_next` only.",
    "ALREADY_EXPIRED": "A result still counts until somebody takes over.",
    "RENEWED": "`new_expiry` says until when.",
    "RELEASED": "The next claim is granted a higher generation.",
    "RECORDED": "Also the answer to the same report repeated.",
    "STALE_GENERATION": "The result is kept.",
    "CHILDREN_UNFINISHED": "`waits_for` names them.",
    "ACCEPTED": "Also the answer to the same submission repeated.",
}
"""What the reference adds to the sentence of a reason."""

EXIT_CODES = {
    "OK": "Done.",
    "ERROR": "The store or the machine could not do it.",
    "USAGE": "Typed wrongly; nothing was changed.",
    "NOT_FOUND": "No such task, session, result or project; for `next`: nothing is ready.",
    "NOT_ALLOWED": (
        "The state of the record does not admit it, or the key that was shown, or that none was."
    ),
    "CONFLICT": (
        "A claim that was denied, or a renewal, release or submission that was refused: "
        "someone else has the right."
    ),
    "ALREADY_HELD": (
        "A claim that this session and agent held before. Another of its workers may "
        "be at work: set GENLOCK_AGENT."
    ),
    "CLAIM_LOST": (
        "`run` only: the claim was lost, and the command and all that it had started was ended."
    ),
    "RESULT_REFUSED": "`run` only: the result came too late. It was refused and is kept.",
    "UNREACHABLE": "`run` only: no coordinator was reached, or not until it was too late.",
    "BROKEN_OFF": "By Ctrl-C; nothing is left half done.",
    "NOBODY_READS": "The reader of the answer has gone, as in `genlock events | head -1`.",
}

POLICY_KEYS = {
    "order": "Which ready task comes first.",
    "ids": "How bare ids are read.",
    "expired": "What becomes of a claim that is overdue.",
    "cancelled_dependency": "What a cancelled dependency means to its dependents.",
    "spawn_depth": "How deep subtasks may lie below a task of the plan.",
    "offer_backlog": "Does `claim_next` offer tasks in the backlog?",
}

LIMITS = {
    "max_concurrent_claims": "Live claims of the tenant. Over it: `DENIED_LIMIT`.",
    "max_lease_duration_seconds": (
        "A claim that asks for more is `DENIED_LIMIT`; a renewal is brought within it."
    ),
    "min_lease_duration_seconds": "The same for less.",
    "max_generations_per_task": "Grants of one task. Over it the task is `HELD`.",
    "claim_history_retention_days": "Older events are folded into the record's base by a sweep.",
    "max_result_size_bytes": (
        "Over it a submission raises `ResultTooLarge`, and the claim is untouched."
    ),
    "max_active_sessions": (
        "Sessions that have not ended, are not known gone and not silent. Over it: `DENIED_LIMIT`."
    ),
}

SIZES = {
    "MAX_DEFINITION_BYTES": "Bytes of one task's definition.",
    "MAX_INLINE_RESULT_BYTES": (
        "Bytes of a result kept in the record; a larger one becomes a payload beside it."
    ),
    "MAX_SPAWN_BYTES": "Bytes of the subtasks of one `spawn_subtasks`.",
    "MAX_CHILDREN_BYTES": (
        "Bytes that all subtasks of one task may take in its record: some "
        "thousand of them, fewer if their ids are long."
    ),
    "MAX_DEPENDENCIES": "Dependencies of one task.",
}

RECORDS = {
    "a refused result": (events.ResultRejected, events.ResultAdopted, events.ResultDiscarded),
    "a promotion": (
        events.PromotionRequested,
        events.PromotionFailed,
        events.PromotionCompleted,
    ),
    "a session": (events.SessionRegistered, events.SessionHeartbeat, events.SessionEndedEvent),
    "a counter": (events.IdsTaken,),
    "a project": (events.ProjectChanged, events.EpochRaised),
    "a tenant": (events.TenantChanged,),
    "the denials of one coordinator in one hour": (events.ClaimDenied,),
    "settling": (events.Settled,),
    "a feature": (events.FeatureCounted,),
    "a key": (events.KeyCreated, events.KeyRotated, events.KeyRevoked),
}
