"""Features: the remaining work of each, kept for the order closest-to-done.

1. A feature counts the tasks that have its name and its project's order. A reaction of a task never
   carries the task's state: it says *look again*, and the present state of the task is read.
2. The feature remembers the version at which each task was last seen, and ignores older news. So a
   reaction may be repeated, late or out of order. A reaction carries the version that caused it; if
   that is newer, the feature records it.
3. It knows `MOST_TASKS` tasks by name. When there are more, it forgets finished ones first,
   starting with those that finished longest ago, but still counts them. A finished task that it
   does not know is then ignored, because it may have been counted. When its unfinished tasks alone
   are too many, it is `crowded` from then on: it comes after all features whose tasks are counted,
   and never counts as finished.
4. While tasks are left, it is in the pool of features, ordered by the number of tasks left, then by
   the number finished (more of them first), then by name.

A feature only affects the order in which tasks are offered: a ready task is found without it, too.
"""

from __future__ import annotations

from typing import Final

from genlock.core import commands as c
from genlock.core import events as e
from genlock.core.decision import Decision, RecordKind, decide_one
from genlock.core.facts import Facts, ObservedTask
from genlock.core.index import KIND_POOL, Index
from genlock.core.keys import FEATURE
from genlock.core.model import FeatureRecord, KnownState
from genlock.core.reasons import FINISHED, Verdict

MOST_TASKS: Final = 1_000
FEATURES: Final = KIND_POOL + FEATURE
"""The pool of the features that have unfinished tasks."""
_MOST: Final = 9999
_CROWDED: Final = "9999"


def decide_count(record: FeatureRecord | None, command: c.CountTasks, facts: Facts) -> Decision:
    """Reads the tasks and records the news. A task that does not exist, or belongs to another
    feature, is not counted."""
    news = {
        name: KnownState(seen.version, seen.status)
        for name, cause in command.others
        if (seen := facts.others.get(name)) is not None
        and seen.task is not None
        and seen.task.feature == command.key.id
        and _is_news(record, name, seen, cause)
    }
    if not news:
        return Decision(Verdict.UNCHANGED)
    return decide_one(
        record,
        command,
        facts,
        _counted,
        e.FeatureCounted,
        Verdict.DONE,
        feature=command.key.id,
        others=news,
    )


def _is_news(record: FeatureRecord | None, name: str, seen: ObservedTask, cause: int) -> bool:
    """Is there news of this task? Rule 2. A change since the task was last seen is recorded even if
    the task has its old state again. Older news that is still under way then finds a changed record
    and is decided again."""
    finished = seen.status in FINISHED
    if record is None:
        return True
    for names, same in ((record.unfinished, not finished), (record.finished, finished)):
        if name in names:
            return seen.version > names[name] and (not same or cause > names[name])
    return not record.crowded and not (finished and record.forgotten)


def _counted(record: FeatureRecord | None, event: e.FeatureCounted) -> FeatureRecord:
    unfinished = dict(record.unfinished) if record else {}
    finished = dict(record.finished) if record else {}
    forgotten, crowded = (record.forgotten, record.crowded) if record else (0, False)
    for name, seen in event.others.items():
        unfinished.pop(name, None)
        finished.pop(name, None)
        (finished if seen.finished else unfinished)[name] = seen.version
    excess = len(unfinished) + len(finished) - MOST_TASKS
    if excess > 0:
        gone = list(finished)[:excess]
        forgotten += len(gone)
        for name in gone:
            del finished[name]
        for name in list(unfinished)[MOST_TASKS:]:
            del unfinished[name]
            crowded = True
    return FeatureRecord(
        name=event.feature,
        updated_at=event.timestamp,
        unfinished=unfinished,
        finished=finished,
        forgotten=forgotten,
        crowded=crowded,
    )


def _index(record: FeatureRecord) -> Index:
    """Returns the index fields of a feature. Rule 4."""
    if not record.unfinished and not record.crowded:
        return Index(state="FINISHED")
    left = _CROWDED if record.crowded else f"{len(record.unfinished):04d}"
    order = f"{left}{_MOST - min(record.done, _MOST):04d}{record.name}"
    return Index(state="UNFINISHED", pool=FEATURES, order=order)


RECORD = RecordKind(
    kind=FEATURE,
    record=FeatureRecord,
    commands={c.CountTasks: decide_count},
    begins=e.FeatureCounted,
    folds={e.FeatureCounted: _counted},
    index_of=_index,
)
