"""How a client of the driver is made."""

from __future__ import annotations

import os
import threading
from typing import Any

import boto3
import botocore.config
import botocore.exceptions

from genlock.errors import BadArgument
from genlock.stores.dynamodb.settings import Settings
from genlock.stores.dynamodb.wire import shorten

CONNECT_SECONDS = 3.0
READ_SECONDS = 5.0

_lock = threading.Lock()
_sessions: dict[int, Any] = {}


def make_client(settings: Settings, *, connections: int) -> Any:
    """A client with the credentials of the usual AWS environment. It never repeats a call by itself: see calls.py."""
    region, endpoint_url = settings.region or os.environ.get("AWS_REGION"), settings.endpoint_url
    config = botocore.config.Config(
        connect_timeout=CONNECT_SECONDS,
        read_timeout=READ_SECONDS,
        max_pool_connections=connections,
        retries={"total_max_attempts": 1, "mode": "standard"},
        tcp_keepalive=True,
        # The driver's own is put together anew for every call, which is a seventh of what a call takes here.
        user_agent="genlock",
        parameter_validation=False,
    )
    try:
        with _lock:  # a session is not made for several threads; the clients it makes are
            session = _session()
            if endpoint_url is None and region is not None:
                session.get_partition_for_region(region)
            client = session.client("dynamodb", region_name=region, endpoint_url=endpoint_url, config=config)
        shorten(client)
        return client
    except botocore.exceptions.UnknownRegionError as error:
        raise BadArgument(f"AWS has no region {region!r}: write one such as dynamodb://{settings.table}?region=eu-west-1") from error
    except botocore.exceptions.NoRegionError as error:
        raise BadArgument("the table's region is not known: write dynamodb://table?region=…, or set AWS_REGION") from error
    except (botocore.exceptions.BotoCoreError, ValueError) as error:
        raise BadArgument(f"there can be no client for DynamoDB at {endpoint_url or region}: {error}") from error


def _session() -> Any:
    """One for all stores of a process: it reads the driver's tables of services, which takes longer than all the rest."""
    pid = os.getpid()
    if pid not in _sessions:
        _sessions.clear()
        _sessions[pid] = boto3.session.Session()
    return _sessions[pid]
