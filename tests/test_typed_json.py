"""Decoders that many threads make at once. Made without the lock, they take the process with them
within a few rounds."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import genlock
from genlock import typed_json
from tests.cli.console import environment

_PROGRAM = """
import sys, threading, msgspec
from genlock.typed_json import convert, decoder

THREADS = 6
sys.setswitchinterval(1e-6)
plain = {"one": {f"field{number}": {} for number in range(5)}}
data = msgspec.json.encode(plain)

def make(kind, gate, made):
    gate.wait()
    made.append((decoder(kind).decode(data), convert(plain, kind)))

for _ in range(100):
    # Types that nobody has met before, each with the same ones in it.
    inmost = msgspec.defstruct("Inmost", [(f"field{number}", int | None, None) for number in range(10)])
    inner = msgspec.defstruct("Inner", [(f"field{number}", inmost) for number in range(5)])
    kinds = [msgspec.defstruct(f"Outer{number}", [("one", inner)]) for number in range(THREADS)]
    gate, made = threading.Barrier(THREADS), []
    threads = [threading.Thread(target=make, args=(kind, gate, made)) for kind in kinds]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(made) == THREADS and all(decoded == converted for decoded, converted in made)
print("made")
"""

_ELSEWHERE = re.compile(r"msgspec\.convert\(|msgspec\.\w+\.Decoder\(|\bdecode\([^)\n]*type=")


def test_threads_that_make_decoders_of_the_same_types_at_once_all_get_whole_ones() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM],
        capture_output=True,
        text=True,
        timeout=100,
        env=environment(),
    )
    assert (done.returncode, done.stdout) == (0, "made\n"), done.stderr


def test_nothing_makes_typed_decoders_elsewhere() -> None:
    """Calls without a type are harmless, as are those of the tests."""
    source = Path(genlock.__file__).parent
    found = {
        file.name
        for file in source.rglob("*.py")
        if _ELSEWHERE.search(file.read_text(encoding="utf-8"))
    }
    # The second writes and reads lists of texts in MessagePack, which have no struct in them.
    assert found == {Path(typed_json.__file__).name, "wire.py"}
