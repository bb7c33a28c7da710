#!/usr/bin/env bash
# A fleet of shell workers: any command becomes a worker by `genlock run`.
#
#     examples/shell_fleet.sh          (needs genlock on the PATH)
#
# `genlock run` claims a task, keeps its lease, and submits what the command wrote to
# $GENLOCK_RESULT. If the claim is lost it ends the command before another worker gets the task.
set -eu
cd "$(mktemp -d)"
trap 'rm -rf "$PWD"' EXIT
genlock init >/dev/null
genlock add A-001-outline --quiet >/dev/null
genlock add A-002-chapter --depends-on A-001-outline --quiet >/dev/null
genlock add A-003-chapter --depends-on A-001-outline --quiet >/dev/null

worker() { # one task after the other; exit code 3: none has become ready for two seconds
    while genlock run --next --wait 2 -- sh -c 'echo "$GENLOCK_TASK by $0" > "$GENLOCK_RESULT"' "$1"
    do :; done
}
worker ada & worker bob &
wait
for task in A-001-outline A-002-chapter A-003-chapter; do
    echo "$task: $(genlock show "$task" --result --quiet | cut -d' ' -f1)"
done
