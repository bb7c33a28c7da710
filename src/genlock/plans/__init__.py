"""Reads plans from mappings, YAML and JSON lines, naming the place of every fault."""

from genlock.plans.reader import Draft, PlanFile, Source, check_plan_alone, read_plan_source
from genlock.plans.values import load_yaml
from genlock.plans.writer import write_lines, write_yaml

__all__ = [
    "Draft",
    "PlanFile",
    "Source",
    "check_plan_alone",
    "load_yaml",
    "read_plan_source",
    "write_lines",
    "write_yaml",
]
