"""Settings, completion, version."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from genlock.cli.app import App, verb

if TYPE_CHECKING:
    from pathlib import Path

    from rich.console import Console

    from genlock.settings import Setting


@click.group()
def config() -> None:
    """Settings, and where they come from.

    The first that says something counts: a flag, the environment (GENLOCK_URL and so on), the project's file, your own file.
    """


@config.command()
@click.option("--origin", is_flag=True, help="Also where each comes from.")
@verb(worker=True)
def show(app: App, origin: bool) -> None:
    """Every setting as it counts here. Keys and passwords are not shown; `config get` gives them."""
    found = {name: setting._replace(value=_shown(name, setting.value)) for name, setting in _effective(app).items()}

    def text(console: Console) -> None:
        from rich.table import Table
        from rich.text import Text

        table = Table(box=None, show_header=False, pad_edge=False)
        for name, setting in found.items():
            cells = [name, "" if setting.value is None else str(setting.value), *([setting.origin] if origin else [])]
            table.add_row(*(Text(cell, overflow="fold") for cell in cells))
        console.print(table)

    value = {name: setting._asdict() if origin else setting.value for name, setting in found.items()}
    app.answers.give(value, text=text, bare=[f"{name}={'' if setting.value is None else setting.value}" for name, setting in found.items()])


@config.command()
@click.argument("key")
@verb(worker=True)
def get(app: App, key: str) -> None:
    """One setting as it counts here."""
    from genlock.settings import check_name

    setting = _effective(app)[check_name(key)]
    shown = "" if setting.value is None else str(setting.value)
    app.answers.give(
        {"key": key, "value": setting.value, "origin": setting.origin}, text=lambda console: _print(console, shown), bare=[shown]
    )


@config.command("set")
@click.argument("key")
@click.argument("value")
@click.option("--user", is_flag=True, help="In your own file instead of the project's.")
@verb(store=False)
def set_(app: App, key: str, value: str, user: bool) -> None:
    """Write a setting into the project's file, or into your own."""
    from genlock.settings import check, check_name

    check_name(key)
    _write(app, key, check(key, value, "config set"), user=user)


@config.command()
@click.argument("key")
@click.option("--user", is_flag=True, help="From your own file instead of the project's.")
@verb(store=False)
def unset(app: App, key: str, user: bool) -> None:
    """Take a setting out of a file."""
    from genlock.settings import check_name

    _write(app, check_name(key), None, user=user)


@config.command()
@verb(store=False)
def path(app: App) -> None:
    """Where the files are, whether or not they exist."""
    from genlock.settings import FILE, user_file

    found = {"project": str(app.project_folder / FILE), "user": str(user_file())}
    app.answers.give(found, text=lambda console: _print(console, "\n".join(found.values())), bare=found.values())


def _shown(name: str, value: Any) -> Any:
    """What may be seen by whoever looks over the shoulder."""
    from genlock.cli.wording import without_password

    if value is None or name not in ("api_key", "url"):
        return value
    return without_password(value) if name == "url" else masked(value)


def masked(key: str) -> str:
    """Which key it is, without its secret."""
    kind, _, rest = key.partition("_")
    return f"glk_{rest.partition('_')[0]}_…" if kind == "glk" and "_" in rest else "…"


def _effective(app: App) -> dict[str, Setting]:
    """The settings, and what stands in where nothing is set."""
    from genlock.cli.identity import NoSession
    from genlock.settings import Setting, login_name

    found = dict(app.settings)

    def stand_in(name: str, value: Any, origin: str = "default") -> None:
        if found[name].value is None:
            found[name] = Setting(value, origin)

    stand_in("url", app.url)
    try:
        stand_in("session", app.who.session, f"process {app.who.process.pid}" if app.who.process else "default")
        stand_in("agent", app.who.agent)
    except NoSession:
        pass
    stand_in("user", login_name())
    return found


def _write(app: App, key: str, value: Any, *, user: bool) -> None:
    from genlock.cli.editing import write_setting
    from genlock.settings import NOT_IN_FILES, BadSetting

    if key in NOT_IN_FILES and value is not None:
        raise BadSetting(f"{key} cannot be set in a file: {NOT_IN_FILES[key]}")
    if key == "api_key" and value is not None and not user:
        raise BadSetting("a key is yours and not the project's: to keep it in your own file, type: genlock config set --user api_key …")
    file = _file(app, user=user)
    changed = write_setting(file, key, value)
    if key == "api_key" and file.exists():
        file.chmod(0o600)
    value = _shown(key, value)
    what = "unset" if value is None else f"= {value}"
    app.answers.give(
        {"key": key, "value": value, "file": str(file), "changed": changed},
        text=lambda console: _print(console, f"{key} {what} in {file}" + ("" if changed else " (as it was)")),
    )


def _file(app: App, *, user: bool) -> Path:
    from genlock.cli.opening import NoProject
    from genlock.settings import FILE, user_file

    if user:
        return user_file()
    if not app.project_folder.is_dir():
        raise NoProject("there is no project here to set it for; type: genlock init, or set it for yourself with --user")
    return app.project_folder / FILE


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@verb(store=False)
def completion(app: App, shell: str) -> None:
    """Completion for your shell.

    \b
    ~/.bashrc                    eval "$(genlock completion bash)"
    ~/.zshrc                     eval "$(genlock completion zsh)"
    ~/.config/fish/config.fish   genlock completion fish | source
    """
    from genlock.cli.completing import script
    from genlock.cli.group import genlock

    made = script(genlock, shell)
    if app.answers.as_json:
        app.answers.give({"shell": shell, "script": made}, text=lambda console: None)
    else:
        # For a shell to read, so never JSON unless it was asked for.
        app.answers.write(made.encode())


@click.command()
@verb(store=False)
def version(app: App) -> None:
    """The version."""
    from genlock.cli.main import show_version

    show_version(as_json=app.answers.as_json, quiet=app.answers.quiet)


def _print(console: Console, line: str) -> None:
    console.print(line, markup=False, highlight=False, soft_wrap=True)
