"""`genlock work` with the real Claude Code and Codex, from npm: their command lines, their streams
and their errors, with a stand-in for the model's service. Run by `make nightly`."""

from __future__ import annotations

import platform
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

import genlock
from tests.cli.console import run
from tests.eventually import eventually
from tests.mcp.test_real_clients import CLAUDE, CODEX, install
from tests.worker.agent_fleets import AgentFleet, at_work, fake_environment, plan, state
from tests.worker.model_service import SAID, model_service

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(900),
    pytest.mark.skipif(shutil.which("npm") is None, reason="there is no npm"),
    pytest.mark.skipif(
        (sys.platform, platform.machine()) != ("linux", "x86_64"),
        reason="the packages are those of Linux on x86-64",
    ),
]
AGENTS = {"claude": CLAUDE, "codex": CODEX}


def words(agent: str, address: str, place: Path) -> tuple[tuple[str, ...], dict[str, str]]:
    """How an agent is started so that it talks to the stand-in."""
    programs, home = place / "programs", place / "home"
    programs.mkdir()
    home.mkdir()
    (programs / agent).symlink_to(install(*AGENTS[agent]))
    (programs / "genlock").write_text(f'#!/bin/sh\nexec {sys.executable} -m genlock.cli "$@"\n')
    (programs / "genlock").chmod(0o755)  # for the hooks
    env = {"HOME": str(home), "XDG_CONFIG_HOME": str(home / ".config")}
    if agent == "claude":
        env |= {"ANTHROPIC_BASE_URL": address, "ANTHROPIC_API_KEY": "sk-ant-api03-none"}
        env |= {"DISABLE_AUTOUPDATER": "1", "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1"}
        return ("--agent", "claude", "--max-turns", "5", "--max-cost", "1"), env
    provider = (
        f'model_providers.x={{name="x",base_url="{address}/v1",wire_api="responses",env_key="K",'
        "request_max_retries=0}"
    )
    arguments = f"-c model_provider=x -c '{provider}'"
    return ("--agent", "codex", "--agent-args", arguments), env | {"K": "none"}


def until_paused(work: AgentFleet) -> None:
    """Until it waits for a limit to end; then it is told to stop."""
    eventually(lambda: any(event["event"] == "paused" for event in work.events), "the pause")
    work.process.send_signal(signal.SIGINT)


@pytest.mark.parametrize("agent", list(AGENTS))
def test_a_real_agent_does_a_task(agent: str, tmp_path: Path) -> None:
    url = plan(tmp_path, {"T": "Write the outline"})
    assert run("setup", agent, cwd=tmp_path, env={"GENLOCK_URL": url}).code == 0
    with model_service() as address:
        line, env = words(agent, address, tmp_path)
        options = (*line, "--max-tasks", "1", "--timeout", "120")
        with at_work(url, tmp_path, agent=options, env=env) as work:
            assert work.end() == 0, work.errors()
    [ended] = work.ended()
    assert (ended["outcome"], ended["turns"]) == ("accepted", 1)
    assert ended["agent_session"]
    with genlock.connect(url) as fleet:
        result = fleet.get_task_state(task_id="T").result
    assert result is not None
    assert result.result_data["result"] == SAID


@pytest.mark.parametrize("agent", list(AGENTS))
def test_a_real_agent_that_is_limited_pauses_the_fleet(agent: str, tmp_path: Path) -> None:
    url = plan(tmp_path, {"T": "Write the outline"})
    with model_service(429) as address:
        line, env = words(agent, address, tmp_path)
        with at_work(url, tmp_path, agent=line, env=env) as work:
            until_paused(work)
            assert work.end() == 0, work.errors()
    assert work.outcomes() == ["limit_reached"]
    with genlock.connect(url) as fleet:
        assert state(fleet) == ("PENDING", 0)


@pytest.mark.parametrize("agent", list(AGENTS))
def test_a_real_agent_with_a_wrong_key_stops_the_fleet(agent: str, tmp_path: Path) -> None:
    url = plan(tmp_path, {"T": "Write the outline"})
    with model_service(401) as address:
        line, env = words(agent, address, tmp_path)
        with at_work(url, tmp_path, agent=line, env=env) as work:
            assert work.end() == 4, work.events
    assert work.outcomes() == ["not_allowed"]


def test_claude_code_may_commit_in_its_worktree(tmp_path: Path) -> None:
    url = plan(tmp_path, {"T": "Write the outline"})
    with model_service(command="git commit --allow-empty -m 'Write the outline'") as address:
        line, env = words("claude", address, tmp_path)
        repository = tmp_path / "repository"
        repository.mkdir()
        for given in (
            ("init", "-q", "-b", "main", "."),
            ("commit", "-q", "--allow-empty", "-m", "x"),
        ):
            git_env = fake_environment(tmp_path, url) | env
            subprocess.run(["git", *given], cwd=repository, env=git_env, check=True)
        options = (*line, "--worktree", "--max-tasks", "1", "--timeout", "120")
        with at_work(url, tmp_path, agent=options, folder=repository, env=env) as work:
            assert work.end() == 0, work.errors()
    [ended] = work.ended()
    assert (ended["outcome"], ended["turns"]) == ("accepted", 2)
    assert ended["commit"], Path(ended["log"]).read_text()


def test_the_sandbox_of_codex_lets_it_commit_in_a_worktree_and_change_nothing_else() -> None:
    # Not in /tmp, all of which the sandbox lets it write.
    with tempfile.TemporaryDirectory(dir=Path.home()) as name:
        place = Path(name)
        url = plan(place, {"T": "Write the outline"})
        repository = place / "repository"
        for words in (
            ("init", "-q", "-b", "main", "."),
            ("commit", "-q", "--allow-empty", "-m", "x"),
        ):
            repository.mkdir(exist_ok=True)
            env = fake_environment(place, url)
            subprocess.run(["git", *words], cwd=repository, env=env, check=True)
        script = "touch f && git add f && git commit -qm f && ! touch ../../../.git/config"
        sandbox = (
            f"{install(*CODEX)} sandbox -c sandbox_mode=workspace-write "
            "-c sandbox_workspace_write.writable_roots={git_folders} "
            f"-- sh -c {shlex.quote(script)}"
        )
        agent = ("--command", sandbox, "--worktree", "--max-tasks", "1")
        home = {"HOME": str(place), "XDG_CONFIG_HOME": str(place / ".config")}
        with at_work(url, place, agent=agent, folder=repository, env=home) as work:
            assert work.end() == 0, work.errors()
        [ended] = work.ended()
        assert (ended["outcome"], bool(ended.get("commit"))) == ("accepted", True), ended


def test_a_real_agent_that_is_not_signed_in_stops_the_fleet(tmp_path: Path) -> None:
    url = plan(tmp_path, {"T": "Write the outline"})
    line, env = words("claude", "http://127.0.0.1:1", tmp_path)
    env = {name: value for name, value in env.items() if not name.startswith("ANTHROPIC")}
    with at_work(url, tmp_path, agent=line, env=env) as work:
        assert work.end() == 4, work.events
    assert work.outcomes() == ["not_allowed"]
    assert "/login" in work.reason()[1]
