"""Keeping a store: copies of it, putting one back, and everything as text.

backup.py    a consistent copy of a live store
restore.py   a copy in the store's place
export.py    records and events as JSON lines
"""
