"""Peers, each run in an environment of its own by the worker beside this file."""
