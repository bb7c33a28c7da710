"""The file that a command leaves as its result: untrusted, and never lost.

The command may have had access to fewer files than we have, so a link is not followed. A result
that is too large to be submitted stays as a file, and the submitted result names it.
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
    """Returns the command's result in $GENLOCK_RESULT, parsed as JSON if it is JSON, otherwise as
    text. Without one, returns the exit status."""
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
    """Submits the command's result. A value that is JSON only to Python is submitted as text, and
    one that is too large as the name of a file."""
    try:
        return submit(read_result(file, ended))
    except ResultTooLarge:
        return submit(_left_as_file(file, ended))
    except BadArgument:  # nested too deeply, or invalid Unicode
        pass
    try:
        return submit(_text(file))
    except ResultTooLarge:
        return submit(_left_as_file(file, ended))


def save_file(file: Path) -> str:
    """Saves the result in a place that outlives this process, by a link where possible and
    otherwise by a copy. Returns the path; empty if there is no result."""
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
