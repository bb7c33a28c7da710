"""What is written beside a file before it becomes that file, and who removes it."""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from genlock.stores.files import remove_leftovers, unfinished

BEGIN = """if True:
    import os, sys
    from pathlib import Path
    from genlock.stores.files import unfinished
    with unfinished(Path(sys.argv[1])) as folder:
        (folder / "part").write_text("some")
        with unfinished(folder / "part") as within:
            (within / "pages").write_text("more")
            print(folder.name, flush=True)
            sys.stdin.read()
"""


def begun(target: Path) -> tuple[subprocess.Popen[str], str]:
    """A process that is in the middle of writing, and the folder it has made for that."""
    process = subprocess.Popen(
        [sys.executable, "-c", BEGIN, str(target)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    return process, process.stdout.readline().strip()


def names_in(folder: Path) -> list[str]:
    return sorted(file.name for file in folder.iterdir())


def test_nothing_is_left_where_the_work_was_finished_or_given_up(tmp_path: Path) -> None:
    with unfinished(tmp_path / "it") as folder:
        (folder / "part").write_text("whole")
        (folder / "part").replace(tmp_path / "it")
    given_up = unfinished(tmp_path / "it")
    (given_up.__enter__() / "part").write_text("half")
    given_up.__exit__(KeyboardInterrupt, None, None)
    assert (names_in(tmp_path), (tmp_path / "it").read_text()) == (["it"], "whole")


def test_what_a_killed_process_left_is_removed_and_what_a_living_one_is_at_work_on_is_not(
    tmp_path: Path,
) -> None:
    killed, left = begun(tmp_path / "it")
    living, used = begun(tmp_path / "it")
    assert names_in(tmp_path) == sorted([left, used])
    killed.kill()
    killed.communicate()
    remove_leftovers(tmp_path / "it")
    assert names_in(tmp_path) == [used]
    living.send_signal(signal.SIGSTOP)
    remove_leftovers(tmp_path / "it")
    assert names_in(tmp_path) == [used], "who is stopped is not dead"
    living.send_signal(signal.SIGCONT)
    living.communicate("")
    assert (living.returncode, names_in(tmp_path)) == (0, [])


def test_what_only_looks_like_ours_stays(tmp_path: Path) -> None:
    mark = "it.genlock-unfinished-"
    (tmp_path / f"{mark}01234567").write_text("a file")
    (tmp_path / f"{mark}0123456").mkdir()
    (tmp_path / f"{mark}0123456x").mkdir()
    (tmp_path / f"other-{mark}01234567").mkdir()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "precious").write_text("a file")
    (tmp_path / f"{mark}89abcdef").symlink_to(tmp_path / "elsewhere")
    (tmp_path / f"{mark}76543210" / "precious").mkdir(parents=True)
    before = sorted(tmp_path.rglob("*"))
    remove_leftovers(tmp_path / "it")
    assert sorted(tmp_path.rglob("*")) == before


def test_where_folders_cannot_be_locked_nothing_is_ever_taken_for_left_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(fd: int, operation: int) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    with monkeypatch.context() as patched:
        patched.setattr(fcntl, "flock", refused)
        with unfinished(tmp_path / "it") as folder:
            patched.undo()
            remove_leftovers(tmp_path / "it")  # also if locks are to be had by now
            assert names_in(tmp_path) == [folder.name]
    assert names_in(tmp_path) == []


def test_who_finds_its_folder_gone_before_it_was_locked_makes_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock = fcntl.flock
    removed: list[Path] = []

    def overtaken(fd: int, operation: int) -> None:
        """Whoever tidies up comes just before the first lock."""
        if not removed:
            (found,) = tmp_path.iterdir()
            removed.append(found)
            remove_leftovers(tmp_path / "it")
        lock(fd, operation)

    monkeypatch.setattr(fcntl, "flock", overtaken)
    with unfinished(tmp_path / "it") as folder:
        assert [folder] == list(tmp_path.iterdir())
        assert [folder] != removed
