"""Servers from Debian's packages, unpacked into .servers: nothing is installed on the machine, nothing is started, and root is not needed.

Only the lists of packages must be there; whoever is root has them fetched.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

FOLDER = Path(__file__).parents[2] / ".servers" / "debian"

_SIMULATED = re.compile(r"^Inst (\S+)", re.MULTILINE)


class NotToBeHad(Exception):
    """The package cannot be had here; says why and what to do."""


def program(package: str, name: str) -> Path | None:
    """Where a program of this package is: unpacked by us, or installed on the machine."""
    for place in (FOLDER / package / "usr" / "sbin" / name, FOLDER / package / "usr" / "bin" / name):
        if place.exists():
            return place
    found = shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")
    return Path(found) if found else None


def environment(package: str) -> dict[str, str]:
    """The environment in which an unpacked program finds its libraries."""
    root = FOLDER / package
    libraries = [str(path) for base in (root / "usr" / "lib", root / "lib") for path in sorted(base.glob("*-linux-gnu*")) if path.is_dir()]
    return {**os.environ, "LD_LIBRARY_PATH": ":".join([*libraries, os.environ.get("LD_LIBRARY_PATH", "")]).rstrip(":")}


def unpack(package: str) -> Path:
    """The package and what it needs that the machine has not got, unpacked; where. Once is enough."""
    root = FOLDER / package
    if root.exists():
        return root
    if shutil.which("apt-get") is None:
        raise NotToBeHad(f"this machine has no apt-get: install {package} by its own means")
    names = _missing(package)
    FOLDER.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=FOLDER) as scratch:
        _run("apt-get", "download", *names, cwd=scratch)
        whole = Path(scratch) / "root"
        for archive in Path(scratch).glob("*.deb"):
            _run("dpkg-deb", "-x", str(archive), str(whole), cwd=scratch)
        whole.rename(root)
    return root


def _missing(package: str) -> list[str]:
    """The packages to fetch, as a simulated installation names them."""
    simulate = ("apt-get", "-s", "-qq", "--no-install-recommends", "install", package)
    try:
        said = _run(*simulate)
    except NotToBeHad:
        if os.geteuid() != 0:
            raise NotToBeHad(f"Debian's lists do not name {package}: run `apt-get update` as root, then `make servers` again") from None
        _run("apt-get", "-qq", "update")
        said = _run(*simulate)
    return [package, *(name for name in _SIMULATED.findall(said) if name != package)]


def _run(*command: str, cwd: str | None = None) -> str:
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, env={**os.environ, "LC_ALL": "C"})
    if done.returncode != 0:
        raise NotToBeHad(f"{' '.join(command[:3])} failed: {done.stderr.strip()[-500:]}")
    return done.stdout
