"""`work.put` and what becomes of it: embedded, in an event loop, and through a service."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import asdict

import genlock
from genlock import Coordinator
from genlock.core.products_url import read_products_url
from genlock.errors import BadArgument, NotAllowed, ProductNotFound, StoreUnavailable
from genlock.products.area import Area
from genlock.products.monitor import PromotionMonitor, is_below
from genlock.products.promoter import Promoted, Promoter
from genlock.testing.clock import ManualClock
from genlock.trust import Untrusted, check_area, give_area_consent
from genlock.worker.kept_claim import ClaimLost, Loss
from genlock.worker.products_file import MOST_LIST_BYTES, read_products
from tests.eventually import eventually
from tests.products.test_promoter import assets, states
from tests.servers.service import serving


def test_what_is_put_is_promoted_when_the_result_is_accepted(
    fleet: Coordinator, area: Area, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("reports").mkdir()
    Path("reports/a.md").write_text("one")
    fleet.add_tasks(tasks=["T"])
    with fleet.next_task() as work:
        assert work.put("reports/a.md").path == "reports/a.md"
        work.put(tmp_path / "reports/a.md", name="b.md")
        work.put("c.md", data=b"no file")
        work.put("c.md", data=b"another content")
        assert [each.path for each in work.products] == ["b.md", "c.md", "reports/a.md"]
        assert assets(area) == {}
        assert work.submit({"done": True}).accepted
    assert assets(area) == {"reports/a.md": "one", "b.md": "one", "c.md": "another content"}
    assert states(fleet) == {"T/1": "PROMOTED"}


def test_a_successor_reads_the_assets_of_its_dependencies(fleet: Coordinator) -> None:
    fleet.add_tasks(tasks=["A", {"id": "B", "depends_on": ["A"]}])
    with fleet.next_task() as work:
        work.put("design.md", data=b"the design")
        work.submit()
    with fleet.next_task() as work:
        assert work.get("design.md") == b"the design"
        with pytest.raises(ProductNotFound, match=r"no asset 'code\.md'"):
            work.get("code.md")


def test_who_has_lost_the_claim_puts_nothing(
    fleet: Coordinator, area: Area, clock: ManualClock
) -> None:
    fleet.add_tasks(tasks=["T"])
    with fleet.next_task(lease_seconds=60) as work:
        fleet.force_release(task_id="T", take_over=True)
        work._keeper.lose(work._kept, Loss.TAKEN)
        with pytest.raises(ClaimLost):
            work.put("a.md", data=b"1")
    assert list(area.drafts()) == []


def test_a_file_from_elsewhere_needs_a_name(
    fleet: Coordinator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "below").mkdir()
    (tmp_path / "a.md").write_text("1")
    monkeypatch.chdir(tmp_path / "below")
    fleet.add_tasks(tasks=["T"])
    with fleet.next_task() as work:
        with pytest.raises(BadArgument, match="outside of the working folder"):
            work.put("../a.md")
        with pytest.raises(BadArgument, match=r"b\.md cannot be read"):
            work.put("b.md")
        assert work.put("../a.md", name="a.md").size == 1


def test_without_an_area_the_error_says_what_to_type() -> None:
    with genlock.connect("memory://") as fleet:
        fleet.add_tasks(tasks=["T"])
        with (
            fleet.next_task() as work,
            pytest.raises(BadArgument, match=r"type: genlock policy set products=file:///folder"),
        ):
            work.put("a.md", data=b"1")


def test_a_coordinator_that_connect_did_not_open_has_no_area(fleet: Coordinator) -> None:
    fleet._open_products = None
    with pytest.raises(NotAllowed, match=r"genlock\.connect"):
        fleet.product_access  # noqa: B018


def test_an_event_loop_puts_and_promotes_as_well(url: str, area: Area) -> None:
    async def run() -> None:
        async with genlock.aio.connect("memory://") as fleet:
            await fleet.set_policy(policy={"products": url})
            await fleet.add_tasks(tasks=["T"])
            async with fleet.next_task() as work:
                await work.put("a.md", data=b"1")
                await work.submit()
            assert await fleet.list_promotions(state="PENDING") == ()

    asyncio.run(run())
    assert assets(area) == {"a.md": "1"}


def test_an_area_that_is_away_does_not_undo_an_acceptance(
    fleet: Coordinator, area: Area, monkeypatch: pytest.MonkeyPatch
) -> None:
    fleet.add_tasks(tasks=["T"])
    with fleet.next_task() as work:
        work.put("a.md", data=b"1")

        def away(*_: object) -> None:
            raise StoreUnavailable("the bucket is away")

        monkeypatch.setattr(Area, "store_content", away)
        assert work.submit().accepted
    assert states(fleet) == {"T/1": "PENDING"}


# Through a service


def watched(
    fleet: Any, root: str, interval_seconds: float = 0.02
) -> tuple[PromotionMonitor, list[tuple[str, str, Promoted]]]:
    told: list[tuple[str, str, Promoted]] = []
    monitor = PromotionMonitor(
        fleet, root, lambda *done: told.append(done), interval_seconds=interval_seconds
    )
    return monitor, told


def test_a_service_promotes_what_its_agents_have_accepted(tmp_path: Path) -> None:
    root, url = f"file://{tmp_path}/root", f"file://{tmp_path}/root/default/shop"
    with serving() as service:
        monitor, told = watched(service.coordinator._plain_face(), root)
        monitor.start()
        with genlock.connect(service.url) as fleet:
            fleet.set_policy(policy={"products": url})
            fleet.add_tasks(tasks=["T"])
            with fleet.next_task() as work:
                work.put("a.md", data=b"1")
                assert work.submit().accepted
            eventually(lambda: states(fleet) == {"T/1": "PROMOTED"}, "the promotion")
        monitor.stop()
    assert assets(Area.at(url)) == {"a.md": "1"}
    assert [(tenant, project, len(done.promoted)) for tenant, project, done in told] == [
        ("default", "default", 1)
    ]


def test_a_service_opens_no_area_that_its_administrator_has_not_given(tmp_path: Path) -> None:
    """A tenant's operators say where the area is; the service would open it with its own rights."""
    with genlock.connect("memory://") as fleet:
        fleet.set_policy(policy={"products": f"file://{tmp_path}/elsewhere"})
        fleet.add_tasks(tasks=["T"])
        fleet._open_products = None  # nobody else promotes
        claim = fleet.claim_task(task_id="T", agent_id="a", session_id="s").require()
        product = {"path": "a", "sha256": "0" * 64, "size": 1}
        fleet.submit_result(
            task_id="T", generation=claim.generation, session_id="s", products=[product]
        )
        monitor, told = watched(fleet, f"file://{tmp_path}/root")
        monitor.look()
        ((_, _, done),) = told
        assert done.promoted == ()
        assert "so this service does not open it" in done.errors[0]
        assert states(fleet) == {"T/1": "PENDING"}
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("url", "below"),
    [
        ("s3://b/root/acme", True),
        ("s3://b/root/acme/shop", True),
        ("s3://b/root/acme-2", False),
        ("s3://b/root", False),
        ("s3://b/acme", False),
        ("s3://c/root/acme", False),
        ("gs://b/root/acme", False),
        ("s3://b/root/acme?endpoint_url=http://elsewhere", False),
    ],
)
def test_a_tenants_areas_lie_below_its_own_name(url: str, below: bool) -> None:
    root = read_products_url("s3://b/root")
    assert is_below(read_products_url(url), root, "acme") is below


def test_a_service_follows_no_link_out_of_a_tenants_folder(tmp_path: Path) -> None:
    (tmp_path / "root/default").mkdir(parents=True)
    (tmp_path / "precious").mkdir()
    (tmp_path / "root/default/shop").symlink_to(tmp_path / "precious")
    with genlock.connect("memory://") as fleet:
        fleet.set_policy(policy={"products": f"file://{tmp_path}/root/default/shop"})
        fleet._open_products = None
        fleet.add_tasks(tasks=["T"])
        claim = fleet.claim_task(task_id="T", agent_id="a", session_id="s").require()
        product = {"path": "a", "sha256": "0" * 64, "size": 1}
        fleet.submit_result(
            task_id="T", generation=claim.generation, session_id="s", products=[product]
        )
        monitor, told = watched(fleet, f"file://{tmp_path}/root")
        monitor.look()
        assert "by a symbolic link" in told[0][2].errors[0]
    assert list((tmp_path / "precious").iterdir()) == []


def test_one_projects_fault_does_not_end_the_promotions_of_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with genlock.connect("memory://") as fleet:
        fleet._open_products = None
        for project in ("a", "b"):
            area = Area.at(f"file://{tmp_path}/default/{project}")
            place: dict[str, Any] = {"project_id": project}
            fleet.set_policy(policy={"products": f"file://{tmp_path}/default/{project}"}, **place)
            fleet.add_tasks(tasks=["T"], **place)
            claim = fleet.claim_task(task_id="T", agent_id="a", session_id="s", **place).require()
            product = asdict(area.put_draft("a", "T", claim.generation, "f", BytesIO(b"1")))
            fleet.submit_result(
                task_id="T",
                generation=claim.generation,
                session_id="s",
                agent_id="a",
                products=[product],
                **place,
            )
        monitor, told = watched(fleet, f"file://{tmp_path}")
        promote = Promoter.promote

        def faulty(self: Promoter, waiting: Any) -> Any:
            if self._place["project_id"] == "a":
                raise OverflowError("nobody expected this")
            return promote(self, waiting)

        monkeypatch.setattr(Promoter, "promote", faulty)
        monitor.look()
        found = {project: done for _, project, done in told}
        assert found["a"].errors == ("OverflowError: nobody expected this",)
        assert len(found["b"].promoted) == 1


def test_the_monitor_collects_dead_drafts_now_and_then(tmp_path: Path) -> None:
    url = f"file://{tmp_path}/default"
    clock = ManualClock()
    with genlock.connect("memory://", clock=clock) as fleet:
        fleet.set_policy(policy={"products": url, "draft_retention_days": 0.0})
        fleet.add_tasks(tasks=["T"])
        with fleet.next_task(lease_seconds=60) as work:
            work.put("a.md", data=b"1")
            work.release(error=True)
        with fleet.next_task() as work:
            work.put("b.md", data=b"1")
            monitor, told = watched(fleet, f"file://{tmp_path}", 0)
            os.utime(next(tmp_path.rglob("a.md")), (0, 0))
            monitor.look()
            monitor.look()
            assert [done.dropped for _, _, done in told] == [1]
            assert [draft.path for draft in Area.at(url).drafts()] == ["b.md"]


# Consent


def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The URL of a store that lies in a project, as one that came with a clone."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "own"))
    (tmp_path / "clone/.genlock").mkdir(parents=True)
    return f"sqlite://{tmp_path}/clone/.genlock/genlock.db"


@pytest.mark.parametrize("url", ["s3://somebody/else", "file:///home"])
def test_a_store_in_a_clone_leads_out_of_its_project_only_with_consent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, url: str
) -> None:
    store = project(tmp_path, monkeypatch)
    with genlock.connect(store, create=True) as fleet:
        fleet.set_policy(policy={"products": url})
        fleet.add_tasks(tasks=["T"])
        with (
            fleet.next_task() as work,
            pytest.raises(Untrusted, match=rf"type: genlock policy set products={url}"),
        ):
            work.put("a.md", data=b"1")
    give_area_consent(store, url)
    check_area(store, url)
    with pytest.raises(Untrusted):
        check_area(store, "s3://another")


@pytest.mark.parametrize(
    "make",
    [
        lambda path: (f"sqlite://{path}/clone/.genlock/genlock.db", f"file://{path}/clone/area"),
        lambda path: (f"sqlite://{path}/own.db", "s3://bucket"),
        lambda path: (f"sqlite://{path}/clone/own.db", "s3://bucket"),
        lambda path: ("memory://", "s3://bucket"),
        lambda path: ("postgresql://server/db", "s3://bucket"),
        lambda path: ("http://127.0.0.1:1", "s3://bucket"),
    ],
)
def test_what_the_user_has_named_needs_no_consent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make: Callable[[Path], tuple[str, str]]
) -> None:
    project(tmp_path, monkeypatch)
    check_area(*make(tmp_path))


def test_a_link_in_a_clone_does_not_lead_out_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = project(tmp_path, monkeypatch)
    (tmp_path / "home").mkdir()
    (tmp_path / "clone/area").symlink_to(tmp_path / "home")
    with pytest.raises(Untrusted):
        check_area(store, f"file://{tmp_path}/clone/area")


@pytest.mark.parametrize("named_by", ["settings", "link"])
def test_a_store_elsewhere_in_a_clone_needs_the_same_consent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, named_by: str
) -> None:
    project(tmp_path, monkeypatch)
    folder, file = tmp_path / "clone/.genlock", tmp_path / "clone/data/plan.db"
    file.parent.mkdir()
    if named_by == "settings":
        (folder / "config.toml").write_text(f'url = "sqlite://{file}"\n')
    else:
        file.touch()
        (folder / "genlock.db").symlink_to("../data/plan.db")
    store = f"sqlite://{file}"
    with pytest.raises(Untrusted, match="type: genlock policy set products=s3://else"):
        check_area(store, "s3://else")
    check_area(store, f"file://{tmp_path}/clone/area")
    give_area_consent(store, "s3://else")
    check_area(store, "s3://else")


@pytest.mark.parametrize(
    "url",
    [
        "minio://key:s3cr3t@host/bucket",
        "s3://key:s3cr3t@[host/bucket",
        "s3://key:s3cr3t@bucket/..",
        "s3://bucket?endpoint_url=https://key:s3cr3t@host",
        "s3://bucket?secret_access_key=s3cr3t",
        "s3://bucket?s3cr3t",
    ],
)
def test_a_complaint_about_an_address_does_not_repeat_a_secret(url: str) -> None:
    with pytest.raises(BadArgument) as caught:
        read_products_url(url)
    assert "s3cr3t" not in str(caught.value)


@pytest.mark.parametrize("kind", ["pipe", "link", "endless"])
def test_a_list_of_products_is_read_with_suspicion(tmp_path: Path, kind: str) -> None:
    """A command writes it, perhaps in a container with fewer rights than ours."""
    file = tmp_path / "products"
    if kind == "pipe":
        os.mkfifo(file)
    elif kind == "link":
        file.symlink_to("/dev/null")
    else:
        with file.open("wb") as long:
            long.truncate(MOST_LIST_BYTES + 1)
    with pytest.raises(BadArgument, match="GENLOCK_PRODUCTS"):
        read_products(file)
