"""The keyboard, and the address as the state of the page."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Page, expect

from genlock.service.auth.browser_sessions import LocalToken
from tests.browser.conftest import OpenPage, Sample
from tests.browser.sample import SHOP
from tests.servers.service import Service


@pytest.fixture
def service(sample: Sample) -> Service:
    return sample.service


@pytest.fixture
def token(sample: Sample) -> LocalToken:
    return sample.token


def at(page: Page, path: str) -> None:
    expect(page).to_have_url(re.compile(re.escape(SHOP + path) + "$"))


def test_a_task_is_found_opened_and_left_without_a_mouse(open_page: OpenPage) -> None:
    page = open_page(f"{SHOP}/tasks")
    rows = page.get_by_role("row")
    expect(rows.nth(1)).to_be_visible()
    second = rows.nth(2).get_by_role("link").inner_text()
    for key in ("j", "j", "j", "k"):
        page.keyboard.press(key)
    expect(rows.nth(2)).to_have_attribute("aria-selected", "true")
    page.keyboard.press("Enter")
    at(page, f"/task/{second}")
    page.keyboard.press("Escape")
    at(page, "/tasks")

    page.keyboard.press("/")
    field = page.get_by_role("combobox", name="search tasks")
    expect(field).to_be_focused()
    field.fill("zombie")
    expect(page.get_by_role("listbox", name="choices").get_by_role("option").first).to_contain_text(
        "B-002-zombie"
    )
    page.keyboard.press("Enter")
    at(page, "/task/B-002-zombie")
    page.keyboard.press("g")
    at(page, "/graph?around=B-002-zombie")
    page.go_back()
    at(page, "/task/B-002-zombie")
    expect(page.get_by_role("heading", level=1)).to_have_text("Entity models")


def test_an_act_is_reached_by_the_palette_and_left_by_escape(open_page: OpenPage) -> None:
    page = open_page(f"{SHOP}/task/B-001-schema")
    expect(page.get_by_role("heading", level=1)).to_have_text("Schema")
    page.keyboard.press("Control+k")
    page.get_by_role("combobox", name="search tasks").fill("hold")
    expect(page.get_by_role("listbox", name="choices").get_by_role("option").first).to_contain_text(
        "Hold B-001-schema"
    )
    page.keyboard.press("Enter")
    dialog = page.get_by_role("dialog", name="Hold B-001-schema")
    expect(dialog.get_by_label("what will happen")).to_be_visible()
    page.keyboard.press("Escape")
    expect(dialog).to_be_hidden()
    at(page, "/task/B-001-schema")


def test_help_lists_the_keys_and_numbers_change_screens(open_page: OpenPage) -> None:
    page = open_page(SHOP)
    expect(page.get_by_role("region", name="At work")).to_be_visible()
    page.keyboard.press("?")
    help = page.get_by_role("dialog", name="Keys")
    expect(help).to_contain_text("next and previous line")
    page.keyboard.press("Escape")
    expect(help).to_be_hidden()
    for key, path in enumerate(["", "/tasks", "/agents", "/graph", "/history", "/settings"], 1):
        page.keyboard.press(str(key))
        at(page, path)


def test_keys_do_nothing_else_where_one_types(open_page: OpenPage) -> None:
    page = open_page(f"{SHOP}/tasks")
    field = page.get_by_role("searchbox")
    field.press_sequentially("jg?1")
    expect(field).to_have_value("jg?1")
    expect(page.get_by_role("dialog")).to_have_count(0)


def test_filters_are_in_the_address_and_come_back_with_it(open_page: OpenPage) -> None:
    page = open_page(f"{SHOP}/tasks")
    names = page.get_by_role("table").get_by_role("link")
    expect(names).to_have_count(9)
    page.get_by_role("group", name="states").get_by_role("button", name="held").click()
    at(page, "/tasks?state=HELD")
    expect(names).to_have_text(["B-003-held"])
    page.get_by_role("searchbox").fill("nothing at all")
    page.keyboard.press("Enter")
    at(page, "/tasks?state=HELD&q=nothing+at+all")
    expect(page.get_by_text("No task matches")).to_be_visible()
    page.reload()
    expect(page.get_by_role("searchbox")).to_have_value("nothing at all")
    expect(page.get_by_text("No task matches")).to_be_visible()

    page.goto(page.url.partition("?")[0] + "?track=B&agent=bob")
    expect(names).to_have_text(["B-002-zombie"])
    names.first.click()
    at(page, "/task/B-002-zombie")
    page.go_back()
    at(page, "/tasks?track=B&agent=bob")
    expect(names).to_have_text(["B-002-zombie"])
