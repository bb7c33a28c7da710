"""How answers look in a terminal: text, tables, pages, drawings and progress."""
