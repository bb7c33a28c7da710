"""The layouts: how tasks are stored in a folder as files of another tool."""
