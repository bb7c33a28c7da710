"""axe finds nothing on any screen, dark, light and on a phone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from genlock.service.auth.browser_sessions import LocalToken
from tests.browser.conftest import PHONE, OpenPage, Sample
from tests.browser.sample import NEW, SHOP
from tests.servers.service import Service

AXE = Path(__file__).parents[2] / "web/node_modules/axe-core/axe.min.js"
VISITS = {
    SHOP: "[aria-labelledby=sessions] .s",
    f"{SHOP}/tasks": "[role=rowgroup] [role=row]",
    f"{SHOP}/task/A-001-core": ".lane",
    f"{SHOP}/task/B-004-review": "[aria-labelledby=review] pre",
    f"{SHOP}/agents": "canvas",
    f"{SHOP}/agents?by=track": "canvas",
    f"{SHOP}/graph?around=A-002-container": ".node.sel",
    f"{SHOP}/history": "[aria-labelledby=history] li",
    f"{SHOP}/history?type=RESULT_REJECTED": "[aria-label='still kept'] li",
    f"{SHOP}/settings": "[aria-labelledby=policy] dd",
    f"{NEW}/tasks": ".none-box",
}
"""What is visible on each page when it is complete."""
LOOKS: dict[str, dict[str, Any]] = {
    "dark": {"color_scheme": "dark"},
    "light": {"color_scheme": "light"},
    "phone": {"viewport": PHONE, "has_touch": True, "is_mobile": True},
}


@pytest.fixture
def service(sample: Sample) -> Service:
    return sample.service


@pytest.fixture
def token(sample: Sample) -> LocalToken:
    return sample.token


def faults(page: Page) -> list[str]:
    """What axe complains of, and where."""
    expect(page.locator(".skeleton")).to_have_count(0)
    found = page.evaluate(
        "() => axe.run({resultTypes: ['violations']}).then(found => found.violations.flatMap("
        "({id, nodes}) => nodes.map(node => `${id}: ${node.html.slice(0, 200)}`)))"
    )
    return [f"{page.url}: {fault}" for fault in found]


def visit(page: Page, path: str, complete: str) -> None:
    """Goes there within the page, in which axe is loaded."""
    page.evaluate("path => { history.pushState(null, '', path); }", path)
    page.evaluate("dispatchEvent(new PopStateEvent('popstate'))")
    expect(page.locator(complete).first).to_be_visible()


@pytest.mark.parametrize("look", LOOKS)
def test_axe_finds_nothing_on_any_screen(open_page: OpenPage, look: str) -> None:
    page = open_page(SHOP, **LOOKS[look])
    page.evaluate(AXE.read_text("utf-8"))  # by the debugger, which no policy binds
    found = []
    for path, complete in VISITS.items():
        visit(page, path, complete)
        found += faults(page)
        wide = page.evaluate("document.documentElement.scrollWidth - innerWidth")
        assert wide <= 0, f"{path} scrolls sideways by {wide} px"
    assert found == []


def test_axe_finds_nothing_in_dialogs(open_page: OpenPage) -> None:
    page = open_page(f"{SHOP}/task/A-001-core")
    page.evaluate(AXE.read_text("utf-8"))
    page.get_by_role("button", name="Compare").click()
    expect(page.get_by_label("both results side by side")).to_be_visible()
    found = faults(page)
    page.get_by_role("button", name="Close").click()
    page.get_by_role("button", name="Reset…").click()
    expect(page.get_by_label("what will happen")).to_be_visible()
    found += faults(page)
    page.keyboard.press("Escape")
    for key, name in (("?", "Keys"), ("/", "Search, go to, act")):
        page.keyboard.press(key)
        expect(page.get_by_role("dialog", name=name)).to_be_visible()
        found += faults(page)
        page.keyboard.press("Escape")
        expect(page.get_by_role("dialog")).to_have_count(0)
    assert found == []
