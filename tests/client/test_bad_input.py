"""Whatever is passed to the remote client: the same clear errors as the embedded coordinator's, and
nothing changed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import genlock
from genlock import Coordinator
from genlock.wire.operations import ROUTES
from tests.servers.service import serving
from tests.test_bad_input import BAD, Fleet, complaint, parameters, shown


class Remote(Fleet):
    """The same fleet, through a service on the same file."""

    def __init__(self, folder: Path, url: str, embedded: Fleet) -> None:
        self.file, self.refused_id, self.key_id, self.raw = (
            embedded.file,
            embedded.refused_id,
            embedded.key_id,
            embedded.raw,
        )
        self.coordinator: Coordinator = genlock.connect(url, session_id="s1", agent_id="alice")


@pytest.fixture(scope="module")
def remote(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Remote]:
    folder = tmp_path_factory.mktemp("bad")
    embedded = Fleet(folder)
    with serving(f"sqlite://{embedded.file}") as service:
        remote = Remote(folder, service.url, embedded)
        yield remote
        remote.coordinator.close()
    embedded.close()


AS_JSON = ({5: 1}, {5: True})
"""In JSON every key is a text, so these arrive as something good."""


@pytest.mark.parametrize("method", [route.name for route in ROUTES])
def test_wrong_arguments_are_refused_by_name_and_change_nothing(
    method: str, remote: Remote
) -> None:
    complaints: list[str] = []
    for parameter in parameters(method):
        for value in BAD.get(f"{method} {parameter}", BAD.get(parameter, [])):
            if value in AS_JSON:
                continue
            found = complaint(remote, method, parameter, value)
            if found is not None:
                complaints.append(f"{method}({parameter}={shown(value)}) {found}"[:300])
    assert not complaints, f"{len(complaints)} wrong arguments:\n" + "\n".join(complaints)
