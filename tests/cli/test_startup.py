"""A call pays for itself alone: what each imports. How long it takes is measured by
bench/startup.py."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from genlock.cli import deferred_imports
from genlock.cli.main import SECTIONS
from tests.cli.console import environment, run

PROGRAM = """
import atexit, sys
from genlock.cli.main import main

def loaded():
    return (name for name, module in sys.modules.items() if type(module).__name__ != "DeferredModule")

atexit.register(lambda: print(*loaded(), file=sys.stderr))
main(sys.argv[1:])
"""

NEVER_TO_READ = {
    "ast", "asyncio", "concurrent.futures", "dataclasses", "hashlib", "inspect", "ipaddress", "json", "logging", "msgspec.inspect",
    "msgspec.toml", "random", "rich", "ruamel", "secrets", "socket", "ssl", "subprocess", "tempfile", "textwrap", "tomllib",
    "typing_extensions", "genlock.reads.agents", "genlock.reads.keys", "genlock.reads.pushes",
}  # fmt: skip


def imported(folder: Path, *arguments: str) -> set[str]:
    """The modules that are there when the command ends."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *arguments],
        cwd=folder,
        env=environment(),
        capture_output=True,
        text=True,
        check=True,
    )
    return set(done.stderr.split())


def test_version_needs_next_to_nothing(tmp_path: Path) -> None:
    found = imported(tmp_path, "version")
    assert {name for name in found if name.startswith("genlock")} == {
        "genlock",
        "genlock.cli",
        "genlock.cli.main",
    }
    assert not found & {"click", "msgspec", "typing", "re", "enum", "pathlib"}


def test_ready_imports_nothing_heavy_that_it_does_not_use(tmp_path: Path) -> None:
    run("init", cwd=tmp_path)
    run("add", "task", cwd=tmp_path)
    found = imported(tmp_path, "ready", "--json")
    assert {"click", "msgspec", "apsw"} <= found
    assert not found & NEVER_TO_READ


def test_claim_renew_and_submit_load_neither_openssl_nor_inspect(tmp_path: Path) -> None:
    run("init", cwd=tmp_path)
    run("add", "task", cwd=tmp_path)
    for words in ("claim task", "renew task -g 1", "submit task -g 1"):
        found = imported(tmp_path, *words.split())
        assert {"click", "msgspec", "apsw"} <= found
        # A result is packed as Python's own encoder does it, and pauses are random.
        assert not found & (NEVER_TO_READ - {"json", "random"} | {"_hashlib"}), words


def test_every_deferred_module_exists_and_is_no_package() -> None:
    for name in deferred_imports.DEFERRED:
        spec = find_spec(name)
        assert spec is not None, name
        assert spec.submodule_search_locations is None, name


def test_every_verb_of_small_hashes_exists() -> None:
    assert {verb for verbs in SECTIONS.values() for verb in verbs} >= deferred_imports.SMALL_HASHES


def test_a_deferred_module_is_the_real_one_as_soon_as_it_is_used() -> None:
    program = r"""
import sys
from genlock.cli.deferred_imports import defer_imports
defer_imports("claim")
import hashlib, inspect, ipaddress
from hashlib import sha256
assert sha256(b"x").hexdigest() == (
    "2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881"
)
assert "_hashlib" not in sys.modules
assert inspect.cleandoc(" one line ") == "one line"
assert "ast" not in sys.modules
assert inspect.cleandoc("two\n    lines") == "two\nlines"
assert inspect.isfunction(defer_imports)
assert str(ipaddress.ip_address("127.0.0.1")) == "127.0.0.1"
from hashlib import blake2b
assert hashlib.sha256(b"x").hexdigest() == sha256(b"x").hexdigest()
import hashlib as again
assert again.__file__ and again.blake2b is blake2b
import msgspec.inspect, msgspec.yaml, typing_extensions
assert msgspec.inspect.type_info(int) == msgspec.inspect.IntType()
"""
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert (ran.returncode, ran.stderr) == (0, "")


def test_the_library_imports_no_event_loop_before_one_is_used(tmp_path: Path) -> None:
    program = f"""
import sys
import genlock
assert "genlock.coordinator" not in sys.modules
with genlock.connect("sqlite://{tmp_path}/x.db", create=True, session_id="s", agent_id="a") as fleet:
    fleet.add_tasks(tasks=["task"])
    assert fleet.claim_task(task_id="task").success
assert "asyncio" not in sys.modules
assert genlock.aio.connect
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_what_the_package_offers_is_found_by_name_and_nothing_else_is() -> None:
    import genlock

    assert set(genlock.__all__) <= set(dir(genlock))
    for name in genlock.__all__:
        assert getattr(genlock, name) is not None
    with pytest.raises(AttributeError, match="module 'genlock' has no attribute 'nonsense'"):
        genlock.nonsense  # noqa: B018


@pytest.mark.parametrize(
    ("arguments", "answer"),
    [
        (["version", "-q"], "0.1.0\n"),
        (["--version", "--quiet"], "0.1.0\n"),
        (["version", "--json"], None),
        (["version"], None),
    ],
)
def test_the_version_is_told_in_every_style(arguments: list[str], answer: str | None) -> None:
    ran = run(*arguments)
    assert (ran.code, ran.err) == (0, "")
    if answer is None:
        assert ran.json() == {
            "version": "0.1.0",
            "python": ".".join(map(str, sys.version_info[:3])),
        }
    else:
        assert ran.out == answer


def test_a_call_that_is_answered_early_is_answered_like_any_other() -> None:
    ran = run("version", "--nonsense")
    assert (ran.code, ran.out) == (2, "")
    assert run("version", "--help").out.startswith(
        "Usage: genlock version [OPTIONS]\n\n  Print the version.\n"
    )
