#!/usr/bin/env python3
"""An agent as `genlock work` sees one: a program that writes Claude Code's lines. What it does is
the task's title; `A then B` is A at generation 1 and B afterwards."""

import json
import os
import signal
import subprocess
import sys
import time

task, generation = os.environ["GENLOCK_TASK"], int(os.environ["GENLOCK_GENERATION"])
prompt = sys.stdin.read()
first, _, later = prompt.splitlines()[0].removeprefix("# ").partition(" then ")
what, *words = (later if later and generation > 1 else first).split()
place = os.environ["PLACE"]


def say(**event: object) -> None:
    print(json.dumps({"session_id": "agent-session", **event}), flush=True)


def work(number: int = 1, command: str = "make test") -> None:
    part = {"type": "tool_use", "name": "Bash", "input": {"command": command}}
    say(type="assistant", message={"id": f"message-{number}", "content": [part]})


def result(**more: object) -> None:
    say(
        **{
            "type": "result",
            "subtype": "success",
            "is_error": False,
            "result": "all done",
            "num_turns": 3,
            "total_cost_usd": 0.25,
            **more,
        }
    )


def mark(name: str, text: str = "") -> None:
    with open(f"{place}/{name}", "a") as file:
        file.write(f"{text or os.getpid()}\n")


def tree() -> None:
    """Processes that a signal to the group does not reach."""
    subprocess.Popen(["sleep", "600"])
    subprocess.Popen(
        ["setsid", "sh", "-c", f"echo $$ > {place}/grandchild; exec sleep 600"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    while not os.path.exists(f"{place}/grandchild"):
        time.sleep(0.01)


def genlock(*words: str) -> None:
    subprocess.run(
        [sys.executable, "-m", "genlock.cli", *words], check=True, stdout=subprocess.DEVNULL
    )


say(type="system", subtype="init", cwd=os.getcwd())
with open(f"{place}/prompt.{task}.gen{generation}", "w") as file:
    file.write(prompt)
mark("began", f"{task} {time.time()}")
work()
match what:
    case "success":
        result()
    case "slow":
        mark(f"slow.{task}")
        time.sleep(float(words[0]))
        mark("ended", f"{task} {time.time()}")
        result()
    case "file":
        with open(os.environ["GENLOCK_RESULT"], "w") as file:
            file.write('{"files": ["app.py"]}')
        result()
    case "commit":
        with open(f"{task}.txt", "w") as file:
            file.write(task)
        subprocess.run(["git", "add", "."], check=True)
        subprocess.run(["git", "commit", "-qm", f"Do {task}"], check=True)
        result()
    case "dirty":
        with open("dirty.txt", "w") as file:
            file.write("unfinished")
        result(is_error=True, result="gave up")
    case "limit":  # exit code 0, as Claude Code does it
        result(is_error=True, api_error_status=429, result="API Error: rate_limit_error")
    case "rejected":
        say(
            type="rate_limit_event",
            rate_limit_info={"status": "rejected", "resetsAt": time.time() + float(words[0])},
        )
        result(is_error=True, result="You have hit your weekly limit")
        sys.exit(1)
    case "auth":
        say(type="assistant", error="authentication_failed", message={"id": "x", "content": []})
        result(is_error=True, result="Not logged in · Please run /login")
        sys.exit(1)
    case "error":
        result(is_error=True, result="the tests do not pass")
    case "exit":
        print("segmentation fault in the compiler", file=sys.stderr)
        sys.exit(int(words[0]))
    case "silent":
        pass
    case "hang":
        result()
        tree()
        time.sleep(600)
    case "idle":
        tree()
        time.sleep(600)
    case "max_turns":
        result(subtype="error_max_turns", is_error=True, result=None)
        sys.exit(1)
    case "turns" | "busy":
        tree()
        for number in range(10_000):
            work(number)
            time.sleep(0.05)
    case "stubborn":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        tree()
        with open(os.environ["GENLOCK_RESULT"], "w") as file:
            file.write('"half of it"')
        mark("stubborn")
        for number in range(10_000):
            work(number)
            time.sleep(0.05)
    case "submit":
        genlock("submit", task, "-g", str(generation), "--result", '{"by": "the agent"}')
        result()
    case "superseded":
        genlock("unlock", task, "--force")
        genlock("claim", task, "--session", "other", "--agent", "other")
        result()
    case "flood":
        for _ in range(200):
            sys.stdout.write("x" * 100_000 + "\n")
        sys.stdout.flush()
        result()
    case "hostile":
        work(2, "\x1b[2J\x1b]0;owned\x07 rm -rf")
        time.sleep(1.5)
        result()
    case "nonsense":  # JSON to Python, and to nobody else
        print('{"type": "assistant", "session_id": "\\ud800", "message": {"id": NaN}}')
        text = '"session_id": "\\udfff", "result": {"told": "\\ud800 done", "loss": NaN}'
        print('{"type": "result", "total_cost_usd": 1e999, "num_turns": 2, ' + text + "}")
    case "linked":
        os.symlink("/etc/passwd", os.environ["GENLOCK_RESULT"])
        result()
    case "large":
        with open(os.environ["GENLOCK_RESULT"], "w") as file:
            file.truncate(20 * 1024 * 1024)
        result()
    case "products":  # a list of them that nobody can read
        with open(os.environ["GENLOCK_PRODUCTS"], "w") as file:
            file.write("nonsense")
        with open(os.environ["GENLOCK_RESULT"], "w") as file:
            file.write('"much work"')
        result()
    case unknown:
        sys.exit(f"what is {unknown}?")
