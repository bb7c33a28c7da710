"""Faults of a plan, with their positions."""

from __future__ import annotations

from msgspec import Struct


class Fault(Struct, frozen=True):
    """One fault of a plan and its position. `task` is the id of the faulty task, if it has one."""

    file: str | None
    line: int | None
    column: int | None
    task: str | None
    message: str

    def __str__(self) -> str:
        said = self.message if self.task is None else f"{self.task}: {self.message}"
        if self.line is None:
            return said
        return (
            f"{self.file}:{self.line}:{self.column}: {said}"
            if self.file
            else f"line {self.line}, column {self.column}: {said}"
        )
