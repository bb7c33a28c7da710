"""Whether a git repository may take a push."""

from __future__ import annotations

from genlock.core.git_push import judge_branch, judge_protected
from genlock.core.keys import Key
from genlock.core.reasons import ClaimState
from genlock.core.results import PushVerdict
from genlock.reads.reader import Reader
from genlock.reads.tasks import holder_lives


def push_verdict(
    reader: Reader, key: Key, generation: int, commit: str, *, protected: bool
) -> PushVerdict:
    """Returns the current verdict on this commit."""
    record = reader.task(key)
    if protected:
        return judge_protected(record, generation, commit)
    claim = record.claim
    is_held = claim is not None and claim.state is ClaimState.ACTIVE
    lives = is_held and holder_lives(reader, key, record)
    return judge_branch(record, generation, commit, holder_lives=lives)
