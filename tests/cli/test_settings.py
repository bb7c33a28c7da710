"""Where settings come from, which come first, and what is refused."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.cli.console import SESSION, home, run


@pytest.fixture
def project(tmp_path: Path) -> Path:
    assert run("init", cwd=tmp_path).code == 0
    return tmp_path


@pytest.fixture
def own(tmp_path: Path) -> dict[str, str | None]:
    """An environment whose user has settings of their own."""
    return {"XDG_CONFIG_HOME": str(tmp_path / "own")}


def test_the_first_that_says_something_counts(project: Path, own: dict[str, str | None]) -> None:
    def agent(*flags: str, **more: str) -> list[str]:
        found = run("config", "get", "agent", *flags, cwd=project, env=own | more).json()
        return [found["value"], found["origin"]]

    assert agent() == [SESSION, "default"]
    assert run("config", "set", "--user", "agent", "by-user", cwd=project, env=own).code == 0
    assert agent() == ["by-user", f"{project}/own/genlock/config.toml:1"]
    assert agent(GENLOCK_AGENT="by-environment") == ["by-environment", "environment GENLOCK_AGENT"]
    assert agent("--agent", "by-flag", GENLOCK_AGENT="by-environment") == [
        "by-flag",
        "flag --agent",
    ]
    assert run("config", "unset", "--user", "agent", cwd=project, env=own).json()["changed"] is True
    assert agent() == [SESSION, "default"]


def test_the_projects_file_comes_before_the_users(
    project: Path, own: dict[str, str | None]
) -> None:
    def tenant() -> list[str]:
        found = run("config", "get", "tenant", cwd=project, env=own).json()
        return [found["value"], found["origin"]]

    assert run("config", "set", "--user", "tenant", "by-user", cwd=project, env=own).code == 0
    assert tenant() == ["by-user", f"{project}/own/genlock/config.toml:1"]
    assert run("config", "set", "tenant", "by-project", cwd=project, env=own).code == 0
    assert tenant() == ["by-project", f"{project}/.genlock/config.toml:1"]
    assert run("config", "unset", "tenant", cwd=project, env=own).json()["changed"] is True
    assert tenant() == ["by-user", f"{project}/own/genlock/config.toml:1"]


def test_show_says_what_counts_and_with_origin_why(project: Path) -> None:
    shown = run("config", "show", cwd=project, env={"GENLOCK_USER": "vera"}).json()
    assert {name: value for name, value in shown.items() if not name.startswith("serve_")} == {
        "url": f"sqlite://{project}/.genlock/genlock.db",
        "tenant": "default",
        "project": "default",
        "session": SESSION,
        "agent": SESSION,
        "user": "vera",
        "api_key": None,
        "lease_seconds": None,
        "worktree_base": "HEAD",
        "on_complete": "",
        "container": "",
    }
    assert run(
        "config", "show", "--origin", cwd=project, env={"GENLOCK_LEASE_SECONDS": "60"}
    ).json()["lease_seconds"] == {
        "value": 60,
        "origin": "environment GENLOCK_LEASE_SECONDS",
    }


def test_genlock_url_names_the_store(project: Path, tmp_path: Path) -> None:
    elsewhere = {"GENLOCK_URL": f"sqlite://{tmp_path}/elsewhere.db"}
    assert run("ready", cwd=project, env=elsewhere).code == 3
    assert run("init", cwd=project, env=elsewhere).json()["path"] == f"{tmp_path}/elsewhere.db"
    run("add", "there", cwd=project, env=elsewhere)
    assert run("ready", "-q", cwd=project).out == ""
    assert run("ready", "-q", "--url", elsewhere["GENLOCK_URL"], cwd=project).out == "there\n"


def test_what_is_set_is_used(project: Path, own: dict[str, str | None]) -> None:
    run("config", "set", "lease_seconds", "42", cwd=project)
    run("config", "set", "--user", "agent", "vera", cwd=project, env=own)
    run("add", "task", cwd=project)
    claim = run("claim", "task", cwd=project, env=own).json()["claim"]
    assert (claim["lease_seconds"], claim["agent_id"], claim["session_id"]) == (
        42.0,
        "vera",
        SESSION,
    )


def test_the_rest_of_the_file_stays_as_it_is(project: Path) -> None:
    file = project / ".genlock" / "config.toml"
    file.write_text('# ours\nproject = "web"  # the shop\n\nlease_seconds = 60', encoding="utf-8")
    assert run("config", "set", "lease_seconds", "90", cwd=project).code == 0
    assert run("config", "set", "tenant", "shops", cwd=project).code == 0
    assert (
        file.read_text(encoding="utf-8")
        == '# ours\nproject = "web"  # the shop\n\nlease_seconds = 90\ntenant = "shops"\n'
    )
    assert run("config", "unset", "lease_seconds", cwd=project).code == 0
    assert (
        file.read_text(encoding="utf-8")
        == '# ours\nproject = "web"  # the shop\n\ntenant = "shops"\n'
    )
    assert run("config", "unset", "lease_seconds", cwd=project).json()["changed"] is False


@pytest.mark.parametrize(
    ("key", "value", "says"),
    [
        (
            "colour",
            "red",
            (
                "there is no setting 'colour'; there are: url, tenant, project, session, agent, "
                "user, api_key, lease_seconds, worktree_base, on_complete, container, "
                "and those of a service, which begin with serve_"
            ),
        ),
        (
            "tenant",
            "a/b",
            "config set: tenant 'a/b': character 2 is '/' (a slash); allowed are A-Z a-z 0-9 . _ -",
        ),
        (
            "url",
            "genlock.db",
            (
                "config set: url is a store's URL such as sqlite:///path/genlock.db, or a "
                "service's, not 'genlock.db'"
            ),
        ),
        (
            "lease_seconds",
            "soon",
            "config set: lease_seconds: a lease lasts over 0 s and at most 31622400 s, not 'soon'",
        ),
        (
            "lease_seconds",
            "-1",
            "config set: lease_seconds: a lease lasts over 0 s and at most 31622400 s, not '-1'",
        ),
        (
            "session",
            "me",
            (
                "session cannot be set in a file: all that read the file would be one session; set "
                "GENLOCK_SESSION for each agent"
            ),
        ),
    ],
)
def test_a_wrong_value_is_not_written(project: Path, key: str, value: str, says: str) -> None:
    ran = run("config", "set", key, "--", value, cwd=project)
    assert (ran.code, ran.out) == (2, "")
    assert ran.error() == {"code": "BAD_SETTING", "message": says, "try_next": []}
    assert not (project / ".genlock" / "config.toml").exists()


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (
            'project = "web"\ncolour = "red"\n',
            ":2: there is no setting 'colour'; there are: url, tenant, project, ",
        ),
        (
            "\n\nlease_seconds = 0\n",
            ":3: lease_seconds: a lease lasts over 0 s and at most 31622400 s, not 0 s",
        ),
        ("project = [1]\n", ":1: project is one value, not list"),
        ('[agent]\nname = "x"\n', ":1: agent is one value, not dict"),
        ('session = "me"\n', ":1: session cannot be set in a file: "),
        ("project = web\n", ": this is no TOML: Invalid value (at line 1, column 11)"),
        ('project = "a\n', ": this is no TOML: "),
    ],
)
def test_a_wrong_file_is_named_with_its_line(project: Path, text: str, says: str) -> None:
    file = project / ".genlock" / "config.toml"
    file.write_text(text, encoding="utf-8")
    ran = run("ready", cwd=project)
    assert (ran.code, ran.out) == (2, "")
    assert ran.error()["message"].startswith(f"{file}{says}")


def test_a_link_stays_a_link_and_lines_keep_their_ends(
    project: Path, own: dict[str, str | None], tmp_path: Path
) -> None:
    kept = tmp_path / "dotfiles" / "genlock.toml"
    kept.parent.mkdir()
    kept.write_bytes(b'# mine\r\nproject = "web"\r\n')
    link = tmp_path / "own" / "genlock" / "config.toml"
    link.parent.mkdir(parents=True)
    link.symlink_to(kept)
    assert run("config", "set", "--user", "agent", "ada", cwd=project, env=own).code == 0
    assert run("config", "set", "--user", "project", "shop", cwd=project, env=own).code == 0
    assert (link.readlink(), kept.read_bytes()) == (
        kept,
        b'# mine\r\nproject = "shop"\r\nagent = "ada"\r\n',
    )


def test_a_file_that_cannot_be_read_is_not_written(project: Path) -> None:
    file = project / ".genlock" / "config.toml"
    file.write_bytes(b"project = '\xff'\n")
    for words in (["set", "tenant", "shops"], ["unset", "tenant"]):
        ran = run("config", *words, cwd=project)
        assert (ran.code, ran.error()["code"]) == (2, "BAD_SETTING")
        assert ran.error()["message"].startswith(f"{file} cannot be read: ")
    assert file.read_bytes() == b"project = '\xff'\n"


def test_a_wrong_variable_or_flag_is_named(project: Path) -> None:
    ran = run("ready", cwd=project, env={"GENLOCK_PROJECT": "a b"})
    assert (ran.code, ran.error()["message"].split(":")[0]) == (2, "environment GENLOCK_PROJECT")
    ran = run("ready", "--project", "a b", cwd=project)
    assert (ran.code, ran.error()["message"].split(":")[0]) == (2, "flag --project")


def test_bytes_that_are_no_text_are_refused(project: Path) -> None:
    (project / ".genlock" / "config.toml").write_bytes(b"project = '\xff'\n")
    ran = run("ready", cwd=project)
    assert (ran.code, ran.out) == (2, "")
    assert "cannot be read" in ran.error()["message"]


def test_without_a_project_only_ones_own_file_can_be_written(
    tmp_path: Path, own: dict[str, str | None]
) -> None:
    ran = run("config", "set", "tenant", "shops", cwd=tmp_path, env=own)
    assert (ran.code, ran.error()["code"]) == (3, "NO_PROJECT")
    assert "genlock init" in ran.error()["message"]
    assert run("config", "set", "--user", "agent", "vera", cwd=tmp_path, env=own).json() == {
        "key": "agent",
        "value": "vera",
        "file": f"{tmp_path}/own/genlock/config.toml",
        "changed": True,
    }


def test_path_says_where_the_files_are(project: Path) -> None:
    assert run("config", "path", cwd=project).json() == {
        "project": f"{project}/.genlock/config.toml",
        "user": f"{home()}/.config/genlock/config.toml",
    }
    assert (
        run("config", "path", "-q", cwd=project).out
        == f"{project}/.genlock/config.toml\n{home()}/.config/genlock/config.toml\n"
    )


def test_without_xdg_the_users_file_is_in_dot_config(tmp_path: Path) -> None:
    found = run("config", "path", cwd=tmp_path, env={"XDG_CONFIG_HOME": None}).json()
    assert found["user"] == f"{home()}/.config/genlock/config.toml"


def test_a_relative_xdg_folder_is_ignored(project: Path) -> None:
    """It would be in the project, where a clone has brought the user's own settings along."""
    theirs = project / "config" / "genlock"
    theirs.mkdir(parents=True)
    (theirs / "config.toml").write_text('url = "http://127.0.0.1:9"\n')
    found = run("config", "path", cwd=project, env={"XDG_CONFIG_HOME": "config"}).json()
    assert found["user"] == f"{home()}/.config/genlock/config.toml"
    assert run("ready", "--json", cwd=project, env={"XDG_CONFIG_HOME": "config"}).code == 0


@pytest.mark.parametrize(
    "words", [["config", "set", "--user", "agent", "a"], ["login", "http://127.0.0.1:9"]]
)
def test_the_users_folders_are_made_for_the_user_alone(words: list[str], tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        assert (
            run(
                *words,
                cwd=tmp_path,
                env={"XDG_CONFIG_HOME": str(tmp_path / "a" / "b")},
                input="glk_key\n",
            ).code
            == 0
        )
    finally:
        os.umask(before)
    modes = [
        oct(each.stat().st_mode & 0o777)
        for each in (tmp_path / "a", tmp_path / "a/b", tmp_path / "a/b/genlock")
    ]
    assert modes == ["0o700", "0o700", "0o700"]


def test_get_answers_bare_for_scripts(project: Path) -> None:
    assert run("config", "get", "tenant", "-q", cwd=project).out == "default\n"
    ran = run("config", "get", "colour", cwd=project)
    assert (ran.code, ran.out) == (2, "")


def test_show_shows_neither_keys_nor_passwords(project: Path, own: dict[str, str | None]) -> None:
    secrets = {
        "GENLOCK_API_KEY": "glk_abc_verysecret_1234",
        "GENLOCK_URL": "postgresql://ada:verysecret@db.example.com/plans",
    }
    shown = run("config", "show", cwd=project, env=secrets)
    assert "verysecret" not in shown.out
    assert shown.json()["api_key"] == "glk_abc_…"
    assert shown.json()["url"] == "postgresql://ada:…@db.example.com/plans"
    assert (
        run("config", "get", "api_key", cwd=project, env=secrets).json()["value"]
        == "glk_abc_verysecret_1234"
    )


def test_a_key_that_is_none_is_refused_without_being_shown(project: Path) -> None:
    refused = run("config", "get", "api_key", cwd=project, env={"GENLOCK_API_KEY": "very secret"})
    assert refused.code == 2
    assert "environment GENLOCK_API_KEY: api_key is a key" in refused.error()["message"]
    assert "very secret" not in refused.err
