"""Going through a store, page by page: a project's records of one kind, a project's feed."""

from __future__ import annotations

from collections.abc import Iterator

from genlock.store import EventPage, EventQuery, Query, Store, Stored

_PAGE = 500


def records_of(store: Store, tenant: str, project: str | None, kind: str, state: str | None = None) -> Iterator[Stored]:
    """Every record of this kind, or of those in this state, by project and id."""
    after: str | None = None
    while True:
        page = store.find(Query(tenant, project, kind, state=state, after=after, limit=_PAGE))
        yield from page.records
        if page.next is None:
            return
        after = page.next


def pages_of(store: Store, place: tuple[str, str], after: str | None = None, limit: int = _PAGE) -> Iterator[EventPage]:
    """The project's feed from a cursor to its present end; the last page may be empty."""
    while True:
        page = store.read_events(EventQuery(*place, after=after, limit=limit))
        yield page
        if not page.more:
            return
        after = page.cursor
