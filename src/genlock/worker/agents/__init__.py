"""A fleet of coding agents: which command starts each, what it says, and what becomes of its task.

`genlock work` is this and its options.
"""
