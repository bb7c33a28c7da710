"""Plans as text, read and written.

values.py    YAML as plain values, and where in the text they stand
quick.py     the plain part of YAML, for large plans
lines.py     JSON lines: one task a line
reading.py   plans from mappings, texts and files; every fault with its place
writing.py   plans as YAML and as JSON lines
"""

from genlock.plans.reading import Draft, PlanFile, Source, check_plan_alone, read_plan_source
from genlock.plans.values import load_yaml
from genlock.plans.writing import write_lines, write_yaml

__all__ = ["Draft", "PlanFile", "Source", "check_plan_alone", "load_yaml", "read_plan_source", "write_lines", "write_yaml"]
