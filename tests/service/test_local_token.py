"""The token of a service on loopback: what it opens, and the link by which a browser is signed
in."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx2
import pytest

from genlock.service.auth.browser_sessions import LocalToken
from genlock.service.compose import Choices
from tests.servers.service import Service, serving

BROWSER = {"accept": "text/html"}
TASKS = "/v1/default/default/tasks"


class Seconds:
    """A clock that stands still."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def seconds() -> Seconds:
    return Seconds()


@pytest.fixture
def token(seconds: Seconds) -> LocalToken:
    return LocalToken(seconds)


@pytest.fixture
def service(token: LocalToken) -> Iterator[Service]:
    with serving(choices=Choices(token=token)) as service:
        yield service


def by(token: LocalToken) -> dict[str, str]:
    return {"authorization": f"Bearer {token.text}"}


def link(service: Service, token: LocalToken) -> str:
    made = service.http.post("/sign-in/link", headers=by(token))
    assert (made.status_code, made.json()["expires_in_seconds"], made.headers["cache-control"]) == (
        200,
        60,
        "no-store",
    )
    found: str = made.json()["link"]
    assert found.startswith("/sign-in?code=")
    return found


def test_who_has_the_token_may_do_everything(service: Service, token: LocalToken) -> None:
    assert service.http.post(TASKS, json={"tasks": ["t"]}, headers=by(token)).status_code == 200
    made = service.http.post(
        "/v1/_/_/keys", json={"name": "a", "role": "admin"}, headers={"x-api-key": token.text}
    )
    assert made.status_code == 200
    assert (
        service.http.get("/metrics", headers={"authorization": f"bearer {token.text}"}).status_code
        == 200
    )


@pytest.mark.parametrize("shown", [None, "glt_", "glt_" + "0" * 64, "Glt_x", "glk_x", "\xff"])
def test_without_it_nobody_is_let_in_and_is_told_what_to_do(
    service: Service, shown: str | None
) -> None:
    headers = [] if shown is None else [(b"authorization", f"Bearer {shown}".encode("latin-1"))]
    for method, path in (
        ("POST", TASKS),
        ("GET", TASKS),
        ("GET", "/"),
        ("GET", "/docs"),
        ("GET", "/openapi.json"),
        ("GET", "/nowhere"),
    ):
        refused = service.http.request(method, path, headers=headers)
        assert (refused.status_code, refused.json()["code"]) == (401, "KEY_REFUSED")
        if shown is None:
            assert (
                "curl does with the header file that `genlock serve` names (curl -H @FILE)"
                in refused.json()["detail"]
            )
        if shown == "glt_" + "0" * 64:
            assert refused.json()["detail"].startswith(
                "this token is not the one of this start of the service"
            )
    assert [service.http.get(path).status_code for path in ("/healthz", "/readyz")] == [200, 200]


def test_a_real_key_is_taken_too(service: Service) -> None:
    key = service.do(service.coordinator.create_key(name="ci", role="observer")).text
    assert (
        service.http.get(
            "/v1/default/default/ready", headers={"authorization": f"Bearer {key}"}
        ).status_code
        == 200
    )
    refused = service.http.post(
        TASKS, json={"tasks": ["t"]}, headers={"authorization": f"Bearer {key}"}
    )
    assert (refused.status_code, refused.json()["code"]) == (403, "ROLE_REFUSED")


def test_a_page_of_another_site_does_nothing_even_with_the_token(
    service: Service, token: LocalToken
) -> None:
    rebound = service.http.get(
        "/v1/default/default/ready", headers=by(token) | {"host": "evil.example"}
    )
    assert (rebound.status_code, rebound.json()["code"]) == (421, "HOST_REFUSED")
    foreign = service.http.post(
        TASKS, json={"tasks": ["t"]}, headers=by(token) | {"origin": "https://evil.example"}
    )
    assert (foreign.status_code, foreign.json()["code"]) == (403, "ACCESS_REFUSED")
    other_port = service.http.get(
        "/", headers=by(token) | {"origin": f"http://127.0.0.1:{service.port + 1}"}
    )
    assert other_port.status_code == 403


def test_a_link_signs_a_browser_in_once_and_sends_it_on(
    service: Service, token: LocalToken
) -> None:
    path = link(service, token)
    answer = service.http.get(path, headers=BROWSER)
    assert answer.status_code == 303
    assert answer.headers["location"].startswith("/#act=")
    assert (answer.headers["referrer-policy"], answer.headers["cache-control"]) == (
        "no-referrer",
        "no-store",
    )
    looks, acts = answer.headers.get_list("set-cookie")
    assert acts.startswith(f"genlock_act_{service.port}=")
    ticket, *flags = looks.split("; ")
    assert ticket.startswith(f"genlock_sign_in_{service.port}=")
    assert flags == ["Max-Age=43200", "Path=/", "HttpOnly", "SameSite=Strict"]
    assert token.text not in str(answer.headers)
    code = path.partition("=")[2]
    assert code not in str(answer.headers)
    page = service.http.get("/status", headers=BROWSER)
    assert (page.status_code, "<h1>" in page.text) == (200, True)
    assert "localservice" not in page.text
    with service.client(headers=BROWSER) as other:
        assert other.get("/").status_code == 401
        spent = other.get(path)
        assert spent.status_code == 401
        assert (
            "this link was used, or is older than 60 seconds; for a new one, type: genlock link "
            f"--url {service.url}/"
        ) in spent.text
        assert code not in spent.text
        assert "set-cookie" not in spent.headers


def test_a_browser_that_follows_a_link_twice_is_sent_on_again(
    service: Service, token: LocalToken
) -> None:
    path = link(service, token)
    assert [service.http.get(path).status_code for _ in range(3)] == [303, 303, 303]
    assert len(service.http.cookies) == 2, "to look, and to act"


def test_looking_at_the_head_does_not_use_a_link_up(service: Service, token: LocalToken) -> None:
    path = link(service, token)
    assert service.http.head(path).status_code == 200
    assert service.http.get(path).status_code == 303


def test_a_link_is_good_for_a_minute(service: Service, token: LocalToken, seconds: Seconds) -> None:
    early, late = link(service, token), link(service, token)
    seconds.now += 59.9
    assert service.http.get(early).status_code == 303
    service.http.cookies.clear()
    seconds.now += 0.1
    assert service.http.get(late).status_code == 401


def test_a_browser_that_is_signed_in_looks_and_changes_nothing(
    service: Service, token: LocalToken
) -> None:
    service.do(service.coordinator.add_tasks(tasks=["t"]))
    service.http.get(link(service, token))
    assert service.http.get(f"{TASKS}/t").status_code == 200
    assert service.http.get("/docs").status_code == 200
    for path, body in (
        (TASKS, {"tasks": ["u"]}),
        (f"{TASKS}/t/cancel", {}),
        ("/v1/_/_/keys", {"name": "a", "role": "admin"}),
    ):
        refused = service.http.post(path, json=body)
        assert (refused.status_code, refused.json()["code"]) == (401, "KEY_REFUSED")
    assert service.http.post("/sign-in/link").status_code == 401
    assert service.do(service.coordinator.get_task_state(task_id="t")).state == "PENDING"
    assert list(service.do(service.coordinator.list_keys())) == []


def test_a_sign_in_ends_with_the_service(service: Service, token: LocalToken) -> None:
    service.http.get(link(service, token))
    kept = {
        "cookie": "; ".join(f"{cookie.name}={cookie.value}" for cookie in service.http.cookies.jar)
    }
    assert service.http.get("/", headers=kept).status_code == 200
    with serving(choices=Choices(token=LocalToken())) as later:
        assert later.http.get("/", headers=kept).status_code == 401


def test_services_at_other_ports_do_not_sign_each_other_out(
    service: Service, token: LocalToken
) -> None:
    others = LocalToken()
    with serving(choices=Choices(token=others)) as other, httpx2.Client(verify=False) as browser:
        for each, its in ((service, token), (other, others)):
            assert browser.get(each.url + link(each, its)).status_code == 303
        assert [browser.get(each.url + "/").status_code for each in (service, other)] == [200, 200]


def test_a_link_is_only_for_who_has_the_token(service: Service) -> None:
    key = service.do(service.coordinator.create_key(name="root", role="admin", tenant_id="*")).text
    refused = service.http.post("/sign-in/link", headers={"authorization": f"Bearer {key}"})
    assert (refused.status_code, refused.json()["code"]) == (403, "ROLE_REFUSED")


def test_the_page_says_how_one_is_signed_in(service: Service) -> None:
    asked = service.http.get("/", headers=BROWSER)
    assert asked.status_code == 401
    assert (
        "If you started this service, you need no key: <code>genlock link</code> prints a link "
        "that signs you in."
    ) in asked.text


def test_only_the_last_links_are_kept() -> None:
    token = LocalToken()
    codes = [token.make_code() for _ in range(101)]
    assert [token.redeem(codes[0]), token.redeem(codes[1]), token.redeem(codes[1])] == [
        False,
        True,
        False,
    ]


def test_a_token_is_not_shown_by_chance() -> None:
    token: Any = LocalToken()
    assert "glt_" not in repr(token) + str(token) + repr(Choices(token=token))
