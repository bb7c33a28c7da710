"""Servers from Debian's packages, unpacked into .servers: nothing is installed on the machine,
nothing is started, and root is not needed.

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

_KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"
_SIMULATED = re.compile(r"^Inst (\S+)", re.MULTILINE)


class NotToBeHad(Exception):
    """The package cannot be had here; says why and what to do."""


def program(package: str, name: str) -> Path | None:
    """Where a program of this package is: unpacked by us, or installed on the machine."""
    for place in (
        FOLDER / package / "usr" / "sbin" / name,
        FOLDER / package / "usr" / "bin" / name,
    ):
        if place.exists():
            return place
    found = shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")
    return Path(found) if found else None


def environment(package: str) -> dict[str, str]:
    """The environment in which an unpacked program finds its libraries."""
    root = FOLDER / package
    libraries = [
        str(path)
        for base in (root / "usr" / "lib", root / "lib")
        for path in sorted(base.glob("*-linux-gnu*"))
        if path.is_dir()
    ]
    return {
        **os.environ,
        "LD_LIBRARY_PATH": ":".join([*libraries, os.environ.get("LD_LIBRARY_PATH", "")]).rstrip(
            ":"
        ),
    }


def unpack(package: str, *, suite: str | None = None) -> Path:
    """The package and what it needs that the machine has not got, unpacked; where. Once is enough.

    One of another suite than the machine's comes with everything that it needs.
    """
    root = FOLDER / package
    if root.exists():
        return root
    if shutil.which("apt-get") is None:
        raise NotToBeHad(f"this machine has no apt-get: install {package} by its own means")
    FOLDER.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=FOLDER) as scratch:
        apt = ["apt-get", *(_apart(Path(scratch) / "apt", suite) if suite else ())]
        _run(*apt, "download", *_missing(package, apt), cwd=scratch)
        whole = Path(scratch) / "root"
        for archive in Path(scratch).glob("*.deb"):
            _run("dpkg-deb", "-x", str(archive), str(whole), cwd=scratch)
        whole.rename(root)
    return root


def _apart(root: Path, suite: str) -> list[str]:
    """The options for apt that know this suite alone, and of nothing that is installed."""
    for folder in (
        "etc/apt/apt.conf.d",
        "etc/apt/preferences.d",
        "var/lib/apt/lists/partial",
        "var/cache/apt/archives/partial",
        "var/lib/dpkg",
    ):
        (root / folder).mkdir(parents=True)
    (root / "var/lib/dpkg/status").touch()
    # From wherever the machine has its own packages.
    archives = _run(
        "apt-get",
        "indextargets",
        "--format",
        "$(REPO_URI)",
        "Created-By: Packages",
        "Origin: Debian",
        "Label: Debian",
    ).split()
    if not archives:
        raise NotToBeHad(
            "apt knows of no archive of Debian's: run `apt-get update` as root, and try again"
        )
    (root / "etc/apt/sources.list").write_text(
        f"deb [signed-by={_KEYRING}] {archives[0]} {suite} main\n"
    )
    options = [
        f"Dir={root}",
        f"Dir::State::status={root}/var/lib/dpkg/status",
        "APT::Sandbox::User=",
        "Acquire::Languages=none",
    ]
    apart = [word for option in options for word in ("-o", option)]
    _run("apt-get", *apart, "-qq", "update")
    return apart


def _missing(package: str, apt: list[str]) -> list[str]:
    """The packages to fetch, as a simulated installation names them."""
    simulate = (*apt, "-s", "-qq", "--no-install-recommends", "install", package)
    try:
        said = _run(*simulate)
    except NotToBeHad:
        if os.geteuid() != 0:
            raise NotToBeHad(
                f"Debian's lists do not name {package}: run `apt-get update` as root, then `make "
                "servers` again"
            ) from None
        _run("apt-get", "-qq", "update")
        said = _run(*simulate)
    return [package, *(name for name in _SIMULATED.findall(said) if name != package)]


def _run(*command: str, cwd: str | None = None) -> str:
    done = subprocess.run(
        command, cwd=cwd, capture_output=True, text=True, env={**os.environ, "LC_ALL": "C"}
    )
    if done.returncode != 0:
        raise NotToBeHad(f"{' '.join(command[:3])} failed: {done.stderr.strip()[-500:]}")
    return done.stdout
