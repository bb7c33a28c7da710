"""The layouts: how tasks lie in a folder as files of another tool."""
