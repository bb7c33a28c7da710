"""What strangers wrote is text on every screen: no script of theirs runs, and nothing complains."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page, expect

from genlock.service.auth.browser_sessions import LocalToken
from tests.browser.conftest import OpenPage, Sample
from tests.browser.sample import HOSTILE, HOSTILE_ID, MARK, SCREENS
from tests.servers.service import Service


@pytest.fixture
def service(sample: Sample) -> Service:
    return sample.service


@pytest.fixture
def token(sample: Sample) -> LocalToken:
    return sample.token


def nothing_ran(page: Page) -> None:
    """Nor has any element of theirs become one."""
    expect(page.locator(".skeleton")).to_have_count(0)
    expect(page.locator("img, [onerror], [onload], body script")).to_have_count(0)
    assert page.evaluate("window.hit === undefined")
    assert page.evaluate("document.title.includes('genlock')")


@pytest.mark.parametrize("screen", SCREENS)
def test_no_script_of_a_stranger_runs_on_a_screen(open_page: OpenPage, screen: str) -> None:
    page = open_page(HOSTILE + screen)
    shown = "session-" if screen == "/history" else "onload" if screen == "/settings" else "onerror"
    if screen in ("/agents", "/graph"):
        shown = {"/agents": "1 at work", "/graph": "as a list"}[screen]
        expect(page.locator("main")).to_contain_text(shown, ignore_case=True)
    else:
        expect(page.locator("main")).to_contain_text(shown)
    nothing_ran(page)


def test_nor_on_the_page_of_a_task_its_comparison_its_acts_and_the_palette(
    open_page: OpenPage,
) -> None:
    page = open_page(f"{HOSTILE}/task/A-003-done")
    expect(page.get_by_role("heading", level=1)).to_contain_text(MARK)
    expect(page.get_by_role("region", name="Result")).to_contain_text(MARK)
    nothing_ran(page)
    page.get_by_role("button", name="Compare").click()
    expect(page.get_by_label("both results side by side")).to_contain_text(MARK)
    nothing_ran(page)
    page.keyboard.press("Escape")

    page.goto(page.url.replace("A-003-done", "A-005-claimed"))
    expect(page.locator("main")).to_contain_text(MARK)
    page.get_by_role("button", name="Release…").click()
    expect(page.get_by_role("dialog")).to_contain_text("onerror")
    nothing_ran(page)
    page.keyboard.press("Escape")

    page.goto(page.url.replace("A-005-claimed", "A-004-review"))
    expect(page.get_by_role("region", name="Waits for a review")).to_contain_text(MARK)
    nothing_ran(page)

    page.goto(page.url.replace("A-004-review", HOSTILE_ID))
    expect(page.get_by_role("heading", level=1)).to_contain_text(MARK)
    nothing_ran(page)
    page.keyboard.press("/")
    page.get_by_role("combobox", name="search tasks").fill("onerror")
    expect(page.get_by_role("listbox", name="choices").get_by_role("option").first).to_contain_text(
        "A-0"
    )
    nothing_ran(page)


@pytest.mark.parametrize(
    "path",
    [
        "/task/%3Cimg%20src%3Dx%20onerror%3Dwindow.hit%3D1%3E",
        "/tasks?state=%22%3E%3Cscript%3Ewindow.hit=1%3C/script%3E&q=%3Cimg%20src=x%20onerror=hit=1%3E",
        "/graph?around=%3Csvg%20onload%3Dwindow.hit%3D1%3E&depth=x",
        "/history?type=%3Cimg%20src=x%3E&task=%22onload=window.hit=1&actor=user:%3Cscript%3E",
        "/agents?from=x&to=1e999&range=-5&agent=%3Cimg%20src=x%3E",
        "/%E0%A4%A/x",
    ],
)
def test_an_address_that_a_stranger_made_shows_a_page_and_runs_nothing(
    open_page: OpenPage, path: str
) -> None:
    page = open_page(HOSTILE + path)
    expect(page.locator("main")).not_to_be_empty()
    nothing_ran(page)
