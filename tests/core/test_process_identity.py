"""When a process is known to be gone: every case as a row."""

from __future__ import annotations

import pytest

from genlock.core import codec
from genlock.core.keys import SESSION
from genlock.core.model import Process, SessionRecord
from genlock.core.process_identity import NO_NAMESPACES, Observer, Sight, is_gone, received

HERE = Observer("box", "boot-1", "4026531836")
THERE = Observer("box", "boot-1", "4026532178")
MAC = Observer("mac", "uuid-1", "none")

SAME = ("box", "boot-1", "4026531836")
IN_CONTAINER = ("box", "boot-1", "4026532178")
OLD = ("box", "boot-1", "")
REBOOTED = ("box", "boot-0", "4026531836")
REBOOTED_IN_CONTAINER = ("box", "boot-0", "4026532178")
OLD_REBOOTED = ("box", "boot-0", "")
BOOTLESS = ("box", "", "4026531836")
AWAY = ("other", "boot-1", "4026531836")
ON_MAC = ("mac", "uuid-1", "none")
OLD_ON_MAC = ("mac", "uuid-1", "")

# fmt: off
CASES = [
    # observer  where it is             what is seen of pid 7  gone: file, server
    (HERE,      SAME,                   100,                   False, False),  # it runs
    # The pid was used again
    (HERE,      SAME,                   101,                   True,  True),
    (HERE,      SAME,                   99,                    True,  True),
    (HERE,      SAME,                   Sight.ABSENT,          True,  True),
    (HERE,      SAME,                   Sight.ZOMBIE,          True,  True),
    (HERE,      SAME,                   Sight.HIDDEN,          False, False),
    (HERE,      IN_CONTAINER,           100,                   False, False),
    (HERE,      IN_CONTAINER,           101,                   False, False),
    (HERE,      IN_CONTAINER,           Sight.ABSENT,          False, False),
    (HERE,      IN_CONTAINER,           Sight.ZOMBIE,          False, False),
    (HERE,      OLD,                    101,                   False, False),
    (HERE,      OLD,                    Sight.ABSENT,          False, False),
    (HERE,      OLD,                    Sight.ZOMBIE,          False, False),
    # On a server: another machine of this name
    (HERE,      REBOOTED,               100,                   True,  False),
    (HERE,      REBOOTED,               Sight.ABSENT,          True,  False),
    # The container's boot id may be its own
    (HERE,      REBOOTED_IN_CONTAINER,  Sight.ABSENT,          False, False),
    (THERE,     REBOOTED_IN_CONTAINER,  Sight.ABSENT,          True,  False),
    (THERE,     REBOOTED,               Sight.ABSENT,          False, False),
    (HERE,      OLD_REBOOTED,           Sight.ABSENT,          False, False),
    (HERE,      BOOTLESS,               Sight.ABSENT,          False, False),
    (HERE,      AWAY,                   Sight.ABSENT,          False, False),
    (MAC,       ON_MAC,                 100,                   False, False),
    (MAC,       ON_MAC,                 101,                   True,  True),
    (MAC,       ON_MAC,                 Sight.ABSENT,          True,  True),
    (MAC,       ON_MAC,                 Sight.HIDDEN,          False, False),
    (MAC,       OLD_ON_MAC,             Sight.ABSENT,          False, False),
    # Observers that do not know where they are themselves know nothing of others.
    (Observer("box", "boot-1", ""), SAME,     Sight.ABSENT,    False, False),
    (Observer("box", "boot-1", ""), OLD,      Sight.ABSENT,    False, False),
    (Observer("box", "", "4026531836"), SAME, Sight.ABSENT,    False, False),
    (Observer("box", "", "4026531836"), BOOTLESS, Sight.ABSENT, False, False),
]
# fmt: on


@pytest.mark.parametrize(("observer", "where", "seen", "in_file", "on_server"), CASES)
def test_a_process_is_gone_only_where_there_is_proof(
    observer: Observer,
    where: tuple[str, str, str],
    seen: Sight | int,
    in_file: bool,
    on_server: bool,
) -> None:
    host, boot, namespace = where
    process = Process(host, boot, 7, 100, namespace)
    found = [
        is_gone(
            process, observer, shared=shared, look=lambda pid: seen if pid == 7 else Sight.HIDDEN
        )
        for shared in (False, True)
    ]
    assert found == [in_file, on_server]


def test_a_process_that_is_not_known_is_not_known_to_be_gone() -> None:
    assert is_gone(None, HERE, shared=False, look=lambda pid: Sight.ABSENT) is False


@pytest.mark.parametrize(
    ("where", "namespace"),
    [
        (SAME, "4026531836"),
        (IN_CONTAINER, "4026532178"),
        (AWAY, "4026531836"),
        (("other", "boot-2", "4026531836"), "4026531836"),
        (REBOOTED, ""),  # it runs now, so it is not of an earlier boot of this machine
        (REBOOTED_IN_CONTAINER, ""),
    ],
)
def test_of_another_machine_of_the_same_name_that_reports_now_nothing_is_known(
    where: tuple[str, str, str], namespace: str
) -> None:
    host, boot, reported = where
    assert received(Process(host, boot, 7, 100, reported), HERE) == Process(
        host, boot, 7, 100, namespace
    )


def test_no_namespaces_are_another_matter_than_none_that_is_known() -> None:
    assert NO_NAMESPACES == "none"
    assert Process("mac", "uuid-1", 7, 100).namespace == ""


STORED = (
    b'1{"id":"s1","created_at":"2026-01-01T00:00:00Z","updated_at":"2026-01-01T00:00:00Z",'
    b'"process":{"host":"box","boot":"boot-1","pid":7,"started":100%s}}'
)


@pytest.mark.parametrize(
    ("bytes_", "namespace"), [(b"", ""), (b',"namespace":"4026531836"', "4026531836")]
)
def test_records_read_back_with_and_without_a_namespace(bytes_: bytes, namespace: str) -> None:
    body = STORED % bytes_
    record = codec.decode_record(SESSION, body)
    assert isinstance(record, SessionRecord)
    assert record.process == Process("box", "boot-1", 7, 100, namespace)
    assert codec.encode_record(record) == body
