"""A plan of 10,000 tasks: the first rows come soon, and the list scrolls to its end."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from playwright.sync_api import expect

import genlock
from tests.browser.conftest import OpenPage

TASKS = 10_000
MOST_SECONDS = 20.0
"""Until the first row, on a busy machine of two cores; it takes one or two."""
LONGEST_FRAME_MS = 2_000


@pytest.fixture
def store_url(tmp_path: Path) -> str:
    url = f"sqlite://{tmp_path / 'genlock.db'}"
    with genlock.connect(url, create=True, process=None) as fleet:
        fleet.import_plan(
            source={
                "tasks": [
                    {"id": f"A-{n % 1000:03}-{n:05}" if n % 1000 else f"t-{n:05}"}
                    for n in range(TASKS)
                ]
            }
        )
    return url


SCROLL = """box => new Promise(done => {
    let longest = 0, last = performance.now(), frames = 0;
    const step = now => {
        longest = Math.max(longest, now - last);
        last = now;
        box.scrollTop += box.clientHeight / 2;
        if (++frames < 120) requestAnimationFrame(step);
        else done(longest);
    };
    requestAnimationFrame(step);
})"""


@pytest.mark.slow
def test_ten_thousand_tasks_show_at_once_and_scroll(open_page: OpenPage, store_url: str) -> None:
    page = open_page("/p/default/default")
    began = time.monotonic()
    page.goto(page.url.rstrip("/") + "/tasks")
    rows = page.get_by_role("table").get_by_role("row")
    expect(rows.nth(1)).to_be_visible()
    assert time.monotonic() - began < MOST_SECONDS
    expect(page.locator("main")).to_contain_text("10,000 match")
    window = page.get_by_role("rowgroup", name="tasks")
    longest = window.evaluate(SCROLL)
    assert longest < LONGEST_FRAME_MS
    assert rows.count() < 200, "only the rows that can be seen are in the page"

    with genlock.connect(store_url, session_id="s-eve", agent_id="eve", process=None) as eve:
        task = window.get_by_role("link").first.inner_text()
        eve.claim_task(task_id=task).require()
    expect(window.get_by_role("row").filter(has_text=task)).to_contain_text("eve")
