"""A working copy of its own for each claimed task, so that agents do not write into each other's
files."""
