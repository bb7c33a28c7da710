"""What is hidden of a URL that is shown, and what never is."""

from __future__ import annotations

import pytest

from genlock.errors import BadArgument
from genlock.safe_text import without_password
from genlock.settings import check_url
from genlock.stores.dynamodb.connection import settings_of as dynamodb_settings
from tests.cli.console import run


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://u:SECRET@h:5432/x?schema=s", "postgresql://u:…@h:5432/x?schema=s"),
        ("postgresql://u:SEC@RET@h/x", "postgresql://u:…@h/x"),
        ("postgresql://u:SEC/RET@h/x", "postgresql://u:…/…@h/x"),
        ("postgresql://u:SEC?RET@h/x", "postgresql://u:…?…@h/x"),
        ("postgresql://u:SEC#RET@h/x", "postgresql://u:…#…@h/x"),
        ("postgresql://u:SECRET@[::1/x", "postgresql://u:…@[::1/x"),
        ("postgresql://h/x?user=u&PASSWORD=SECRET", "postgresql://h/x?user=u&PASSWORD=…"),
        ("postgresql://h/x?sslpassword=SECRET", "postgresql://h/x?sslpassword=…"),
        ("postgresql://h/x?pass%77ord=SECRET", "postgresql://h/x?pass%77ord=…"),
        ("postgresql://h/x?listen_url=postgresql://u:SECRET@h", "postgresql://h/x?listen_url=…"),
        ("redis://:SEC/RET@h/0", "redis://:…/…@h/0"),
        ("mysql://u:SECRET@h/x?payloads=s3://AK:SECRET@b/p", "mysql://u:…@h/x?payloads=s3://…@b/p"),
        (
            "dynamodb://t?endpoint_url=http://AK:SECRET@h:1&region=r",
            "dynamodb://t?endpoint_url=http://…@h:1&region=r",
        ),
        ("https://SECRET@h/", "https://…@h/"),
        ("https://h/?key=SECRET,http://u:SECRET@i", "https://h/?…,http://u:…@i"),
        ("http://h#SECRET", "http://h#…"),
        ("postgresql:/u:SECRET@h", "…@h"),
        ("u:SECRET@h", "…@h"),
    ],
)
def test_a_password_is_hidden_also_where_it_is_not_written_as_one(url: str, shown: str) -> None:
    assert without_password(url) == shown


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://here:1,evil.example:2/x@here", "postgresql://here:…,evil.example:…/…@here"),
        ("postgresql://evil.example/x?options=@here", "postgresql://evil.example/x?options=@here"),
        (
            "postgresql:///x?host=evil.example&options=a@here",
            "postgresql:///x?host=evil.example&options=a@here",
        ),
        ("http://evil.example/a@here", "http://evil.example/…@here"),
        ("sqlite:///home/u:x@y/genlock.db", "sqlite:///home/u:x@y/genlock.db"),
        ("postgresql://[::1]:5432/x", "postgresql://[::1]:5432/x"),
        ("memory://", "memory://"),
    ],
)
def test_where_a_url_leads_is_never_hidden(url: str, shown: str) -> None:
    """Consent is given to what is shown."""
    assert without_password(url) == shown


def test_no_error_shows_a_password() -> None:
    with pytest.raises(BadArgument, match="not '…@h'"):
        check_url("u:SECRET@h")
    with pytest.raises(BadArgument, match="names no table") as caught:
        dynamodb_settings("dynamodb://AK:SECRET@t")
    assert "SECRET" not in str(caught.value)
    for url in ("redis://:SECRET/1@h", "postgresql://u:SECRET/1@127.0.0.1:1/x", "https://SECRET@h"):
        for words in (["ready"], ["doctor"], ["config", "show"]):
            ran = run(*words, env={"GENLOCK_URL": url})
            assert "SECRET" not in ran.out + ran.err, (url, words)
