"""Every screen, with tasks in each state and on a new project."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from genlock.service.auth.browser_sessions import LocalToken
from tests.browser.conftest import PHONE, OpenPage, Sample
from tests.browser.sample import NEW, SHOP
from tests.servers.service import Service


@pytest.fixture
def service(sample: Sample) -> Service:
    return sample.service


@pytest.fixture
def token(sample: Sample) -> LocalToken:
    return sample.token


def test_the_overview_says_who_works_what_needs_a_person_and_what_is_next(
    open_page: OpenPage,
) -> None:
    page = open_page(SHOP)
    work = page.get_by_role("region", name="At work")
    expect(work).to_contain_text("bob")
    expect(work).to_contain_text("in flight")
    expect(work).to_contain_text("wiring it up")
    expect(work).to_contain_text("40%")
    needs = page.get_by_role("region", name="Needs you")
    expect(needs.get_by_role("listitem")).to_have_count(4)
    expect(needs).to_contain_text("held: waits for the licence")
    expect(needs).to_contain_text("waits for a review")
    expect(page.get_by_role("region", name="Next")).to_contain_text("B-001-schema")
    expect(page.get_by_label("all tasks by state")).to_contain_text("2 refused, kept")
    expect(page).to_have_title("(4) default · genlock")


def test_the_list_of_tasks_has_each_in_its_state(open_page: OpenPage) -> None:
    page = open_page(f"{SHOP}/tasks")
    table = page.get_by_role("table", name="tasks")
    for task, state, more in [
        ("A-001-core", "done", "bob"),
        ("A-002-container", "working", "in flight"),
        ("A-003-events", "blocked", "A-002-container"),
        ("B-001-schema", "ready", "available"),
        ("B-002-zombie", "working", "bob"),
        ("B-003-held", "held", "waits for the licence"),
        ("B-004-review", "in review", "B-004-review"),
        ("B-005-cancelled", "cancelled", "Stored procedures"),
        ("B-006-backlog", "backlog", "Sharding"),
    ]:
        row = table.get_by_role("row").filter(has_text=task).first
        if task == "A-002-container":
            row = table.get_by_role("row").filter(has_text="Inject")
        expect(row).to_contain_text(state)
        expect(row).to_contain_text(more)


def test_a_task_shows_why_it_stands_so_its_generations_and_what_was_refused(
    open_page: OpenPage,
) -> None:
    page = open_page(f"{SHOP}/task/A-001-core")
    expect(page.get_by_role("heading", level=1)).to_have_text("Set up the core")
    lanes = page.get_by_role("region", name="Generations").get_by_role("listitem")
    expect(lanes).to_have_count(2)
    expect(lanes.nth(0)).to_contain_text("an operator took it away")
    expect(lanes.nth(0)).to_contain_text("a result was refused")
    expect(lanes.nth(1)).to_contain_text("its result was accepted")
    result = page.get_by_role("region", name="Result")
    expect(result).to_contain_text('"files"')
    expect(result).to_contain_text("Refused: generation 1 by zed")
    result.get_by_role("button", name="Compare").click()
    both = page.get_by_label("both results side by side")
    expect(both).to_contain_text('"made by": "zed"')
    expect(both).to_contain_text('"made by": "bob"')
    page.get_by_role("button", name="Close").click()

    page.goto(page.url.replace("A-001-core", "A-003-events"))
    expect(page.locator("main")).to_contain_text("Why: ")
    expect(page.locator("main")).to_contain_text("A-002-container")
    expect(page.get_by_label("command: genlock explain A-003-events")).to_be_visible()


def test_agents_graph_history_and_settings_show_what_there_is(open_page: OpenPage) -> None:
    page = open_page(f"{SHOP}/agents")
    expect(page.locator("main")).to_contain_text("2 agents, 1 at work")
    expect(page.get_by_role("img", name="2 agents from")).to_be_visible()

    page.keyboard.press("4")
    box = page.get_by_role("button", name="A-002-container, working, bob")
    box.click()
    chosen = page.get_by_label("the chosen box")
    expect(chosen).to_contain_text("bob holds it at generation 1")
    expect(chosen).to_contain_text("Waits for 1")

    page.keyboard.press("5")
    history = page.get_by_role("region", name="History")
    expect(history.get_by_role("listitem").filter(has_text="not wanted any more")).to_be_visible()
    page.get_by_label("kind of event").select_option("RESULT_REJECTED")
    expect(history.get_by_role("listitem").filter(has_text="was refused")).to_have_count(2)
    kept = page.get_by_role("region", name="still kept")
    expect(kept).to_contain_text("2 refused results still kept")
    expect(kept.get_by_role("listitem").filter(has_text="A-001-core")).to_contain_text("by zed")

    page.keyboard.press("6")
    policy = page.get_by_role("region", name="Policy")
    expect(policy).to_contain_text("four_eyes")
    expect(policy.get_by_role("definition").filter(has_text="unlimited")).to_have_count(0)
    expect(page.get_by_role("region", name="Tracks")).to_contain_text("Application")
    expect(page.get_by_role("region", name="You")).to_contain_text("look and act")


def test_the_timeline_is_grouped_by_session_user_or_track_and_groups_fold(
    open_page: OpenPage,
) -> None:
    page = open_page(f"{SHOP}/agents")
    by = page.get_by_label("group the lines")
    expect(page.get_by_role("button", name="at work")).to_have_count(0)
    by.select_option("by track")
    first = page.get_by_role("button", name="Track A: 2 agents, 1 at work")
    expect(first).to_have_attribute("aria-expanded", "true")
    expect(page.get_by_role("button", name="Track B: 2 agents, 1 at work")).to_be_visible()
    expect(page.get_by_role("img", name="2 groups, 4 lines from")).to_be_visible()
    first.press("Enter")
    expect(first).to_have_attribute("aria-expanded", "false")
    expect(page.get_by_role("img", name="2 groups, 2 lines from")).to_be_visible()
    assert page.url.endswith("/agents?by=track&fold=A")
    canvas = page.get_by_role("img", name="2 groups").bounding_box()
    assert canvas is not None
    page.mouse.click(canvas["x"] + 40, canvas["y"] + 26 + 15)  # the first line, below the axis
    expect(first).to_have_attribute("aria-expanded", "true")
    page.get_by_role("button", name="Fold all").click()
    expect(page.get_by_role("img", name="2 groups, 0 lines from")).to_be_visible()

    by.select_option("by user")
    expect(page.get_by_role("button", name="bob: 1 agent, 1 at work")).to_be_visible()
    expect(page.get_by_role("button", name="zed: 1 agent, 0 at work")).to_be_visible()
    by.select_option("by session")
    page.get_by_text("As a list").click()
    listed = page.get_by_role("region", name="session-bob")
    expect(listed.get_by_role("listitem")).to_have_count(1)
    expect(listed).to_contain_text("bob works on")


@pytest.mark.parametrize("path", ["", "/tasks", "/agents", "/graph", "/history"])
def test_a_new_project_says_what_to_type(open_page: OpenPage, path: str) -> None:
    page = open_page(NEW + path)
    empty = page.locator(".none-box").first
    expect(empty).to_be_visible()
    expect(empty.get_by_role("textbox")).to_contain_text("genlock ")
    expect(page.locator(".skeleton")).to_have_count(0)


def test_what_is_not_there_is_said(open_page: OpenPage) -> None:
    page = open_page(f"{SHOP}/task/Z-404-nothing")
    expect(page.locator("main")).to_contain_text("There is no task Z-404-nothing here")
    page.goto(page.url.replace("/task/Z-404-nothing", "/nowhere"))
    expect(page.get_by_text("There is no such screen")).to_be_visible()


def test_a_phone_reaches_every_screen_and_the_search_by_one_tap(open_page: OpenPage) -> None:
    page = open_page(SHOP, viewport=PHONE, has_touch=True, is_mobile=True)
    bar = page.get_by_role("navigation", name="screens")
    for name, path in [
        ("Tasks", "/tasks"),
        ("Agents", "/agents"),
        ("Graph", "/graph"),
        ("History", "/history"),
        ("Settings", "/settings"),
        ("Now", ""),
    ]:
        link = bar.get_by_role("link", name=name)
        expect(link).to_be_in_viewport(ratio=1)
        link.tap()
        expect(page).to_have_url(f"{page.url.partition('/p/')[0]}{SHOP}{path}")
        expect(link).to_have_attribute("aria-current", "page")
    page.get_by_role("button", name="search, go to and act").tap()
    expect(page.get_by_role("combobox", name="search tasks")).to_be_focused()
