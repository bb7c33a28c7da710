"""Payloads outside a store that has no room for them: `payloads=…` in its URL.

    payloads=file:///folder        a folder that all coordinators see
    payloads=s3://bucket/prefix    a bucket; `?region=…&endpoint_url=…` may follow, percent-encoded
                                   as any value in a URL

Implementation notes on buckets:

- **Create-only** is `If-None-Match: *`, which the server checks: of two writers of the same key at
  the same time, one is refused because the object exists.
- **Retries.** The driver retries reads, but not conditional puts. We retry those here, which is
  safe: putting the same payload again changes nothing.
- **Credentials** are those that boto3 finds, if it is installed: the same as for a DynamoDB table.
  Otherwise the driver finds its own, from the environment or the machine's role.
- **Forks.** The driver's threads do not survive a fork, and a child cannot start them again. A
  child may open its store and do everything except put and open payloads, which raise an error.
"""

from __future__ import annotations

import importlib.util
import io
import os
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from genlock.errors import BadArgument, ResultNotFound, StoreError, StoreUnavailable
from genlock.retry import Backoff
from genlock.store import Key, Payloads
from genlock.stores.payloads import NAME, FolderPayloads, name_of, reader_of

if TYPE_CHECKING:
    from obstore.store import S3Store

PIECE = 8 * 1024 * 1024
"""Larger payloads are read in pieces of this size, so that they need not fit in memory."""
TRIES = 4
BACKOFF = Backoff(first=0.4, longest=0.4)
"""Between attempts at a put."""

_SETTINGS = ("region", "endpoint_url")
_CLIENT = {"connect_timeout": "3s", "timeout": "60s"}
_RETRIES = {"max_retries": 3, "retry_timeout": timedelta(seconds=10)}

_first_user: list[int] = []
"""The process in which the driver started its threads."""


def payloads_for(option: str | None) -> Payloads | None:
    """Returns the place for payloads that a store's URL names; None if it names none. Raises
    `BadArgument` if the value is invalid."""
    if option is None:
        return None
    try:
        parts = urlsplit(option)
    except ValueError:
        parts = SplitResult("", "", "", "", "")
    match parts.scheme:
        case "file":
            return FolderPayloads(
                Path(os.path.realpath(_folder(option, parts)))
            )  # the user names this path, and may name a link
        case "s3":
            return _bucket(option, parts)
        case _:
            raise BadArgument(
                f"payloads={option}: there is no such place; write payloads=s3://bucket/prefix or "
                "payloads=file:///folder"
            )


def _folder(option: str, parts: SplitResult) -> Path:
    path = unquote(parts.path)
    if parts.netloc or not path.startswith("/") or "\0" in path or parts.query or parts.fragment:
        raise BadArgument(
            f"payloads={option} names no folder; write payloads=file:///absolute/folder"
        )
    return Path(path)


def _bucket(option: str, parts: SplitResult) -> Payloads:
    try:
        settings = dict(parse_qsl(parts.query, strict_parsing=bool(parts.query)))
    except ValueError as error:
        raise BadArgument(f"payloads={option}: {error}") from error
    unknown = settings.keys() - set(_SETTINGS)
    if unknown:
        raise BadArgument(
            f"payloads={option}: there is no setting {min(unknown)!r}; there are: "
            f"{', '.join(_SETTINGS)}"
        )
    if not parts.netloc or parts.fragment:
        raise BadArgument(f"payloads={option} names no bucket; write payloads=s3://bucket/prefix")
    endpoint = settings.get("endpoint_url")
    if endpoint is not None and not endpoint.startswith(("http://", "https://")):
        raise BadArgument(
            f"payloads={option}: {endpoint!r} is no endpoint_url; write endpoint_url=https://host"
        )
    return BucketPayloads(
        parts.netloc, unquote(parts.path).strip("/"), settings.get("region"), endpoint
    )


class BucketPayloads:
    """`genlock.store.Payloads` in a bucket. An object is there whole or not at all, and never
    changes."""

    def __init__(
        self,
        bucket: str,
        prefix: str = "",
        region: str | None = None,
        endpoint_url: str | None = None,
    ) -> None:
        self._where = f"s3://{bucket}/{prefix}"
        self._bucket = bucket
        self._store = open_bucket(bucket, prefix, region, endpoint_url)

    def put(self, key: Key, digest: str, data: bytes) -> None:
        """Stores the payload. Durable on return; an existing one stays."""
        import obstore
        from obstore.exceptions import AlreadyExistsError, GenericError

        path = _path(key, digest)
        with self._translated(), suppress(AlreadyExistsError):
            for failures in range(1, TRIES + 1):
                try:
                    obstore.put(self._store, path, data, mode="create", use_multipart=False)
                    return
                except GenericError:
                    if failures == TRIES:
                        raise
                time.sleep(BACKOFF.pause(failures))

    def open(self, key: Key, digest: str) -> BinaryIO:
        """A binary reader; `ResultNotFound` if there is none."""
        import obstore

        path, missing = _path(key, digest), f"{'/'.join(key)} has no payload {digest}"
        with self._translated(missing):
            found = obstore.get(self._store, path)
            size = found.meta["size"]
            if size <= PIECE:
                return io.BytesIO(found.bytes())
        return reader_of(
            lambda number: self._piece(
                path, number, size, f"{missing} any more: it was dropped while it was read"
            ),
            size,
            PIECE,
        )

    def _piece(self, path: str, number: int, size: int, missing: str) -> bytes:
        import obstore

        with self._translated(missing):
            return bytes(
                obstore.get_range(
                    self._store, path, start=number * PIECE, end=min((number + 1) * PIECE, size)
                )
            )

    def drop(self, key: Key, digest: str) -> None:
        """Removes it; absent is fine."""
        import obstore

        with self._translated():
            obstore.delete(self._store, _path(key, digest))

    def names(self) -> Iterator[str]:
        """Yields the names of all payloads. Other objects in the bucket are ignored."""
        import obstore

        with self._translated():
            for found in obstore.list(self._store):
                for each in found:
                    name = "".join(each["path"].split("/")[-2:])
                    if NAME.fullmatch(name):
                        yield name

    def _translated(self, missing: str | None = None) -> AbstractContextManager[None]:
        return bucket_errors(self._bucket, self._where, missing)


@contextmanager
def bucket_errors(
    bucket: str, where: str, missing: str | None = None, *, setting: str = "payloads="
) -> Iterator[None]:
    """Lets no error but ours out of the block; `missing` is what to say of an object that is not
    there, and `setting` what names the bucket."""
    from obstore.exceptions import BaseError

    if not _first_user:
        _first_user.append(os.getpid())
    if _first_user[0] != os.getpid():
        raise StoreError(
            f"{where} cannot be used in a child of process {_first_user[0]}, which has "
            "used a bucket: start a new process"
        )
    no_bucket = StoreUnavailable(
        f"there is no bucket {bucket}: create it, or name another in {setting}"
    )
    try:
        yield
    except FileNotFoundError as error:
        if missing is None or "NoSuchBucket" in str(error):
            raise no_bucket from error
        raise ResultNotFound(missing) from error
    except (BaseError, ValueError) as error:
        # The driver has no name for a list that is not found, and only a missing bucket can be
        # the cause.
        if missing is None and "status code: 404" in str(error):
            raise no_bucket from error
        raise _fault_of(error, where) from error


def check_driver(what: str) -> None:
    """`StoreError` if the driver of buckets is not installed."""
    if importlib.util.find_spec("obstore") is None:
        raise StoreError(
            f"the driver for {what}, obstore, is not installed: pip install 'genlock[objects]'"
        )


def open_bucket(
    bucket: str,
    prefix: str,
    region: str | None,
    endpoint_url: str | None,
    what: str = "payloads=s3://…",
) -> S3Store:
    """A client of an S3 bucket; `what` names it if there can be none."""
    check_driver(what)
    from obstore.exceptions import BaseError
    from obstore.store import S3Store

    config: Any = {
        name: value
        for name, value in (("region", region), ("endpoint", endpoint_url))
        if value is not None
    }
    client: Any = _CLIENT | {"allow_http": (endpoint_url or "").startswith("http://")}
    retries: Any = _RETRIES
    try:
        return S3Store(
            bucket,
            prefix=prefix or None,
            config=config,
            client_options=client,
            retry_config=retries,
            credential_provider=_credentials(bucket),
        )
    except (BaseError, ValueError) as error:
        raise BadArgument(
            f"there can be no client for s3://{bucket}/{prefix}: {_first_line(error)}"
        ) from error


def _credentials(bucket: str) -> Any:
    """Returns the credentials that boto3 finds; None if it is not installed."""
    if importlib.util.find_spec("boto3") is None:
        return None
    from obstore.auth.boto3 import Boto3CredentialProvider

    try:
        return Boto3CredentialProvider()
    except ValueError as error:
        raise StoreUnavailable(
            f"there are no AWS credentials for s3://{bucket}: set AWS_ACCESS_KEY_ID and "
            "AWS_SECRET_ACCESS_KEY, or a profile"
        ) from error


def _fault_of(error: Exception, where: str) -> StoreError:
    from obstore.exceptions import PermissionDeniedError, UnauthenticatedError

    if isinstance(error, PermissionDeniedError | UnauthenticatedError):
        return StoreUnavailable(
            f"{where} does not let us in ({_first_line(error)}): check the credentials and what "
            "they allow"
        )
    return StoreUnavailable(f"{where} cannot serve us now ({_first_line(error)})")


def _first_line(error: Exception) -> str:
    """Returns the driver's message without its debugging details."""
    return str(error).partition("\n")[0].strip()


def _path(key: Key, digest: str) -> str:
    name = name_of(key, digest)
    return f"{name[:2]}/{name[2:]}"
