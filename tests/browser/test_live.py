"""What other processes do appears on the page that is open, and nothing is lost over an outage."""

from __future__ import annotations

import re
import secrets
import signal
import socket
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect

import genlock
from genlock import Coordinator
from genlock.service.auth.browser_sessions import LocalToken
from genlock.service.compose import Choices
from tests.browser.conftest import OpenPage, Pages
from tests.browser.sample import SHOP, fill
from tests.cli import console
from tests.eventually import eventually
from tests.servers.service import Service, serving
from tests.service import process

UNREACHABLE = re.compile("net::ERR_|the server responded with a status of 4")
"""What the browser logs while the service is away or refuses."""

CLIENTS = "genlock_sse_clients "


def elsewhere(store_url: str, agent: str = "eve") -> Coordinator:
    """Another program on the same store; the service is not told."""
    return genlock.connect(store_url, session_id=f"session-{agent}", agent_id=agent, process=None)


def live(page: Page) -> None:
    expect(page.get_by_role("button", name="connection: live")).to_be_visible()


def row(page: Page, task: str) -> Any:
    return page.get_by_role("row").filter(has=page.get_by_role("link", name=task, exact=True))


def test_a_claim_a_release_a_refusal_and_a_result_of_others_appear_in_the_list(
    open_page: OpenPage, store_url: str
) -> None:
    page = open_page(f"{SHOP}/tasks")
    live(page)
    line = row(page, "B-001-schema")
    expect(line).to_contain_text("ready")
    claimed = console.run("claim", "B-001-schema", "--agent", "eve", "--url", store_url)
    assert claimed.code == 0, claimed.err
    expect(line).to_contain_text("working")
    expect(line).to_contain_text("eve")
    with elsewhere(store_url, "ann") as other:
        other.force_release(task_id="B-001-schema", take_over=True)
        expect(line).to_contain_text("available")
        claim = other.claim_task(task_id="B-001-schema").require()
        expect(line).to_contain_text("ann")
        other.submit_result(task_id="B-001-schema", generation=claim.generation, result_data="ok")
        expect(line).to_contain_text("done")
        other.add_tasks(tasks=["B-007-new"])
    page.get_by_role("button", name="take in").click()
    expect(row(page, "B-007-new")).to_contain_text("ready")


def test_changes_leave_alone_what_somebody_is_typing(open_page: OpenPage, store_url: str) -> None:
    page = open_page(f"{SHOP}/tasks")
    live(page)
    field = page.get_by_role("searchbox")
    field.press_sequentially("half a wo")
    held = page.get_by_role("group", name="states").get_by_role("button", name="held")
    expect(held).to_contain_text("1")
    with elsewhere(store_url) as eve:
        eve.hold_task(task_id="B-001-schema")
    expect(held).to_contain_text("2")
    expect(field).to_have_value("half a wo")


def test_the_overview_and_the_open_task_tell_of_a_refused_result(
    open_page: OpenPage, store_url: str
) -> None:
    overview = open_page(SHOP)
    task = overview.context.new_page()
    task.goto(f"{overview.url.rstrip('/')}/task/B-001-schema")
    expect(overview.get_by_label("all tasks by state")).to_contain_text("2 refused, kept")
    expect(task.get_by_text("Nobody has claimed it yet")).to_be_visible()
    live(task)
    with elsewhere(store_url, "eve") as eve, elsewhere(store_url, "ann") as ann:
        claim = eve.claim_task(task_id="B-001-schema").require()
        expect(task.locator(".claim")).to_contain_text("eve holds it at generation 1")
        ann.force_release(task_id="B-001-schema", take_over=True)
        refused = eve.submit_result(
            task_id="B-001-schema", generation=claim.generation, result_data="too late"
        )
        assert not refused.accepted
    expect(task.get_by_role("region", name="Result")).to_contain_text(
        "Refused: generation 1 by eve"
    )
    expect(task.get_by_role("region", name="Events")).to_contain_text("eve")
    expect(overview.get_by_label("all tasks by state")).to_contain_text("3 refused, kept")
    expect(overview.get_by_role("region", name="Needs you")).to_contain_text("B-001-schema")


def test_ten_tabs_of_a_browser_share_one_stream_and_all_change(
    open_page: OpenPage, service: Service, store_url: str
) -> None:
    first = open_page(f"{SHOP}/tasks")
    tabs = [first, *(first.context.new_page() for _ in range(9))]
    for page in tabs[1:]:
        page.goto(first.url)
    for page in tabs:
        live(page)
        expect(row(page, "B-001-schema")).to_contain_text("ready")
    eventually(lambda: _clients(service, first) == "1.0", "one stream in all")
    with elsewhere(store_url) as eve:
        eve.claim_task(task_id="B-001-schema").require()
    for page in tabs:
        expect(row(page, "B-001-schema")).to_contain_text("eve")


def _clients(service: Service, page: Page) -> str:
    """How many streams are open, as the service counts them."""
    told = page.request.get(f"{service.url}/metrics").text()
    return next(line.split()[1] for line in told.splitlines() if line.startswith(CLIENTS))


def test_a_page_outlives_a_service_that_was_killed_and_shows_what_it_has_missed(
    pages: Pages, tmp_path: Path
) -> None:
    store_url = f"sqlite://{tmp_path / 'served.db'}"
    fill(store_url)
    with genlock.connect(store_url) as admin:
        key = admin.create_key(name="ann", role="operator").text
    secret = tmp_path / "sign-ins"
    secret.write_text(secrets.token_hex(32))
    secret.chmod(0o600)
    options = ("--keys", "--port", str(_free_port()), "--sign-in-file", str(secret))
    pages.expected = UNREACHABLE
    page = pages.context().new_page()
    with process.serve(tmp_path, *options, url=store_url) as served:
        page.goto(served.url.rstrip("/") + f"{SHOP}/tasks")
        page.get_by_label("Key").fill(key)
        page.get_by_role("button", name="Sign in to act").click()
        live(page)
        expect(row(page, "B-001-schema")).to_contain_text("ready")
        served.end(signal.SIGKILL)
        expect(page.get_by_role("button", name="connection: away since")).to_be_visible()
        expect(page.get_by_role("button", name="Try now")).to_be_visible()
        expect(row(page, "B-001-schema")).to_contain_text("ready")
    with elsewhere(store_url) as eve:
        eve.claim_task(task_id="B-001-schema").require()
        eve.reopen_task(task_id="B-003-held")
        eve.hold_task(task_id="A-003-events", reason="while it was away")
    with process.serve(tmp_path, *options, url=store_url):
        live(page)
        expect(row(page, "B-001-schema")).to_contain_text("eve")
        expect(row(page, "A-003-events")).to_contain_text("while it was away")
        expect(row(page, "B-003-held")).to_contain_text("ready")
        fresh = page.context.new_page()
        fresh.goto(page.url)
        expect(row(fresh, "B-001-schema")).to_contain_text("eve")
        assert _state(page) == _state(fresh)
        for each in (page, fresh):
            each.close()


def test_a_page_whose_place_in_the_feed_is_lost_reads_everything_again_and_says_so(
    store_url: str, token: LocalToken, pages: Pages, tmp_path: Path
) -> None:
    """The store is replaced by an older copy of itself while the service is away."""
    choices = Choices(token=token, sign_in_secret=b"s" * 32)
    pages.expected = UNREACHABLE
    page = pages.context().new_page()
    copy, restored = str(tmp_path / "copy.db"), f"sqlite://{tmp_path / 'restored.db'}"
    with serving(store_url, choices=choices) as service:
        page.goto(f"{service.url}/sign-in?code={token.make_code()}")
        page.goto(f"{service.url}{SHOP}/tasks")
        live(page)
        assert console.run("backup", copy, "--url", store_url).code == 0
        with elsewhere(store_url) as eve:
            eve.claim_task(task_id="B-001-schema").require()
        expect(row(page, "B-001-schema")).to_contain_text("eve")
    assert console.run("restore", copy, "--url", restored).code == 0
    with serving(restored, choices=choices, port=service.port):
        expect(page.get_by_role("status").filter(has_text="read afresh")).to_be_visible()
        live(page)
        expect(row(page, "B-001-schema")).to_contain_text("ready")
        expect(row(page, "B-001-schema")).to_contain_text("available")
        with elsewhere(restored) as eve:
            eve.hold_task(task_id="B-001-schema", reason="after the restore")
        expect(row(page, "B-001-schema")).to_contain_text("after the restore")
        page.get_by_role("button", name="I have read it").click()
        expect(page.get_by_role("status").filter(has_text="read afresh")).to_be_hidden()
        page.close()


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return int(taken.getsockname()[1])


def _state(page: Page) -> dict[str, list[str]]:
    """Each row by its task, but for how long its lease still lasts."""
    rows = page.get_by_role("row").all()[1:]
    found = [row.get_by_role("cell").all_inner_texts() for row in rows]
    return {cells[0]: cells[1:7] + cells[8:] for cells in found}


@pytest.mark.parametrize("screen", ["", "/tasks", "/task/A-002-container"])
def test_a_page_says_that_its_sign_in_has_ended(
    store_url: str, keyed: tuple[Service, str, str], pages: Pages, screen: str
) -> None:
    service, id, key = keyed
    page = pages.context().new_page()
    pages.expected = UNREACHABLE
    page.goto(f"{service.url}{SHOP}{screen}")
    page.get_by_label("Key").fill(key)
    page.get_by_role("button", name="Sign in", exact=True).click()
    live(page)
    expect(page.locator("main")).to_contain_text("A-002-container")
    service.do(service.coordinator.revoke_key(key_id=id))
    with elsewhere(store_url) as eve:
        eve.add_tasks(tasks=["B-007-new"])
    expect(page.get_by_role("alert").first).to_contain_text("The sign-in is over")
    expect(page.locator("main")).to_contain_text("A-002-container")
    again = page.get_by_role("link", name="Sign in again")
    again.click()
    expect(page.get_by_label("Key")).to_be_visible()
