"""The rules of a task. `claims` is the generation clock itself, with its numbered rules."""
