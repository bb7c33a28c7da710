"""Builds the dashboard into a wheel, if it is not built yet and node is there.

`make wheel` builds it first. A wheel that pip builds from the sources on a machine without node has
no dashboard: its service shows the plain status page, which says how to build it.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

BUILT = Path("src/genlock/service/web/built/index.html")


class DashboardHook(BuildHookInterface):  # type: ignore[type-arg]
    """Runs before a wheel is packed."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Nothing for an editable install: `make` builds what that one serves."""
        root = Path(self.root)
        if version == "editable" or (root / BUILT).exists():
            return
        node, npm = shutil.which("node"), shutil.which("npm")
        if node is None or npm is None:
            self.app.display_warning("node and npm are needed for the dashboard: it is left out")
            return
        try:
            install = [npm, "ci", "--ignore-scripts", "--omit=dev"]
            subprocess.run(install, cwd=root / "web", check=True)
            build = [node, "node_modules/vite/bin/vite.js", "build"]
            subprocess.run(build, cwd=root / "web", check=True)
        except (OSError, subprocess.CalledProcessError) as error:
            self.app.display_warning(f"the dashboard could not be built and is left out: {error}")
