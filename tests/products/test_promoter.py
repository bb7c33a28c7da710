"""The promoter: what was accepted becomes the assets, whoever dies in between and whatever a zombie
writes."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import genlock
from genlock import Coordinator
from genlock.errors import BadArgument, StoreUnavailable
from genlock.products.area import Area
from genlock.products.promoter import Promoter
from genlock.testing.clock import ManualClock

PLACE = ("default", "default")
DAY = timedelta(days=1)


def claim(fleet: Coordinator, task: str, who: str = "alice", **more: Any) -> int:
    """Claims a task, made if need be; the generation."""
    fleet.add_tasks(tasks=[{"id": task, **more}])
    answer = fleet.claim_task(task_id=task, agent_id=who, session_id=f"of-{who}")
    assert answer.claim is not None, answer.reason
    return answer.claim.generation


def draft(
    area: Area, task: str, generation: int, who: str = "alice", **files: str
) -> list[dict[str, Any]]:
    """Puts drafts, `a__txt` for `a.txt`; the manifest."""
    found = []
    for name, text in files.items():
        path = name.replace("__", ".")
        product = area.put_draft(who, task, generation, path, io.BytesIO(text.encode()))
        found.append({"path": product.path, "sha256": product.sha256, "size": product.size})
    return found


def submit(
    fleet: Coordinator, task: str, generation: int, products: Any, who: str = "alice"
) -> Any:
    return fleet.submit_result(
        task_id=task,
        generation=generation,
        agent_id=who,
        session_id=f"of-{who}",
        result_data={"by": who},
        products=products,
    )


def promoter(fleet: Coordinator, area: Area) -> Promoter:
    return Promoter(fleet, area, PLACE)


def assets(area: Area) -> dict[str, str]:
    """The text of every asset, by path."""
    found = {}
    for asset in area.assets():
        with area.opened_asset(asset) as file:
            found[asset.path] = file.read().decode()
    return found


def states(fleet: Coordinator) -> dict[str, str]:
    return {f"{each.task_id}/{each.generation}": each.state for each in fleet.list_promotions()}


def test_exactly_the_accepted_manifest_is_promoted_and_once(fleet: Coordinator, area: Area) -> None:
    generation = claim(fleet, "T")
    products = draft(area, "T", generation, a__txt="one", b="two")
    draft(area, "T", generation, c="not in the manifest")
    assert promoter(fleet, area).run().promoted == ()
    assert submit(fleet, "T", generation, products).accepted
    assert assets(area) == {}
    done = promoter(fleet, area).run()
    assert [(each.task_id, each.state) for each in done.promoted] == [("T", "PROMOTED")]
    assert (done.failed, done.errors) == ((), ())
    assert assets(area) == {"a.txt": "one", "b": "two"}
    assert promoter(fleet, area).run().promoted == ()


def test_a_stale_agents_products_are_never_promoted(
    fleet: Coordinator, area: Area, clock: ManualClock
) -> None:
    first = claim(fleet, "T")
    stale = draft(area, "T", first, a="stale")
    clock.advance(400)
    second = claim(fleet, "T", "bob")
    assert not submit(fleet, "T", first, stale).accepted
    assert submit(fleet, "T", second, draft(area, "T", second, "bob", a="fresh"), "bob").accepted
    draft(area, "T", first, a="a zombie writes on")
    promoter(fleet, area).run()
    assert assets(area) == {"a": "fresh"}


def test_a_review_promotes_when_it_is_approved_and_not_before(
    fleet: Coordinator, area: Area
) -> None:
    generation = claim(fleet, "T", human_required=True)
    submit(fleet, "T", generation, draft(area, "T", generation, a="1"))
    promoter(fleet, area).run()
    assert assets(area) == {}
    review = fleet.get_review(task_id="T")
    assert review.manifest is not None
    assert [each.path for each in review.manifest.files] == ["a"]
    fleet.approve_review(task_id="T", generation=generation, digest=review.digest)
    promoter(fleet, area).run()
    assert assets(area) == {"a": "1"}


def test_an_adopted_result_is_promoted_from_the_drafts_of_its_own_generation(
    fleet: Coordinator, area: Area, clock: ManualClock
) -> None:
    first = claim(fleet, "T")
    products = draft(area, "T", first, a="late but good")
    clock.advance(400)
    second = claim(fleet, "T", "bob")
    refused = submit(fleet, "T", first, products)
    assert fleet.adopt_result(
        task_id="T", refused_id=refused.refused_id, generation=second, session_id="of-bob"
    ).accepted
    promoter(fleet, area).run()
    assert assets(area) == {"a": "late but good"}


def test_a_draft_that_was_overwritten_before_the_copy_fails_the_whole_promotion(
    fleet: Coordinator, area: Area
) -> None:
    generation = claim(fleet, "T")
    submit(fleet, "T", generation, draft(area, "T", generation, a="1", b="2"))
    draft(area, "T", generation, b="tampered")
    (failed,) = promoter(fleet, area).run().failed
    assert failed.state == "FAILED"
    assert "the draft b is not what was accepted" in failed.reason
    assert assets(area) == {}
    # It is not tried again by itself; mended, it can be.
    assert promoter(fleet, area).run().failed == ()
    draft(area, "T", generation, b="2")
    assert promoter(fleet, area).run(retry=True).promoted[0].state == "PROMOTED"
    assert assets(area) == {"a": "1", "b": "2"}


def test_a_draft_that_is_overwritten_after_the_copy_changes_nothing(
    fleet: Coordinator, area: Area
) -> None:
    generation = claim(fleet, "T")
    submit(fleet, "T", generation, draft(area, "T", generation, a="1"))
    promoter(fleet, area).run()
    draft(area, "T", generation, a="tampered")
    promoter(fleet, area).run(retry=True)
    assert assets(area) == {"a": "1"}


def test_a_lie_about_a_draft_is_found(fleet: Coordinator, area: Area) -> None:
    generation = claim(fleet, "T")
    (product,) = draft(area, "T", generation, a="1")
    submit(fleet, "T", generation, [product | {"size": 2}])
    (failed,) = promoter(fleet, area).run().failed
    assert "is not what was accepted" in failed.reason


def test_the_later_acceptance_of_a_path_wins_in_whatever_order_they_are_promoted(
    fleet: Coordinator, area: Area, clock: ManualClock
) -> None:
    for task in ("B", "A"):
        generation = claim(fleet, task)
        submit(fleet, task, generation, draft(area, task, generation, same=task, **{task: task}))
        clock.advance(1)
    late, early = promoter(fleet, area).run().promoted  # by id: A was accepted after B
    assert (late.task_id, late.superseded) == ("A", ())
    assert (early.task_id, early.superseded) == ("B", ("same",))
    assert assets(area) == {"A": "A", "B": "B", "same": "A"}


def test_a_task_that_is_done_again_replaces_its_asset(fleet: Coordinator, area: Area) -> None:
    for text in ("first", "second"):
        generation = claim(fleet, "T")
        submit(fleet, "T", generation, draft(area, "T", generation, a=text))
        fleet.reset_task(task_id="T")
    # Both wait, and the clock has not moved.
    promoter(fleet, area).run()
    assert assets(area) == {"a": "second"}
    assert set(states(fleet).values()) == {"PROMOTED"}


def test_an_area_that_is_away_leaves_promotions_pending(
    fleet: Coordinator, area: Area, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(5):
        generation = claim(fleet, f"T{number}")
        submit(fleet, f"T{number}", generation, draft(area, f"T{number}", generation, a="1"))

    def away(*_: object) -> None:
        raise StoreUnavailable("the bucket is away")

    with monkeypatch.context() as patch:
        patch.setattr(Area, "store_content", away)
        assert promoter(fleet, area).run().errors == tuple(
            f"T{number}: the bucket is away" for number in range(3)
        )
    assert set(states(fleet).values()) == {"PENDING"}
    promoter(fleet, area).run()
    assert set(states(fleet).values()) == {"PROMOTED"}


def test_without_an_area_nothing_is_accepted_with_products(fleet: Coordinator, area: Area) -> None:
    fleet.set_policy(policy={"products": None})
    generation = claim(fleet, "T")
    with pytest.raises(BadArgument, match="has no area for products"):
        submit(fleet, "T", generation, draft(area, "T", generation, a="1"))


def test_promoters_at_once_do_no_harm(fleet: Coordinator, url: str) -> None:
    area = Area.at(url)
    for number in range(6):
        task = f"T{number}"
        generation = claim(fleet, task)
        submit(fleet, task, generation, draft(area, task, generation, same=task, **{task: task}))
    start = threading.Barrier(4)
    errors: list[str] = []

    def work() -> None:
        own = Promoter(fleet, Area.at(url), PLACE)
        start.wait(10)
        errors.extend(own.run().errors)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert errors == []
    assert set(states(fleet).values()) == {"PROMOTED"}
    assert assets(area) == {f"T{number}": f"T{number}" for number in range(6)} | {"same": "T5"}


# Collecting


def test_drafts_of_dead_generations_are_collected_and_no_others(
    fleet: Coordinator, area: Area, clock: ManualClock
) -> None:
    dead = claim(fleet, "T")
    draft(area, "T", dead, a="dead", b="dead")
    clock.advance(400)
    kept = claim(fleet, "T", "bob")
    refused = submit(fleet, "T", dead, draft(area, "T", dead, "carol", a="x"), "carol")
    assert refused.kept
    clock.advance(400)
    pending = claim(fleet, "T", "dave")
    submit(fleet, "T", kept, draft(area, "T", kept, "bob", a="refused"), "bob")
    submit(fleet, "T", pending, draft(area, "T", pending, "dave", a="pending"), "dave")
    fleet.reset_task(task_id="T")
    current = claim(fleet, "T")
    draft(area, "T", current, a="current")
    draft(area, "nobody-knows-it", 1, a="of another project")
    later = datetime.now(UTC) + 8 * DAY
    assert promoter(fleet, area).collect(datetime.now(UTC), 7 * DAY) == 0
    assert promoter(fleet, area).collect(later, 7 * DAY) == 2
    left = {(each.agent, each.task_id, each.generation) for each in area.drafts()}
    assert left == {
        ("carol", "T", dead),
        ("bob", "T", kept),
        ("dave", "T", pending),
        ("alice", "T", current),
        ("alice", "nobody-knows-it", 1),
    }
    # Promoted, and discarded: now these are dead as well.
    promoter(fleet, area).run()
    for result in fleet.list_refused_results(task_id="T"):
        fleet.discard_result(task_id="T", refused_id=result.id)
    assert promoter(fleet, area).collect(later, 7 * DAY) == 3
    assert assets(area) == {"a": "pending"}


def test_drafts_that_are_links_do_not_keep_other_products_from_being_promoted(
    tmp_path: Path,
) -> None:
    with genlock.connect("memory://") as fleet:
        fleet.set_policy(policy={"products": f"file://{tmp_path}"})
        area = Area.at(f"file://{tmp_path}")
        for task in ("A", "B", "C", "Z"):
            generation = claim(fleet, task)
            products = draft(area, task, generation, **{task: "much work"})
            if task != "Z":
                file = next(tmp_path.rglob(f"drafts/{task}/**/{task}"))
                file.unlink()
                file.symlink_to("/etc/passwd")
            assert submit(fleet, task, generation, products).accepted
        promoter(fleet, area).run()
        assert assets(area) == {"Z": "much work"}


def test_files_of_others_do_not_keep_dead_drafts_from_being_collected(
    tmp_path: Path, clock: ManualClock
) -> None:
    url = f"file://{tmp_path}"
    with genlock.connect("memory://", clock=clock) as fleet:
        fleet.set_policy(policy={"products": url})
        area = Area.at(url)
        draft(area, "T", claim(fleet, "T"), a="dead")
        clock.advance(400)
        claim(fleet, "T", "bob")
        draft(area, "no task has this name", 1, a="of somebody else")
        later = datetime.now(UTC) + 8 * DAY
        assert promoter(fleet, area).collect(later, 7 * DAY) == 1


def test_drafts_of_an_adoption_in_review_stay(
    fleet: Coordinator, area: Area, clock: ManualClock
) -> None:
    first = claim(fleet, "T", human_required=True)
    products = draft(area, "T", first, a="1")
    clock.advance(400)
    second = claim(fleet, "T", "bob", human_required=True)
    refused = submit(fleet, "T", first, products)
    fleet.adopt_result(
        task_id="T", refused_id=refused.refused_id, generation=second, session_id="of-bob"
    )
    assert promoter(fleet, area).collect(datetime.now(UTC) + 8 * DAY, 7 * DAY) == 0
    review = fleet.get_review(task_id="T")
    fleet.approve_review(task_id="T", generation=second, digest=review.digest)
    assert promoter(fleet, area).collect(datetime.now(UTC) + 8 * DAY, 7 * DAY) == 0
    promoter(fleet, area).run()
    assert assets(area) == {"a": "1"}


# Killed

PROMOTE = """if True:
    import sys
    import genlock
    from genlock.products.area import Area
    from genlock.products.promoter import Promoter
    with genlock.connect(sys.argv[1]) as fleet:
        done = Promoter(fleet, Area.at(sys.argv[2]), ("default", "default")).run()
        assert not done.errors, done.errors
"""
POINTS = [
    "products.copying", "products.written:1", "products.written:2", "products.copied:1", "products.copied:2", "products.stored",
    "products.pointing:1", "products.replaced:1", "products.pointing:2", "products.replaced:2", "products.moved", "products.settled",
]  # fmt: skip


def promote_in_a_process(store: str, url: str, failpoint: str = "") -> int:
    code = [sys.executable, "-c", PROMOTE, store, url]
    environment = os.environ | {"GENLOCK_FAILPOINT": failpoint}
    return subprocess.run(code, env=environment, timeout=60).returncode


KILLED = [
    pytest.param(where, point, marks=[pytest.mark.slow] if where == "s3" and number % 5 else [])
    for where in ("file", "s3")
    for number, point in enumerate(POINTS)
]


@pytest.mark.parametrize(("url", "failpoint"), KILLED, indirect=["url"])
def test_the_next_promoter_finishes_what_a_killed_one_began(
    url: str, tmp_path: Path, failpoint: str
) -> None:
    store = f"sqlite://{tmp_path}/genlock.db"
    with genlock.connect(store, create=True) as fleet:
        fleet.set_policy(policy={"products": url})
        area = Area.at(url)
        generation = claim(fleet, "T")
        submit(fleet, "T", generation, draft(area, "T", generation, a="1", b="2"))
        assert promote_in_a_process(store, url, failpoint) == -signal.SIGKILL
        if failpoint in POINTS[:5]:
            assert assets(area) == {}
        if failpoint in POINTS[5:]:
            # All contents are there: from here on the drafts do not matter.
            draft(area, "T", generation, a="tampered", b="tampered")
        promoter(fleet, area).run()
        assert assets(area) == {"a": "1", "b": "2"}
        assert states(fleet) == {"T/1": "PROMOTED"}
