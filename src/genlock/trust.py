"""Trust: which settings of a project apply as they are, and which need the user's consent first.

A project's folder may come from another person: with a clone, or because another user of the
machine made it. So

    its owner     must be the user (for root also the one who called sudo), as git wants it of a
                  repository; so must each `.git` file or link that leads to it
    its address   a store inside the project is used as it is; any other, a service or a database
                  included, only with consent

Consent is given once for a folder and its owner, or for a folder and an address, by `genlock
trust`. It is kept in `trusted.json` beside the user's settings, readable by the user alone. All
code that reads settings calls `trusted_settings`, the command line's completion as well.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import unquote, urlsplit

from genlock import project_folder
from genlock.core.products_url import read_products_url
from genlock.errors import AccessRefused, GenlockError
from genlock.private_files import write_private
from genlock.safe_text import without_password
from genlock.settings import FILE, BadSetting, Setting, read_project, resolve, text_of, user_file

_CONSENTS: Final = "trusted.json"
_PROJECT_FOLDERS: Final = (project_folder.FOLDER, f".git/{project_folder.FOLDER}")


class Untrusted(AccessRefused):
    """A project says what its user has not agreed to; the message says what to type."""


class Request(NamedTuple):
    """A request of a project for its user's consent."""

    wanted: str
    """The address, or the folder."""
    shown: str
    """The same without a password."""
    origin: str
    """The source of the request: a file and its line, or the folder."""
    is_folder: bool


def trusted_settings(flags: Mapping[str, Any], folder: Path) -> dict[str, Setting]:
    """Returns every setting with its origin, for the project of this `.genlock` folder; `Untrusted`
    if one of them needs consent."""
    if os.path.lexists(folder / FILE):
        check_owner(folder)
    found = resolve(flags, folder)
    url = found["url"]
    if url.value is None:
        check_owner(folder)
    request = _address_request(folder, url)
    if request is not None and not _has_consent(folder, request):
        raise Untrusted(
            f"{request.origin}: the project names {request.shown} as its store, which is outside "
            "of the project and is not used without "
            "your consent; if you trust it, type: genlock trust"
        )
    return found


def check_owner(folder: Path) -> None:
    """Raises `Untrusted` if the project belongs to another user without consent."""
    for request in _owner_requests(folder):
        if _has_consent(folder, request):
            continue
        raise Untrusted(
            f"{request.origin} belongs to {_owner_of(Path(request.origin))}, and what another user "
            "put there is not obeyed without "
            f"your consent; if you trust it, type: genlock trust {request.shown}"
        )


def requests(folder: Path) -> list[Request]:
    """Returns the requests of this project that have no consent yet."""
    url = read_project(folder).get("url", Setting(None, "default"))
    found = [*_owner_requests(folder), _address_request(folder, url)]
    return [
        request for request in found if request is not None and not _has_consent(folder, request)
    ]


def give_consent(folder: Path, request: Request) -> None:
    """Records the user's consent to this request."""
    consents = _consents()
    consents.setdefault(str(folder), {})[_name(folder, request)] = request.shown
    _write(consents)


def give_address_consent(folder: Path, url: str) -> None:
    """Records consent to an address that the user has put into the project's file."""
    request = _address_request(folder, Setting(url, str(folder / FILE), "project"))
    if request is not None:
        give_consent(folder, request)


def check_area(store: object, products: str) -> None:
    """Raises `Untrusted` if a store inside a project names an area for products outside of it. Such
    a store may have come with a clone; the policy in it then says where this user's files go, under
    this user's credentials."""
    folder = _store_folder(store)
    if folder is None or _is_within(products, folder):
        return
    request = _area_request(folder, products)
    if not _has_consent(folder, request):
        raise Untrusted(
            f"the project in {folder.parent} names {products} as the area for its products, which "
            "is outside of the project and is not used without your consent; if you trust it, "
            f"type: genlock policy set products={products}"
        )


def give_area_consent(store: object, products: str) -> None:
    """Records consent to an area that the user has named."""
    folder = _store_folder(store)
    if folder is not None and not _is_within(products, folder):
        give_consent(folder, _area_request(folder, products))


def _area_request(folder: Path, products: str) -> Request:
    return Request(products, products, str(folder), is_folder=False)


def _store_folder(store: object) -> Path | None:
    """Returns the folder of a store's file if it is a project's. A store elsewhere was named by a
    program or a user, and did not come with a project."""
    if not isinstance(store, str):
        return None
    if store.startswith("folder://"):
        path = urlsplit(store).path
        return Path(os.path.realpath(unquote(path))) / project_folder.FOLDER
    file = project_folder.sqlite_path(store)
    if file is None:
        return None
    if file.parent.name == project_folder.FOLDER:
        return file.parent
    real = Path(os.path.realpath(file))
    beside = (parent / folder for parent in real.parents for folder in _PROJECT_FOLDERS)
    return next((folder for folder in beside if _project_names(folder, real)), None)


def _project_names(folder: Path, file: Path) -> bool:
    """Does a project of its own accord have its store in this file, elsewhere in the project?"""
    try:
        url = read_project(folder).get("url", Setting(None, "default")).value
        own = folder / project_folder.FILE if url is None else project_folder.sqlite_path(url)
    except GenlockError:
        return False  # settings that cannot be read have led no caller here
    return own is not None and Path(os.path.realpath(own)) == file


def _is_within(products: str, folder: Path) -> bool:
    address = read_products_url(products)
    root = os.path.realpath(folder.parent)
    return address.scheme == "file" and Path(os.path.realpath(address.path)).is_relative_to(root)


def consents() -> list[tuple[str, str]]:
    """Returns all consents: the project's folder, and the address or again the folder."""
    return [
        (folder, shown)
        for folder, given in sorted(_consents().items())
        for shown in sorted(given.values())
    ]


def revoke(folder: Path) -> list[str]:
    """Revokes all consent for this project. Returns what it was for."""
    found = _consents()
    given = found.pop(str(folder), {})
    if given:
        _write(found)
    return sorted(given.values())


def _address_request(folder: Path, url: Setting) -> Request | None:
    """Returns the request for the store's address, if the project chose one outside of itself."""
    if url.source not in ("project", "default"):
        return None
    if url.value is None:
        path: Path | None = folder / project_folder.FILE  # may be a link, or in a linked folder
        address, origin = (
            project_folder.sqlite_url(Path(os.path.realpath(folder / project_folder.FILE))),
            str(folder / project_folder.FILE),
        )
    else:
        path, address, origin = project_folder.sqlite_path(url.value), url.value, url.origin
    root = folder.parent.parent if folder.parent.name == ".git" else folder.parent
    if path is not None and Path(os.path.realpath(path)).is_relative_to(os.path.realpath(root)):
        return None
    return Request(address, without_password(address), origin, is_folder=False)


def _owner_requests(folder: Path) -> list[Request]:
    """Returns the requests of a project whose folder, settings or repository belong to other users:
    one for each of them, and one for a path that leads to it from elsewhere."""
    beside = folder.parent / ".git"
    repository = (
        [folder.parent, beside]
        if os.path.lexists(beside)
        else [folder.parent]
        if project_folder.is_git_folder(folder.parent)
        else []
    )
    own = (folder, folder / FILE, *repository)
    found: dict[tuple[Path, int], Request] = {}
    for path in (*own, *project_folder.followed_to(folder)):
        if not os.path.lexists(path) or _is_ours(path):
            continue
        # The owner of a file that leads to the project has no say in the project itself.
        trusted = folder.parent if path in own else path
        found.setdefault(
            (trusted, os.lstat(path).st_uid),
            Request(str(trusted), str(trusted), str(path), is_folder=True),
        )
    return list(found.values())


def _is_ours(path: Path) -> bool:
    """Uses git's rule: the owner is the effective user; if we are root, root or the user who called
    sudo."""
    owner, user = os.lstat(path).st_uid, os.geteuid()
    if owner == user:
        return True
    caller = os.environ.get("SUDO_UID", "")
    return user == 0 and caller.isascii() and caller.isdigit() and owner == int(caller)


def _owner_of(path: Path) -> str:
    import pwd

    owner = os.lstat(path).st_uid
    try:
        return f"the user {pwd.getpwuid(owner).pw_name}"
    except KeyError:
        return f"the user {owner}"


def _has_consent(folder: Path, request: Request) -> bool:
    return _name(folder, request) in _consents().get(str(folder), {})


def _name(folder: Path, request: Request) -> str:
    """Returns the key of a consent. For an address that is its digest: the address may contain a
    password, which belongs in no second file.

    For a folder it names the owner, so that consent does not extend to a folder that another user
    puts there later. A path that leads to the project from elsewhere is keyed by itself and its
    owner.
    """
    import hashlib  # late: most projects need no consent

    if request.is_folder:
        owner = os.lstat(request.origin).st_uid
        is_project = request.wanted == str(folder.parent)
        return f"folder of {owner}" if is_project else f"{request.wanted} of {owner}"
    return hashlib.sha256(request.wanted.encode(errors="surrogateescape")).hexdigest()


def _path() -> Path:
    return user_file().with_name(_CONSENTS)


def _consents() -> dict[str, dict[str, str]]:
    """Returns the consents by project folder, with the text that was shown."""
    text = text_of(_path())
    if not text:
        return {}
    import json

    try:
        found = json.loads(text)
        return {
            str(folder): {str(name): str(shown) for name, shown in given.items()}
            for folder, given in found.items()
        }
    except (ValueError, AttributeError) as error:
        raise BadSetting(
            f"{_path()} cannot be read: {error}; remove it, and give your consent again with: "
            "genlock trust"
        ) from None


def _write(consents: Mapping[str, Mapping[str, str]]) -> None:
    import json

    write_private(_path(), json.dumps(consents, indent=1, sort_keys=True) + "\n")
