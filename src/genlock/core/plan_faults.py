"""What is wrong with a plan, and where."""

from __future__ import annotations

from msgspec import Struct


class Fault(Struct, frozen=True):
    """One thing that is wrong with a plan, and where; `task` is the id of the task that it is
    about, if it has one."""

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
