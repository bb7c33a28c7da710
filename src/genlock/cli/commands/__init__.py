"""The commands, grouped by theme."""
