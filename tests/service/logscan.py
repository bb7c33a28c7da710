"""Looks for secrets in what was logged, in any form in which one could have got there."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable
from urllib.parse import quote


def leaks(text: str, secrets: Iterable[str]) -> list[str]:
    """The secrets that are in this text: as they are, escaped, quoted, in hex or base64, or half of
    one."""
    return [secret for secret in secrets if any(form in text for form in _forms(secret))]


def _forms(secret: str) -> set[str]:
    data = secret.encode()
    coded = base64.b64encode(data).decode().rstrip("=")
    half = len(secret) // 2
    # The last character of a code depends on what follows.
    return {
        secret,
        secret[:half],
        secret[half:],
        json.dumps(secret)[1:-1],
        quote(secret, safe=""),
        data.hex(),
        coded[:-1],
    }
