"""Settings, completion, version."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from genlock.cli.app import App, verb
from genlock.private_files import create_file, make_private_folder
from genlock.settings import BadSetting, parse, text_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from rich.console import Console

    from genlock.settings import Setting


@click.group()
def config() -> None:
    """Show and change settings.

    The first of these that has a setting counts: a flag, the environment (GENLOCK_URL and so on),
    the project's file, your own file.
    """


@config.command()
@click.option("--origin", is_flag=True, help="Also show where each setting comes from.")
@verb(worker=True)
def show(app: App, origin: bool) -> None:
    """Show every setting in force here, except keys and passwords; `config get` prints those."""
    found = {
        name: setting._replace(value=_shown(name, setting.value))
        for name, setting in _effective(app).items()
    }

    def text(console: Console) -> None:
        from rich.table import Table
        from rich.text import Text

        table = Table(box=None, show_header=False, pad_edge=False)
        for name, setting in found.items():
            cells = [
                name,
                "" if setting.value is None else str(setting.value),
                *([setting.origin] if origin else []),
            ]
            table.add_row(*(Text(cell, overflow="fold") for cell in cells))
        console.print(table)

    value = {
        name: {"value": setting.value, "origin": setting.origin} if origin else setting.value
        for name, setting in found.items()
    }
    app.answers.give(
        value,
        text=text,
        bare=[
            f"{name}={'' if setting.value is None else setting.value}"
            for name, setting in found.items()
        ],
    )


@config.command()
@click.argument("key")
@verb(worker=True)
def get(app: App, key: str) -> None:
    """Print one setting in force here."""
    from genlock.settings import check_name

    setting = _effective(app)[check_name(key)]
    shown = "" if setting.value is None else str(setting.value)
    app.answers.give(
        {"key": key, "value": setting.value, "origin": setting.origin},
        text=lambda console: _print(console, shown),
        bare=[shown],
    )


@config.command("set")
@click.argument("key")
@click.argument("value")
@click.option("--user", is_flag=True, help="Use your own file instead of the project's.")
@verb(store=False)
def set_(app: App, key: str, value: str, user: bool) -> None:
    """Write a setting into the project's file, or into your own."""
    from genlock.settings import check, check_name

    check_name(key)
    _write(app, key, check(key, value, "config set"), user=user)


@config.command()
@click.argument("key")
@click.option("--user", is_flag=True, help="Use your own file instead of the project's.")
@verb(store=False)
def unset(app: App, key: str, user: bool) -> None:
    """Remove a setting from a file."""
    from genlock.settings import check_name

    _write(app, check_name(key), None, user=user)


@config.command()
@verb(store=False)
def path(app: App) -> None:
    """Print the paths of the files, whether or not they exist."""
    from genlock.settings import FILE, user_file

    found = {"project": str(app.project_folder / FILE), "user": str(user_file())}
    app.answers.give(
        found, text=lambda console: _print(console, "\n".join(found.values())), bare=found.values()
    )


def _shown(name: str, value: Any) -> Any:
    """Hides the secrets of a setting's value, for screens that others may see."""
    from genlock.safe_text import without_password

    if value is None or name not in ("api_key", "url"):
        return value
    return without_password(value) if name == "url" else masked(value)


def masked(key: str) -> str:
    """Returns the part of a key that identifies it, without its secret."""
    kind, _, rest = key.partition("_")
    return f"glk_{rest.partition('_')[0]}_…" if kind == "glk" and "_" in rest else "…"


def _effective(app: App) -> dict[str, Setting]:
    """Returns the settings, with the effective value of each unset one."""
    from genlock.identity import NoSession
    from genlock.settings import Setting, login_name

    found = dict(app.settings)

    def stand_in(name: str, value: Any, origin: str = "default") -> None:
        if found[name].value is None:
            found[name] = Setting(value, origin)

    stand_in("url", app.url)
    try:
        stand_in(
            "session",
            app.who.session,
            f"process {app.who.process.pid}" if app.who.process else "default",
        )
        stand_in("agent", app.who.agent)
    except NoSession:
        pass
    stand_in("user", login_name())
    return found


def _write(app: App, key: str, value: Any, *, user: bool) -> None:
    from genlock.settings import NOT_IN_FILES, BadSetting, check_project_may_set
    from genlock.trust import give_address_consent

    if key in NOT_IN_FILES and value is not None:
        raise BadSetting(f"{key} cannot be set in a file: {NOT_IN_FILES[key]}")
    if key == "api_key" and value is not None:
        raise BadSetting(
            "config set: a key belongs to an address; to store yours, type: genlock login ADDRESS"
        )
    if value is not None and not user:
        check_project_may_set(key, "config set")
    file = _file(app, user=user)
    changed = write_setting(file, key, value)
    if key == "url" and value is not None and not user:
        give_address_consent(file.parent, value)
    value = _shown(key, value)
    what = "unset" if value is None else f"= {value}"
    app.answers.give(
        {"key": key, "value": value, "file": str(file), "changed": changed},
        text=lambda console: _print(
            console, f"{key} {what} in {file}" + ("" if changed else " (as it was)")
        ),
    )


def _file(app: App, *, user: bool) -> Path:
    from genlock.cli.open_fleet import NoProject
    from genlock.settings import FILE, user_file
    from genlock.trust import check_owner

    if user:
        return user_file()
    if not app.project_folder.is_dir():
        raise NoProject(
            "there is no project here to set it for; type: genlock init, or set it for yourself "
            "with --user"
        )
    check_owner(app.project_folder)
    return app.project_folder / FILE


def _with_metrics_prefix(function: Callable[..., None]) -> Callable[..., None]:
    return click.option(
        "--metrics-prefix",
        "set_serve_metrics_prefix",
        metavar="WORD",
        help="What the names of metrics begin with; default: as set, else genlock.",
    )(function)


def _under_prefix(app: App, name: str) -> str:
    """Returns a file that belongs to the service's metrics, with the configured prefix."""
    from pathlib import Path

    import genlock

    file = Path(genlock.__file__).parent / "service" / "metrics" / name
    prefix = app.setting("serve_metrics_prefix")
    return file.read_text(encoding="utf-8").replace("genlock_", f"{prefix}_")


@config.command()
@_with_metrics_prefix
@verb(store=False, settings=("serve_metrics_prefix",))
def alerts(app: App) -> None:
    """Print alert rules for Prometheus.

    They name the service's metrics with their prefix. The output is YAML wherever it goes; with
    --json it is {"rules": TEXT}.
    """
    rules = _under_prefix(app, "alerts.yml")
    if app.answers.as_json:
        app.answers.give({"rules": rules}, text=lambda console: None)
    else:
        app.answers.write_text(rules)


@config.command()
@_with_metrics_prefix
@verb(store=False, settings=("serve_metrics_prefix",), text=False)
def grafana(app: App) -> None:
    """Print a dashboard for Grafana.

    It draws the service's metrics by tenant and project; import it in Grafana. The output is JSON
    wherever it goes.
    """
    app.answers.write_text(_under_prefix(app, "grafana.json"))


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@verb(store=False)
def completion(app: App, shell: str) -> None:
    """Print the completion script for your shell.

    \b
    ~/.bashrc                    eval "$(genlock completion bash)"
    ~/.zshrc                     eval "$(genlock completion zsh)"
    ~/.config/fish/config.fish   genlock completion fish | source
    """
    from genlock.cli.completion import script
    from genlock.cli.group import genlock

    made = script(genlock, shell)
    if app.answers.as_json:
        app.answers.give({"shell": shell, "script": made}, text=lambda console: None)
    else:
        # A shell reads this, so it is never JSON unless requested.
        app.answers.write_text(made)


@click.command()
@verb(store=False)
def version(app: App) -> None:
    """Print the version."""
    from genlock.cli.main import show_version

    show_version(as_json=app.answers.style.value == "json", quiet=app.answers.quiet)


def _print(console: Console, line: str) -> None:
    console.print(line, markup=False, highlight=False, soft_wrap=True)


# Changing one line of a settings file and leaving the others as they are, comments included.


def write_setting(path: Path, name: str, value: Any) -> bool:
    """Sets a setting, or removes it if `value` is None. False if the file needs no change."""
    before = text_of(path)
    held = parse(before, path)
    if (held[name].value if name in held else None) == value:
        return False
    end = "\r\n" if "\r\n" in before else "\n"
    line = None if value is None else f"{name} = {_toml(value)}{end}"
    lines = before.splitlines(keepends=True)
    if lines and not lines[-1].endswith("\n"):
        lines[-1] += end
    at = next(
        (
            at
            for at, text in enumerate(lines)
            if text.partition("=")[0].strip().strip("\"'") == name
        ),
        None,
    )
    if at is None:
        lines += [line] if line else []
    else:
        lines[at : at + 1] = [line] if line else []
    after = "".join(lines)
    wanted = {key: setting.value for key, setting in held.items() if key != name} | (
        {} if value is None else {name: value}
    )
    if {key: setting.value for key, setting in parse(after, path).items()} != wanted:
        raise BadSetting(
            f"{path}: {name} is written in a way that cannot be changed by a program; change it in "
            "the file"
        )
    _replace(path, after)
    return True


def _toml(value: Any) -> str:
    if not isinstance(value, str):
        return repr(value).lower()  # numbers and booleans
    import json

    return json.dumps(value, ensure_ascii=False)  # for printable text this is also TOML


def _replace(path: Path, text: str) -> None:
    """Replaces a file atomically and keeps its permissions; for a link, replaces its target."""
    path = Path(os.path.realpath(path))
    make_private_folder(path.parent)
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with os.fdopen(create_file(beside), "wb") as file:
            file.write(text.encode())
        if path.exists():
            beside.chmod(path.stat().st_mode & 0o777)
        os.replace(beside, path)
    finally:
        beside.unlink(missing_ok=True)
