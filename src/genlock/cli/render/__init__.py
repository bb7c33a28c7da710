"""Rendering of answers for terminals: text, tables, pages, drawings and progress."""
