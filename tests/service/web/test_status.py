"""The status page: what it shows, to whom, how much of it at most, and that nothing in it is taken
for HTML."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator
from hashlib import sha256
from html.parser import HTMLParser
from pathlib import Path

import pytest

from genlock import __version__
from genlock.core.key_roles import Role
from genlock.reads.status import MOST_EVENTS, MOST_HELD, MOST_PROJECTS, MOST_ROWS
from genlock.service.auth.permissions import Grant
from genlock.service.web import status
from genlock.service.web.html import Html, join, tag
from genlock.service.web.status_html import length
from tests.service.session_api.served import Served, serving

KEYS = {
    "all": Grant("1", "all", "*", "*", Role.OBSERVER),
    "acme": Grant("2", "acme", "acme", "*", Role.OBSERVER),
    "web": Grant("3", "web", "acme", "web", Role.OBSERVER),
}


class Reader(HTMLParser):
    """What a browser would make of it: the elements, and the text."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: set[str] = set()
        self.text = ""
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes |= {name for name, _ in attrs}

    def handle_data(self, data: str) -> None:
        self.text += data + " "


@pytest.fixture(params=["memory", "sqlite"])
def page(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Served]:
    with serving(
        "memory://" if request.param == "memory" else f"sqlite://{tmp_path / 'page.db'}", keys=KEYS
    ) as served:
        yield served


def shown(page: Served, key: str = "all", path: str = "/status") -> Reader:
    page.clock.advance(60)
    return Reader(page.http.get(path, headers={"authorization": f"Bearer {key}"}).text)


def test_a_service_without_anything_says_so(page: Served) -> None:
    text = shown(page).text
    for words in (
        "There are none yet",
        "Nobody is at work.",
        "Nothing since this service began to look.",
        __version__,
    ):
        assert words in text


def test_the_page_shows_progress_holders_refused_results_and_what_happened(page: Served) -> None:
    page.add(
        {"id": "A-001-core", "title": "The core"},
        "A-002-more",
        "B-001-data",
        {"id": "B-002-late", "depends_on": ["B-001-data"]},
    )
    page.do(
        lambda fleet: fleet.claim_task(
            task_id="A-001-core", agent_id="alice", session_id="s1", lease_duration_seconds=3000
        )
    )
    page.do(
        lambda fleet: fleet.claim_task(
            task_id="A-002-more", agent_id="bob", session_id="s2", lease_duration_seconds=30
        )
    )
    page.do(
        lambda fleet: fleet.submit_result(
            task_id="A-002-more", generation=1, agent_id="bob", session_id="s2", result_data=1
        )
    )
    page.do(
        lambda fleet: fleet.submit_result(
            task_id="B-001-data", generation=7, agent_id="zed", session_id="s3", result_data=2
        )
    )
    page.do(
        lambda fleet: fleet.claim_task(
            task_id="B-001-data", agent_id="carol", session_id="s4", lease_duration_seconds=30
        )
    )
    page.do(lambda fleet: fleet.end_session(session_id="s4"))
    page.do(
        lambda fleet: fleet.claim_task(
            task_id="B-001-data", agent_id="dave", session_id="s5", lease_duration_seconds=30
        )
    )
    read = shown(page)
    words = " ".join(read.text.split())
    for expected in (
        f"{__version__} · ",
        "up 1 m",
        "0 ready 2 in progress 1 of 4 completed 1 blocked 1 refused results kept",
        "A 1/2",
        "B 0/2",
        "default 1 of 4",
        "alice s1 A-001-core The core 1 49 m alive",
        "dave s5 B-001-data 2 over lost",
        "12:00:00 alice claimed A-001-core at generation 1",
        "12:00:00 bob completed A-002-more at generation 1",
        "a result of zed for B-001-data at generation 7 was refused (future generation) and kept",
        "carol released B-001-data (voluntary)",
        "session s4 ended",
        "A-001-core was added",
    ):
        assert expected in words, words
    assert re.search(r"(memory|sqlite) store", words)


def hold(page: Served, task: str, reason: str, project: str = "default") -> None:
    page.do(lambda fleet: fleet.hold_task(task_id=task, reason=reason, project_id=project))


def test_what_waits_for_a_person_is_named_with_what_to_type(page: Served) -> None:
    many = [f"B-{number:03d}-x" for number in range(1, 13)]
    page.add("A-001-core", "A-002-more", *many)
    page.do(lambda fleet: fleet.add_tasks(tasks=["other"], project_id="web"))
    assert "Needs you" not in shown(page).text
    hold(page, "A-001-core", "wait for the customer")
    hold(page, "other", "why", "web")
    page.do(
        lambda fleet: fleet.submit_result(
            task_id="A-002-more", generation=7, agent_id="zed", session_id="s", result_data=2
        )
    )
    words = " ".join(shown(page).text.split())
    for expected in (
        "Needs you A-001-core is held: wait for the customer genlock reopen A-001-core",
        "other is held: why genlock reopen other --project web",
        "1 refused result waits to be adopted or discarded genlock refused",
    ):
        assert expected in words, words
    for task in many:
        hold(page, task, "for long")
    words = " ".join(shown(page).text.split())
    assert words.count("is held: for long genlock reopen B-") == MOST_HELD - 1
    assert "and 4 more that are held genlock status" in words


ELEMENTS = {
    "article",
    "b",
    "code",
    "div",
    "h2",
    "h3",
    "i",
    "li",
    "ol",
    "p",
    "rect",
    "section",
    "small",
    "span",
    "svg",
    "table",
    "tbody",
    "td",
    "th",
    "thead",
    "time",
    "tr",
}
HOSTILE = "<script>alert(1)<b>\"'&lt;img src=x onerror=alert(2)>"


def test_names_titles_and_reasons_are_text_whatever_is_in_them(page: Served) -> None:
    title = f"</main></script>{HOSTILE}<!--"
    page.add({"id": "A-001-x", "title": title}, "A-002-y")
    page.do(lambda fleet: fleet.set_policy(tracks={"A": f"</style>{HOSTILE}"}))
    page.do(
        lambda fleet: fleet.claim_task(
            task_id="A-001-x",
            agent_id=HOSTILE,
            session_id=HOSTILE + "2",
            lease_duration_seconds=3000,
        )
    )
    page.do(lambda fleet: fleet.hold_task(task_id="A-002-y", reason=f"</li>{HOSTILE}"))
    read = shown(page, path="/status?fragment=1")
    assert set(read.tags) <= ELEMENTS
    assert not {
        name
        for name in read.attributes
        if name.startswith("on") or name in ("src", "href", "style")
    }
    for words in (
        title,
        HOSTILE + "2",
        f"</style>{HOSTILE}",
        f"A-002-y was put on hold: </li>{HOSTILE}",
        f"{HOSTILE} claimed A-001-x",
    ):
        assert words in read.text


def test_the_page_admits_its_own_style_and_script_and_nothing_else(page: Served) -> None:
    response = page.http.get("/status", headers={"authorization": "Bearer all"})
    policy = response.headers["content-security-policy"]
    assert policy.startswith("default-src 'none'; ")
    assert "unsafe" not in policy
    for name in ("style", "script"):
        inline = re.findall(rf"<{name}>(.*?)</{name}>", response.text, re.DOTALL)
        assert len(inline) == 1
        assert (
            f"{name}-src 'sha256-{base64.b64encode(sha256(inline[0].encode()).digest()).decode()}'"
            in policy
        )
    assert response.headers["x-content-type-options"] == "nosniff"
    assert response.headers["cache-control"] == "no-store"
    assert response.headers["content-type"] == "text/html; charset=utf-8"
    assert not re.findall(r"https?://", response.text)
    assert re.findall(r'href="([^"]+)"', response.text) == ["/docs", "/metrics", "/healthz"]
    assert '<noscript><meta http-equiv="refresh" content="2"></noscript>' in response.text


def test_a_caller_sees_its_own_projects_and_nothing_of_others(page: Served) -> None:
    for tenant, project in (("acme", "web"), ("acme", "api"), ("other", "secret")):
        place = {"tenant_id": tenant, "project_id": project}
        page.do(
            lambda fleet, place=place: fleet.add_tasks(  # type: ignore[misc]
                tasks=[{"id": f"task-of-{place['project_id']}"}], **place
            )
        )
        page.do(
            lambda fleet, place=place: fleet.claim_task(  # type: ignore[misc]
                task_id=f"task-of-{place['project_id']}",
                agent_id="a",
                session_id="s",
                lease_duration_seconds=3000,
                **place,
            )
        )
    assert [
        project for project in ("web", "api", "secret") if f"task-of-{project}" in shown(page).text
    ] == ["web", "api", "secret"]
    assert [
        project for project in ("web", "api", "secret") if project in shown(page, "acme").text
    ] == ["web", "api"]
    assert [
        project for project in ("web", "api", "secret") if project in shown(page, "web").text
    ] == ["web"]
    assert page.http.get("/status").status_code == 401


def test_who_may_not_see_the_metrics_is_not_led_there(page: Served) -> None:
    for key, led in (("all", True), ("acme", False), ("web", False)):
        assert (
            'href="/metrics"'
            in page.http.get("/status", headers={"authorization": f"Bearer {key}"}).text
        ) is led


def test_what_is_shown_is_bounded(page: Served) -> None:
    for number in range(MOST_PROJECTS + 1):
        page.do(
            lambda fleet, number=number: fleet.add_tasks(  # type: ignore[misc]
                tasks=[{"id": "t"}], project_id=f"p{number:02}"
            )
        )
    page.add(*(f"task-{number}" for number in range(MOST_ROWS + 1)))
    page.do(
        lambda fleet: fleet.batch_claim(
            task_ids=[f"task-{number}" for number in range(MOST_ROWS + 1)],
            agent_id="a",
            session_id="s",
            lease_duration_seconds=3000,
        )
    )
    read = shown(page)
    assert read.tags.count("article") == MOST_PROJECTS
    assert read.tags.count("tr") == 1 + MOST_ROWS
    assert read.tags.count("li") == MOST_EVENTS
    assert f"There are more; these are the first {MOST_PROJECTS}." in read.text
    assert f"There are more than these {MOST_ROWS}." in read.text


def test_a_plan_that_is_too_large_to_be_parted_by_tracks_is_not_said_to_have_none(
    page: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("genlock.reads.status._MOST_TASKS_BY_TRACK", 2)
    page.add("A-001-x", "B-001-x", "C-001-x")
    assert "all tracks" in shown(page).text
    assert "no track" not in shown(page).text


def test_only_columns_of_names_are_broken_inside_words(page: Served) -> None:
    css = (Path(status.__file__).parent / "status.css").read_text(encoding="utf-8")
    assert re.search(r"^\.word { white-space: nowrap; }$", css, re.MULTILINE)
    page.add("A-001-x")
    page.do(
        lambda fleet: fleet.claim_task(
            task_id="A-001-x", agent_id="a", session_id="s", lease_duration_seconds=3000
        )
    )
    page.clock.advance(60)
    html = page.http.get("/status", headers={"authorization": "Bearer all"}).text
    assert re.search(r'<td class="?word"?><span class="?alive"?>alive', html)


def test_a_look_is_kept_for_a_second_and_then_taken_anew(page: Served) -> None:
    headers = {"authorization": "Bearer all"}
    first = page.http.get("/status?fragment=1", headers=headers).text
    page.add("task")
    assert page.http.get("/status?fragment=1", headers=headers).text == first
    page.clock.advance(1)
    assert "task was added" in page.http.get("/status?fragment=1", headers=headers).text


def test_a_store_s_url_is_nowhere_on_the_page(tmp_path: Path) -> None:
    with serving(f"sqlite://{tmp_path / 'secret-name.db'}") as served:
        assert "sqlite store" in served.http.get("/status").text
        assert "secret-name" not in served.http.get("/status").text


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (-3, "0 s"),
        (0, "0 s"),
        (59.9, "59 s"),
        (60, "1 m"),
        (125, "2 m 5 s"),
        (3600, "1 h"),
        (3725, "1 h 2 m"),
        (90000, "1 d 1 h"),
    ],
)
def test_lengths_of_time_in_words(seconds: float, words: str) -> None:
    assert length(seconds) == words


def test_whatever_is_not_marked_as_html_is_escaped() -> None:
    assert (
        tag("p", "<b>", Html("<i>"), 5, None, title='"<', _class=None)
        == '<p title="&quot;&lt;">&lt;b&gt;<i>5</p>'
    )
    assert join("&", Html("&")) == "&amp;&"
