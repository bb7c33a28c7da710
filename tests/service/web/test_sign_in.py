"""Signing in with a browser: the page that asks for a key, what it gives for one, and where the key
is not to be found."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

from genlock.core.results import NewKey
from genlock.service.compose import Choices
from genlock.service.limits import BURST_SECONDS, WRONG_KEY_COUNTS
from tests.eventually import eventually
from tests.servers.service import PATIENCE_SECONDS, Service, serving

BROWSER = {"accept": "text/html,application/xhtml+xml;q=0.9,*/*;q=0.8"}
PROJECT = "/v1/acme/web"


@pytest.fixture
def service() -> Iterator[Service]:
    with serving(choices=Choices(keys=True)) as service:
        service.do(service.coordinator.add_tasks(tasks=["t-1"], tenant_id="acme", project_id="web"))
        yield service


@pytest.fixture
def key(service: Service) -> NewKey:
    return service.do(
        service.coordinator.create_key(name="ann <b>", role="operator", tenant_id="acme")
    )


@pytest.fixture
def browser(service: Service) -> Iterator[httpx2.Client]:
    with service.client(headers=BROWSER) as client:
        yield client


def sign_in(browser: httpx2.Client, key: NewKey, **more: str) -> httpx2.Response:
    return browser.post("/sign-in", data={"key": key.text, **more})


def test_who_opens_the_page_without_a_key_is_asked_for_one(browser: httpx2.Client) -> None:
    asked = browser.get("/")
    assert asked.status_code == 401
    assert asked.headers["content-type"] == "text/html; charset=utf-8"
    assert '<form class="sign-in" method="post" action="/sign-in">' in asked.text
    assert 'class="wrong"' not in asked.text, "nothing was wrong so far"
    policy = asked.headers["content-security-policy"]
    assert policy.startswith("default-src 'none'; style-src 'sha256-")
    assert "script" not in policy
    assert "unsafe" not in policy
    assert policy.endswith("form-action 'self'; frame-ancestors 'none'")
    assert asked.headers["cache-control"] == "no-store"
    assert asked.headers["www-authenticate"] == 'Bearer realm="genlock"'


@pytest.mark.parametrize("path", ["/", "/metrics", f"{PROJECT}/tasks", "/api/status"])
def test_who_is_no_browser_is_refused_as_before(service: Service, path: str) -> None:
    refused = service.http.get(path)
    assert refused.status_code == 401
    assert "json" in refused.headers["content-type"]
    assert (
        service.http.post(f"{PROJECT}/tasks", headers=BROWSER, json={"tasks": []}).json()["code"]
        == "KEY_REFUSED"
    )


def test_a_browser_that_has_signed_in_sees_the_page_and_may_look_at_what_the_key_sees(
    browser: httpx2.Client, key: NewKey
) -> None:
    assert sign_in(browser, key).headers["location"] == "/"
    page = browser.get("/status")
    assert page.status_code == 200
    assert f'<span title="key {key.key.key_id}">ann &lt;b&gt;</span>' in page.text
    assert '<form method="post" action="/sign-out"><button>sign out</button></form>' in page.text
    assert "sign out" not in browser.get("/status?fragment=1").text
    assert browser.get(f"{PROJECT}/tasks/t-1").status_code == 200
    assert browser.get("/v1/other/web/tasks/t-1").status_code == 404
    with browser.stream("GET", f"{PROJECT}/events/stream") as stream:
        assert stream.status_code == 200


def test_a_browser_that_has_signed_in_changes_nothing(browser: httpx2.Client, key: NewKey) -> None:
    sign_in(browser, key)
    for path, body in (
        (f"{PROJECT}/tasks", {"tasks": ["t-2"]}),
        (f"{PROJECT}/tasks/t-1/claim", {"agent_id": "a", "session_id": "s"}),
    ):
        refused = browser.post(path, json=body)
        assert (refused.status_code, refused.json()["code"]) == (401, "KEY_REFUSED")
    assert browser.get(f"{PROJECT}/tasks/t-1").json()["generation"] == 0
    assert browser.get(f"{PROJECT}/tasks/t-2").status_code == 404


def test_the_key_is_in_no_address_and_no_answer(browser: httpx2.Client, key: NewKey) -> None:
    moved = sign_in(browser, key)
    wrong = browser.post(
        "/sign-in", data={"key": key.text[:-1] + ("0" if key.text[-1] != "0" else "1")}
    )
    assert (moved.status_code, wrong.status_code) == (303, 401)
    for answer in (
        moved,
        wrong,
        browser.get("/"),
        browser.get("/", headers={"authorization": "Bearer " + key.text}),
    ):
        assert "glk_" not in answer.text.replace("glk_…", "")
        assert "glk_" not in str(answer.headers)
        assert "glk_" not in str(answer.url)


def test_a_browser_that_signs_out_is_asked_again(browser: httpx2.Client, key: NewKey) -> None:
    sign_in(browser, key)
    assert browser.get("/").status_code == 200
    left = browser.post("/sign-out")
    assert (left.status_code, left.headers["location"]) == (303, "/")
    assert not browser.cookies
    assert browser.get("/").status_code == 401
    assert browser.get("/sign-out").status_code == 405, "a link from elsewhere signs nobody out"


def test_a_sign_in_ends_within_a_second_when_its_key_is_revoked(
    service: Service, browser: httpx2.Client, key: NewKey
) -> None:
    sign_in(browser, key)
    assert browser.get("/").status_code == 200
    with browser.stream("GET", f"{PROJECT}/events/stream") as stream:
        service.do(service.coordinator.revoke_key(key_id=key.key.key_id, tenant_id="acme"))
        revoked = time.monotonic()
        eventually(
            lambda: browser.get("/status?fragment=1").status_code != 200, "the sign-in to end"
        )
        assert time.monotonic() < revoked + 1
        for _ in stream.iter_raw():
            assert time.monotonic() < revoked + PATIENCE_SECONDS, "the stream ends too"
    again = browser.get("/")
    assert again.status_code == 401
    assert "this sign-in is over, or its key is no longer good; sign in again" in again.text


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("", "this is no key: it does not start with glk_"),
        ("glk_abc", "this is no key: it has 2 parts, not 4"),
        ("<script>", "this is no key"),
        (
            "glk_aaaaaaaaaaaa_aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa_6c1e3a9f",
            "its last part does not fit the rest",
        ),
    ],
)
def test_a_key_that_is_not_good_is_answered_with_what_is_wrong(
    browser: httpx2.Client, given: str, words: str
) -> None:
    asked = browser.post("/sign-in", data={"key": given})
    assert asked.status_code == 401
    assert words in asked.text
    assert "<script>" not in asked.text
    assert "set-cookie" not in asked.headers


def test_a_revoked_key_signs_nobody_in(
    service: Service, browser: httpx2.Client, key: NewKey
) -> None:
    service.do(service.coordinator.revoke_key(key_id=key.key.key_id, tenant_id="acme"))
    asked = sign_in(browser, key)
    assert asked.status_code == 401
    assert "unknown, expired or revoked" in asked.text


@pytest.mark.parametrize(
    ("wanted", "where"),
    [
        ("/?project=web&state=held", "/?project=web&state=held"),
        ("/metrics", "/metrics"),
        ("//evil.example/", "/"),
        ("/\\evil.example/", "/"),
        ("https://evil.example/", "/"),
        ("javascript:alert(1)", "/"),
        ("/\r\nset-cookie: a=b", "/"),
        ("/sign-in", "/"),
        ("/sign-out", "/"),
        ("/é", "/"),
    ],
)
def test_who_has_signed_in_gets_where_it_wanted_and_never_to_another_site(
    browser: httpx2.Client, key: NewKey, wanted: str, where: str
) -> None:
    assert sign_in(browser, key, next=wanted).headers["location"] == where


def test_the_page_remembers_where_one_wanted_as_text(browser: httpx2.Client) -> None:
    assert (
        '<input type="hidden" name="next" value="/metrics?a=1&amp;b=%22%3E">'
        in browser.get("/metrics?a=1&b=%22%3E").text
    )
    assert '<input type="hidden" name="next" value="/">' in browser.get("/sign-in").text


def test_a_page_of_another_site_signs_nobody_in(
    service: Service, browser: httpx2.Client, key: NewKey
) -> None:
    for origin in ("https://evil.example", "null", f"http://127.0.0.1:{service.port + 1}"):
        refused = browser.post("/sign-in", data={"key": key.text}, headers={"origin": origin})
        assert refused.status_code == 403
        assert "set-cookie" not in refused.headers
    assert (
        browser.post(
            "/sign-in", data={"key": key.text}, headers={"origin": service.url}
        ).status_code
        == 303
    )


def test_a_form_that_is_none_is_refused(browser: httpx2.Client, key: NewKey) -> None:
    assert browser.post("/sign-in", json={"key": key.text}).status_code == 415
    kind = {"content-type": "application/x-www-form-urlencoded"}
    for body, status in (
        (b"key=%ff", 400),
        (b"key=\xff", 400),
        (b"a=1&" * 11, 400),
        (b"key=" + b"a" * 9000, 413),
    ):
        assert browser.post("/sign-in", content=body, headers=kind).status_code == status
    assert browser.put("/sign-in").status_code == 405


def test_who_tries_keys_at_the_page_is_counted_like_anywhere() -> None:
    rate = 20
    with (
        serving(choices=Choices(keys=True, requests_a_second=rate)) as service,
        service.client() as client,
    ):
        tries = [
            client.post("/sign-in", data={"key": "wrong"}).status_code
            for _ in range(int(rate * BURST_SECONDS) // WRONG_KEY_COUNTS + 2)
        ]
    assert set(tries[:2]) == {401}
    assert 429 in tries


def test_where_no_keys_are_asked_for_there_is_no_sign_in() -> None:
    with serving() as service:
        assert service.http.get("/sign-in").status_code == 404
        assert "sign out" not in service.http.get("/", headers={"cookie": "genlock_sign_in=x"}).text


def test_replicas_that_share_a_secret_know_each_other_s_sign_ins(tmp_path: Path) -> None:
    store, shared, own = (
        f"sqlite://{tmp_path / 'shared.db'}",
        Choices(keys=True, sign_in_secret=b"s" * 32),
        Choices(keys=True),
    )
    with serving(store, choices=shared) as first:
        made = first.do(first.coordinator.create_key(name="ann", role="observer", tenant_id="acme"))
        cookie = {"cookie": sign_in(first.http, made).headers["set-cookie"].partition(";")[0]}
        with serving(store, choices=shared) as second:
            assert second.http.get("/", headers=cookie).status_code == 200
        with serving(store, choices=own) as third:
            assert third.http.get("/", headers=cookie).status_code == 401
