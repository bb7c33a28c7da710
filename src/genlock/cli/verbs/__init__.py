"""The verbs, by theme."""
