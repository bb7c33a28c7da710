"""Setting up other people's agents: what is registered with which, and how their files are edited.

`clients` has the facts about each agent as data. `jsonc` edits JSON as text, `files` applies the
edits and takes them back, byte for byte if nobody has changed the file since. `hook_events` reads
what an agent tells its hooks, and answers in its form. `prime_text` is what a model is told at the
start of a session.
"""
