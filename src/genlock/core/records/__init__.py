"""Records other than tasks, one file per kind.

Each file has the numbered rules of its kind, `decide` for each command, a fold for each event, and
one registration, `RECORD`, which `genlock.core.rules` collects. A new kind of record is a new file
here and one line there; its structs are still in `model`, `commands` and `events`, its name in
`keys` and its type in `codec`.
"""
