"""Acting from a browser: what a sign-in to act admits, for how long, and from which pages."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import httpx2
import pytest

from genlock.core.results import NewKey
from genlock.service.auth.acting_sign_ins import ActingSignIns
from genlock.service.auth.browser_sessions import LocalToken
from genlock.service.auth.key_cache import KeyCache
from genlock.service.compose import Choices
from tests.eventually import eventually
from tests.servers.service import Service, serving

HOLD = "/v1/acme/web/tasks/t-1/hold"
WHO = "/sign-in/who"
STAY = "/sign-in/stay"


@pytest.fixture
def service() -> Iterator[Service]:
    with serving(choices=Choices(keys=True)) as service:
        service.do(service.coordinator.add_tasks(tasks=["t-1"], tenant_id="acme", project_id="web"))
        yield service


def key(service: Service, role: str = "operator") -> NewKey:
    return service.do(
        service.coordinator.create_key(name=f"ann-{role}", role=role, tenant_id="acme")
    )


class Browser:
    """Cookies, an origin, and the proof that a page of ours keeps."""

    def __init__(self, service: Service, client: httpx2.Client) -> None:
        self.client, self.origin = client, service.url.rstrip("/")
        self.proof = ""

    def sign_in(self, made: NewKey, **more: str) -> httpx2.Response:
        answer = self.client.post("/sign-in", data={"key": made.text, "act": "1", **more})
        self.proof = answer.headers.get("location", "").partition("#act=")[2]
        return answer

    def act(self, path: str = HOLD, **headers: str) -> httpx2.Response:
        sent = {"origin": self.origin, "x-genlock-proof": self.proof} | headers
        return self.client.post(
            path,
            json={"reason": "wait"},
            headers={name: value for name, value in sent.items() if value},
        )


@pytest.fixture
def browser(service: Service) -> Iterator[Browser]:
    with service.client() as client:
        yield Browser(service, client)


def test_an_operator_s_key_signs_in_to_act_in_its_name(service: Service, browser: Browser) -> None:
    signed = browser.sign_in(key(service), next="/?tab=tasks")

    assert signed.status_code == 303
    assert signed.headers["location"].startswith("/?tab=tasks#act=")
    kept = signed.headers.get_list("set-cookie")
    assert [cookie.partition("=")[0] for cookie in kept] == [
        f"genlock_sign_in_{service.port}",
        f"genlock_act_{service.port}",
    ]
    assert all("HttpOnly; SameSite=Strict" in cookie for cookie in kept)
    assert "Max-Age=900;" in kept[1]
    assert browser.act().status_code == 200
    events = browser.client.get("/v1/acme/web/events").json()["events"]
    assert events[-1]["event"]["actor"]["user_id"] == "ann-operator"


@pytest.mark.parametrize("role", ["observer", "agent"])
def test_a_key_that_may_not_operate_signs_nobody_in_to_act(
    service: Service, browser: Browser, role: str
) -> None:
    signed = browser.sign_in(key(service, role))

    assert signed.status_code == 401
    assert "may only look; to act takes an operator&#x27;s key" in signed.text
    assert "set-cookie" not in signed.headers


def test_a_sign_in_to_look_does_not_act(service: Service, browser: Browser) -> None:
    made = key(service)
    browser.client.post("/sign-in", data={"key": made.text})

    refused = browser.act(**{"x-genlock-proof": "0" * 64})
    assert (refused.status_code, refused.json()["code"]) == (401, "KEY_REFUSED")
    assert browser.client.get(WHO).json()["acts"] is False


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"x-genlock-proof": ""}, 401),
        ({"x-genlock-proof": "0" * 64}, 401),
        ({"origin": ""}, 401),
        ({"origin": "null"}, 403),
        ({"origin": "https://evil.example"}, 403),
        ({"sec-fetch-site": "cross-site"}, 403),
        ({"sec-fetch-site": "same-site"}, 403),
    ],
)
def test_a_request_that_another_page_has_a_browser_send_does_not_act(
    service: Service, browser: Browser, headers: dict[str, str], status: int
) -> None:
    browser.sign_in(key(service))

    assert browser.act(**headers).status_code == status
    assert browser.client.get("/v1/acme/web/tasks/t-1").json()["state"] == "PENDING"


@pytest.mark.parametrize(("act", "state"), [("approve", "COMPLETED"), ("reject", "PENDING")])
def test_a_review_is_decided_from_a_page_of_ours_alone_and_by_the_digest_it_has_shown(
    service: Service, browser: Browser, act: str, state: str
) -> None:
    fleet = service.coordinator
    place: dict[str, Any] = {"tenant_id": "acme", "project_id": "web"}
    mine: dict[str, Any] = {"session_id": "s", "agent_id": "bob"}
    tasks: list[Any] = [{"id": "r", "human_required": True}]
    service.do(fleet.add_tasks(tasks=tasks, **place))
    service.do(fleet.claim_task(task_id="r", **mine, **place))
    service.do(
        fleet.submit_result(task_id="r", generation=1, result_data="x", session_id="s", **place)
    )
    shown = service.do(fleet.get_review(task_id="r", **place)).digest
    browser.sign_in(key(service))
    proof = {"origin": browser.origin, "x-genlock-proof": browser.proof}

    def decide(digest: str, **headers: str) -> tuple[int, str]:
        sent = {name: value for name, value in (proof | headers).items() if value}
        body = {"generation": 1, "digest": digest}
        path = f"/v1/acme/web/tasks/r/{act}"
        answer = browser.client.post(path, json=body, headers=sent)
        after = browser.client.get("/v1/acme/web/tasks/r").json()["state"]
        return answer.status_code, after

    assert decide(shown, **{"x-genlock-proof": ""}) == (401, "IN_REVIEW")
    assert decide(shown, origin="https://evil.example") == (403, "IN_REVIEW")
    assert decide("0" * 64) == (409, "IN_REVIEW"), "another result than the one that waits"
    assert decide(shown[:12]) == (200, state)


def test_the_cookie_does_not_contain_the_proof_and_no_answer_repeats_it(
    service: Service, browser: Browser
) -> None:
    signed = browser.sign_in(key(service))

    assert len(browser.proof) == 64
    assert browser.proof not in str(signed.headers.get_list("set-cookie"))
    for path in ("/", WHO, "/sign-in"):
        answer = browser.client.get(path)
        assert browser.proof not in answer.text + str(answer.headers)


def test_an_admin_s_key_acts_as_an_operator_and_creates_no_keys(
    service: Service, browser: Browser
) -> None:
    browser.sign_in(key(service, "admin"))

    assert browser.client.get(WHO).json()["role"] == "operator"
    refused = browser.client.post(
        "/v1/acme/_/keys",
        json={"name": "x", "role": "admin"},
        headers={"origin": browser.origin, "x-genlock-proof": browser.proof},
    )
    assert (refused.status_code, refused.json()["code"]) == (403, "ROLE_REFUSED")


def test_a_sign_in_to_act_sees_and_changes_only_what_its_key_does(
    service: Service, browser: Browser
) -> None:
    browser.sign_in(key(service))

    assert browser.act("/v1/other/web/tasks/t-1/hold").status_code == 404


def test_a_sign_in_to_act_ends_when_its_key_is_revoked(service: Service, browser: Browser) -> None:
    made = key(service)
    browser.sign_in(made)
    assert browser.act().status_code == 200
    service.do(service.coordinator.revoke_key(key_id=made.key.key_id, tenant_id="acme"))
    revoked = time.monotonic()
    eventually(lambda: browser.act(STAY).status_code == 401, "the sign-in to end")
    assert time.monotonic() < revoked + 1
    assert browser.act().status_code == 401


def test_who_signs_out_acts_no_more(service: Service, browser: Browser) -> None:
    browser.sign_in(key(service))
    browser.client.post("/sign-out")

    assert not browser.client.cookies
    assert browser.act().status_code == 401


def test_a_page_learns_whether_it_may_act_and_for_how_long(
    service: Service, browser: Browser
) -> None:
    browser.sign_in(key(service))

    who = browser.client.get(WHO).json()
    assert (who["name"], who["role"], who["tenant"], who["acts"]) == (
        "ann-operator",
        "operator",
        "acme",
        True,
    )
    assert 890 <= who["acts_for_seconds"] <= 900
    stayed = browser.act(STAY)
    assert (stayed.status_code, stayed.headers["cache-control"]) == (204, "no-store")
    assert "Max-Age=900;" in stayed.headers["set-cookie"]
    assert browser.act().status_code == 200, "the renewed ticket has the same proof"


def test_on_loopback_a_link_signs_in_to_act() -> None:
    token = LocalToken()
    with serving(choices=Choices(token=token)) as service, service.client() as client:
        header = {"authorization": f"Bearer {token.text}"}
        client.post("/v1/acme/web/tasks", json={"tasks": ["t-1"]}, headers=header)
        link = client.post("/sign-in/link", headers=header).json()["link"]
        browser = Browser(service, client)
        followed = client.get(link)
        assert followed.headers["location"].startswith("/#act=")
        browser.proof = followed.headers["location"].partition("#act=")[2]
        assert browser.act().status_code == 200
        assert client.get(WHO).json()["role"] == "operator"


def test_where_nothing_is_asked_for_every_page_of_the_service_acts() -> None:
    with serving() as service, service.client() as client:
        assert client.get(WHO).json() == {
            "name": "",
            "role": "admin",
            "tenant": "*",
            "projects": "*",
            "acts": True,
            "acts_for_seconds": None,
        }


class _Seconds:
    def __init__(self) -> None:
        self.now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


@pytest.mark.anyio
async def test_a_ticket_ends_when_nobody_stays_and_after_twelve_hours_in_any_case() -> None:
    seconds, key_cache = _Seconds(), object.__new__(KeyCache)
    tickets = ActingSignIns(key_cache, b"s" * 32, LocalToken(), seconds)
    made = tickets.begin_local()
    seconds.now += 899
    found = await tickets.find(made.text)
    assert found is not None
    assert found.seconds == 1
    seconds.now += 1
    assert await tickets.find(made.text) is None, "15 minutes are over"

    kept = found.renewed
    for _ in range(60):
        seconds.now += 800
        renewed = await tickets.find(kept)
        if renewed is None:
            break
        kept = renewed.renewed
    assert 1_000_000 + 12 * 3600 <= seconds.now < 1_000_000 + 12 * 3600 + 1600


@pytest.mark.anyio
async def test_a_ticket_of_another_secret_or_another_start_is_not_good() -> None:
    seconds, key_cache = _Seconds(), object.__new__(KeyCache)
    token = LocalToken()
    made = ActingSignIns(key_cache, b"s" * 32, token, seconds).begin_local()
    for other in (
        ActingSignIns(key_cache, b"t" * 32, token, seconds),
        ActingSignIns(key_cache, b"s" * 32, LocalToken(), seconds),
        ActingSignIns(key_cache, b"s" * 32, None, seconds),
    ):
        assert await other.admit(made.text, made.proof) is None
    altered = made.text.replace(".1000900.", ".9000900.")
    assert altered != made.text
    assert (
        await ActingSignIns(key_cache, b"s" * 32, token, seconds).admit(altered, made.proof) is None
    )
