"""Backup, restore and export of a store, and copies into a store of another kind."""
