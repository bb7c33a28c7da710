"""Genlock's version, for those who may not see the whole."""

__version__ = "0.1.0"
