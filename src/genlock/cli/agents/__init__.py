"""Setting up agents' clients: what Genlock registers with each, and how it edits their files.

`clients` has the facts about each client as data. `jsonc` edits JSON as text, `files` applies the
edits and reverts them, byte for byte if the file has not changed since. `hook_events` parses the
events that a client sends to its hooks, and answers in its form. `prime_text` makes the text that a
model gets at the start of a session.
"""
