"""Where a setting comes from: flag, environment, the project's file, the user's file, default; in this order.

Both files are called `config.toml` and are flat: one `name = value` a line. Every value is checked wherever it comes from, and a
complaint names the place: a file with its line, a variable, a flag.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from genlock import service_settings as service
from genlock.core.names import check_agent, check_project, check_session, check_tenant, check_user
from genlock.errors import BadArgument

FILE: Final = "config.toml"

_LONGEST_LEASE_SECONDS: Final = 366 * 86400


class Setting(NamedTuple):
    """A value and where it came from: "flag --url", "environment GENLOCK_URL", a file and its line, or "default"."""

    value: Any
    origin: str


class BadSetting(BadArgument):
    """A setting that cannot be; the message says where it stands."""


def check_url(value: object) -> str:
    """A store's URL; whether there is such a store is seen when it is opened."""
    if not isinstance(value, str) or "://" not in value or not value.isprintable():
        raise BadArgument(f"url is a store's URL such as sqlite:///path/genlock.db, or a service's, not {value!r}")
    return value


def check_key(value: object) -> str:
    """A service's key. What is wrong with it is said without showing it."""
    if not isinstance(value, str) or not value or not value.isascii() or not value.isprintable() or " " in value:
        raise BadArgument("api_key is a key as `genlock keys create` shows it, glk_…, and this is none")
    return value


def check_lease_seconds(value: object) -> float:
    """A length of time; from the environment or a command line it is a text."""
    try:
        seconds = float(value) if isinstance(value, (str, int, float)) and not isinstance(value, bool) else 0.0
    except ValueError:
        seconds = 0.0
    if not 0 < seconds <= _LONGEST_LEASE_SECONDS:
        raise BadArgument(f"lease_seconds is a number of seconds over 0 and up to a year, not {value!r}")
    return int(seconds) if seconds == int(seconds) else seconds


CHECKS: Final[dict[str, Callable[[object], Any]]] = {
    "url": check_url,
    "tenant": check_tenant,
    "project": check_project,
    "session": check_session,
    "agent": check_agent,
    "user": check_user,
    "api_key": check_key,
    "lease_seconds": check_lease_seconds,
    **service.CHECKS,
}
"""Every setting there is."""

DEFAULTS: Final[dict[str, Any]] = dict.fromkeys(CHECKS) | {"tenant": "default", "project": "default"} | service.DEFAULTS
"""None: it depends. `url` is the project's own store, `session` the process on whose behalf we run, and `agent` goes by the session."""

NOT_IN_FILES: Final = {"session": "all that read the file would be one session; set GENLOCK_SESSION for each agent"}


def login_name() -> str | None:
    """Whose account this is: the user where none is set."""
    import pwd

    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return None


def variable(name: str) -> str:
    """The environment's name of a setting."""
    return f"GENLOCK_{name.upper()}"


def user_file() -> Path:
    """The user's own settings."""
    home = os.environ.get("XDG_CONFIG_HOME") or os.path.join(os.path.expanduser("~"), ".config")
    return Path(home) / "genlock" / FILE


def files(project_folder: Path | None) -> list[Path]:
    """The files that are read, the first before the second."""
    return [*([project_folder / FILE] if project_folder is not None else []), user_file()]


def resolve(flags: Mapping[str, Any], project_folder: Path | None) -> dict[str, Setting]:
    """Every setting with its origin."""
    found = {name: Setting(value, "default") for name, value in DEFAULTS.items()}
    for path in reversed(files(project_folder)):
        found |= read(path)
    for name in DEFAULTS:
        given = os.environ.get(variable(name))
        if given:
            origin = f"environment {variable(name)}"
            found[name] = Setting(check(name, given, origin), origin)
    for name, value in flags.items():
        if value is not None:
            origin = f"flag --{name.removeprefix(service.PREFIX).replace('_', '-')}"
            found[name] = Setting(check(name, value, origin), origin)
    return found


def check(name: str, value: object, origin: str) -> Any:
    """The value as it is used, or a complaint that says where it stands."""
    try:
        return CHECKS[name](value)
    except BadArgument as error:
        raise BadSetting(f"{origin}: {error}") from None


def check_name(name: str) -> str:
    """The name of a setting that there is."""
    if name not in CHECKS:
        raise BadSetting(f"there is no setting {name!r}; there are: {_names(name)}")
    return name


def _names(wrong: str) -> str:
    """The names there are, as far as they could have been meant."""
    if wrong.startswith(service.PREFIX):
        return ", ".join(service.CHECKS)
    return ", ".join(name for name in CHECKS if name not in service.CHECKS) + f", and those of a service, which begin with {service.PREFIX}"


def read(path: Path) -> dict[str, Setting]:
    """The settings in a file; {} if it does not exist."""
    text = text_of(path)
    return parse(text, path) if text else {}  # most have none, and need no parser


def text_of(path: Path) -> str:
    """A file's text, with the ends of its lines as they are; "" if it does not exist."""
    try:
        return path.read_bytes().decode()
    except (FileNotFoundError, NotADirectoryError):
        return ""
    except (OSError, UnicodeDecodeError) as error:
        raise BadSetting(f"{path} cannot be read: {error}") from None


def parse(text: str, path: Path) -> dict[str, Setting]:
    """The settings in a file's text."""
    import tomllib

    try:
        values = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise BadSetting(f"{path}: this is no TOML: {error}") from None
    found = {}
    for name, value in values.items():
        origin = f"{path}:{line_of(text, name)}"
        if name not in CHECKS:
            raise BadSetting(f"{origin}: there is no setting {name!r}; there are: {_names(name)}")
        if name in NOT_IN_FILES:
            raise BadSetting(f"{origin}: {name} cannot be set in a file: {NOT_IN_FILES[name]}")
        if not isinstance(value, (str, int, float)):
            raise BadSetting(f"{origin}: {name} is one value, not {type(value).__name__}")
        found[name] = Setting(check(name, value, origin), origin)
    return found


def line_of(text: str, name: str) -> int:
    """The line on which a setting stands, counted from 1."""
    for number, line in enumerate(text.splitlines(), 1):
        key = line.partition("=")[0].strip().strip("\"'[] ")
        if key == name or key.partition(".")[0].strip().strip("\"'") == name:
            return number
    return 1
