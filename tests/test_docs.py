"""The documents say what is so: pages made from the code are up to date, snippets run, tests and
links that are named exist."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from docs import generate, meanings
from genlock import Coordinator
from genlock.core import reasons
from genlock.core.model import Task
from genlock.core.reasons import Isolation, SpawnMode
from genlock.core.routing import PRIORITIES

ROOT = Path(__file__).parent.parent
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
NAMED_TEST = re.compile(r"\b((?:tests|src)/[\w/.-]+\.py)((?:::\w+)*)")
NAMED_FILE = re.compile(r"`((?:src|tests|docs|examples|bench|requirements)/[\w/.-]*)`")
LINK = re.compile(r"\]\((?!https?:|#)([^)\s#]+)(?:#[^)]*)?\)")
PRINTED = re.compile(r"^ *print\(.*\)  # (.*)$", re.MULTILINE)


def name(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def snippets(page: Path) -> list[str]:
    """What stands between ```python and ```."""
    return re.findall(
        r"^```python\n(.*?)^```$", page.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE
    )


@pytest.mark.parametrize("page", generate.PAGES)
def test_a_page_made_from_the_code_is_what_the_code_says(page: str) -> None:
    written = (generate.REFERENCE / page).read_text(encoding="utf-8")
    assert written == generate.PAGES[page](), (
        "run `python -m docs.generate`, and read what has changed"
    )


def test_every_page_of_the_reference_is_made_from_the_code() -> None:
    assert {page.name for page in generate.REFERENCE.iterdir()} == set(generate.PAGES)


@pytest.mark.parametrize(
    ("verb", "option"),
    [
        ("keys create", "--session ID"),
        ("config set", "--user"),
        ("config unset", "--user"),
        ("ready", "--agent NAME"),
    ],
)
def test_an_option_of_a_verbs_own_is_in_the_reference_also_if_others_have_one_of_that_name(
    verb: str, option: str
) -> None:
    told = (ROOT / "docs" / "reference" / "commands.md").read_text(encoding="utf-8")
    part = re.split(r"\n#{3,4} ", told.partition(f"# genlock {verb}\n")[2])[0]
    assert f"| `{option}` |" in part


def test_a_reason_that_nobody_explained_stops_the_making(monkeypatch: pytest.MonkeyPatch) -> None:
    # A copy: an entry that was taken out and is put back stands last, and the page goes by their
    # order.
    fewer = {
        name: text
        for name, text in meanings.MEANINGS[reasons.RefusedState].items()
        if name != "KEPT"
    }
    monkeypatch.setattr(generate, "MEANINGS", meanings.MEANINGS | {reasons.RefusedState: fewer})
    with pytest.raises(ValueError, match="the meanings of RefusedState"):
        generate.states_and_reasons()


@pytest.mark.parametrize("page", [page for page in PAGES if snippets(page)], ids=name)
def test_the_snippets_of_a_page_run_and_print_what_their_comments_say(
    page: Path, tmp_path: Path
) -> None:
    """The snippets of one page are one program, from top to bottom, in an empty folder."""
    program = "\n".join(snippets(page))
    environment = {key: value for key, value in os.environ.items() if key != "GENLOCK_URL"}
    ran = subprocess.run(
        [sys.executable, "-W", "error", "-c", program],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.splitlines() == PRINTED.findall(program)
    assert program.count("print(") == len(PRINTED.findall(program)), (
        "a print without a comment that says what it prints"
    )


def test_the_readme_has_snippets() -> None:
    assert len(snippets(ROOT / "README.md")) >= 2


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_the_tests_that_a_page_names_exist(page: Path) -> None:
    missing = [
        found[0]
        for found in NAMED_TEST.finditer(page.read_text(encoding="utf-8"))
        if not exists(found[1], found[2])
    ]
    assert not missing


def exists(path: str, names: str) -> bool:
    """Is there such a file, and in it such a test (a method by itself, or with its class)?"""
    if not (ROOT / path).is_file():
        return False
    wanted = tuple(names.split("::")[1:])
    return not wanted or wanted in set(
        definitions(ast.parse((ROOT / path).read_text(encoding="utf-8")))
    )


def definitions(module: ast.Module) -> Iterator[tuple[str, ...]]:
    for node in module.body:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            yield (node.name,)
        if isinstance(node, ast.ClassDef):
            for method in node.body:
                if isinstance(method, ast.FunctionDef):
                    yield node.name, method.name
                    yield (method.name,)


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_the_files_that_a_page_names_or_links_to_exist(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    missing = [path for path in NAMED_FILE.findall(text) if not (ROOT / path).exists()]
    missing += [link for link in LINK.findall(text) if not (page.parent / link).exists()]
    assert not missing


def test_every_invariant_names_the_test_that_holds_it() -> None:
    text = (ROOT / "docs" / "reference" / "invariants.md").read_text(encoding="utf-8")
    invariants = re.findall(r"^- .*\n(?:  .*\n)*", text, re.MULTILINE)
    assert len(invariants) >= 78
    assert [invariant for invariant in invariants if not NAMED_TEST.search(invariant)] == []


def test_the_code_map_of_the_architecture_has_the_packages_and_modules_of_today() -> None:
    assert generate.ARCHITECTURE.read_text(encoding="utf-8") == generate.architecture(), (
        "run `python -m docs.generate`"
    )


def test_a_reserved_package_is_a_layer_of_its_own() -> None:
    layers = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert [name for name in generate.RESERVED if f"(genlock.{name})" not in layers] == []


def test_the_architecture_fits_into_200_lines() -> None:
    assert len(generate.ARCHITECTURE.read_text(encoding="utf-8").splitlines()) <= 200


def test_the_page_about_plans_names_every_field_and_no_other() -> None:
    told = (ROOT / "docs" / "plans.md").read_text(encoding="utf-8")
    fields = set(Task.__struct_fields__) | {"requires", "state", "status"}
    part = told.partition("## The fields of a task\n")[2].partition("**Any other key**")[0]
    assert set(re.findall(r"`(\w+)`", part)) - {"BLOCKED", "claim_next"} == fields
    assert {*PRIORITIES, *Isolation, *SpawnMode} <= set(re.findall(r"[\w-]+", part))


def test_the_readme_names_every_operation_and_every_reason() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    said = set(re.findall(r"`(\w+)`", text))
    operations = {method for method in vars(Coordinator) if not method.startswith("_")}
    kinds = (
        reasons.Status,
        reasons.ClaimReason,
        reasons.SubmitReason,
        reasons.RenewReason,
        reasons.ProgressReason,
        reasons.ReleaseAnswer,
    )
    assert operations - said == set()
    assert {reason.value for kind in kinds for reason in kind} - said == set()
