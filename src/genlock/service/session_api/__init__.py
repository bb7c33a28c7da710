"""The session-claiming interface under /api: claims, sessions, status and start.

It acts on one project, for the named session's claim at its current generation, and answers with
the names and codes of its own document.
"""
