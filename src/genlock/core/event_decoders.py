"""The decoders of events and of what stands in their place, made when the first one is to be read: they take longer than all others.

Those of the records come first, and by their own import: so no two threads make decoders of the same types, as said there.
"""

from __future__ import annotations

from typing import Any

import msgspec

import genlock.core.record_decoders  # noqa: F401 - before those below, which share types with them
from genlock.core.codec import BASE, ENVELOPE, Base, Envelope

DECODERS: dict[str, msgspec.json.Decoder[Any]] = {ENVELOPE: msgspec.json.Decoder(Envelope), BASE: msgspec.json.Decoder(Base)}
