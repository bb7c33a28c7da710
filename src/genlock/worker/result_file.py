"""The file that a command leaves as its result: read with suspicion, and never lost.

The command may have been confined to fewer files than we are, so a link is not followed. What is
too large to be submitted stays as a file, and the result says where.
"""

from __future__ import annotations

import json
import os
import shutil
import stat
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from genlock.core.results import SubmissionResult
from genlock.errors import BadArgument, ResultTooLarge
from genlock.private_files import FILE_MODE, read_regular
from genlock.worker.warded import Ended

MOST_RESULT_BYTES: Final = 10 * 1024 * 1024


def has_result(file: Path) -> bool:
    """Has the command written a result?"""
    try:
        found = file.lstat()
    except OSError:
        return False
    return stat.S_ISREG(found.st_mode) and found.st_size > 0


def read_result(file: Path, ended: Ended) -> Any:
    """What the command has written to $GENLOCK_RESULT, as JSON if it is JSON, else as text; if it
    has written nothing, its exit status."""
    if not has_result(file):
        return {"exit_status": ended.exit_code}
    if file.lstat().st_size > MOST_RESULT_BYTES:
        return _left_as_file(file, ended)
    text = _text(file)
    try:
        return json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return text


def submit_result(
    submit: Callable[[Any], SubmissionResult], file: Path, ended: Ended
) -> SubmissionResult:
    """Submits what the command has written. What is JSON to Python but to nobody else is submitted
    as text, and what is too large as the name of a file."""
    try:
        return submit(read_result(file, ended))
    except ResultTooLarge:
        return submit(_left_as_file(file, ended))
    except BadArgument:  # nested too deeply, or no Unicode
        pass
    try:
        return submit(_text(file))
    except ResultTooLarge:
        return submit(_left_as_file(file, ended))


def save_file(file: Path) -> str:
    """The result in a place that outlives this process, if there is one. It is not copied where a
    second name will do."""
    if not has_result(file):
        return ""
    folder = Path(tempfile.gettempdir())
    name = folder / f"genlock-result-{os.urandom(6).hex()}"
    try:
        os.link(file, name, follow_symlinks=False)
    except OSError:  # another file system
        with suppress(OSError):
            name.unlink()
        shutil.copyfile(file, name, follow_symlinks=False)
    name.chmod(FILE_MODE)
    return str(name)


def _left_as_file(file: Path, ended: Ended) -> dict[str, Any]:
    return {"exit_status": ended.exit_code, "result_file": save_file(file), "truncated": True}


def _text(file: Path) -> str:
    try:
        data = read_regular(file, follow=False, most=MOST_RESULT_BYTES)
    except OSError:
        return ""
    return data.decode("utf-8", errors="replace")


def _refuse(constant: str) -> Any:
    raise ValueError(constant)
