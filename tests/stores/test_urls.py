"""URLs that cannot be meant: each is refused before anything is opened, says what is wrong and what
to write, and shows no password."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import genlock
from genlock.errors import BadArgument

SCHEMES = "this is no URL: a store's begins with one of sqlite://"
ESCAPED = "%2F %40 %3A %23 %25"

MALFORMED = {
    "": SCHEMES,
    " ": SCHEMES,
    "postgresql": SCHEMES,
    "postgresql:": SCHEMES,
    "postgresql:/plans": SCHEMES,
    "memory:": SCHEMES,
    "bob:secret@127.0.0.1/plans": SCHEMES,
    "plan.db": "write sqlite://{here}/plan.db",
    "/home/bob/plan.db": "write sqlite:///home/bob/plan.db",
    "localhost:8420": "for a service write http://localhost:8420",
    "10.0.0.7:8420/": "for a service write http://10.0.0.7:8420/",
    "sqlite://": "names no file",
    "://plans": "there is no store for ://",
    "htp://127.0.0.1:8420": "a service's address begins with http:// or https://",
    "mongodb://bob:secret@127.0.0.1/plans": "there is no store for mongodb://",
    "postgresql+psycopg://bob:secret@127.0.0.1/plans": (
        "there is no store for postgresql+psycopg://"
    ),
    "postgresql://127.0.0.1:port/plans": "a number from 1 to 65535",
    "postgresql://127.0.0.1:0/plans": "a number from 1 to 65535",
    "postgresql://127.0.0.1:65536/plans": "a number from 1 to 65535",
    "postgresql://127.0.0.1,127.0.0.2:x/plans": "a number from 1 to 65535",
    "postgresql://[::1/plans": "IPv6",
    "postgresql://bob:secret@[::1/plans": "its address cannot be read",
    "postgresql://bob:secret%zz@127.0.0.1:1/plans": "its address cannot be read",
    "postgresql://bob:the/secret@127.0.0.1:1/plans": ESCAPED,
    "postgresql://bob:the@secret@127.0.0.1:1/plans": ESCAPED,
    "postgresql://bob:the#secret@127.0.0.1:1/plans": "%23",
    "postgresql://127.0.0.1:1/plans?schema=a#pool=3": "%23",
    "postgresql://127.0.0.1:1/plans\n?schema=a": "a line break",
    "postgresql://127.0.0.1:1/pl ans": "a blank",
    "postgresql://127.0.0.1:1/plans\0": "a line break or another character",
    "postgresql://127.0.0.1:1/\udcff": "a line break or another character",
    "postgresql://bob:secret@127.0.0.1:1/plans?pasword=secret": (
        'invalid URI query parameter: "pasword"'
    ),
    "postgresql://bob:secret@127.0.0.1:1/plans?sslmode=perhaps": "'perhaps' is no sslmode",
    "postgresql://bob:secret@127.0.0.1:1/plans?connect_timeout=soon": "'soon' is no connect_timeout",
    "postgresql://bob:secret@127.0.0.1:1/plans?pool": "'' is no pool",
    "postgresql://bob:secret@127.0.0.1:1/plans?listen_url=postgresql://bob:secret@127.0.0.1:x/": "a number from 1 to 65535",
}
"""What is given, and what the message must name."""


@pytest.mark.parametrize("url", MALFORMED)
def test_a_url_that_cannot_be_meant_is_refused_with_what_to_write(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(BadArgument) as raised:
        genlock.open_store(url, create=True)
    assert MALFORMED[url].replace("{here}", str(tmp_path)) in str(raised.value)
    assert "secret" not in str(raised.value)
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("url", [5, b"sqlite:///x.db", Path("plan.db")])
def test_what_is_no_text_is_no_url(url: object) -> None:
    with pytest.raises(BadArgument, match="is a text"):
        genlock.open_store(url, create=True)  # type: ignore[arg-type]
