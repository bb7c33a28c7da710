"""Edits the files of a project in which agents find their servers, hooks and instructions.

Every edit is planned before anything is written, so if one file cannot be read or edited, none is
changed. Removal finds our parts by structure. If that would not restore the original bytes, a copy
of the original, private to the user, is kept until it is restored.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import secrets
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple, assert_never

from genlock.cli.agents import jsonc
from genlock.cli.agents.clients import (
    BEGIN,
    CLIENTS,
    END,
    INSTRUCTIONS,
    Client,
    File,
    Instructions,
    Item,
    JsonFile,
    Member,
    OwnFile,
    TomlFile,
)
from genlock.errors import BadArgument, NotAllowed
from genlock.private_files import read_regular, write_private
from genlock.token_files import folders

_TOML_BLOCK: Final = re.compile(
    rf"^# {BEGIN}[^\n]*\n.*?^# {END}[^\n]*(?:\n|\Z)", re.DOTALL | re.MULTILINE
)
_TEXT_BLOCK: Final = re.compile(rf"\n?<!-- {BEGIN} -->.*?<!-- {END} -->\n?", re.DOTALL)


class Change(NamedTuple):
    """A file before and after an edit; None if it does not exist."""

    path: Path
    file: File
    before: str | None
    after: str | None


def planned(client: Client, root: Path, *, remove: bool = False) -> list[Change]:
    """Returns the changes to make in the project at `root`; files that are correct already are left
    out."""
    changes = []
    for file in client.files:
        path = root / file.name
        before = _read(root, file.name)
        try:
            if not remove:
                after: str | None = _put(file, before)
            elif isinstance(file, Instructions) and _is_shared(client, file, root):
                continue
            else:
                after = _removed(file, before, path)
        except BadArgument as error:
            raise BadArgument(f"{file.name}: {error}; nothing was changed") from None
        if after != before:
            _check_writable(path)
            changes.append(Change(path, file, before, after))
    return changes


def apply(changes: list[Change], *, remove: bool = False) -> None:
    """Writes the files."""
    kept = _kept()
    for change in changes:
        if change.after is None:
            change.path.unlink(missing_ok=True)
            _remove_empty(change.path.parent, len(Path(change.file.name).parts) - 1)
        else:
            _replace(change.path, change.after)
        kept.pop(str(change.path), None)
        if not remove and change.after is not None and not _is_restored(change):
            kept[str(change.path)] = {"after": _digest(change.after), "before": change.before}
    _keep(kept)


def _is_shared(client: Client, file: Instructions, root: Path) -> bool:
    """Does another client that is set up here use the same instructions?"""
    return any(
        file in other.files and "genlock" in (_read(root, other.files[0].name) or "")
        for other in CLIENTS.values()
        if other != client
    )


def _put(file: File, before: str | None) -> str:
    """Returns the text with our parts added, using the file's line endings."""
    if before is not None and not isinstance(file, OwnFile) and _ends_in_crlf(before):
        return _put_lines(file, before.replace("\r\n", "\n")).replace("\n", "\r\n")
    return _put_lines(file, before)


def _take(file: File, before: str) -> str | None:
    """Returns the text without our parts; None if nothing is left."""
    if not isinstance(file, OwnFile) and _ends_in_crlf(before):
        text = _take_lines(file, before.replace("\r\n", "\n"))
        return None if text is None else text.replace("\n", "\r\n")
    return _take_lines(file, before)


def _ends_in_crlf(text: str) -> bool:
    return 0 < text.count("\n") == text.count("\r\n")


def _put_lines(file: File, before: str | None) -> str:
    match file:
        case JsonFile():
            return _put_json(file, before)
        case TomlFile():
            return _put_toml(file, before or "")
        case Instructions():
            return _put_block(before or "")
        case OwnFile():
            return file.text
        case _:
            assert_never(file)


def _take_lines(file: File, before: str) -> str | None:
    match file:
        case JsonFile():
            text = before
            for edit in reversed(file.edits):
                text = _take_json(text, edit)
            return None if jsonc.parse(text).value in ({}, {"version": 1}) else text
        case TomlFile():
            text = _TOML_BLOCK.sub("", before)
        case Instructions():
            text = _TEXT_BLOCK.sub("", before)
        case OwnFile():
            return None if before == file.text else before
        case _:
            assert_never(file)
    return text if text.strip() else None


def _removed(file: File, before: str | None, path: Path) -> str | None:
    if before is None:
        return None
    kept = _kept().get(str(path))
    if kept is not None and kept.get("after") == _digest(before):
        return kept.get("before")
    return _take(file, before)


def _is_restored(change: Change) -> bool:
    """Would removing our parts restore the original bytes?"""
    return change.after is not None and _take(change.file, change.after) == change.before


# JSON


def _put_json(file: JsonFile, before: str | None) -> str:
    text = before if before is not None and before.strip() else "{}\n"
    for edit in file.edits:
        found = jsonc.find(jsonc.parse(text), edit.path)
        match edit:
            case Member():
                if found is None or (found.value != edit.value and len(edit.path) > 1):
                    text = jsonc.put_in(text, edit.path, edit.value)
            case Item():
                others = found.value if found is not None else []
                if edit.value not in others:
                    text = _take_json(text, edit)
                    text = jsonc.append(text, edit.path, edit.value)
    return text


def _take_json(text: str, edit: Member | Item) -> str:
    if isinstance(edit, Item):
        return jsonc.take_items(text, edit.path, _is_ours)
    return jsonc.take_out(text, edit.path) if len(edit.path) > 1 else text


def _is_ours(item: Any) -> bool:
    """Is it a hook that calls `genlock hook`, even one written by an older version?"""
    if not isinstance(item, Mapping):
        return False
    inner = item.get("hooks")
    if isinstance(inner, list) and inner:
        return all(map(_is_ours, inner))
    words = [str(item.get("command", "")), *map(str, item.get("args", []))]
    return " ".join(words).startswith("genlock hook ")


# TOML and text


def _put_toml(file: TomlFile, before: str) -> str:
    text = _TOML_BLOCK.sub("", before)
    found = _parsed(text)
    head = _block([part for key, part in file.head if not _has(found, key)])
    tail = _block([part for key, part in file.tail if not _has(found, key)])
    if _has(found, "mcp") and file.name == "gptme.toml" and not found["mcp"].get("enabled"):
        raise BadArgument("it has a table [mcp] without `enabled = true`; add that line to it")
    if _has(found, "mcp_servers.genlock"):
        raise BadArgument(
            "it has a server genlock already; remove it first: codex mcp remove genlock"
        )
    space = "" if not text or text.endswith("\n") else "\n"
    after = head + text + space + tail
    try:
        tomllib.loads(after)
    except tomllib.TOMLDecodeError as error:
        told = "what is to be added does not fit what is there"
        raise BadArgument(f"{told} ({error}); add it yourself:\n{head}{tail}") from None
    return after


def _block(parts: list[str]) -> str:
    if not parts:
        return ""
    return f"# {BEGIN} (by genlock setup)\n" + "\n".join(parts) + f"# {END}\n"


def _parsed(text: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise BadArgument(f"it is no TOML: {error}") from None


def _has(found: Mapping[str, Any], key: str) -> bool:
    value: Any = found
    for name in key.split("."):
        if not isinstance(value, dict) or name not in value:
            return False
        value = value[name]
    return True


def _put_block(before: str) -> str:
    block = f"<!-- {BEGIN} -->\n{INSTRUCTIONS}<!-- {END} -->\n"
    if f"\n{block}" in f"\n{before}":
        return before
    text = _TEXT_BLOCK.sub("", before)
    return text + ("\n" if text else "") + block


# Reading and writing


def _read(root: Path, name: str) -> str | None:
    """Reads a project's file; None if it does not exist. Refuses symbolic links in the path: in a
    cloned repository they could lead to the user's own settings."""
    path = root / name
    for part in (*reversed(Path(name).parents), Path(name)):
        if (root / part).is_symlink() and part.name:
            raise NotAllowed(f"{root / part} is a link, and setup does not write through links")
    try:
        return read_regular(path).decode()
    except FileNotFoundError:
        return None
    except UnicodeDecodeError:
        raise BadArgument(f"{path} is no UTF-8 text; nothing was changed") from None
    except OSError as error:
        raise BadArgument(f"{path} cannot be read: {error.strerror}") from None


def _check_writable(path: Path) -> None:
    """Refuses a read-only file, even in a writable folder: the user does not want it changed."""
    if path.exists() and not path.stat().st_mode & 0o222:
        raise NotAllowed(f"{path} is read-only; nothing was changed")


def _replace(path: Path, text: str) -> None:
    """Replaces a file atomically and keeps its permissions."""
    path.parent.mkdir(parents=True, exist_ok=True)
    # A random name, under which no link can have been prepared.
    beside = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    try:
        with beside.open("xb") as file:
            file.write(text.encode())
        if path.exists():
            beside.chmod(path.stat().st_mode & 0o777)
        os.replace(beside, path)
    except OSError as error:
        raise NotAllowed(f"{path} cannot be written: {error.strerror}") from None
    finally:
        beside.unlink(missing_ok=True)


def _remove_empty(folder: Path, levels: int) -> None:
    """Removes folders that were made for a file, if they are empty."""
    for _ in range(levels):
        try:
            folder.rmdir()
        except OSError:
            return
        folder = folder.parent


# Copies of original files that removing our parts would not restore


def _kept_file() -> Path:
    return folders(None)[0] / "setup.json"


def _kept() -> dict[str, dict[str, Any]]:
    try:
        found = json.loads(read_regular(_kept_file()))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _keep(kept: dict[str, dict[str, Any]]) -> None:
    if kept or _kept_file().exists():
        write_private(_kept_file(), json.dumps(kept))


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
