"""Results that wait for a review: looked at, approved and rejected, from the overview and from the
page of the task."""

from __future__ import annotations

from typing import Any

import pytest
from playwright.sync_api import Locator, Page, Route, expect

import genlock
from tests.browser.conftest import OpenPage, Pages
from tests.browser.sample import SHOP
from tests.servers.service import Service

TASK = "B-004-review"
PAGE = f"{SHOP}/task/{TASK}"


def state_of(store_url: str) -> Any:
    with genlock.connect(store_url) as fleet:
        return fleet.get_task_state(task_id=TASK)


def digest_of(store_url: str) -> str:
    """As far as a person is shown it."""
    with genlock.connect(store_url) as fleet:
        return fleet.get_review(task_id=TASK).digest[:12]


def hand_in(store_url: str, data: str) -> None:
    """Eve does the task once more."""
    with genlock.connect(store_url, session_id="s-eve", agent_id="eve", process=None) as eve:
        claim = eve.claim_task(task_id=TASK).require()
        eve.submit_result(task_id=TASK, generation=claim.generation, result_data=data)


def reject(store_url: str, feedback: str = "") -> None:
    """Another operator rejects what waits, in a terminal."""
    with genlock.connect(store_url, session_id="s-ann", user_id="ann", process=None) as ann:
        waits = ann.get_review(task_id=TASK)
        ann.reject_review(
            task_id=TASK, generation=waits.generation, digest=waits.digest, feedback=feedback
        )


def review(page: Page) -> Locator:
    return page.get_by_role("region", name="Waits for a review")


def test_a_review_is_rejected_with_words_for_the_next_holder_and_the_next_result_approved(
    open_page: OpenPage, store_url: str
) -> None:
    page = open_page(PAGE)
    expect(review(page)).to_contain_text("create table t")
    review(page).get_by_role("button", name="Reject…").click()
    dialog = page.get_by_role("dialog", name=f"Reject {TASK}")
    expect(dialog.get_by_label("what will happen")).to_be_visible()
    wide = dialog.evaluate("dialog => dialog.scrollWidth - dialog.clientWidth")
    assert wide <= 0, f"the dialog is cut off by {wide} px"
    dialog.get_by_label("What is wrong with it").fill("no primary key")
    will = dialog.get_by_label("what will happen")
    first = digest_of(store_url)
    expect(will).to_contain_text(
        f"The result of bob at generation 1, digest {first}, does not count. It is kept"
    )
    expect(will).to_contain_text("open again, at a generation above 1")
    command = f"genlock review reject {TASK} -g 1 --digest {first}"
    expect(dialog.get_by_label(f"command: {command}")).to_be_visible()
    assert state_of(store_url).state == "IN_REVIEW"
    dialog.get_by_role("button", name="Reject", exact=True).click()
    expect(review(page)).to_be_hidden()
    expect(page.locator("main")).to_contain_text("was rejected by")
    expect(page.locator("main")).to_contain_text("“no primary key”")
    assert state_of(store_url).feedback.text == "no primary key"

    hand_in(store_url, "better")
    page.locator(".acts").get_by_role("button", name="Approve…").click()
    dialog = page.get_by_role("dialog", name=f"Approve {TASK}")
    expect(dialog).to_contain_text(
        f"The result of eve at generation 2, digest {digest_of(store_url)}, is accepted, in your"
    )
    dialog.get_by_role("button", name="Approve", exact=True).click()
    expect(page.get_by_role("status").filter(has_text="its result was approved")).to_be_visible()
    expect(page.get_by_role("region", name="Events")).to_contain_text("approved by")
    after = state_of(store_url)
    assert (after.state, after.result.agent_id, after.result.result_data) == (
        "COMPLETED",
        "eve",
        "better",
    )


def test_a_review_is_looked_at_and_approved_from_what_needs_a_person(
    open_page: OpenPage, store_url: str
) -> None:
    page = open_page(SHOP)
    needs = page.get_by_role("region", name="Needs you")
    expect(needs.get_by_role("listitem").filter(has_text=TASK)).to_contain_text("bob, gen 1")
    needs.get_by_role("button", name=f"Review… {TASK}").click()
    looked = page.get_by_role("dialog", name=f"review of {TASK}")
    expect(looked).to_contain_text("create table t (id int)")
    expect(looked).to_contain_text(f"digest {digest_of(store_url)}")
    expect(looked).to_contain_text("a person has to look at it")
    looked.get_by_role("button", name="Approve…").click()
    expect(looked).to_be_hidden()
    dialog = page.get_by_role("dialog", name=f"Approve {TASK}")
    dialog.get_by_role("button", name="Approve", exact=True).click()
    expect(needs.get_by_role("link", name=TASK)).to_have_count(0)
    assert state_of(store_url).state == "COMPLETED"


def test_an_approval_that_comes_too_late_changes_nothing_and_shows_the_result_that_waits_now(
    open_page: OpenPage, store_url: str
) -> None:
    """Between the question and the answer somebody else decides, and another result comes."""

    def faster(route: Route) -> None:
        reject(store_url)
        hand_in(store_url, "another one")
        route.continue_()

    page = open_page(PAGE)
    old = digest_of(store_url)
    page.route("**/approve", faster, times=1)
    review(page).get_by_role("button", name="Approve…").click()
    dialog = page.get_by_role("dialog", name=f"Approve {TASK}")
    dialog.get_by_role("button", name="Approve", exact=True).click()
    expect(dialog.get_by_role("alert")).to_contain_text("Nothing has changed")
    expect(dialog.get_by_role("alert")).to_contain_text("another one waits there now")
    told = dialog.get_by_role("status")
    expect(told).to_contain_text(f"You have looked at generation 1, digest {old}")
    new = digest_of(store_url)
    expect(told).to_contain_text(f"the result of eve at generation 2, digest {new}, waits")
    expect(dialog.get_by_role("button", name="Approve", exact=True)).to_be_disabled()
    assert state_of(store_url).state == "IN_REVIEW"

    told.get_by_role("button", name="Look at it").click()
    looked = page.get_by_role("dialog", name=f"review of {TASK}")
    expect(looked).to_contain_text("another one")
    looked.get_by_role("button", name="Approve…").click()
    dialog = page.get_by_role("dialog", name=f"Approve {TASK}")
    dialog.get_by_role("button", name="Approve", exact=True).click()
    expect(review(page)).to_be_hidden()
    assert state_of(store_url).result.result_data == "another one"


def test_a_question_that_somebody_else_has_answered_says_so_by_itself(
    open_page: OpenPage, store_url: str
) -> None:
    page = open_page(PAGE)
    review(page).get_by_role("button", name="Approve…").click()
    dialog = page.get_by_role("dialog", name=f"Approve {TASK}")
    approve = dialog.get_by_role("button", name="Approve", exact=True)
    expect(approve).to_be_enabled()
    reject(store_url, "not like this")
    expect(dialog.get_by_role("status")).to_contain_text("It was rejected by ann")
    expect(dialog.get_by_role("status")).to_contain_text("The task is ready, at generation 2")
    expect(approve).to_be_disabled()


def test_with_four_eyes_the_author_s_own_user_is_refused_with_the_reason(
    open_page: OpenPage, store_url: str
) -> None:
    with genlock.connect(store_url) as fleet:
        fleet.set_policy(policy={"four_eyes": True})
    page = open_page(PAGE)
    review(page).get_by_role("button", name="Approve…").click()
    dialog = page.get_by_role("dialog", name=f"Approve {TASK}")
    dialog.get_by_role("button", name="Approve", exact=True).click()
    expect(dialog.get_by_role("alert")).to_contain_text("approval of another user than its author")
    assert state_of(store_url).state == "IN_REVIEW"


@pytest.mark.parametrize("path", [PAGE, SHOP])
def test_a_sign_in_to_look_sees_the_result_and_cannot_decide(
    store_url: str, keyed: tuple[Service, str, str], pages: Pages, path: str
) -> None:
    service, _, key = keyed
    page = pages.context().new_page()
    page.goto(f"{service.url}{path}")
    page.get_by_label("Key").fill(key)
    page.get_by_role("button", name="Sign in", exact=True).click()
    if path == SHOP:
        page.get_by_role("button", name=f"Review… {TASK}").click()
        place = page.get_by_role("dialog", name=f"review of {TASK}")
    else:
        place = review(page)
    expect(place).to_contain_text("create table t")
    expect(place.get_by_role("link", name="Sign in to act")).to_be_visible()
    expect(place.get_by_role("button", name="Approve")).to_have_count(0)
    expect(place.get_by_role("button", name="Reject")).to_have_count(0)

    sent = """async ([act, body]) => (await fetch(`/v1/default/default/tasks/B-004-review/${act}`, {
        method: "POST", headers: {"content-type": "application/json"}, body})).status"""
    body = f'{{"generation": 1, "digest": "{digest_of(store_url)}"}}'
    for act in ("approve", "reject"):
        assert page.evaluate(sent, [act, body]) == 401
    assert state_of(store_url).state == "IN_REVIEW"
