"""Signing in, as a person does it."""

from __future__ import annotations

from playwright.sync_api import expect

from tests.browser.conftest import OpenPage


def test_who_is_not_signed_in_is_asked_for_a_key_and_told_what_is_wrong_with_it(
    open_page: OpenPage,
) -> None:
    page = open_page("/", signed_in=False)
    page.get_by_label("Key").fill("glk_abc")
    page.get_by_role("button", name="Sign in to act").click()

    expect(page.get_by_role("alert")).to_contain_text("this is no key: it has 2 parts")
