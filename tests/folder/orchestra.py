"""An orchestra of shell scripts for a test: its folders, and its own functions for counting, for
making subtasks and for finding tasks whose process is gone."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import genlock

FUNCTIONS = r"""
increment_hybrid_base36() {
    # The part that the specification leaves out, for the first tier.
    printf '%04d' $((10#$1 + 1))
}

claim_next_id() {
    local prefix="${1:-global}"
    local counter_dir="$AI_ROOT/ai_comms/counters"
    local counter_file="$counter_dir/${prefix}.NextId"
    local claim_file="${counter_file}.claimed.$$"

    # Ensure counter exists
    mkdir -p "$counter_dir"
    [[ ! -f "$counter_file" ]] && echo "0000" > "$counter_file"

    # Atomic claim: mv succeeds for exactly one process
    while ! mv "$counter_file" "$claim_file" 2>/dev/null; do
        sleep 0.05  # Brief wait, retry
    done

    # We own it - read, increment, release
    local current=$(cat "$claim_file")
    local next=$(increment_hybrid_base36 "$current")
    echo "$next" > "$counter_file"    # Release with new value
    rm -f "$claim_file"               # Cleanup claim marker

    # Return full ID with prefix
    if [[ "$prefix" == "global" ]]; then
        echo "$current"
    else
        echo "${prefix}.${current}"
    fi
}

init_counter() {
    local prefix="$1"
    local counter_file="$AI_ROOT/ai_comms/counters/${prefix}.NextId"

    if [[ ! -f "$counter_file" ]]; then
        mkdir -p "$(dirname "$counter_file")"
        echo "0001" > "$counter_file"
    fi
}

create_subtask() {
    local parent_id="$1"
    local task_content="$2"
    init_counter "$parent_id"
    local subtask_id=$(claim_next_id "$parent_id")
    local task_dir="$AI_ROOT/ai_comms/$TARGET_AGENT/tasks/to_execute/${subtask_id}"
    mkdir -p "$task_dir"
    echo "$task_content" > "$task_dir/${subtask_id}.md"
    echo "$subtask_id"
}

detect_stale_tasks() {
    local in_progress="$AI_ROOT/ai_comms/$AGENT_TYPE/tasks/in_progress"

    for task_dir in "$in_progress"/*; do
        [[ -d "$task_dir" ]] || continue

        # Find PID marker in filename
        local task_file=$(find "$task_dir" -name "*.[0-9]*.md" | head -1)
        if [[ -n "$task_file" ]]; then
            local pid=$(echo "$task_file" | grep -oE '\.[0-9]+\.' | tr -d '.')

            # Check if PID still running
            if ! kill -0 "$pid" 2>/dev/null; then
                echo "STALE: $task_dir (PID $pid dead)"
                # Move to stale/ for inspection
                mv "$task_dir" "$AI_ROOT/ai_comms/$AGENT_TYPE/tasks/stale/"
            fi
        fi
    done
}
"""
"""As the specification of such orchestras has them."""


class Orchestra:
    """The folder, and what scripts do in it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.comms = root / "ai_comms"
        for agent in ("claude", "codex"):
            for state in ("to_execute", "in_progress", "completed", "stale"):
                (self.comms / agent / "tasks" / state).mkdir(parents=True)
        self.url = f"folder://{root}?layout=spool"
        self._fleets: list[genlock.Coordinator] = []
        self._processes: list[subprocess.Popen[str]] = []

    def connect(self, agent: str = "claude", session: str = "s1") -> genlock.Coordinator:
        """A coordinator for this agent."""
        fleet = genlock.connect(self.url, create=True, session_id=session, agent_id=agent)
        self._fleets.append(fleet)
        return fleet

    def close(self) -> None:
        for fleet in self._fleets:
            fleet.close()
        for process in self._processes:
            process.kill()
            process.wait()

    # What scripts do

    def add(self, id: str, text: str = "Do it", agent: str = "claude") -> Path:
        """As `create_subtask` makes a task."""
        folder = self.comms / agent / "tasks" / "to_execute" / id
        folder.mkdir(parents=True)
        (folder / f"{id}.md").write_text(f"{text}\n")
        return folder

    def move(self, id: str, state: str, agent: str = "claude", to: str = "") -> Path:
        """`mv`: from wherever the task is among the agent's to this state."""
        (found,) = (self.comms / agent / "tasks").glob(f"*/{id}")
        target = self.comms / (to or agent) / "tasks" / state / id
        found.rename(target)
        return target

    def take(self, id: str, pid: int, agent: str = "claude") -> None:
        """Moves the task, and marks it with a pid."""
        folder = self.move(id, "in_progress", agent)
        (folder / f"{id}.md").rename(folder / f"{id}.{pid}.md")

    def process(self) -> subprocess.Popen[str]:
        """A process that lives until the test ends it."""
        made = subprocess.Popen(["sleep", "600"], text=True)
        self._processes.append(made)
        return made

    def shell(self, script: str, agent: str = "claude", **options: Any) -> subprocess.Popen[str]:
        """Starts a script that has the functions."""
        made = subprocess.Popen(
            ["bash", "-c", FUNCTIONS + script],
            env=os.environ
            | {"AI_ROOT": str(self.root), "AGENT_TYPE": agent, "TARGET_AGENT": agent},
            stdout=subprocess.PIPE,
            text=True,
            **options,
        )
        self._processes.append(made)
        return made

    def run(self, script: str, agent: str = "claude") -> str:
        """What a script prints."""
        return self.shell(script, agent).communicate(timeout=60)[0]

    # What is there

    def files(self) -> list[str]:
        """Every file of a task, as agent/state/name."""
        found = self.comms.glob("*/tasks/*/*/*")
        return sorted(
            f"{path.parts[-5]}/{path.parts[-3]}/{path.name}"
            for path in found
            if path.name != "genlock.json"
        )
