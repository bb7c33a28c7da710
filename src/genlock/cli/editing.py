"""Changing one line of a settings file and leaving the others as they are, comments included."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from genlock.settings import BadSetting, parse, text_of


def write_setting(path: Path, name: str, value: Any) -> bool:
    """Set it, or with None take it out; False if the file said so already."""
    before = text_of(path)
    held = parse(before, path)
    if (held[name].value if name in held else None) == value:
        return False
    end = "\r\n" if "\r\n" in before else "\n"
    line = None if value is None else f"{name} = {_toml(value)}{end}"
    lines = before.splitlines(keepends=True)
    if lines and not lines[-1].endswith("\n"):
        lines[-1] += end
    at = next((at for at, text in enumerate(lines) if text.partition("=")[0].strip().strip("\"'") == name), None)
    if at is None:
        lines += [line] if line else []
    else:
        lines[at : at + 1] = [line] if line else []
    after = "".join(lines)
    wanted = {key: setting.value for key, setting in held.items() if key != name} | ({} if value is None else {name: value})
    if {key: setting.value for key, setting in parse(after, path).items()} != wanted:
        raise BadSetting(f"{path}: {name} is written in a way that cannot be changed by a program; change it in the file")
    _replace(path, after)
    return True


def _toml(value: Any) -> str:
    if not isinstance(value, str):
        return repr(value).lower()  # numbers and truths
    import json

    return json.dumps(value, ensure_ascii=False)  # of a printable text this is TOML too


def _replace(path: Path, text: str) -> None:
    """All or nothing, and with the permissions it had; where the name is a link, what it leads to."""
    path = Path(os.path.realpath(path))
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        beside.write_bytes(text.encode())
        if path.exists():
            beside.chmod(path.stat().st_mode & 0o777)
        os.replace(beside, path)
    finally:
        beside.unlink(missing_ok=True)
