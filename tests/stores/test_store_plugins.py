"""Stores that others bring: found by their entry point, held to the contract, and named when they
are at fault."""

from __future__ import annotations

import importlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import genlock
from genlock.errors import BadArgument, StoreError, StoreForeign, StoreMissing
from genlock.store import Clock, Store
from genlock.testing import StoreContract
from tests.cli.console import run

ROOT = Path(__file__).parent.parent.parent
EXAMPLE = ROOT / "examples" / "store_in_a_journal"


@pytest.fixture(name="installed", scope="module")
def _installed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The example as a user has it: built, and installed beside Genlock."""
    place = tmp_path_factory.mktemp("installed")
    install = [
        str(ROOT / ".tools" / "bin" / "uv"),
        "pip",
        "install",
        "--quiet",
        "--offline",
        "--no-deps",
        "--no-build-isolation",
    ]
    subprocess.run(
        [*install, "--python", sys.executable, "--target", str(place), str(EXAMPLE)],
        check=True,
        timeout=100,
    )
    sys.path.insert(0, str(place))
    importlib.invalidate_caches()
    yield place
    sys.path.remove(str(place))
    importlib.invalidate_caches()


@pytest.fixture(name="bring")
def _bring(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Puts a package with this entry point on the path."""

    def bring(package: str, scheme: str, value: str, code: str = "") -> None:
        place = tmp_path / package
        metadata = place / f"{package}-1.0.dist-info"
        metadata.mkdir(parents=True)
        (metadata / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n"
        )
        (metadata / "entry_points.txt").write_text(f"[genlock.stores]\n{scheme} = {value}\n")
        (place / f"{package}.py").write_text(code)
        monkeypatch.syspath_prepend(place)

    yield bring
    importlib.invalidate_caches()


@pytest.mark.usefixtures("installed")
class TestJournalStore(StoreContract):
    payloads_supported = False

    def open(self, place: Path, clock: Clock | None = None) -> Store:
        return genlock.open_store(f"journal://{place}/journal", create=True, clock=clock)


@pytest.mark.usefixtures("installed")
def test_a_fleet_works_on_an_installed_store(tmp_path: Path) -> None:
    url = f"journal://{tmp_path}/journal"
    with genlock.connect(url, create=True, session_id="s1", agent_id="ada") as fleet:
        fleet.add_tasks(tasks=["A-001-x", {"id": "A-002-y", "depends_on": ["A-001-x"]}])
        claim = fleet.claim_next().claim
        assert claim is not None
        assert fleet.submit_result(
            task_id="A-001-x", generation=claim.generation, result_data={"done": 1}
        ).accepted
    with genlock.connect(url, create=False) as fleet:
        assert [found.task.id for found in fleet.ready()] == ["A-002-y"]


def test_the_command_line_works_on_an_installed_store(installed: Path, tmp_path: Path) -> None:
    url, env = f"journal://{tmp_path}/journal", {"PYTHONPATH": str(installed)}
    missing = run("ready", "--url", url, env=env)
    assert (missing.code, missing.error()["code"]) == (3, "STORE_MISSING")
    assert run("db", "create", url, env=env).json()["made"] is True
    assert run("add", "A-001-x", "--url", url, env=env).code == 0
    assert run("db", "check", url, env=env).json()["faults"] == []
    status = run("db", "status", url, env=env).json()
    assert (status["scheme"], status["format"], status["contents"]["projects"][0]["tasks"]) == (
        "journal",
        None,
        {"PENDING": 1},
    )
    assert run("doctor", "--url", url, env=env).json()["healthy"] is True
    migrated = run("db", "migrate", url, env=env)
    assert (migrated.code, migrated.error()["code"]) == (2, "BAD_ARGUMENT")


@pytest.mark.usefixtures("installed")
def test_a_line_that_was_cut_off_is_no_commit(tmp_path: Path) -> None:
    url = f"journal://{tmp_path}/journal"
    with genlock.connect(url, create=True) as fleet:
        fleet.add_tasks(tasks=["A-001-x"])
    with (tmp_path / "journal").open("ab") as file:
        file.write(b'{"type": "Wrote", "cha')
    with genlock.connect(url, create=True) as fleet:
        fleet.add_tasks(tasks=["A-002-x"])
        assert [found.task.id for found in fleet.ready()] == ["A-001-x", "A-002-x"]


@pytest.mark.usefixtures("installed")
def test_a_result_that_needs_a_payload_is_refused_with_what_to_do(tmp_path: Path) -> None:
    with genlock.connect(
        f"journal://{tmp_path}/journal", create=True, session_id="s1", agent_id="ada"
    ) as fleet:
        fleet.add_tasks(tasks=["A-001-x"])
        fleet.claim_task(task_id="A-001-x")
        with pytest.raises(StoreError, match="submit a reference"):
            fleet.submit_result(task_id="A-001-x", generation=1, result_data={"much": "x" * 40_000})
        assert fleet.submit_result(
            task_id="A-001-x", generation=1, result_data={"at": "elsewhere"}
        ).accepted


@pytest.mark.usefixtures("installed")
def test_an_installed_store_may_refuse_what_is_not_its_own(tmp_path: Path) -> None:
    (tmp_path / "diary").write_text("Dear diary\n")
    with pytest.raises(StoreForeign, match="is no journal of Genlock"):
        genlock.open_store(f"journal://{tmp_path}/diary", create=True)
    with pytest.raises(StoreMissing, match="there is no store at"):
        genlock.open_store(f"journal://{tmp_path}/none", create=False)


@pytest.mark.usefixtures("installed")
def test_an_unknown_scheme_is_told_what_is_installed() -> None:
    with pytest.raises(
        BadArgument,
        match=r"no store for carrier-pigeon://.*sqlite://.*journal:// \(genlock-journal 0\.1\.0\)",
    ):
        genlock.open_store("carrier-pigeon://loft")


def test_a_plug_in_that_cannot_be_imported_is_named(bring: Any) -> None:
    bring("clumsy", "clumsy", "clumsy:open_it", "import no_such_module_at_all")
    with pytest.raises(
        StoreError,
        match=r"clumsy:open_it of clumsy 1\.0, cannot be loaded: "
        r"ModuleNotFoundError.*no_such_module_at_all",
    ):
        genlock.open_store("clumsy://x")
    bring("hollow", "hollow", "hollow:open_it")
    with pytest.raises(
        StoreError, match=r"hollow:open_it of hollow 1\.0, cannot be loaded: AttributeError"
    ):
        genlock.open_store("hollow://x")


def test_a_plug_in_that_gives_no_store_is_named(bring: Any) -> None:
    bring("liar", "liar", "liar:open_it", "open_it = lambda url, clock, create: 42")
    with pytest.raises(StoreError, match=r"of liar 1\.0, gave int, which is no store"):
        genlock.open_store("liar://x")
    bring("mute", "mute", "mute:open_it", "open_it = 42")
    with pytest.raises(StoreError, match=r"of mute 1\.0, is no callable"):
        genlock.open_store("mute://x")


def test_our_own_schemes_cannot_be_taken_over(bring: Any, tmp_path: Path) -> None:
    bring("usurper", "sqlite", "usurper:open_it", "raise RuntimeError('was imported')")
    with genlock.connect(f"sqlite://{tmp_path}/s.db", create=True) as fleet:
        fleet.add_tasks(tasks=["A-001-x"])


def test_two_plug_ins_of_one_scheme_are_both_named_and_neither_is_taken(bring: Any) -> None:
    bring("first", "twin", "first:open_it", "raise RuntimeError('was imported')")
    bring("second", "twin", "second:open_it", "raise RuntimeError('was imported')")
    with pytest.raises(
        StoreError, match=r"twin://: first 1\.0, second 1\.0; uninstall all but one"
    ):
        genlock.open_store("twin://x")
