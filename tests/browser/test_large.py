"""A plan of 10,000 tasks: the first rows come soon, the list scrolls to its end, and the page keeps
up with 500 events a second. `-s` prints the figures."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest
from playwright.sync_api import CDPSession, Page, expect

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


EVENTS_A_SECOND = 500
MEASURED_SECONDS = 8
MOST_BUSY = 0.8
"""What is broken misses this on any machine: docs/how-to/dashboard.md has the figures. The time is
that of the main thread's own work, however busy the machine is."""
FRAMES = """seconds => new Promise(done => {
    const box = document.querySelector(".window");
    const most = box ? box.scrollHeight - box.clientHeight : 0;
    let at = 0, way = 1, frames = 0, first = 0;
    const step = now => {
        first ||= now;
        if (window.scrolls) {
            at += 12 * way;
            if (at <= 0 || at >= most) way = -way;
            box.scrollTop = at;
        }
        frames++;
        if (now - first < seconds * 1000) requestAnimationFrame(step);
        else done(frames / seconds);
    };
    requestAnimationFrame(step);
})"""


def measure(page: Page, devtools: CDPSession, what: str, *, scrolls: bool = False) -> None:
    """How much of its main thread the page uses, and how many frames it draws."""

    def figures() -> dict[str, float]:
        told = devtools.send("Performance.getMetrics")["metrics"]
        return {each["name"]: each["value"] for each in told}

    page.evaluate(f"window.scrolls = {str(scrolls).lower()}")
    before, began = figures(), time.monotonic()
    frames = page.evaluate(FRAMES, MEASURED_SECONDS)
    after, took = figures(), time.monotonic() - began
    busy, script = (
        (after[name] - before[name]) / took for name in ("TaskDuration", "ScriptDuration")
    )
    heap = after["JSHeapUsedSize"] / 1e6
    print(
        f"{what}: {frames:.0f} frames/s, main thread {busy:.0%} (script {script:.0%}), {heap:.0f} MB"
    )
    assert busy < MOST_BUSY


@pytest.mark.slow
def test_a_page_keeps_up_with_500_events_a_second(open_page: OpenPage, store_url: str) -> None:
    page = open_page("/p/default/default/tasks?sort=state")
    devtools = page.context.new_cdp_session(page)
    devtools.send("Performance.enable", {"timeDomain": "threadTicks"})
    expect(page.get_by_role("table").get_by_role("row").nth(1)).to_be_visible()
    command = [sys.executable, "-m", "tests.browser.busy", store_url, str(EVENTS_A_SECOND), "60"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as fleet:
        assert fleet.stdout is not None
        assert fleet.stdout.readline() == "ready\n"
        page.reload()
        expect(page.get_by_role("row").nth(1)).to_contain_text("working")
        measure(page, devtools, "tasks, scrolled all the time", scrolls=True)
        measure(page, devtools, "tasks")
        for screen, shown in (
            ("", "[aria-labelledby=sessions] .s"),
            ("/agents", "canvas"),
            ("/graph", ".node"),
        ):
            page.goto(page.url.partition("/tasks")[0].partition("/agents")[0] + screen)
            expect(page.locator(shown).first).to_be_visible()
            measure(page, devtools, screen or "overview")
        assert fleet.poll() is None, "it wrote all the time"
        fleet.terminate()
