"""Acting from the page: what a person is told before, what comes of it, and who may not."""

from __future__ import annotations

import re
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

import pytest
from playwright.sync_api import Locator, Page, expect

import genlock
from tests.browser.conftest import OpenPage, Pages
from tests.browser.sample import SHOP
from tests.servers.service import Service

CROSS_ORIGIN = re.compile("status of 4|CORS policy|net::ERR_FAILED|frame-ancestors|Framing")
"""What the browser logs when it keeps a page of another origin out."""


def state_of(store_url: str, task: str) -> Any:
    with genlock.connect(store_url) as fleet:
        return fleet.get_task_state(task_id=task)


def ask(page: Page, act: str, task: str) -> Locator:
    """Opens the dialog of an act on the page of its task."""
    page.locator(".acts").get_by_role("button", name=f"{act}…").click()
    return page.get_by_role("dialog", name=f"{act} {task}")


def test_a_release_says_whose_claim_ends_and_happens_once_it_is_confirmed(
    open_page: OpenPage, store_url: str
) -> None:
    page = open_page(f"{SHOP}/task/A-002-container")
    dialog = ask(page, "Release", "A-002-container")
    will = dialog.get_by_label("what will happen")
    expect(will).to_contain_text("bob is at work and looks alive. Its claim is superseded")
    expect(will).to_contain_text("Whatever bob hands in at generation 1 is refused, and kept.")
    expect(dialog.get_by_role("textbox")).to_have_text("genlock unlock A-002-container --force")
    dialog.get_by_role("button", name="Do nothing").click()
    expect(dialog).to_be_hidden()
    assert state_of(store_url, "A-002-container").generation == 1

    dialog = ask(page, "Release", "A-002-container")
    dialog.get_by_role("button", name="Release it from bob").click()
    expect(page.get_by_role("status").filter(has_text="bob's claim was superseded")).to_be_visible()
    events = page.get_by_role("region", name="Events").get_by_role("listitem")
    expect(events.first).to_contain_text("A-002-container was taken from bob")
    expect(page.locator(".acts").get_by_role("button", name="Release…")).to_be_hidden()
    assert (state_of(store_url, "A-002-container").state) == "PENDING"


def test_a_hold_with_its_reason_and_the_reopening_from_what_needs_a_person(
    open_page: OpenPage, store_url: str
) -> None:
    page = open_page(f"{SHOP}/task/B-001-schema")
    dialog = ask(page, "Hold", "B-001-schema")
    dialog.get_by_label("Reason").fill("ask Ann")
    expect(dialog.get_by_label("command: ")).to_contain_text("--reason 'ask Ann'")
    dialog.get_by_role("button", name="Hold", exact=True).click()
    expect(page.locator("main")).to_contain_text("ask Ann")
    assert state_of(store_url, "B-001-schema").hold_reason == "ask Ann"

    page.keyboard.press("1")
    page.get_by_role("button", name="Reopen… B-003-held").click()
    dialog = page.get_by_role("dialog", name="Reopen B-003-held")
    expect(dialog).to_contain_text("The hold ends (waits for the licence)")
    dialog.get_by_role("button", name="Reopen", exact=True).click()
    needs = page.get_by_role("region", name="Needs you")
    expect(needs.get_by_role("link", name="B-003-held")).to_have_count(0)
    assert state_of(store_url, "B-003-held").state == "PENDING"


def test_refused_results_are_compared_adopted_and_discarded(
    open_page: OpenPage, store_url: str
) -> None:
    page = open_page(SHOP)
    page.get_by_role("button", name="Compare… B-002-zombie").click()
    dialog = page.get_by_role("dialog", name="refused result of B-002-zombie")
    expect(dialog).to_contain_text("zed handed it in at generation 1")
    expect(dialog).to_contain_text("No result counts yet: bob works on it at generation 2")
    dialog.get_by_role("button", name="Adopt…").click()
    dialog = page.get_by_role("dialog", name="Adopt B-002-zombie")
    expect(dialog).to_contain_text("bob is at work and looks alive. Its claim is superseded")
    dialog.get_by_role("button", name="Adopt", exact=True).click()
    expect(page.get_by_role("status").filter(has_text="was adopted")).to_be_visible()
    adopted = state_of(store_url, "B-002-zombie")
    assert (adopted.state, adopted.result.result_data) == ("COMPLETED", {"models": ["by zed"]})

    page.get_by_role("button", name="Compare… A-001-core").click()
    page.get_by_role("dialog").get_by_role("button", name="Discard…").click()
    dialog = page.get_by_role("dialog", name="Discard A-001-core")
    expect(dialog).to_contain_text("The data of this refused result is deleted")
    dialog.get_by_role("button", name="Discard", exact=True).click()
    needs = page.get_by_role("region", name="Needs you")
    expect(needs.get_by_role("link", name="A-001-core")).to_have_count(0)
    assert state_of(store_url, "A-001-core").result.result_data["made by"] == "bob"


def test_an_act_on_many_first_says_what_would_become_of_each(
    open_page: OpenPage, store_url: str
) -> None:
    page = open_page(f"{SHOP}/tasks?track=B")
    for task in ("B-001-schema", "B-005-cancelled"):
        page.get_by_role("checkbox", name=f"choose {task}").click()
    page.get_by_role("button", name="Act on 2…").click()
    dialog = page.get_by_role("dialog", name="Act on many tasks")
    expect(dialog).to_contain_text("Of 2 tasks 1 would change")
    expect(dialog.get_by_label("what would happen")).to_contain_text("B-005-cancelled")
    assert state_of(store_url, "B-001-schema").state == "PENDING"
    dialog.get_by_role("button", name="Hold 1 task").click()
    expect(page.get_by_role("row").filter(has_text="B-001-schema")).to_contain_text("held")
    assert state_of(store_url, "B-005-cancelled").state == "CANCELLED"


def test_a_sign_in_to_look_is_told_how_to_act_and_acts_after_it(
    store_url: str, keyed: tuple[Service, str, str], pages: Pages
) -> None:
    service, _, key = keyed
    page = pages.context().new_page()
    page.goto(f"{service.url}{SHOP}/task/B-001-schema")
    page.get_by_label("Key").fill(key)
    page.get_by_role("button", name="Sign in", exact=True).click()
    dialog = ask(page, "Hold", "B-001-schema")
    expect(dialog.get_by_label("what will happen")).to_be_visible()
    expect(dialog.get_by_role("button", name="Hold", exact=True)).to_have_count(0)
    dialog.get_by_role("link", name="Sign in to act").click()
    page.get_by_label("Key").fill(key)
    page.get_by_role("button", name="Sign in to act").click()
    expect(page).to_have_url(f"{service.url}{SHOP}/task/B-001-schema")
    kept = page.evaluate("JSON.stringify(localStorage) + document.cookie")
    assert key.partition("_")[2] not in kept
    dialog = ask(page, "Hold", "B-001-schema")
    dialog.get_by_role("button", name="Hold", exact=True).click()
    expect(page.locator("main")).to_contain_text("held")
    assert state_of(store_url, "B-001-schema").state == "HELD"


def test_an_act_whose_sign_in_has_ended_meanwhile_changes_nothing_and_says_so(
    open_page: OpenPage, store_url: str
) -> None:
    page = open_page(f"{SHOP}/task/B-001-schema")
    dialog = ask(page, "Cancel", "B-001-schema")
    page.evaluate("localStorage.removeItem('genlock.proof')")
    dialog.get_by_role("button", name="Cancel", exact=True).click()
    refused = dialog.get_by_role("alert")
    expect(refused).to_contain_text("You may not do this yet")
    expect(refused.get_by_role("link", name="Sign in to act")).to_be_visible()
    assert state_of(store_url, "B-001-schema").state == "PENDING"


def test_what_has_changed_since_the_question_is_not_done_over_a_new_holder(
    open_page: OpenPage, store_url: str
) -> None:
    """The dialog was opened while the task was free; nobody has agreed to take a claim away."""
    page = open_page(f"{SHOP}/task/B-001-schema")
    page.route("**/cancel", lambda route: _claimed_first(store_url, route))
    dialog = ask(page, "Cancel", "B-001-schema")
    dialog.get_by_role("button", name="Cancel", exact=True).click()
    expect(dialog.get_by_role("alert")).to_contain_text("Nothing has changed")
    expect(dialog.get_by_label("what will happen")).to_contain_text("eve is at work")
    assert state_of(store_url, "B-001-schema").state == "IN_PROGRESS"
    expect(dialog.get_by_role("button", name="Cancel it from eve")).to_be_enabled()


def _claimed_first(store_url: str, route: Any) -> None:
    with genlock.connect(store_url, session_id="s-eve", agent_id="eve") as eve:
        eve.claim_task(task_id="B-001-schema").require()
    route.continue_()


@pytest.fixture
def evil() -> Iterator[str]:
    """A page at another port of the same host: browsers send it our cookies, as to no other."""

    class Evil(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("content-type", "text/html")
            self.end_headers()
            self.wfile.write(b"<!doctype html><title>prizes</title><link rel=icon href=data:,>")

        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Evil) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}/"
        server.shutdown()


ACT = """async ([url, proof]) => {
    const headers = {"content-type": proof ? "application/json" : "text/plain"};
    if (proof) headers["x-genlock-proof"] = proof;
    const sent = {method: "POST", credentials: "include", headers, body: '{"reason": "prize"}'};
    try { return (await fetch(url, {...sent, mode: proof ? "cors" : "no-cors"})).type; }
    catch (error) { return "blocked"; }
}"""


def test_a_page_of_another_origin_can_neither_act_nor_frame_the_dashboard(
    open_page: OpenPage, service: Service, store_url: str, evil: str, pages: Pages
) -> None:
    pages.expected = CROSS_ORIGIN
    ours = open_page(f"{SHOP}/task/B-001-schema")
    proof = ours.evaluate("localStorage.getItem('genlock.proof')")
    assert len(proof) == 64
    page = ours.context.new_page()
    page.goto(evil)
    hold = f"{service.url}/v1/default/default/tasks/B-001-schema/hold"
    assert page.evaluate(ACT, [hold, ""]) == "opaque"
    assert page.evaluate(ACT, [hold, proof]) == "blocked"
    with page.expect_navigation():
        page.evaluate(
            """url => {
                const form = document.createElement("form");
                Object.assign(form, {method: "post", action: url, enctype: "text/plain"});
                document.body.append(form);
                form.submit();
            }""",
            hold,
        )
    assert state_of(store_url, "B-001-schema").state == "PENDING"

    page.goto(evil)
    with page.expect_console_message(lambda said: "frame-ancestors" in said.text):
        page.evaluate(
            """url => {
                const frame = document.createElement("iframe");
                frame.src = url;
                document.body.append(frame);
            }""",
            f"{service.url}{SHOP}",
        )
