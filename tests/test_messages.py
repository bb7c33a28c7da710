"""What answers, events and errors mean in words, and the commands to try next."""

from __future__ import annotations

import pickle
import string
from datetime import UTC, datetime, timedelta
from typing import Any, get_args

import pytest

from genlock import errors
from genlock.core import events
from genlock.core.model import Holder
from genlock.core.overview import Progress, ProjectProgress
from genlock.core.reasons import (
    ClaimReason,
    ProgressReason,
    PushReason,
    ReleaseAnswer,
    RenewReason,
    ReviewReason,
    Status,
    SubmitReason,
)
from genlock.core.results import (
    ClaimResult,
    Explanation,
    ReleaseResult,
    RenewalResult,
    Root,
    SpawnResult,
    SubmissionResult,
)
from genlock.messages import (
    EVENTS,
    SENTENCES,
    Context,
    changes,
    command,
    describe,
    describe_event,
    describe_progress,
    title,
    typed,
)

SINCE = datetime(2026, 1, 4, 6, tzinfo=UTC)
BOB = Holder("bob", "s2", "", SINCE, SINCE + timedelta(minutes=5), looks_alive=True)
HERE = Context("T", 2, {"project": "web", "session": "s1", "agent": "ada"}, "s1", SINCE)
NEXT = "genlock next --project web --session s1 --agent ada"
EXPLAIN = "genlock explain T --project web --session s1 --agent ada"


def test_every_reason_of_every_answer_has_a_sentence() -> None:
    reasons = [
        *ClaimReason,
        *RenewReason,
        *ReleaseAnswer,
        *SubmitReason,
        *ProgressReason,
        *ReviewReason,
        *PushReason,
    ]
    assert set(SENTENCES) == {reason.value for reason in reasons}
    for reason in SENTENCES:
        assert "{" not in title(reason)


REFUSALS: list[tuple[Any, str, list[str]]] = [
    (
        ClaimResult(False, ClaimReason.DENIED_ACTIVE_CLAIM, "T", holder=BOB),
        "T is held by bob (session s2), claimed 0s ago, lease ends in 5m",
        [EXPLAIN, NEXT],
    ),
    (
        ClaimResult(False, ClaimReason.DENIED_BLOCKED, "T", waits_for=("A-1", "A-2")),
        "T waits for A-1, A-2",
        [EXPLAIN, NEXT],
    ),
    (
        ClaimResult(False, ClaimReason.DENIED_HELD, "T", detail="the design is open"),
        "T is on hold: the design is open",
        [EXPLAIN, NEXT],
    ),
    (
        ClaimResult(False, ClaimReason.DENIED_ASSIGNED, "T", detail="reserved for bob"),
        "T is reserved for bob",
        [EXPLAIN, NEXT],
    ),
    (
        ClaimResult(False, ClaimReason.DENIED_COMPLETED, "T", detail="the task is completed"),
        "T needs no more work: the task is completed",
        ["genlock show T --project web", NEXT],
    ),
    (
        ClaimResult(False, ClaimReason.DENIED_LIMIT, "T", detail="over the limit x = 1"),
        "the claim would be over the limit x = 1",
        [EXPLAIN, "genlock agents --project web"],
    ),
    (
        ClaimResult(False, ClaimReason.NOTHING_READY, detail="no task is ready"),
        "no task is ready",
        ["genlock ready --project web", "genlock status --project web"],
    ),
    (
        RenewalResult(False, RenewReason.GENERATION_MISMATCH, 3),
        "T has moved on to generation 3: this claim no longer counts",
        [NEXT, "genlock history T --project web"],
    ),
    (
        RenewalResult(False, RenewReason.GENERATION_MISMATCH, 1),
        "T has not been at this generation; did you mean 1?",
        ["genlock history T --project web"],
    ),
    (
        ReleaseResult(False, ReleaseAnswer.GENERATION_MISMATCH, 0),
        "nobody has been granted T yet: claim it first",
        ["genlock claim T --project web --session s1 --agent ada"],
    ),
    (
        ReleaseResult(False, ReleaseAnswer.NO_CLAIM, 2),
        "nobody holds T at this generation",
        [NEXT, "genlock history T --project web"],
    ),
    (
        RenewalResult(False, RenewReason.SESSION_MISMATCH, 2),
        "another session holds T at this generation, and you are s1",
        ["genlock agents --project web"],
    ),
    (
        RenewalResult(False, RenewReason.ALREADY_EXPIRED, 2),
        (
            "the lease of T is over. Its result still counts until somebody takes over: submit "
            "it, or claim the task again"
        ),
        [
            "genlock claim T --project web --session s1 --agent ada",
            "genlock history T --project web",
        ],
    ),
    (
        SubmissionResult(False, SubmitReason.STALE_GENERATION, 3, refused_id="T/2/s1/abc"),
        (
            "T has moved on to generation 3: an earlier one no longer counts. The result is kept "
            "as T/2/s1/abc. Stop working on this task, and ask for the next one"
        ),
        [NEXT, "genlock history T --project web"],
    ),
    (
        SubmissionResult(False, SubmitReason.CHILDREN_UNFINISHED, 2, waits_for=("T.1",)),
        "T waits for T.1. Submit again when they are finished",
        ["genlock show T --project web"],
    ),
    (
        SpawnResult(False, SubmitReason.TASK_ALREADY_COMPLETED, 2),
        (
            "T is completed or cancelled already. Stop working on this task, and ask for the next "
            "one"
        ),
        [NEXT, "genlock history T --project web"],
    ),
]


@pytest.mark.parametrize(
    ("refusal", "text", "commands"),
    REFUSALS,
    ids=lambda value: f"{type(value).__name__}" if not isinstance(value, str | list) else "",
)
def test_a_refusal_says_what_is_so_and_what_to_try(
    refusal: Any, text: str, commands: list[str]
) -> None:
    told = describe(refusal, HERE)
    assert (told.text, [typed(words) for words in told.try_next]) == (text, commands)


@pytest.mark.parametrize("refusal", [one[0] for one in REFUSALS])
def test_no_refusal_says_that_something_is_lost_or_tells_a_submitter_to_adopt(refusal: Any) -> None:
    told = describe(refusal, HERE)
    assert "lost" not in told.text
    assert not any("adopt" in words for words in told.try_next)


def test_without_a_present_time_a_lease_is_told_as_a_time() -> None:
    denied = ClaimResult(False, ClaimReason.DENIED_ACTIVE_CLAIM, "T", holder=BOB)
    assert describe(denied).text == (
        "T is held by bob (session s2), lease until 2026-01-04T06:05:00Z"
    )


def test_commands_repeat_the_options_of_the_call_that_they_take() -> None:
    context = Context(
        options={"url": "u", "tenant": "t", "project": "p", "session": "s", "agent": "a"}
    )
    assert [
        typed(command(verb, "x", context=context))
        for verb in ("claim", "submit", "show", "keys list", "db migrate", "login")
    ] == [
        "genlock claim x --url u --tenant t --project p --session s --agent a",
        "genlock submit x --url u --tenant t --project p --session s",
        "genlock show x --url u --tenant t --project p",
        "genlock keys list x --url u --tenant t",
        "genlock db migrate x --url u",
        "genlock login x",
    ]
    own = command("show", "x", "--project", "other", context=context)
    assert typed(own) == "genlock show x --project other --url u --tenant t"


def test_what_would_open_a_blocked_task() -> None:
    blocked = Explanation(
        task_id="T",
        state=Status.BLOCKED,
        ready=False,
        reason=ClaimReason.DENIED_BLOCKED,
        waits_for=("A", "B", "not before 2999-01-01T00:00:00Z"),
        roots=(Root("R", Status.PENDING, "ready"),),
    )
    assert [typed(words) for words in changes(blocked)] == [
        "genlock claim R",
        "genlock explain A",
        "genlock explain B",
        "genlock edit T --set not_before=null",
    ]


def test_where_nothing_is_ready_a_worker_waits_and_a_reader_looks() -> None:
    found = ProjectProgress(Progress.AT_WORK, {"IN_PROGRESS": 2}, "T", 2)
    waiting = describe_progress(found, "web", ["A"], wait=True, context=HERE)
    assert waiting.text == "2 tasks are at work, and no other can be claimed now"
    assert [typed(words) for words in waiting.try_next] == [
        "genlock next --wait 300 --track A --project web --session s1 --agent ada"
    ]
    reading = describe_progress(found, "web", context=HERE)
    assert [typed(words) for words in reading.try_next] == ["genlock status --project web"]


# Errors


def test_an_error_has_its_message_and_the_command_in_which_it_ends() -> None:
    error = errors.StoreMissing("there is no store; to make one, type: genlock init --url 'a b'")
    assert error.message == str(error)
    assert error.try_next == (("genlock", "init", "--url", "a b"),)
    assert pickle.loads(pickle.dumps(error)).try_next == error.try_next
    assert errors.Busy("genlock: genlock is busy, try again").try_next == ()


def test_an_error_has_the_commands_of_its_kind_and_those_that_it_was_given() -> None:
    error = errors.TaskNotFound("there is no task 'x'")
    assert describe(error, HERE) == (
        "there is no task 'x'",
        (("genlock", "status", "--project", "web"),),
    )
    error.advise([["genlock", "show", "y"]])
    assert error.try_next == (("genlock", "show", "y"),)
    assert errors.TaskNotFound("another").try_next == (("genlock", "status"),)


# Events


def test_every_event_has_a_sentence_whose_blanks_are_fields_of_it() -> None:
    kinds = {kind.__struct_config__.tag: kind for kind in get_args(events.Event)}
    assert set(EVENTS) == set(kinds)
    of_all = {"task", "by", "holder", "because", "times", "others", "children", "changed"}
    of_all |= {"share", "noted", "said", "held_by"}
    of_all |= {"author", "approved", "reviewer", "verdict"}
    for name, form in EVENTS.items():
        blanks = {field for _, field, _, _ in string.Formatter().parse(form) if field}
        assert blanks <= of_all | set(kinds[name].__struct_fields__), name


def test_an_event_is_told_alike_as_the_core_has_it_and_as_the_feed_does() -> None:
    base: dict[str, Any] = {"timestamp": SINCE, "tenant_id": "t", "project_id": "p"}
    refused = events.ResultRejected(
        **base,
        task_id="T",
        agent_id="bob",
        submitted_generation=1,
        current_generation=2,
        rejection_reason="STALE_GENERATION",
        work_lost=True,
        work_product_ref="wp",
        digest="d",
        size=1,
    )
    said = "a result of bob for T at generation 1 was refused (stale generation) and kept"
    assert describe_event(refused) == said
    assert (
        describe_event(
            {
                "event_type": "RESULT_REJECTED",
                "task_id": "T",
                "agent_id": "bob",
                "submitted_generation": 1,
                "rejection_reason": "STALE_GENERATION",
            }
        )
        == said
    )


@pytest.mark.parametrize(
    ("event", "said"),
    [
        (
            {
                "event_type": "CLAIM_DENIED",
                "task_id": "T",
                "agent_id": "bob",
                "count": 3,
                "reason": "DENIED_ACTIVE_CLAIM",
            },
            "bob was denied T 3 times (active claim)",
        ),
        (
            {"event_type": "TASK_HELD", "task_id": "T", "reason": "Ask the Customer"},
            "T was put on hold: Ask the Customer",
        ),
        (
            {
                "event_type": "PROGRESS_REPORTED",
                "task_id": "T",
                "agent_id": "bob",
                "fraction": 0.25,
                "note": "Schema done",
            },
            "bob reported progress on T, 25% done: Schema done",
        ),
        ({"event_type": "TASK_CANCELLED", "task_id": "T"}, "T was cancelled"),
        (
            {"event_type": "DEPENDENCY_MET", "task_id": "T", "others": {"A": {}, "B": {}}},
            "T waits no longer for A, B: completed",
        ),
        (
            {"event_type": "CHILDREN_ANNOUNCED", "task_id": "T", "children": [{"id": "T.1"}]},
            "T waits for new subtasks: T.1",
        ),
        ({"event_type": "OF_A_NEWER_VERSION", "task_id": "T"}, "T: of a newer version"),
    ],
)
def test_an_event_of_the_feed_in_words(event: dict[str, Any], said: str) -> None:
    assert describe_event(event) == said
