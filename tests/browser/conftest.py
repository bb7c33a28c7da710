"""A real browser on a real service.

`open_page` makes a page of a context of its own, signed in as one chooses. A page that logs an error
to its console, or breaks its content security policy, fails its test. Tests that only look share
the service of `sample`; those that change something have a `service` of their own, with the same
projects.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import pytest
from playwright.sync_api import (
    Browser,
    BrowserContext,
    ConsoleMessage,
    Page,
    expect,
    sync_playwright,
)

from genlock.service.auth.browser_sessions import LocalToken
from genlock.service.compose import Choices
from tests.browser.sample import fill
from tests.servers import chromium
from tests.servers.service import Service, serving

DESKTOP = {"width": 1440, "height": 900}
PHONE = {"width": 390, "height": 844}
PATIENCE_MS = 20_000

expect.set_options(timeout=PATIENCE_MS)

OpenPage: TypeAlias = Callable[..., Page]


@pytest.fixture(scope="module")
def chromium_browser() -> Iterator[Browser]:
    """One Chromium for the tests of a file. While it is there this thread has a running event loop,
    which tests of other files must not find."""
    program = chromium.executable()
    if program is None:
        pytest.fail("there is no Chromium on this machine: `make servers` gets it")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=program,
            args=chromium.arguments(),
            env={name: str(value) for name, value in chromium.environment().items()},
        )
        yield browser
        browser.close()


class Sample(NamedTuple):
    """A service that is shared, and what signs in at it."""

    service: Service
    token: LocalToken


@pytest.fixture(scope="session")
def sample(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sample]:
    """A service with the sample projects. Nobody changes them."""
    url = f"sqlite://{tmp_path_factory.mktemp('sample') / 'genlock.db'}"
    fill(url)
    token = LocalToken()
    with serving(url, choices=Choices(token=token)) as service:
        yield Sample(service, token)


@pytest.fixture
def token() -> LocalToken:
    return LocalToken()


@pytest.fixture
def store_url(tmp_path: Path) -> str:
    """The store of the service, with the sample projects; other processes may open it, too."""
    url = f"sqlite://{tmp_path / 'genlock.db'}"
    fill(url)
    return url


@pytest.fixture
def service(store_url: str, token: LocalToken) -> Iterator[Service]:
    """A service as `genlock serve` starts it on loopback."""
    with serving(store_url, choices=Choices(token=token)) as service:
        yield service


class Pages:
    """Opens pages, and collects what goes wrong in them."""

    def __init__(self, browser: Browser) -> None:
        self._browser = browser
        self._contexts: list[BrowserContext] = []
        self.errors: list[str] = []
        self.expected = re.compile("the server responded with a status of 4")
        """Complaints of the browser that are the subject of a test. It logs each refused request."""

    def context(self, **settings: Any) -> BrowserContext:
        """A new browser profile."""
        context = self._browser.new_context(
            **{"viewport": DESKTOP, "reduced_motion": "reduce"} | settings
        )
        self._contexts.append(context)
        context.set_default_timeout(PATIENCE_MS)
        context.on("console", self._note)
        context.on("weberror", lambda error: self.errors.append(f"{error.error}"))
        return context

    def close(self) -> None:
        """No complaint is left."""
        for context in self._contexts:
            context.close()
        assert self.errors == []

    def _note(self, said: ConsoleMessage) -> None:
        if said.type == "error" and not self.expected.search(said.text):
            self.errors.append(f"{said.text} ({said.location.get('url', '')})")


@pytest.fixture
def pages(chromium_browser: Browser) -> Iterator[Pages]:
    """Pages of any service; ask for it after the service, so that they are closed before it."""
    pages = Pages(chromium_browser)
    yield pages
    pages.close()


@pytest.fixture
def open_page(service: Service, token: LocalToken, pages: Pages) -> OpenPage:
    """Opens `path` in a new context, by a link that signs in to act unless `signed_in` is False."""

    def open_page(path: str = "/", *, signed_in: bool = True, **settings: Any) -> Page:
        page = pages.context(**settings).new_page()
        if signed_in:
            page.goto(f"{service.url}/sign-in?code={token.make_code()}")
        if path != "/" or not signed_in:
            page.goto(f"{service.url}{path}")
        return page

    return open_page


@pytest.fixture
def keyed(store_url: str) -> Iterator[tuple[Service, str, str]]:
    """A service that asks for keys; an operator's key by its id and its text."""
    with serving(store_url, choices=Choices(keys=True)) as service:
        made = service.do(service.coordinator.create_key(name="ann", role="operator"))
        yield service, made.key.key_id, made.text
