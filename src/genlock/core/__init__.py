"""The core decides. It is pure: no clock, no ids of its own, no I/O, no waiting.

`rules` has its three functions: `decide` answers a command, `evolve` folds an event into a record,
and `react` names the commands to other records that an event asks for. Everything else comes in as
`facts`.
"""
