"""The dashboard's files: served with a strict policy, kept by browsers, and replaced by the status
page where they are not built."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from pathlib import Path

import pytest

from docs.web_types import web_types
from genlock.service.compose import Choices
from genlock.service.web import dashboard
from tests.servers.service import Service, serving

_SCRIPT = b"console.log(1);\n" * 100


@pytest.fixture
def built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    assets = tmp_path / "built" / "assets"
    assets.mkdir(parents=True)
    (tmp_path / "built" / "index.html").write_text("<!doctype html><p>the dashboard</p>")
    (assets / "index-abc123.js").write_bytes(_SCRIPT)
    (assets / "notes.txt").write_text("not a file of the page")
    monkeypatch.setattr(dashboard, "files", lambda _: tmp_path)
    return tmp_path


@pytest.fixture
def served() -> Iterator[Service]:
    with serving() as served:
        yield served


@pytest.mark.usefixtures("built")
def test_page_of_a_project_runs_only_its_own_files(served: Service) -> None:
    answer = served.http.get("/p/acme/web-shop/tasks?state=HELD")
    assert answer.text == "<!doctype html><p>the dashboard</p>"
    assert answer.headers["content-security-policy"] == (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
        "img-src 'self' data:; font-src 'self'; worker-src 'self'; base-uri 'none'; "
        "form-action 'self'; frame-ancestors 'none'"
    )
    assert answer.headers["cache-control"] == "no-store"
    assert answer.headers["x-content-type-options"] == "nosniff"


@pytest.mark.usefixtures("built")
def test_file_with_a_hash_is_kept_for_a_year_and_packed_on_request(served: Service) -> None:
    packed = served.http.get("/assets/index-abc123.js")
    plain = served.http.get("/assets/index-abc123.js", headers={"accept-encoding": "identity"})
    assert packed.headers["content-encoding"] == "gzip"
    assert int(packed.headers["content-length"]) == len(gzip.compress(_SCRIPT, 9, mtime=0))
    assert packed.content == plain.content == _SCRIPT
    assert "content-encoding" not in plain.headers
    assert plain.headers["cache-control"] == "private, max-age=31536000, immutable"
    assert plain.headers["content-type"] == "text/javascript; charset=utf-8"


@pytest.mark.usefixtures("built")
@pytest.mark.parametrize("name", ["index-old.js", "notes.txt", "..%2findex.html", "%2e%2e"])
def test_nothing_but_the_files_of_the_page_is_served(served: Service, name: str) -> None:
    assert served.http.get(f"/assets/{name}").status_code == 404


def test_service_without_built_files_shows_the_status_page_and_says_how_to_build(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dashboard, "files", lambda _: tmp_path)
    with serving() as served:
        answer = served.http.get("/p/acme/web-shop")
        assert "This is the plain page" in answer.text
        assert "<code>make web</code>" in answer.text
        assert "<code>make web</code>" not in served.http.get("/status").text


def test_caller_is_told_only_the_projects_that_its_key_sees() -> None:
    with serving(choices=Choices(keys=True)) as served:
        for tenant, project in (("acme", "web-shop"), ("acme", "secret"), ("globex", "web-shop")):
            served.do(
                served.coordinator.add_tasks(tasks=["A-001"], tenant_id=tenant, project_id=project)
            )
        key = served.do(
            served.coordinator.create_key(
                name="eve", role="observer", tenant_id="acme", projects="web*"
            )
        )
        headers = {"authorization": f"Bearer {key.text}"}
        told = served.http.get("/projects", headers=headers).json()
    assert told["projects"] == [{"tenant_id": "acme", "project_id": "web-shop"}]
    assert told["whole_store"] is False


def test_icon_needs_no_key(served: Service) -> None:
    assert served.http.get("/favicon.ico").headers["content-type"] == "image/svg+xml"


def test_types_of_the_dashboard_are_those_of_the_service() -> None:
    written = Path(__file__).parents[3].joinpath("web/src/api.ts").read_text(encoding="utf-8")
    assert written == web_types(), "run `python -m docs.generate`, and read what has changed"
