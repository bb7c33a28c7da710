"""product put, get, list and promote, as processes: what is typed, what is answered, and the exit
code."""

from __future__ import annotations

import json
from hashlib import sha256
from pathlib import Path

import pytest

from tests.cli.console import run
from tests.cli.stage import Stage
from tests.eventually import eventually
from tests.service.process import serve


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    """A project with an area inside of it."""
    stage = Stage(tmp_path / "project")
    stage.add("A-001-core")
    ran = stage.run("policy", "set", f"products=file://{stage.folder}/area")
    assert ran.code == 0, ran
    (stage.folder / "report.md").write_text("all is well\n")
    return stage


def claimed(stage: Stage, task: str = "A-001-core", as_: str = "s1") -> dict[str, str | None]:
    return {"GENLOCK_TASK": task, "GENLOCK_GENERATION": str(stage.claim(task, as_))}


def test_from_put_to_get(stage: Stage) -> None:
    env = claimed(stage)
    put = stage.run("product", "put", "report.md", env=env)
    (product,) = put.json()["products"]
    digest = sha256(b"all is well\n").hexdigest()
    assert product == {"path": "report.md", "sha256": digest, "size": 12}
    (draft,) = stage.run("product", "list", "--drafts").json()["drafts"]
    assert (draft["agent"], draft["task_id"], draft["generation"]) == ("s1", "A-001-core", 1)
    assert stage.run("product", "list").json() == {"assets": []}
    assert stage.run("submit", "--text", "done", "--products", env=env).code == 0
    (asset,) = stage.run("product", "list").json()["assets"]
    assert (asset["path"], asset["sha256"], asset["task_id"]) == ("report.md", digest, "A-001-core")
    (one,) = stage.run("product", "list", "--promotions").json()["promotions"]
    assert (one["state"], one["manifest"]["files"][0]["path"]) == ("PROMOTED", "report.md")
    got = stage.run("product", "get", "report.md", "-o", "copy/of.md")
    assert got.code == 0, got
    assert (stage.folder / "copy/of.md").read_text() == "all is well\n"
    again = stage.run("product", "get", "report.md")
    assert (again.code, again.error()["message"]) == (
        2,
        "report.md exists; replace it with --force, or name another with -o",
    )
    assert stage.run("product", "get", "report.md", "--force").code == 0


def test_text_on_a_terminal_says_what_was_done(stage: Stage) -> None:
    env = {**claimed(stage), "GENLOCK_OUTPUT": "text"}
    assert "put: report.md (12 bytes, " in stage.run("product", "put", "report.md", env=env).out
    text: dict[str, str | None] = {"GENLOCK_OUTPUT": "text"}
    assert "there are no assets" in stage.run("product", "list", env=text).out
    assert "nothing waits for a promotion" in stage.run("product", "promote", env=text).out
    for words in (["--drafts"], ["--promotions"]):
        assert stage.run("product", "list", *words, env=text).code == 0


def test_what_is_not_there_is_said_with_exit_code_3(stage: Stage) -> None:
    missing = stage.run("product", "get", "nothing.md")
    assert (missing.code, missing.error()["code"]) == (3, "PRODUCT_NOT_FOUND")
    env = claimed(stage)
    assert stage.run("product", "put", "nothing.md", env=env).code == 2
    assert stage.run("product", "put", "report.md").code == 2  # which task?
    none = stage.run("submit", "--products", env=env)
    assert (none.code, none.error()["code"]) == (2, "BAD_ARGUMENT")
    assert "genlock product put FILE" in none.error()["message"]


def test_promote_finishes_what_failed_when_it_is_mended(stage: Stage) -> None:
    env = claimed(stage)
    stage.run("product", "put", "report.md", env=env)
    draft = next((stage.folder / "area").rglob("report.md"))
    with stage.library() as fleet:
        fleet._open_products = None  # it only submits
        product = {"path": "report.md", "sha256": sha256(b"all is well\n").hexdigest(), "size": 12}
        fleet.submit_result(task_id="A-001-core", generation=1, products=[product])
    draft.write_text("tampered\n")
    ran = stage.run("product", "promote")
    assert ran.code == 1
    (failed,) = ran.json()["failed"]
    assert "the draft report.md is not what was accepted" in failed["reason"]
    draft.write_text("all is well\n")
    assert stage.run("product", "promote").json()["failed"] == []
    assert (
        stage.run("product", "promote", "A-001-core", "--retry", "--quiet").out == "A-001-core/1\n"
    )
    assert stage.run("product", "list", "--quiet").out == "report.md\n"


def test_promote_removes_drafts_that_no_result_needs(stage: Stage) -> None:
    env = claimed(stage)
    stage.run("product", "put", "report.md", env=env)
    stage.run("unlock", "A-001-core", "--force")
    stage.claim("A-001-core")
    assert stage.run("product", "promote").json()["dropped"] == 0
    stage.run("policy", "set", "draft_retention_days=0")
    assert stage.run("product", "promote").json()["dropped"] == 1


def test_what_a_command_puts_belongs_to_its_result(stage: Stage) -> None:
    script = "genlock product put report.md && genlock product put report.md --as b.md"
    ran = stage.run("run", "A-001-core", "--", "sh", "-c", in_this_environment(script))
    assert ran.code == 0, ran
    assert stage.run("product", "list", "--quiet").out == "b.md\nreport.md\n"


def test_a_command_that_submits_itself_hands_in_what_it_has_put(stage: Stage) -> None:
    script = "genlock product put report.md && genlock submit --text done"
    ran = stage.run("run", "A-001-core", "--", "sh", "-c", in_this_environment(script))
    assert ran.code == 0, ran
    assert stage.run("product", "list", "--quiet").out == "report.md\n"


def in_this_environment(script: str) -> str:
    from tests.cli.console import COMMAND

    return script.replace("genlock ", " ".join(COMMAND) + " ")


def test_an_area_outside_of_a_cloned_project_needs_consent(stage: Stage, tmp_path: Path) -> None:
    url = f"file://{tmp_path}/elsewhere"
    with stage.library() as fleet:  # somebody else, before the clone
        fleet.set_policy(policy={"products": url})
    env = claimed(stage)
    ran = stage.run("product", "put", "report.md", env=env)
    assert (ran.code, ran.error()["code"]) == (4, "UNTRUSTED")
    assert f"type: genlock policy set products={url}" in ran.error()["message"]
    assert not (tmp_path / "elsewhere").exists()
    assert stage.run("policy", "set", f"products={url}").code == 0
    assert stage.run("product", "put", "report.md", env=env).code == 0
    assert url in stage.run("trust", "--list").out


def test_a_service_with_products_promotes_by_itself(tmp_path: Path) -> None:
    root = f"file://{tmp_path}/areas"
    with serve(tmp_path, "--products", root) as service:
        env = {"GENLOCK_URL": service.url, "GENLOCK_SESSION": "s1", "GENLOCK_AGENT": "a"}
        folder = tmp_path / "work"
        folder.mkdir()
        (folder / "a.md").write_text("1")

        def genlock(*words: object) -> str:
            ran = run(*words, cwd=folder, env=env)
            assert ran.code == 0, ran
            return ran.out

        genlock("policy", "set", f"products={root}/default/shop")
        genlock("add", "T")
        genlock("claim", "T")
        genlock("product", "put", "a.md", "--task", "T", "-g", 1)
        genlock("submit", "T", "-g", 1, "--products")
        eventually(lambda: genlock("product", "list", "--quiet") == "a.md\n", "the promotion")
        assert (
            json.loads(genlock("product", "list", "--promotions"))["promotions"][0]["state"]
            == "PROMOTED"
        )


def test_a_reviewer_sees_which_files_an_approval_promotes(stage: Stage) -> None:
    stage.add({"id": "B-001-x", "human_required": True})
    env = claimed(stage, "B-001-x")
    stage.run("product", "put", "report.md", env=env)
    assert stage.run("submit", "--products", env=env).json()["reason"] == "CONVERGENCE_ESCALATED"
    shown = stage.run("review", "show", "B-001-x", env={"GENLOCK_OUTPUT": "text"}).out
    assert "drafts of s1 in generation 1" in shown
    assert f"12 bytes, {sha256(b'all is well' + bytes([10])).hexdigest()[:12]}" in shown
    assert stage.run("product", "list", "--quiet").out == ""
    digest = stage.run("review", "show", "B-001-x").json()["digest"]
    assert stage.run("review", "approve", "B-001-x", "-g", 1, "--digest", digest[:12]).code == 0
    assert stage.run("product", "list", "--quiet").out == "report.md\n"


def test_an_adopted_result_brings_its_products_along(stage: Stage) -> None:
    env = claimed(stage)
    stage.run("product", "put", "report.md", env=env)
    stage.run("unlock", "A-001-core", "--force")
    refused = stage.run("submit", "--text", "late", "--products", env=env).json()
    assert refused["reason"] == "STALE_GENERATION"
    ran = stage.run("adopt", "A-001-core", refused["refused_id"], as_="operator")
    assert ran.code == 0, ran
    assert stage.run("product", "list", "--quiet").out == "report.md\n"
