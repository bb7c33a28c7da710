"""Where a setting comes from: flag, environment, the project's file, the user's file, default; in
this order.

Both files are called `config.toml` and are flat: one `name = value` per line. Every value is
checked wherever it comes from, and the error names the source: a file with its line, a variable, a
flag.

A project's file comes with a clone, so its author need not be the user. It may set what describes
the project (`PROJECT_MAY_SET`), and nothing that says who the user is, opens the user's machine or
lifts a limit. Whether its `url` may be used is decided in trust.py.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple, TypeAlias

from genlock import service_settings as service
from genlock import work_settings
from genlock.core.durations import is_duration, lease_bounds, read_duration
from genlock.core.names import check_agent, check_project, check_session, check_tenant, check_user
from genlock.errors import BadArgument
from genlock.private_files import read_regular
from genlock.safe_text import without_password

FILE: Final = "config.toml"

_LONGEST_LEASE_SECONDS: Final = 366 * 86400


Source: TypeAlias = Literal["argument", "flag", "environment", "project", "user", "default"]
"""The source of a setting: the program, the user (in one of three ways), the project's file, or the
default."""


class Setting(NamedTuple):
    """A value and where it came from: "flag --url", "environment GENLOCK_URL", a file and its line,
    or "default"."""

    value: Any
    origin: str
    source: Source = "default"


class BadSetting(BadArgument):
    """An invalid setting; the message says where it is set."""


def check_url(value: object) -> str:
    """Checks a store's URL. Whether the store exists shows when it is opened."""
    if not isinstance(value, str) or "://" not in value or not value.isprintable():
        shown = without_password(value) if isinstance(value, str) else value
        raise BadArgument(
            f"url is a store's URL such as sqlite:///path/genlock.db, or a service's, not {shown!r}"
        )
    return value


def check_key(value: object) -> str:
    """Checks a service's key. The error message never shows the key."""
    if (
        not isinstance(value, str)
        or not value
        or not value.isascii()
        or not value.isprintable()
        or " " in value
    ):
        raise BadArgument(
            "api_key is a key as `genlock keys create` shows it, glk_…, and this is none"
        )
    return value


def check_lease_seconds(value: object) -> float:
    """Checks a duration; from the environment or a command line it is a text."""
    try:
        if isinstance(value, str) and is_duration(value):
            value = read_duration(value, "lease_seconds")
        seconds = (
            float(value)
            if isinstance(value, (str, int, float)) and not isinstance(value, bool)
            else 0.0
        )
    except ValueError:
        seconds = 0.0
    if not 0 < seconds <= _LONGEST_LEASE_SECONDS:
        asked = seconds if isinstance(value, (int, float)) else str(value)
        raise BadArgument(f"lease_seconds: {lease_bounds(asked, 0, _LONGEST_LEASE_SECONDS)}")
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
    **work_settings.CHECKS,
    **service.CHECKS,
}
"""Every setting there is."""

DEFAULTS: Final[dict[str, Any]] = (
    dict.fromkeys(CHECKS)
    | {"tenant": "default", "project": "default"}
    | work_settings.DEFAULTS
    | service.DEFAULTS
)
"""None means that the default depends on the situation. `url` is the project's own store, `session`
the process on whose behalf we run, and `agent` follows from the session."""

NOT_IN_FILES: Final = {
    "session": "all that read the file would be one session; set GENLOCK_SESSION for each agent"
}

PROJECT_MAY_SET: Final = frozenset(
    {
        "url",  # a store inside the project, or one with the user's consent: see trust.py
        "tenant",  # which plan the project works on
        "project",
        "lease_seconds",  # how long its tasks take
        "worktree_base",  # its own branch
        "serve_port",  # names in the project's own documents
        "serve_metrics_prefix",
        "serve_log_level",  # what its log looks like; no log has a secret at any level
        "serve_log_format",
        "serve_grace_seconds",  # how long its last answers take
        "serve_api_tenant",
        "serve_api_project",
        "serve_claim_config",
    }
)
"""What a project's file may set. All else is the user's: who one is (agent, user, api_key), what
runs on the user's machine (on_complete, container), who is let in (serve_host, serve_allow_host,
serve_keys, serve_forwarded_allow_ips, serve_sign_in_file), which areas the service opens with its
own credentials (serve_products), and what a caller may take (serve_connections, serve_rate,
serve_streams, serve_tenant_operations)."""


def login_name() -> str | None:
    """Returns the login name of the account, the default of the `user` setting."""
    import pwd

    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return None


def variable(name: str) -> str:
    """Returns the environment variable of a setting."""
    return f"GENLOCK_{name.upper()}"


def user_file() -> Path:
    """Returns the path of the user's settings file."""
    given = os.environ.get("XDG_CONFIG_HOME", "")
    # A relative path is ignored, as the XDG specification says: inside a clone it would lead to
    # files of the clone's author.
    home = given if os.path.isabs(given) else os.path.join(os.path.expanduser("~"), ".config")
    return Path(home) / "genlock" / FILE


def resolve(flags: Mapping[str, Any], project_folder: Path | None) -> dict[str, Setting]:
    """Returns every setting with its origin. Only for trust.py, which decides whether they may be
    used: call `trusted_settings` there."""
    found = {name: Setting(value, "default") for name, value in DEFAULTS.items()}
    found |= _of_an_orchestra(project_folder)
    found |= read(user_file())
    found |= read_project(project_folder) if project_folder is not None else {}
    for name in DEFAULTS:
        given = os.environ.get(variable(name))
        if given:
            origin = f"environment {variable(name)}"
            found[name] = Setting(check(name, given, origin), origin, "environment")
    for name, value in flags.items():
        if value is not None:
            origin = f"flag --{name.removeprefix(service.PREFIX).replace('_', '-')}"
            found[name] = Setting(check(name, value, origin), origin, "flag")
    return found


def _of_an_orchestra(project_folder: Path | None) -> dict[str, Setting]:
    """Returns the settings in AI_ROOT and AGENT_TYPE, the variables of shell scripts that move task
    folders in `ai_comms`. They do not apply to a project that has a store of its own."""
    root, agent = os.environ.get("AI_ROOT", ""), os.environ.get("AGENT_TYPE", "")
    if not os.path.isabs(root) or not os.path.isdir(f"{root}/ai_comms"):
        return {}
    if project_folder is not None and project_folder.is_dir():
        return {}
    from urllib.parse import quote  # late: most calls of the command line have no AI_ROOT

    url = f"folder://{quote(os.path.realpath(root))}?layout=spool"
    found = {"url": Setting(url, "environment AI_ROOT", "environment")}
    if agent:
        origin = "environment AGENT_TYPE"
        found["agent"] = Setting(check("agent", agent, origin), origin, "environment")
    return found


def check(name: str, value: object, origin: str) -> Any:
    """Returns the converted value, or raises an error that names the origin."""
    try:
        return CHECKS[name](value)
    except BadArgument as error:
        raise BadSetting(f"{origin}: {error}") from None


def check_name(name: str) -> str:
    """Checks that a setting of this name exists."""
    if name not in CHECKS:
        raise BadSetting(f"there is no setting {name!r}; there are: {_names(name)}")
    return name


def _names(wrong: str) -> str:
    """Returns the existing names, as far as the wrong name could have meant them."""
    if wrong.startswith(service.PREFIX):
        return ", ".join(service.CHECKS)
    return (
        ", ".join(name for name in CHECKS if name not in service.CHECKS)
        + f", and those of a service, which begin with {service.PREFIX}"
    )


def read(path: Path, *, follow: bool = True) -> dict[str, Setting]:
    """Reads the settings in a file; {} if it does not exist."""
    text = text_of(path, follow=follow)
    return parse(text, path) if text else {}  # most projects have none, and need no parser


def read_project(folder: Path) -> dict[str, Setting]:
    """Reads the settings in a project's file; an error if it sets what only the user may set."""
    path = folder / FILE
    if path.is_symlink():
        raise BadSetting(
            f"{path} is a symbolic link, and a project's settings are not read through one; put "
            "the file itself there"
        )
    found = read(path, follow=False)
    for name, setting in found.items():
        check_project_may_set(name, setting.origin)
    return {name: setting._replace(source="project") for name, setting in found.items()}


def check_project_may_set(name: str, origin: str) -> None:
    """Raises `BadSetting` if only the user may set this setting."""
    if name == "api_key":
        raise BadSetting(
            f"{origin}: api_key cannot be set by a project: a key belongs to a user and an "
            "address; to store yours, type: genlock login ADDRESS"
        )
    if name not in PROJECT_MAY_SET:
        raise BadSetting(
            f"{origin}: {name} cannot be set by a project, only by its user; "
            f"to set it in your own file, {user_file()}, type: genlock config set --user {name} "
            "VALUE"
        )


def text_of(path: Path, *, follow: bool = True) -> str:
    """Reads a file's text, with line endings unchanged; "" if it does not exist. Without `follow`,
    a symbolic link is an error."""
    try:
        return read_regular(path, follow=follow).decode()
    except (FileNotFoundError, NotADirectoryError):
        return ""
    except (OSError, UnicodeDecodeError) as error:
        raise BadSetting(f"{path} cannot be read: {error}") from None


def parse(text: str, path: Path) -> dict[str, Setting]:
    """Parses the settings in a file's text."""
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
        found[name] = Setting(check(name, value, origin), origin, "user")
    return found


def line_of(text: str, name: str) -> int:
    """Returns the line of a setting, counted from 1."""
    for number, line in enumerate(text.splitlines(), 1):
        key = line.partition("=")[0].strip().strip("\"'[] ")
        if key == name or key.partition(".")[0].strip().strip("\"'") == name:
            return number
    return 1
