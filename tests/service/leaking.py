"""A test that makes a service log what no log may have; only the test of the scan runs it, in a run
of its own."""

from __future__ import annotations

import os

import pytest

from genlock.core.key_roles import FRESH_BYTES, compose, write_key
from tests import logs

LEAKS = {
    "key": write_key(compose(bytes(FRESH_BYTES))),
    "header": "authorization: Basic dXNlcjpwYXNzd29yZA==",
    "body": f"the result was {logs.PLANTED}",
    "nothing": "all is well",
}


@pytest.mark.parametrize("number", [1, 2])
def test_that_leaks_and_passes(number: int) -> None:
    logs.log().event("debug", f"{LEAKS[os.environ['LEAK']]} {number}")
