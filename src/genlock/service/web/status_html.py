"""The status page's moving part as HTML."""

from __future__ import annotations

from typing import Final

from genlock.core.keys import Scope
from genlock.core.model import NO_LEASE
from genlock.messages import describe_event
from genlock.reads.status import ClaimRow, EventRow, FleetStatus, ProjectSummary, TaskBar
from genlock.service.web.html import Html, Part, join, tag

_STATES: Final = {
    "COMPLETED": "completed",
    "IN_PROGRESS": "in progress",
    "IN_REVIEW": "in review",
    "PENDING": "ready",
    "BACKLOG": "backlog",
    "BLOCKED": "blocked",
    "HELD": "held",
    "CANCELLED": "cancelled",
}
"""In the order of a bar, with the words for people."""

_WIDTH: Final = 1000


def fragment(status: FleetStatus, *, version: str, store: str, uptime_seconds: float) -> Html:
    """All that changes."""
    about = f"{version} · {store} store · up {length(uptime_seconds)}"
    return join(
        tag("p", about, _class="about"),
        _tiles(status),
        _needs(status),
        _projects(status),
        _holdings(status),
        _events(status),
    )


def length(seconds: float) -> str:
    """How long, in one or two units."""
    whole = int(seconds)
    for size, unit, below, smaller in (
        (86400, "d", 3600, "h"),
        (3600, "h", 60, "m"),
        (60, "m", 1, "s"),
    ):
        if whole >= size:
            rest = whole % size // below
            return f"{whole // size} {unit} {rest} {smaller}" if rest else f"{whole // size} {unit}"
    return f"{max(whole, 0)} s"


def _tiles(status: FleetStatus) -> Html:
    refused = sum(project.refused for project in status.projects)
    total = sum(project.whole.total for project in status.projects)
    return tag(
        "section",
        _tile("ready", status.count("PENDING")),
        _tile("in progress", status.count("IN_PROGRESS")),
        _tile("completed", status.count("COMPLETED"), f"of {total:,}"),
        _tile("blocked", status.count("BLOCKED")),
        _tile("refused results kept", refused, kind="warn" if refused else None),
        _class="tiles",
    )


def _tile(name: str, number: int, beside: str = "", *, kind: str | None = None) -> Html:
    aside = tag("small", f" {beside}") if beside else None
    return tag("div", tag("b", f"{number:,}", aside), tag("span", name), _class=kind)


def _needs(status: FleetStatus) -> Html | None:
    """What waits for a person, and what that person may type; nothing where nothing does."""
    refused = [project for project in status.projects if project.refused]
    waiting = [
        (project.scope, number)
        for project in status.projects
        if (number := project.whole.counts.get("IN_REVIEW", 0))
    ]
    if not status.held and not refused and not waiting:
        return None
    more = status.count("HELD") - len(status.held)
    rows = [
        *(
            tag(
                "li",
                tag("span", tag("code", one.task), f" is held: {one.reason}"),
                _typed("reopen", one.scope, one.task),
            )
            for one in status.held
        ),
        tag("li", tag("span", f"and {more:,} more that are held"), _typed("status"))
        if more
        else None,
        *(
            tag("li", tag("span", _in_review(number)), _typed("review list", scope))
            for scope, number in waiting
        ),
        *(
            tag("li", tag("span", _kept(project.refused)), _typed("refused", project.scope))
            for project in refused
        ),
    ]
    return tag("section", tag("h2", "Needs you"), tag("ol", *rows, _class="needs"))


def _in_review(number: int) -> str:
    return f"{number:,} {'result waits' if number == 1 else 'results wait'} for a review"


def _kept(refused: int) -> str:
    return (
        f"{refused:,} refused {'result waits' if refused == 1 else 'results wait'} to be "
        "adopted or discarded"
    )


def _typed(verb: str, scope: Scope = ("default", "default"), *words: str) -> Html:
    """A command to be typed, with its project if that is not the usual one."""
    named = [
        word
        for name, value in zip(("--tenant", "--project"), scope, strict=True)
        if value != "default"
        for word in (name, value)
    ]
    return tag("code", " ".join(["genlock", verb, *words, *named]), _class="typed")


def _projects(status: FleetStatus) -> Html:
    if not status.projects:
        return tag(
            "section",
            tag("h2", "Projects"),
            tag("p", "There are none yet: import a plan.", _class="none"),
        )
    several = len({project.scope[0] for project in status.projects}) > 1
    more = (
        tag("p", f"There are more; these are the first {len(status.projects)}.", _class="none")
        if status.more_projects
        else None
    )
    return tag(
        "section",
        tag("h2", "Projects"),
        _legend(status),
        *(_project(one, several) for one in status.projects),
        more,
    )


def _legend(status: FleetStatus) -> Html:
    present = [state for state in _STATES if status.count(state)]
    return tag(
        "p",
        *(tag("span", tag("i", _class=state.lower()), _STATES[state]) for state in present),
        _class="legend",
    )


def _project(project: ProjectSummary, several: bool) -> Html:
    tenant, name = project.scope
    bars = (
        project.tracks
        if len(project.tracks) > 1 or (project.tracks and project.tracks[0].name)
        else [project.whole]
    )
    done = project.whole.counts.get("COMPLETED", 0)
    head = tag(
        "h3",
        f"{tenant}/{name}" if several else name,
        tag("small", f"{done:,} of {project.whole.total:,}"),
    )
    # A plan that is too large is not parted by tracks, which is not to say that it has none.
    nameless = (
        "no tasks" if not project.whole.total else "no track" if project.tracks else "all tracks"
    )
    return tag("article", head, *(_bar(bar, nameless) for bar in bars))


def _bar(bar: TaskBar, nameless: str) -> Html:
    done, total = bar.counts.get("COMPLETED", 0), bar.total
    said = ", ".join(
        f"{bar.counts[state]:,} {word}" for state, word in _STATES.items() if bar.counts.get(state)
    )
    label: Part = join(tag("b", bar.name), f" {bar.purpose}") if bar.name else nameless
    drawn = tag(
        "svg",
        *_pieces(bar),
        viewBox=f"0 0 {_WIDTH} 10",
        preserveAspectRatio="none",
        role="img",
        aria_label=said,
    )
    return tag(
        "div",
        tag("span", label, _class="name"),
        drawn,
        tag("span", f"{done:,}/{total:,}", _class="of"),
        _class="bar",
        title=said,
    )


def _pieces(bar: TaskBar) -> list[Html]:
    pieces, seen = [], 0
    for state in _STATES:
        count = bar.counts.get(state, 0)
        if count:
            start, end = seen * _WIDTH // bar.total, (seen + count) * _WIDTH // bar.total
            pieces.append(
                tag("rect", x=start, width=max(end - start, 2), height=10, _class=state.lower())
            )
            seen += count
    return pieces


def _holdings(status: FleetStatus) -> Html:
    if not status.claims:
        return tag(
            "section", tag("h2", "Who holds what"), tag("p", "Nobody is at work.", _class="none")
        )
    more = (
        tag("p", f"There are more than these {len(status.claims)}.", _class="none")
        if status.more_claims
        else None
    )
    head = tag("tr", *(tag("th", name, _class=kind) for name, kind in _COLUMNS))
    several = len({one.scope for one in status.claims}) > 1
    rows = tag("tbody", *(_holding(one, several) for one in status.claims))
    return tag("section", tag("h2", "Who holds what"), tag("table", tag("thead", head), rows), more)


_COLUMNS: Final = (
    ("agent", None),
    ("session", "wide"),
    ("task", None),
    ("gen", "number"),
    ("lease left", "number"),
    ("looks", "word"),
)


def _lease_left(seconds: float | None) -> str:
    if seconds is None:
        return NO_LEASE
    return "over" if seconds <= 0 else length(seconds)


def _holding(one: ClaimRow, several: bool) -> Html:
    project = tag("small", f" {one.scope[1]}") if several else None
    title = tag("small", one.title, _class="title") if one.title and one.title != one.task else None
    return tag(
        "tr",
        tag("td", one.agent, _class="agent"),
        tag("td", one.session if one.session != one.agent else "", _class="wide"),
        tag("td", tag("code", one.task), project, title, _class="task"),
        tag("td", one.generation, _class="number gen"),
        tag("td", _lease_left(one.left_seconds), _class="number lease"),
        tag(
            "td",
            tag("span", "alive" if one.alive else "lost", _class="alive" if one.alive else "lost"),
            _class="word",
        ),
    )


def _events(status: FleetStatus) -> Html:
    if not status.events:
        return tag(
            "section",
            tag("h2", "Lately"),
            tag("p", "Nothing since this service began to look.", _class="none"),
        )
    several = len({row.scope for row in status.events}) > 1
    return tag(
        "section",
        tag("h2", "Lately"),
        tag("ol", *(_event(row, several) for row in status.events)),
    )


def _event(row: EventRow, several: bool) -> Html:
    at = row.event.timestamp
    return tag(
        "li",
        tag("time", f"{at:%H:%M:%S}", datetime=f"{at:%Y-%m-%dT%H:%M:%SZ}"),
        tag("span", describe_event(row.event)),
        tag("small", row.scope[1]) if several else None,
    )
