"""The verbs of admins, as processes: keys and tenants."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from genlock.core.key_roles import digest_of, parse_key
from tests.cli.console import COMMAND, environment
from tests.cli.stage import Stage
from tests.cli.terminal import shown

SHOWN_ONCE = "Keep the text now: it is shown only this once"


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(tmp_path / "project")


def test_the_text_of_a_new_key_is_alone_on_stdout_with_quiet(stage: Stage) -> None:
    ran = stage.run("keys", "create", "ci", "--role", "agent", "-q")
    assert (ran.code, ran.err) == (0, "")
    text = ran.out.removesuffix("\n")
    assert parse_key(text).id == stage.run("keys", "list", "-q").out.strip()


def test_a_new_key_says_what_it_opens_and_that_it_is_shown_only_once(stage: Stage) -> None:
    ran = stage.run(
        *(
            "keys",
            "create",
            "ci",
            "--role",
            "agent",
            "--projects",
            "team-*",
            "--session",
            "s1",
            "--expires-in",
            "90d",
            "--tenant",
            "acme",
        )
    )
    said = ran.json()
    id = parse_key(said["text"]).id
    assert (said["key"]["key_id"], said["key"]["projects"], said["key"]["session_id"]) == (
        id,
        "team-*",
        "s1",
    )
    assert ran.err == (
        f"this is key {id} (ci): agent of tenant acme, projects team-*, session s1. {SHOWN_ONCE}\n"
    )
    assert stage.run("keys", "list").json() == {"keys": []}
    (listed,) = stage.run("keys", "list", "--tenant", "acme").json()["keys"]
    assert listed == said["key"]


def test_who_names_no_role_is_told_which_there_are(stage: Stage) -> None:
    ran = stage.run("keys", "create", "ci")
    said = (
        "Missing option '--role': observer, agent, operator or admin. To see how: genlock keys "
        "create --help"
    )
    assert (ran.code, ran.error()["message"]) == (2, said)


def test_on_a_terminal_a_new_key_is_one_line_that_can_be_copied(stage: Stage) -> None:
    code, lines = shown(
        "keys",
        "create",
        "ops",
        "--role",
        "admin",
        "--all-tenants",
        cwd=stage.folder,
        columns=40,
        env={"NO_COLOR": "1"},
    )
    assert code == 0
    joined = "".join(lines)
    assert parse_key(joined[:58])
    assert SHOWN_ONCE in " ".join(" ".join(lines).split())


def test_no_answer_but_the_first_has_a_secret_or_a_digest(stage: Stage) -> None:
    text = stage.run("keys", "create", "ci", "--role", "agent", "-q").out.strip()
    key = parse_key(text)
    verbs = (
        ["keys", "list", "--all"],
        ["keys", "list", "-q"],
        ["keys", "revoke", key.id],
        ["events"],
        ["db", "status"],
        ["doctor"],
    )
    for verb in verbs:
        ran = stage.run(*verb)
        assert ran.code == 0, ran.err
        assert key.secret not in ran.out + ran.err
        assert digest_of(key.secret) not in ran.out + ran.err


def test_an_export_has_the_digest_of_a_key_and_not_its_secret(stage: Stage) -> None:
    key = parse_key(stage.run("keys", "create", "ci", "--role", "agent", "-q").out.strip())
    exported = stage.run("export").out
    assert key.secret not in exported
    assert exported.count(digest_of(key.secret)) == 2, "the record, and the event"


def test_a_backup_that_is_restored_is_opened_by_the_same_keys(stage: Stage, tmp_path: Path) -> None:
    key = parse_key(stage.run("keys", "create", "ci", "--role", "agent", "-q").out.strip())
    assert stage.run("backup", tmp_path / "copy.db").code == 0
    stage.run("keys", "revoke", key.id)
    assert stage.run("restore", tmp_path / "copy.db", "--force").code == 0
    (listed,) = stage.run("keys", "list").json()["keys"]
    assert (listed["key_id"], listed["state"]) == (key.id, "ACTIVE")


@contextmanager
def no_way_out(how: str) -> Iterator[int]:
    """A stdout to which nothing can be written."""
    if how == "full":
        fd = os.open("/dev/full", os.O_WRONLY)
    else:
        reader, fd = os.pipe()
        os.close(reader)
    try:
        yield fd
    finally:
        os.close(fd)


def unheard(stage: Stage, how: str, *arguments: object) -> tuple[int, str]:
    """The command with an answer that nobody gets: its exit code, and what it said."""
    call = [*COMMAND, *map(str, arguments)]
    with no_way_out(how) as out:
        ran = subprocess.run(
            call,
            cwd=stage.folder,
            env=environment(),
            stdout=out,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    return ran.returncode, ran.stderr


@pytest.mark.parametrize(("how", "code"), [("full", 1), ("closed", 141)])
@pytest.mark.parametrize("options", [[], ["--quiet"], ["--all-tenants"]], ids="".join)
def test_a_key_whose_text_could_not_be_written_is_revoked_again(
    stage: Stage, how: str, code: int, options: list[str]
) -> None:
    ended, said = unheard(stage, how, "keys", "create", "ci", "--role", "admin", *options)
    (listed,) = stage.run("keys", "list", "--all", *(set(options) - {"--quiet"})).json()["keys"]
    assert (ended, listed["state"]) == (code, "REVOKED")
    assert (f"revoked again, as its text could not be shown: {listed['key_id']}\n" in said) == (
        "--quiet" not in options
    )
    assert SHOWN_ONCE not in said


def test_who_could_not_be_shown_the_new_text_of_a_key_is_told_how_to_get_another(
    stage: Stage,
) -> None:
    key = parse_key(stage.run("keys", "create", "ci", "--role", "agent", "-q").out.strip())
    ended, said = unheard(stage, "full", "keys", "rotate", key.id)
    assert (ended, said.splitlines()[0]) == (
        1,
        f"its new text could not be shown; for another one, type: genlock keys rotate {key.id}",
    )
    assert stage.run("keys", "rotate", key.id).code == 0


def test_rotate_gives_the_same_key_another_text(stage: Stage) -> None:
    old = parse_key(
        stage.run("keys", "create", "ci", "--role", "agent", "--expires-in", 60, "-q").out.strip()
    )
    said = stage.run("keys", "rotate", old.id, "--overlap", "1h", "--expires-in", "2d").json()
    new = parse_key(said["text"])
    assert new.id == old.id
    assert new.secret != old.secret
    assert said["key"]["previous_until"] is not None


def test_revoke_says_what_it_did_and_the_list_no_longer_has_it(stage: Stage) -> None:
    key = parse_key(stage.run("keys", "create", "ci", "--role", "agent", "-q").out.strip())
    assert stage.run("keys", "revoke", key.id).json()["key"]["state"] == "REVOKED"
    assert stage.run("keys", "list").json() == {"keys": []}
    assert [each["state"] for each in stage.run("keys", "list", "--all").json()["keys"]] == [
        "REVOKED"
    ]
    refused = stage.run("keys", "rotate", key.id)
    assert (refused.code, refused.error()["code"]) == (4, "NOT_ALLOWED")


REFUSED = [
    (
        ["create", "ci", "--role", "boss"],
        2,
        "there is no role 'boss'; there are: observer, agent, operator, admin",
    ),
    (["create", "a/b", "--role", "agent"], 2, "name 'a/b': character 2 is '/'"),
    (["create", "ci", "--role", "agent", "--projects", "a?"], 2, "in which * stands for anything"),
    (
        ["create", "ci", "--role", "agent", "--expires-in", "soon"],
        2,
        "write seconds, or 90s, 5m, 1h30m or 2d",
    ),
    (
        ["create", "ci", "--role", "agent", "--expires-in", "0"],
        2,
        "expires_in_seconds is more than 0",
    ),
    (
        ["create", "ci", "--role", "agent", "--expires-in", "9" * 19 + "d"],
        2,
        "is no length of time: write seconds, or 90s, 5m, 1h30m or 2d",
    ),
    (
        ["create", "ci", "--role", "agent", "--all-tenants"],
        2,
        "only an admin or an observer (of metrics) sees them all",
    ),
    (["create", "ci", "--role", "admin", "--projects", "team-*"], 2, "projects is '*'"),
    (
        ["create", "ci", "--role", "operator", "--session", "s1"],
        2,
        "only an agent's key is of one session",
    ),
    (["rotate", "aaaaaaaaaaaa"], 3, "there is no key 'aaaaaaaaaaaa' of tenant 'default'"),
    (
        ["rotate", "aaaaaaaaaaaa", "--overlap", "25h"],
        2,
        "overlap_seconds is a number from 0 to 86400",
    ),
    (["revoke", "aaaaaaaaaaaa"], 3, "there is no key 'aaaaaaaaaaaa' of tenant 'default'"),
    (
        ["revoke", "aaaaaaaaaaaa", "--all-tenants"],
        3,
        "there is no key 'aaaaaaaaaaaa' in this store",
    ),
    (["revoke", "nonsense"], 2, "is no id of a key"),
]


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    REFUSED,
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_what_is_wrong_is_said_by_name_and_changes_nothing(
    stage: Stage, arguments: list[str], code: int, message: str
) -> None:
    before = stage.files()
    ran = stage.run("keys", *arguments)
    assert (ran.code, ran.out) == (code, "")
    assert message in ran.error()["message"]
    assert stage.files() == before


@pytest.mark.parametrize(
    "words",
    [
        ["keys", "revoke", "nope"],
        ["keys", "revoke", "abcdefghabcd"],
        ["tenant", "show", "--tenant", "nobody"],
        ["adopt", "task", "x"],
    ],
    ids=" ".join,
)
def test_no_message_sends_whoever_types_to_a_method_of_the_library(
    stage: Stage, words: list[str]
) -> None:
    stage.add("task")
    ran = stage.run(*words)
    assert ran.code in (2, 3)
    assert not re.search(r"\b(list|set|get)_\w+", ran.error()["message"])


def test_a_text_that_is_typed_where_an_id_belongs_is_not_repeated(stage: Stage) -> None:
    text = stage.run("keys", "create", "ci", "--role", "agent", "-q").out.strip()
    ran = stage.run("keys", "revoke", text)
    assert ran.code == 2
    assert "between the first two underscores" in ran.error()["message"]
    assert parse_key(text).secret not in ran.out + ran.err


# Tenants


def test_a_tenant_is_made_shown_listed_and_changed(stage: Stage) -> None:
    made = stage.run(
        "tenant", "set", "acme", "--profile", "default", "max_concurrent_claims=250"
    ).json()
    assert (made["tenant_id"], made["profile"], made["limits"]["max_concurrent_claims"]) == (
        "acme",
        "default",
        250,
    )
    assert stage.run("tenant", "list").json() == {"tenants": [made]}
    assert stage.run("tenant", "list", "-q").out == "acme\n"
    assert stage.run("tenant", "show", "acme").json() == made
    assert stage.run("tenant", "show", "--tenant", "acme").json() == made
    changed = stage.run(
        "tenant", "set", "acme", "max_active_sessions=none", "min_lease_duration_seconds=2.5", "-q"
    ).out
    assert "max_active_sessions=none\n" in changed
    assert "min_lease_duration_seconds=2.5\n" in changed
    assert "max_concurrent_claims=250\n" in changed


REFUSED_TENANTS = [
    (
        ["set", "acme", "max_colours=1"],
        2,
        r"there is no limit 'max_colours'; there are: .*max_concurrent_claims",
    ),
    (["set", "acme", "max_concurrent_claims=many"], 2, "max_concurrent_claims"),
    (["set", "acme", "max_concurrent_claims=-1"], 2, "max_concurrent_claims.*out of range"),
    (["set", "acme", "max_concurrent_claims"], 2, "write LIMIT=VALUE"),
    (
        ["set", "acme", "max_active_sessions=1", "max_active_sessions=2"],
        2,
        "max_active_sessions is given twice",
    ),
    (
        ["set", "acme", "--profile", "huge"],
        2,
        "there is no profile 'huge'; there are: local, default, enterprise",
    ),
    (["set", "a/b"], 2, "tenant 'a/b'"),
    (["show", "nobody"], 3, "there is no tenant 'nobody'"),
]


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    REFUSED_TENANTS,
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_wrong_limit_profile_or_name_is_refused_by_name_and_changes_nothing(
    stage: Stage, arguments: list[str], code: int, message: str
) -> None:
    before = stage.files()
    ran = stage.run("tenant", *arguments)
    assert (ran.code, ran.out) == (code, "")
    assert re.search(message, ran.error()["message"])
    assert stage.files() == before
