"""Signing in, as a person does it."""

from __future__ import annotations

from datetime import UTC, datetime

from playwright.sync_api import Page, expect

from genlock.service.compose import Choices
from genlock.testing.clock import ManualClock
from tests.browser.conftest import OpenPage, Pages
from tests.browser.sample import SHOP
from tests.eventually import eventually
from tests.servers.service import Service, serving


def test_who_is_not_signed_in_is_asked_for_a_key_and_told_what_is_wrong_with_it(
    open_page: OpenPage,
) -> None:
    page = open_page("/", signed_in=False)
    page.get_by_label("Key").fill("glk_abc")
    page.get_by_role("button", name="Sign in to act").click()

    expect(page.get_by_role("alert")).to_contain_text("this is no key: it has 2 parts")


def over(service: Service, page: Page) -> None:
    """The service has seen the time: it knows a key for half a second."""
    who = f"{service.url}/sign-in/who"
    eventually(lambda: not page.request.get(who).json()["acts"], "the sign-in to be over")


def test_a_sign_in_to_act_ends_after_15_minutes_without_a_sign_and_the_page_goes_on_looking(
    store_url: str, pages: Pages
) -> None:
    """The clock of the service is the test's. Leases of an hour outlast it."""
    clock = ManualClock(datetime.now(UTC))
    with serving(store_url, clock, Choices(keys=True)) as service:
        made = service.do(service.coordinator.create_key(name="ann", role="operator"))
        page = pages.context().new_page()
        page.goto(f"{service.url}{SHOP}/task/B-001-schema")
        page.get_by_label("Key").fill(made.text)
        page.get_by_role("button", name="Sign in to act").click()
        dialog = page.get_by_role("dialog", name="Hold B-001-schema")

        clock.advance(14 * 60)
        page.locator(".acts").get_by_role("button", name="Hold…").click()
        dialog.get_by_role("button", name="Hold", exact=True).click()
        expect(page.locator("main")).to_contain_text("held")

        clock.advance(61)
        over(service, page)
        page.get_by_role("button", name="Reopen…").click()
        dialog = page.get_by_role("dialog", name="Reopen B-001-schema")
        dialog.get_by_role("button", name="Reopen", exact=True).click()
        expect(dialog.get_by_role("alert")).to_contain_text("You may not do this yet")
        expect(dialog.get_by_role("link", name="Sign in to act").first).to_be_visible()
        assert service.do(service.coordinator.get_task_state(task_id="B-001-schema")).state == (
            "HELD"
        )
        expect(page.get_by_role("button", name="connection: live")).to_be_visible()


def test_a_page_that_is_left_alone_offers_no_act_after_its_sign_in_has_ended(
    store_url: str, pages: Pages
) -> None:
    clock = ManualClock(datetime.now(UTC))
    with serving(store_url, clock, Choices(keys=True)) as service:
        made = service.do(service.coordinator.create_key(name="ann", role="operator"))
        page = pages.context().new_page()
        page.clock.install()
        page.goto(f"{service.url}{SHOP}/settings")
        page.get_by_label("Key").fill(made.text)
        page.get_by_role("button", name="Sign in to act").click()
        you = page.get_by_role("region", name="You")
        expect(you).to_contain_text("look and act")
        clock.advance(15 * 60 + 1)
        over(service, page)
        page.clock.fast_forward("15:01")
        expect(you).not_to_contain_text("look and act")
