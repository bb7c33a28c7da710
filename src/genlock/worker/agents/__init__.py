"""A fleet of coding agents: the commands that start them, their output, and the outcomes of their
tasks.

`genlock work` is this with options.
"""
