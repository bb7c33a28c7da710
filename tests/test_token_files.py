"""The files of a service's token: who can read them, where they are found, and which are not
believed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from genlock import token_files
from genlock.errors import BadArgument

TOKEN = "glt_" + "0123456789abcdef" * 4
URL = "http://127.0.0.1:8420/"


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


def test_only_the_user_can_read_the_files_and_their_folder(tmp_path: Path) -> None:
    folder = tmp_path / "state" / "genlock"
    umask = os.umask(0)
    try:
        written = token_files.write(URL, TOKEN, [folder])
    finally:
        os.umask(umask)
    assert (mode(folder), mode(written.token), mode(written.header)) == (0o700, 0o600, 0o600)
    assert mode(folder.parent) == 0o700, "who may write there could put another folder in its place"
    assert sorted(path.name for path in folder.iterdir()) == [
        "127.0.0.1:8420.header",
        "127.0.0.1:8420.token",
    ]
    assert written.token.read_text() == f"{TOKEN}\n"
    assert written.header.read_text() == f"Authorization: Bearer {TOKEN}\n"


def test_a_folder_that_others_can_read_is_closed_to_them(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    token_files.write(URL, TOKEN, [tmp_path])
    assert mode(tmp_path) == 0o700


@pytest.mark.parametrize(
    ("url", "to"),
    [
        ("http://127.0.0.1:8420", "http://127.0.0.1:8420"),
        ("http://127.0.0.1:8420/below", "http://127.0.0.1:8420/below"),
        ("http://localhost:8420", "http://127.0.0.1:8420"),
        ("http://LOCALHOST:8420/", "http://127.0.0.1:8420/"),
        ("http://[::1]:8420", None),
        ("http://127.0.0.2:8420", None),
        ("http://127.0.0.1:8421", None),
        ("http://127.0.0.1", None),
        ("https://127.0.0.1:8420", None),
        ("http://localhost.example.org:8420", None),
        ("http://coordinator:8420", None),
        ("http://192.168.0.1:8420", None),
    ],
)
def test_a_token_is_for_its_own_address_alone(url: str, to: str | None, tmp_path: Path) -> None:
    token_files.write(URL, TOKEN, [tmp_path])
    found = token_files.find(url, [tmp_path])
    assert found == (None if to is None else (to, TOKEN))


def test_localhost_may_be_the_newer_loopback(tmp_path: Path) -> None:
    token_files.write("http://[::1]:8420/", TOKEN, [tmp_path])
    assert token_files.find("http://localhost:8420", [tmp_path]) == ("http://[::1]:8420", TOKEN)


def test_a_file_that_others_could_have_written_or_read_is_not_believed(tmp_path: Path) -> None:
    written = token_files.write(URL, TOKEN, [tmp_path])
    written.token.chmod(0o640)
    assert token_files.find(URL, [tmp_path]) is None
    written.token.chmod(0o600)
    moved = written.token.rename(tmp_path / "elsewhere")
    written.token.symlink_to(moved)
    assert token_files.find(URL, [tmp_path]) is None
    written.token.unlink()
    os.mkfifo(written.token, 0o600)
    assert token_files.find(URL, [tmp_path]) is None


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_another_user_s_file_or_folder_is_not_used(tmp_path: Path) -> None:
    written = token_files.write(URL, TOKEN, [tmp_path / "mine"])
    os.chown(written.token, 65534, 65534)
    assert token_files.find(URL, [tmp_path / "mine"]) is None
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    os.chown(theirs, 65534, 65534)
    assert (
        token_files.write(URL, TOKEN, [theirs, tmp_path / "mine"]).token.parent == tmp_path / "mine"
    )
    assert list(theirs.iterdir()) == []


def test_a_folder_that_is_a_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "target").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "target")
    with pytest.raises(BadArgument, match="--trust-local"):
        token_files.write(URL, TOKEN, [tmp_path / "link"])
    assert list((tmp_path / "target").iterdir()) == []


def test_without_a_home_it_is_in_the_project_s_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    places = token_files.folders(tmp_path / ".genlock")
    assert places == [tmp_path / "file" / "genlock", tmp_path / ".genlock" / "state"]
    written = token_files.write(URL, TOKEN, places)
    assert written.token == tmp_path / ".genlock" / "state" / "127.0.0.1:8420.token"
    assert token_files.find(URL, places) == (URL, TOKEN)


@pytest.mark.parametrize("there", [True, False])
def test_a_token_in_a_clone_is_not_believed_by_a_user_with_a_home(
    there: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = tmp_path / "own"
    own.mkdir()
    if there:
        (own / "genlock").mkdir(0o700)
    monkeypatch.setenv("XDG_STATE_HOME", str(own))
    clone = tmp_path / "clone" / ".genlock"
    token_files.write(URL, TOKEN, [clone / "state"])
    token_files.write("http://[::1]:8420/", TOKEN, [clone / "state"])
    places = token_files.folders(clone)
    assert places == [own / "genlock"]
    assert token_files.find(URL, places) is None
    assert token_files.find("http://localhost:8420", places) is None


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_read_only_home_is_no_place_for_a_token(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "home").mkdir(0o500)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "home"))
    assert token_files.folders(tmp_path / ".genlock") == [
        tmp_path / "home" / "genlock",
        tmp_path / ".genlock" / "state",
    ]


@pytest.mark.parametrize("given", [None, "", "relative"])
def test_the_state_folder_is_the_user_s(
    given: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    if given is None:
        monkeypatch.delenv("XDG_STATE_HOME")
    else:
        monkeypatch.setenv("XDG_STATE_HOME", given)
    assert token_files.folders(Path("/p/.genlock"))[0] == tmp_path / ".local" / "state" / "genlock"


def test_where_there_is_no_folder_it_is_said_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(BadArgument) as raised:
        token_files.write(URL, TOKEN, [tmp_path / "file" / "x", tmp_path / "file" / "y"])
    said = str(raised.value)
    assert f"{tmp_path}/file/x: Not a directory; {tmp_path}/file/y: Not a directory" in said
    assert "set XDG_STATE_HOME to a folder of yours, or ask for keys with --keys" in said
    assert "--trust-local" in said


def test_removing_leaves_what_a_later_service_has_written(tmp_path: Path) -> None:
    first = token_files.write(URL, TOKEN, [tmp_path])
    later = "glt_" + "f" * 64
    token_files.write(URL, later, [tmp_path])
    token_files.remove(first, TOKEN)
    assert token_files.find(URL, [tmp_path]) == (URL, later)
    token_files.remove(first, later)
    assert list(tmp_path.iterdir()) == []
