"""Keeping a store: copies of it, putting one back, moving to another kind, and everything as text.

backup.py    a consistent copy of a live store
restore.py   a copy in the store's place
export.py    records and events as JSON lines
copy.py      any store into any other: ends.py opens the two, beginning.py finds out how much is there already, batches.py makes
             commits of events, comparing.py looks whether the copy is what the source is
"""
