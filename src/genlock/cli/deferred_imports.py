"""Modules whose import is deferred until first use.

A call of the command line takes a tenth of a second, most of it for imports. Libraries import
modules that a call hardly ever uses; this defers those imports without changing the libraries.
"""

from __future__ import annotations

import sys
from contextlib import suppress

TYPE_CHECKING = False  # avoids the import of `typing`, which a call can do without
if TYPE_CHECKING:
    from typing import Any

DEFERRED = (
    # click, urllib and msgspec import these.
    "inspect",
    "ipaddress",
    "textwrap",
    "msgspec.inspect",
    "msgspec.msgpack",
    "msgspec.toml",
    "msgspec.yaml",
    # The coordinator imports all reads, and a call needs one or two.
    "genlock.reads.agents",
    "genlock.reads.claims",
    "genlock.reads.feed",
    "genlock.reads.keys",
    "genlock.reads.next_task",
    "genlock.reads.pushes",
    "genlock.reads.results",
    "genlock.reads.reviews",
    "genlock.reads.sessions",
    "genlock.reads.tasks",
)
"""Only modules, no packages."""

SMALL_HASHES = frozenset({
    *("add", "claim", "explain", "history", "list", "next", "ready", "release", "renew"),
    *("show", "status", "submit"),
})  # fmt: skip
"""Commands that hash a few kilobytes, for which loading OpenSSL takes longer than it saves."""


class DeferredModule(type(sys)):  # type: ignore[misc]  # ModuleType, without an import
    """Stands in `sys.modules` for a module until something of it is used."""

    def __getattr__(self, name: str) -> Any:
        if name == "__path__":  # `from module import name` checks whether it is a package
            raise AttributeError(name)
        from importlib import import_module

        # If another thread is importing the module already, this one waits for it.
        if sys.modules.get(self.__name__) is self:
            del sys.modules[self.__name__]
        module = import_module(self.__name__)
        self.__dict__.update(vars(module))
        return getattr(module, name)


def defer_imports(verb: str) -> None:
    """Defers the imports. Call it before any of these modules is imported."""
    for name in DEFERRED:
        if name not in sys.modules:
            sys.modules[name] = module = DeferredModule(name)
            if name == "inspect":
                module.cleandoc = _clean_help
    if "typing_extensions" not in sys.modules:
        # msgspec imports names from it that `typing` now has. None means that it is not installed.
        sys.modules["typing_extensions"] = None  # type: ignore[assignment]
        try:
            import msgspec  # noqa: F401
        finally:
            del sys.modules["typing_extensions"]
    if verb in SMALL_HASHES and "hashlib" not in sys.modules:
        _hash_without_openssl()


def _clean_help(text: str) -> str:
    """Does what `inspect.cleandoc` does to a help text. Click calls it for each option; texts of
    one line, as nearly all are, do not need the import."""
    if "\n" not in text and "\t" not in text:
        return text.strip()
    inspect = sys.modules["inspect"]
    if isinstance(inspect, DeferredModule):
        inspect.__dict__.pop("cleandoc", None)
    cleaned: str = inspect.cleandoc(text)
    return cleaned


def _hash_without_openssl() -> None:
    """Makes `hashlib.sha256` Python's own implementation, which `random` uses for the same reason.
    Any other attribute of `hashlib` loads the full module."""
    from importlib import import_module

    for name in ("_sha2", "_sha256"):  # since Python 3.12, and before
        with suppress(ImportError):
            hashlib = DeferredModule("hashlib")
            hashlib.sha256 = import_module(name).sha256
            sys.modules["hashlib"] = hashlib
            return
