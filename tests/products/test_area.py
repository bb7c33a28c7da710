"""An area for work products, in a folder and in a bucket: drafts, contents, and pointers that only
move forward."""

from __future__ import annotations

import io
import os
import subprocess
import threading
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from pathlib import Path

import pytest

from genlock.core.model import Product
from genlock.errors import BadArgument, ProductNotFound, StoreCorrupt, StoreForeign
from genlock.products.area import Area, Asset, DraftMismatch, draft_name, open_local, scratch_of
from genlock.products.objects import FolderObjects, Versioned, modified_at

NOON = datetime(2026, 1, 4, 12, tzinfo=UTC)
STRANGE = ["a/.b ü.asset/c.txt", "%2E/x", "a+b@c,d=e~f", "x.asset", "-", "日本/語.md"]


def put(area: Area, data: bytes, path: str = "a.txt", generation: int = 1) -> Product:
    return area.put_draft("alice", "T", generation, path, io.BytesIO(data))


def asset(data: bytes, path: str = "a.txt", **more: object) -> Asset:
    known = {"task_id": "T", "generation": 1, "accepted_at": NOON} | more
    return Asset(path, sha256(data).hexdigest(), len(data), **known)  # type: ignore[arg-type]


def content(area: Area, path: str = "a.txt") -> bytes:
    with area.opened_asset(area.asset(path)) as file:
        return file.read()


@pytest.mark.parametrize("data", [b"", b"hello", b"x" * (9 * 1024 * 1024)], ids=len)
def test_a_draft_is_read_back_and_named_by_its_digest_and_size(area: Area, data: bytes) -> None:
    assert put(area, data) == Product("a.txt", sha256(data).hexdigest(), len(data))
    with area.open_draft("alice", "T", 1, "a.txt") as file:
        assert file.read() == data


@pytest.mark.parametrize("path", STRANGE)
def test_names_are_escaped_reversibly(area: Area, path: str) -> None:
    agent, task = "al:ice ü.", "AUTH-LOGIN:design_code::1"
    area.put_draft(agent, task, 7, path, io.BytesIO(b"1"))
    (found,) = area.drafts()
    assert (found.agent, found.task_id, found.generation, found.path) == (agent, task, 7, path)
    assert list(area.drafts("nobody")) == []
    area.store_content(agent, task, 7, area.products(agent, task, 7)[0])
    assert area.point(asset(b"1", path))
    assert [each.path for each in area.assets()] == [path]


def test_no_two_names_become_the_same() -> None:
    names = {draft_name("a", "t", 1, path) for path in [*STRANGE, ".x", "%2Ex", "a/b", "a%2Fb"]}
    assert len(names) == len(STRANGE) + 4
    assert draft_name("a", "F:x", 3, ".x/y") == "agents/a/drafts/F%3Ax/gen3/%2Ex/y"
    assert scratch_of("..") == "agents/%2E./scratch/"


@pytest.mark.parametrize(
    "path", ["", "/etc/passwd", "../x", "a/../b", "a//b", "a/.", "a\\b", "a\n"]
)
def test_a_path_that_leads_elsewhere_is_refused(area: Area, path: str) -> None:
    with pytest.raises(BadArgument, match="path"):
        put(area, b"1", path)
    with pytest.raises(BadArgument, match="path"):
        area.asset(path)


def test_an_asset_and_one_below_its_name_are_two(area: Area) -> None:
    for path in ("a", "a/b", "a.asset/b"):
        assert area.point(asset(path.encode(), path))
    assert sorted(each.path for each in area.assets()) == ["a", "a.asset/b", "a/b"]


def test_a_generation_has_drafts_of_its_own(area: Area) -> None:
    put(area, b"first", generation=1)
    put(area, b"second", generation=2)
    assert area.products("alice", "T", 1)[0].size == 5
    assert area.products("alice", "T", 2)[0].size == 6
    assert area.products("alice", "T", 3) == ()
    assert [each.generation for each in area.drafts("alice", "T")] == [1, 2]


def test_a_content_is_what_was_accepted_or_nothing(area: Area) -> None:
    product = put(area, b"accepted")
    put(area, b"tampered")
    with pytest.raises(DraftMismatch, match=r"a\.txt is not what was accepted"):
        area.store_content("alice", "T", 1, product)
    put(area, b"accepted and more")
    with pytest.raises(DraftMismatch, match="is not what was accepted"):
        area.store_content("alice", "T", 1, product)
    with pytest.raises(DraftMismatch, match=r"a\.txt is not there"):
        area.store_content("alice", "T", 2, product)
    assert area.point(asset(b"accepted"))
    with pytest.raises(StoreCorrupt, match="has lost the content"):
        content(area)
    put(area, b"accepted")
    area.store_content("alice", "T", 1, product)
    assert content(area) == b"accepted"


def test_a_zombie_that_writes_on_changes_no_content(area: Area) -> None:
    product = put(area, b"accepted")
    area.store_content("alice", "T", 1, product)
    area.point(asset(b"accepted"))
    put(area, b"tampered")
    area.store_content("alice", "T", 1, product)  # once more, as after a crash
    assert content(area) == b"accepted"


def test_a_content_that_was_changed_is_noticed_and_mended(area: Area) -> None:
    product = put(area, b"accepted")
    area.store_content("alice", "T", 1, product)
    area.point(asset(b"accepted"))
    area._objects.put(f"assets/.objects/{product.sha256}", io.BytesIO(b"rotten"))
    with pytest.raises(StoreCorrupt, match="was changed"):
        content(area)
    area.store_content("alice", "T", 1, product)
    assert content(area) == b"accepted"


def test_a_pointer_never_moves_below_a_later_acceptance(area: Area) -> None:
    first, second = asset(b"1"), asset(b"2", accepted_at=NOON + timedelta(seconds=1))
    assert area.point(second)
    assert not area.point(first)
    assert area.asset("a.txt") == second
    # At the same instant the generation decides, and then the task's name.
    same = second.accepted_at
    assert area.point(asset(b"3", accepted_at=same, generation=2))
    assert not area.point(second)
    assert area.point(asset(b"4", accepted_at=same, generation=2, task_id="U"))
    assert not area.point(asset(b"5", accepted_at=same, generation=2, task_id="S"))
    assert area.asset("a.txt").sha256 == sha256(b"4").hexdigest()


def test_the_same_acceptance_may_point_again(area: Area) -> None:
    assert area.point(asset(b"1"))
    assert area.point(asset(b"1"))


def test_of_many_who_move_a_pointer_at_once_the_latest_acceptance_wins(url: str) -> None:
    start = threading.Barrier(8)
    moved: list[bool] = []

    def move(number: int) -> None:
        own = Area.at(url)
        start.wait(10)
        for step in (0, 8):
            at = NOON + timedelta(seconds=number + step)
            moved.append(own.point(asset(b"%d" % (number + step), accepted_at=at)))

    threads = [threading.Thread(target=move, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert len(moved) == 16
    assert Area.at(url).asset("a.txt").accepted_at == NOON + timedelta(seconds=15)


def test_a_replace_is_refused_if_another_was_faster(area: Area) -> None:
    objects = area._objects
    assert objects.replace("x", b"1", None)
    assert not objects.replace("x", b"2", None)
    before = objects.read("x")
    assert isinstance(before, Versioned)
    assert objects.replace("x", b"3", before)
    assert not objects.replace("x", b"4", before)
    found = objects.read("x")
    assert found is not None
    assert found.data == b"3"


def test_what_is_not_there_is_named(area: Area) -> None:
    with pytest.raises(ProductNotFound, match=r"no asset 'a\.txt'"):
        area.asset("a.txt")
    with pytest.raises(ProductNotFound, match="alice has no draft"):
        area.open_draft("alice", "T", 1, "a.txt")
    assert list(area.assets()) == []
    assert list(area.drafts()) == []


def test_a_pointer_that_is_none_is_an_error_with_its_name(area: Area) -> None:
    area._objects.put("assets/a.txt.asset", io.BytesIO(b"{}"))
    with pytest.raises(StoreCorrupt, match=r"assets/a\.txt\.asset is no pointer of an asset"):
        area.asset("a.txt")


def test_dropped_drafts_leave_nothing_behind(area: Area) -> None:
    put(area, b"1")
    put(area, b"2", "b/c.txt")
    for draft in list(area.drafts()):
        area.drop_draft(draft)
        area.drop_draft(draft)
    assert list(area.drafts()) == []
    assert put(area, b"1").size == 1


def test_names_that_no_file_can_have_are_refused(area: Area) -> None:
    with pytest.raises(BadArgument, match="too long for a name"):
        area.put_draft("ü" * 128, "T", 1, "a.txt", io.BytesIO(b"1"))


# In a folder


def folder_area(tmp_path: Path) -> Area:
    return Area.at(f"file://{tmp_path}/area")


def test_an_area_in_a_folder_is_for_its_user_alone(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        area = folder_area(tmp_path)
        area.store_content("alice", "T", 1, put(area, b"1", "b/a.txt"))
        area.point(asset(b"1", "b/a.txt"))
    finally:
        os.umask(before)
    for path in (tmp_path / "area").rglob("*"):
        assert path.stat().st_mode & 0o777 == (0o700 if path.is_dir() else 0o600), path


@pytest.mark.parametrize("link", ["agents", "agents/alice", "agents/alice/drafts/T/gen1/a.txt"])
def test_nothing_is_written_or_read_through_a_link(tmp_path: Path, link: str) -> None:
    victim = tmp_path / "home"
    victim.mkdir()
    (victim / "precious").write_bytes(b"secret")
    path = tmp_path / "area" / link
    path.parent.mkdir(parents=True)
    path.symlink_to(victim / "precious" if link.endswith(".txt") else victim)
    area = folder_area(tmp_path)
    if link.endswith(".txt"):
        with pytest.raises(StoreForeign, match="is a symbolic link"):
            area.open_draft("alice", "T", 1, "a.txt")
        put(area, b"new")  # takes the link's place
        assert not path.is_symlink()
    else:
        with pytest.raises(StoreForeign, match="is a symbolic link"):
            put(area, b"1")
    if link != "agents":
        assert list(area.drafts("bob")) == []
    assert os.listdir(victim) == ["precious"]
    assert (victim / "precious").read_bytes() == b"secret"


def test_a_list_passes_over_links_and_pipes(tmp_path: Path) -> None:
    area = folder_area(tmp_path)
    put(area, b"1")
    folder = tmp_path / "area/agents/alice/drafts/T/gen1"
    (folder / "link").symlink_to("/etc/passwd")
    (folder / "loop").symlink_to(folder)
    os.mkfifo(folder / "pipe")
    assert [draft.path for draft in area.drafts()] == ["a.txt"]
    with pytest.raises(ProductNotFound):
        area.open_draft("alice", "T", 1, "pipe")


def test_a_list_passes_over_folders_deeper_than_any_product(tmp_path: Path) -> None:
    area = Area.at(f"file://{tmp_path}/area")
    longest = "/".join("abcd"[number % 4] for number in range(256))
    put(area, b"1", longest)
    folder = os.open(tmp_path / "area/agents", os.O_RDONLY)
    for _ in range(1500):
        os.mkdir("deep", dir_fd=folder)
        below = os.open("deep", os.O_RDONLY, dir_fd=folder)
        os.close(folder)
        folder = below
    os.close(folder)
    try:
        assert [draft.path for draft in area.drafts()] == [longest]
    finally:  # Python could not
        subprocess.run(["rm", "-rf", tmp_path / "area"], check=True)


def test_a_file_with_a_time_beyond_the_calendar_is_never_old() -> None:
    """Anybody may give a file of his any time, and some filesystems keep it."""
    assert modified_at(0.0) == datetime(1970, 1, 1, tzinfo=UTC)
    assert modified_at(2.0**40) == datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC)


def test_what_a_killed_writer_left_is_removed_later(tmp_path: Path) -> None:
    area = folder_area(tmp_path)
    put(area, b"1")
    left = tmp_path / "area/.unfinished/7-abc"
    left.write_bytes(b"half")
    put(area, b"2")
    assert left.exists()
    os.utime(left, (0, 0))
    put(area, b"3")
    assert not left.exists()


def test_a_file_and_a_folder_of_one_name_is_an_error_that_says_so(tmp_path: Path) -> None:
    area = folder_area(tmp_path)
    put(area, b"1", "a/b")
    with pytest.raises(BadArgument, match="is a folder already"):
        put(area, b"1", "a")


def test_a_folder_that_the_user_names_may_be_a_link(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "area").symlink_to(tmp_path / "elsewhere")
    put(folder_area(tmp_path), b"1")
    assert (tmp_path / "elsewhere/agents").is_dir()


def test_only_regular_files_are_put(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for name, why in (
        ("pipe", "no regular file"),
        (".", "cannot be read|no regular"),
        ("x", "cannot"),
    ):
        with pytest.raises(BadArgument, match=why):
            open_local(tmp_path / name)


def test_a_lock_is_let_go_when_a_replace_fails(tmp_path: Path) -> None:
    objects = FolderObjects(tmp_path / "area")
    assert objects.replace("x", b"1", None)
    assert not objects.replace("x", b"1", None)
    assert objects.replace("y", b"1", None)
