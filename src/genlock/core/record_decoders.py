"""The decoders of all records, made when this module is imported, which codec.py does when the first record is to be read.

Python lets one thread import a module while others wait for it. That is what is needed here: where two threads make decoders of the same
types at once, msgspec hands one of them what the other has not finished, and the process crashes.
"""

from __future__ import annotations

from typing import Any

import msgspec

from genlock.core import keys, model

DECODERS: dict[str, msgspec.json.Decoder[Any]] = {
    keys.TASK: msgspec.json.Decoder(model.TaskRecord),
    keys.SESSION: msgspec.json.Decoder(model.SessionRecord),
    keys.REFUSED: msgspec.json.Decoder(model.RefusedRecord),
    keys.COUNTER: msgspec.json.Decoder(model.CounterRecord),
    keys.PROJECT: msgspec.json.Decoder(model.ProjectRecord),
    keys.TENANT: msgspec.json.Decoder(model.TenantRecord),
    keys.ACCESS: msgspec.json.Decoder(model.AccessRecord),
    keys.SETTLED: msgspec.json.Decoder(model.SettledRecord),
    keys.KEY: msgspec.json.Decoder(model.KeyRecord),
}
