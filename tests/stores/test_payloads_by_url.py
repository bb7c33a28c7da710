"""Payloads beside a store: in a folder or a bucket that its URL names. The contract's clauses are
in test_contract.py."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

from genlock.errors import (
    BadArgument,
    OverLimit,
    ResultNotFound,
    StoreError,
    StoreReadOnly,
    StoreUnavailable,
)
from genlock.store import Payloads
from genlock.stores import objects
from genlock.stores.objects import BucketPayloads, payloads_for
from genlock.stores.payloads import FolderPayloads, NoPayloads
from genlock.testing.sample import make_key
from tests.servers import ministack, proxy
from tests.servers.ministack import Server


@pytest.fixture
def bucket(tmp_path: Path, dynamodb: Server) -> str:
    return ministack.bucket_for(tmp_path)


def opened(option: str) -> Payloads:
    payloads = payloads_for(option)
    assert payloads is not None
    return payloads


def read(payloads: Payloads, digest: str = "digest") -> bytes:
    with payloads.open(make_key(), digest) as reader:
        return reader.read()


def every_call(payloads: Payloads) -> list[Callable[[], object]]:
    return [
        lambda: payloads.put(make_key(), "digest", b"data"),
        lambda: payloads.open(make_key(), "digest"),
        lambda: payloads.drop(make_key(), "digest"),
        lambda: list(payloads.names()),
    ]


@pytest.mark.parametrize(
    ("option", "complaint"),
    [
        ("", "no such place; write payloads=s3://bucket/prefix or payloads=file:///folder"),
        ("folder", "no such place"),
        ("gs://bucket", "no such place"),
        ("file://folder", "names no folder; write payloads=file:///absolute/folder"),
        ("file:folder", "names no folder"),
        ("file:///folder?region=x", "names no folder"),
        ("file:///%00", "names no folder"),
        ("s3://", "names no bucket; write payloads=s3://bucket/prefix"),
        ("s3:///prefix", "names no bucket"),
        ("s3://bucket#x", "names no bucket"),
        ("s3://bucket?regoin=x", "no setting 'regoin'; there are: region, endpoint_url"),
        ("s3://bucket?region", "bucket\\?region"),
        (
            "s3://bucket?endpoint_url=nonsense",
            "'nonsense' is no endpoint_url; write endpoint_url=https://host",
        ),
    ],
)
def test_a_place_that_cannot_be_meant_is_refused(option: str, complaint: str) -> None:
    with pytest.raises(BadArgument, match=complaint):
        payloads_for(option)


def test_without_a_place_payloads_are_refused_and_the_error_says_what_to_write() -> None:
    assert payloads_for(None) is None
    with pytest.raises(OverLimit, match=r"payloads=s3://bucket/prefix or payloads=file:///folder"):
        NoPayloads().put(make_key(), "digest", b"data")
    with pytest.raises(ResultNotFound, match="names no place for payloads"):
        NoPayloads().open(make_key(), "digest")
    NoPayloads().drop(make_key(), "digest")


def test_a_folder_is_made_when_the_first_payload_comes(tmp_path: Path) -> None:
    payloads = opened(f"file://{tmp_path}/with%20blank/below")
    assert isinstance(payloads, FolderPayloads)
    assert list(tmp_path.iterdir()) == []
    payloads.put(make_key(), "digest", b"data")
    assert read(opened(f"file://{tmp_path}/with%20blank/below")) == b"data"
    assert (tmp_path / "with blank" / "below").is_dir()


def test_a_folder_on_a_share_may_have_things_in_it_that_are_not_of_ours(tmp_path: Path) -> None:
    payloads = FolderPayloads(tmp_path)
    payloads.put(make_key(), "one", b"1")
    added = tmp_path / "unfinished" / "@eaDir"
    added.mkdir()
    os.utime(added, (0, 0))
    payloads.put(make_key(), "two", b"2")
    with payloads.open(make_key(), "two") as file:
        assert file.read() == b"2"
    assert added.is_dir()


@pytest.mark.parametrize("number", [errno.EPERM, errno.EOPNOTSUPP])
def test_a_folder_in_which_files_cannot_have_two_names_will_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "link", refuse)
    payloads = FolderPayloads(tmp_path)
    for _ in range(2):
        payloads.put(make_key(), "one", b"1")
    with payloads.open(make_key(), "one") as file:
        assert file.read() == b"1"
    assert list((tmp_path / "unfinished").iterdir()) == []


def test_a_folder_that_cannot_be_made_is_an_error_of_ours(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises((StoreUnavailable, StoreReadOnly), match="file"):
        opened(f"file://{tmp_path}/file/below").put(make_key(), "digest", b"data")


def test_two_prefixes_of_a_bucket_are_two_places(bucket: str) -> None:
    other = bucket.replace("some/prefix", "other")
    opened(bucket).put(make_key(), "digest", b"one")
    with pytest.raises(ResultNotFound, match="acme/apollo/task/A-001 has no payload digest"):
        opened(other).open(make_key(), "digest")
    opened(other).put(make_key(), "digest", b"other")
    assert (read(opened(bucket)), read(opened(other))) == (b"one", b"other")


def test_what_is_large_is_read_in_pieces(bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(objects, "PIECE", 1000)
    payloads, data = opened(bucket), bytes(range(256)) * 17
    payloads.put(make_key(), "digest", data)
    assert read(payloads) == data
    with payloads.open(make_key(), "digest") as reader:
        assert reader.read(10) == data[:10]
        reader.seek(2500)
        payloads.drop(make_key(), "digest")
        with pytest.raises(ResultNotFound, match="it was dropped while it was read"):
            reader.read()


def test_a_bucket_that_is_not_there_is_an_error_that_says_what_to_do(dynamodb: Server) -> None:
    payloads = BucketPayloads("nowhere", "", ministack.REGION, dynamodb.endpoint_url)
    for call in every_call(payloads):
        with pytest.raises(
            StoreUnavailable,
            match=r"there is no bucket nowhere: create it, or name another in payloads=",
        ):
            call()


def test_a_server_that_cannot_be_reached_is_unavailable_and_nothing_of_the_driver_leaks(
    dynamodb: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(objects, "TRIES", 1)
    payloads = BucketPayloads(
        "bucket", "", ministack.REGION, f"http://127.0.0.1:{ministack.free_port()}"
    )
    for call in every_call(payloads):
        with pytest.raises(StoreUnavailable, match=r"s3://bucket/ cannot serve us now") as raised:
            call()
        assert "Debug source" not in str(raised.value)


def test_a_put_whose_answer_is_lost_is_tried_again_and_done_once(
    tmp_path: Path, dynamodb: Server
) -> None:
    with proxy.between(dynamodb.port) as gateway:
        option = ministack.bucket_for(tmp_path)
        payloads = opened(option.replace(str(dynamodb.port), str(gateway.port)))
        gateway.cut_at_the_answer_to(b"PUT ")
        payloads.put(make_key(), "digest", b"data")
        assert gateway.swallowed.is_set()
        assert read(opened(option)) == b"data"


def test_without_credentials_the_error_says_so(
    bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    with pytest.raises(
        StoreUnavailable, match=r"no AWS credentials for s3://genlock-.*AWS_ACCESS_KEY_ID"
    ):
        payloads_for(bucket)


def test_without_its_driver_the_error_names_the_extra(bucket: str, tmp_path: Path) -> None:
    shown = _run(f"""
        import sys
        sys.modules["obstore"] = None
        from genlock.stores.objects import payloads_for
        payloads_for("file://{tmp_path}/folder").put(("a", "b", "c", "d"), "digest", b"a folder needs none")
        try:
            payloads_for({bucket!r})
        except Exception as error:
            print(type(error).__name__, error)
    """)
    assert shown.startswith("StoreError")
    assert "pip install 'genlock[objects]'" in shown


def test_in_a_child_of_who_has_used_a_bucket_it_is_refused_and_does_not_hang(bucket: str) -> None:
    shown = _run(f"""
        import os
        from genlock.stores.objects import payloads_for
        key = ("a", "b", "c", "d")
        payloads = payloads_for({bucket!r})

        def in_a_child(call):
            pid = os.fork()
            if not pid:
                try:
                    print(call(), flush=True)
                except Exception as error:
                    print(type(error).__name__, error, flush=True)
                os._exit(0)
            os.waitpid(pid, 0)

        in_a_child(lambda: payloads.put(key, "before", b"data"))
        payloads.put(key, "digest", b"data")
        in_a_child(lambda: payloads.open(key, "digest"))
        in_a_child(lambda: payloads_for({bucket!r}).open(key, "digest"))
        print(payloads.open(key, "digest").read())
    """)
    before, inherited, anew, parent = shown.splitlines()
    assert before == "None"
    assert inherited == anew
    assert inherited.startswith("StoreError s3://genlock-")
    assert inherited.endswith("which has used a bucket: start a new process")
    assert parent == "b'data'"


def _run(script: str) -> str:
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", textwrap.dedent(script)]
    return subprocess.run(
        command, capture_output=True, text=True, check=True, timeout=60, env=dict(os.environ)
    ).stdout


def test_the_errors_of_the_driver_are_ours(bucket: str) -> None:
    with pytest.raises(BadArgument, match="text that cannot be stored"):
        opened(bucket).put(make_key("\udc80"), "digest", b"data")
    with pytest.raises(StoreError):
        opened(bucket.replace("genlock-", "genlock%20-")).put(make_key(), "digest", b"data")
