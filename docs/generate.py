"""Makes the pages of docs/reference from the code: `python -m docs.generate`.

Names, fields, defaults and docstrings come from the code. What a single state or reason means is
said in `meanings.py`; a name without a meaning, or a meaning without a name, is an error.
`tests/test_docs.py` holds that the pages are what this script would write.
"""

from __future__ import annotations

import ast
import builtins
import inspect
import re
import tomllib
from collections.abc import Callable, Iterable
from enum import Enum, StrEnum
from itertools import pairwise
from pathlib import Path
from textwrap import dedent, wrap
from types import ModuleType
from typing import Any, get_args

import click
import msgspec

from docs.meanings import EXIT_CODES, LIMITS, MEANINGS, POLICY_KEYS, RECORDS, REMARKS, SIZES
from docs.web_types import web_types
from genlock import errors
from genlock.cli import exit_codes, group
from genlock.cli.main import SECTIONS
from genlock.core import events, key_roles, policy, reasons
from genlock.messages import EVENTS, title, typed
from genlock.service.metrics import table as metrics
from genlock.service.metrics.tallies import MOST_PLACES, OTHER
from genlock.service.openapi.document import GROUPS, document, path_of
from genlock.service.openapi.others import OTHERS, STREAMS, api_paths
from genlock.service.openapi.schemas import by_status
from genlock.wire import operations
from genlock.wire.problems import CONTENT_TYPE

DOCS = Path(__file__).parent
REFERENCE = DOCS / "reference"
ARCHITECTURE = DOCS.parent / "ARCHITECTURE.md"
WEB_TYPES = DOCS.parent / "web" / "src" / "api.ts"
SOURCE = DOCS.parent / "src" / "genlock"
RESERVED = {
    "audit": "who changed what, for people who must account for it",
    "telemetry": "traces and logs for OpenTelemetry",
}
"""Packages that come with later issues. A package that exists is described by its docstring."""
ANSWERS = (
    reasons.ClaimReason,
    reasons.RenewReason,
    reasons.ProgressReason,
    reasons.ReleaseAnswer,
    reasons.SubmitReason,
    reasons.PushReason,
)
"""Their sentences are in `genlock.messages`."""
WIDTH = 100
NOTICE = (
    "<!-- Made by docs/generate.py from the code. Change the code or that script, not this "
    "page. -->"
)


def table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """A table in Markdown."""
    head = list(head)
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(
        f"| {' | '.join(' '.join(cell.replace('|', chr(92) + '|').split()) for cell in line)} |"
        for line in lines
    )


def code(value: object) -> str:
    return f"`{value}`"


def meanings(kind: type[StrEnum]) -> list[tuple[str, str]]:
    """Each value with what it means; a gap is an error."""
    if kind in ANSWERS:
        return [(code(name), f"{title(name)}. {REMARKS.get(name, '')}".strip()) for name in kind]
    said = MEANINGS[kind]
    if list(said) != [member.value for member in kind]:
        raise ValueError(
            f"the meanings of {kind.__name__} are {list(said)}, its values "
            f"{[member.value for member in kind]}"
        )
    return [(code(name), meaning) for name, meaning in said.items()]


def explained(
    names: Iterable[str], said: dict[str, str], documented: dict[str, str]
) -> dict[str, str]:
    """The meaning of each name, from here or from its docstring; a gap is an error."""
    found = {name: documented.get(name) or said[name] for name in names}
    spare = set(said) - set(found) | (set(said) & set(documented))
    if spare:
        raise ValueError(f"said twice, or of nothing: {sorted(spare)}")
    return found


def field_docs(module: ModuleType, owner: str) -> dict[str, str]:
    """The docstrings that stand below the fields of a class."""
    body = next(
        node.body
        for node in ast.parse(inspect.getsource(module)).body
        if isinstance(node, ast.ClassDef) and node.name == owner
    )
    found = {}
    for field, below in pairwise(body):
        if (
            isinstance(field, ast.AnnAssign)
            and isinstance(field.target, ast.Name)
            and isinstance(below, ast.Expr)
        ):
            found[field.target.id] = inspect.cleandoc(ast.literal_eval(below.value))
    return found


def doc(thing: object) -> str:
    return inspect.cleandoc(inspect.getdoc(thing) or "")


def shown(value: Any) -> str:
    """A default as it would be written in a plan or a call."""
    if isinstance(value, Enum):
        value = value.value
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


def page(title: str, *parts: str) -> str:
    return "\n\n".join([f"# {title}", NOTICE, *(dedent(part).strip("\n") for part in parts)]) + "\n"


def enum_part(kind: type[StrEnum], title: str, head: str = "value") -> str:
    return f"## {title}\n\n{doc(kind)}\n\n{table([head, 'meaning'], meanings(kind))}"


def states_and_reasons() -> str:
    claims = [
        (name, meaning, "yes" if member.transient else "")
        for member, (name, meaning) in zip(
            reasons.ClaimReason, meanings(reasons.ClaimReason), strict=True
        )
    ]
    return page(
        "States and reasons",
        """
        A refusal is an answer, never an exception, and every refusal has a name. Where several reasons would apply, the answer is the
        one that stands first in its table. On the command line and over HTTP a refusal has a `message` and `try_next`, the commands to
        try next, each as a list of words; in Python `genlock.messages.describe` returns both. Errors have them as attributes.

        `work_lost` of a refused submission has the meaning of the generation clock document: somebody worked, and the work does not
        count. It is not gone: `kept` says that Genlock keeps it, as `refused_id`, and an operator may still adopt it.
        """,
        enum_part(reasons.Status, "States of a task", "state"),
        enum_part(reasons.ClaimState, "States of a claim", "state"),
        "## Answers to a claim\n\nThose marked *may pass* can turn into a grant without anyone "
        "deciding so: it is worth asking again.\n\n"
        f"{table(['reason', 'meaning', 'may pass'], claims)}",
        enum_part(reasons.SubmitReason, "Answers to a submission", "reason"),
        enum_part(reasons.RenewReason, "Answers to a renewal", "reason"),
        enum_part(reasons.ProgressReason, "Answers to a report of progress", "reason"),
        enum_part(reasons.ReleaseAnswer, "Answers to a release", "reason"),
        enum_part(reasons.PushReason, "Answers to a push", "reason"),
        enum_part(reasons.ReleaseReason, "How a claim ended", "reason"),
        enum_part(reasons.Cause, "Why a claim is overdue", "cause"),
        enum_part(reasons.RefusedState, "States of a refused result", "state"),
        enum_part(reasons.PromotionState, "States of a promotion", "state"),
        enum_part(reasons.KeyState, "States of a key", "state"),
        enum_part(key_roles.Role, "Roles of a key", "role"),
        enum_part(reasons.SpawnMode, "How subtasks follow each other", "mode"),
        enum_part(reasons.Verdict, "Answers to an operator", "verdict"),
    )


def event_reference() -> str:
    common = events.Occurrence
    parts = [
        """
        An event says in the past tense what has happened to one record. It is written in the same commit as the record, and carries the
        digest of its predecessor in that record.
        """,
        "## What all events have",
        fields_table(common, common.__struct_fields__),
        (
            "`event_type` has the event's name. A field that has its default is left out of the "
            "stored bytes."
        ),
    ]
    listed = {"a task": get_args(events.TaskEvent), **RECORDS}
    missing = set(get_args(events.Event)) ^ {kind for kinds in listed.values() for kind in kinds}
    if missing:
        raise ValueError(f"of no record, or no event at all: {missing}")
    for record, kinds in listed.items():
        parts.append(f"## Of {record}")
        parts += [event_part(kind) for kind in kinds]
    return page("Events", *parts)


def event_part(kind: type[msgspec.Struct]) -> str:
    own = [
        name for name in kind.__struct_fields__ if name not in events.Occurrence.__struct_fields__
    ]
    tag = str(kind.__struct_config__.tag)
    heading = f"### {code(tag)}\n\n{doc(kind)} In words: {code(EVENTS[tag])}."
    return f"{heading}\n\n{fields_table(kind, own)}" if own else heading


def fields_table(kind: type[msgspec.Struct], names: Iterable[str]) -> str:
    annotations: dict[str, str] = {}
    documented: dict[str, str] = {}
    for base in reversed([base for base in kind.__mro__ if issubclass(base, events.Occurrence)]):
        annotations |= base.__annotations__
        documented |= field_docs(events, base.__name__)
    with_remarks = any(name in documented for name in names)
    rows = [
        [code(name), code(annotations[name]), *([documented.get(name, "")] if with_remarks else [])]
        for name in names
    ]
    return table(["field", "type", *(["meaning"] if with_remarks else [])], rows)


def policies_and_limits() -> str:
    keys = explained(policy.Policy.__struct_fields__, POLICY_KEYS, field_docs(policy, "Policy"))
    defaults = policy.Policy()
    limits = explained(
        policy.TenantLimits.__struct_fields__, LIMITS, field_docs(policy, "TenantLimits")
    )
    profiles = policy.PROFILES
    return page(
        "Policies and limits",
        """
        A *policy* is what a project chooses, a *limit* what its tenant is allowed. `set_policy` changes both, `get_policy` shows what is
        in force. Unknown keys and values out of range are refused with a message that names what there is. On the command line:
        `genlock policy show`, `genlock policy set expired=grace grace_seconds=120`, and `genlock tenant` for limits.
        """,
        "## Policy of a project\n\n"
        + table(
            ["key", "default", "meaning"],
            [(code(name), code(shown(getattr(defaults, name))), keys[name]) for name in keys],
        ),
        enum_part(policy.Order, "`order`"),
        enum_part(policy.Expired, "`expired`"),
        enum_part(policy.Ids, "`ids`"),
        enum_part(policy.CancelledDependency, "`cancelled_dependency`"),
        "## Limits of a tenant\n\nA tenant starts with one of these profiles; an embedded "
        "coordinator uses `local` unless told otherwise. "
        "`None` is unlimited.\n\n"
        + table(
            ["limit", *(code(name) for name in profiles), "meaning"],
            [
                (
                    code(name),
                    *(shown(getattr(profile, name)) for profile in profiles.values()),
                    limits[name],
                )
                for name in limits
            ],
        ),
        "## Sizes that are the same for all\n\n"
        + table(
            ["constant", "value", "what"],
            [(code(name), shown(getattr(policy, name)), what) for name, what in SIZES.items()],
        ),
        "## Tracks that a project starts with\n\nA plan may bring its own table.\n\n"
        + table(
            ["track", "purpose"],
            [(code(track), purpose) for track, purpose in policy.STANDARD_TRACKS.items()],
        ),
    )


def error_reference() -> str:
    kinds = [
        kind
        for kind in vars(errors).values()
        if isinstance(kind, type) and issubclass(kind, errors.GenlockError)
    ]
    first, tree = doc(errors).split("\n\n    ", 1)
    rows = []
    for kind in kinds:
        also = ", ".join(
            code(base.__name__)
            for base in kind.__bases__
            if base.__module__ == builtins.__name__ and base is not Exception
        )
        commands = ", ".join(code(typed(words)) for words in kind.__new__(kind).try_next)
        rows.append((code(kind.__name__), code(kind.code), also, doc(kind), commands))
    return page(
        "Errors",
        first.partition("\n\n")[2],
        f"```text\n{dedent('    ' + tree)}\n```",
        "`code` is the stable name for machines. What is also one of Python's own errors can be "
        "caught as such.",
        "`message` is the text of an error, and `try_next` has the commands to try next. A message "
        "that ends in a command has that one first; the table has those of each kind.",
        table(["error", "code", "also a", "meaning", "try next"], rows),
    )


def http_reference() -> str:
    described = document(keys=True)["paths"]
    parts = [
        f"""
        Every operation of the coordinator is found below `{operations.PREFIX}/{{tenant}}/{{project}}/`, its keywords in the query of a GET and
        in a JSON body of anything else. A role covers those before it: {", ".join(key_roles.Role)}. Where GET is taken HEAD is too; any
        other method is 405. A running service tells all of this at `/openapi.json`, and as a page with every field and a line for the
        shell at `/docs`; both need no key.

        What is not 200 is a problem (RFC 9457, `{CONTENT_TYPE}`). A refusal has all fields of the answer and a `reason`; an error has a
        `code`, and changed nothing unless it says so. 429 and 503 say in `Retry-After` when to come again. Any operation may answer
        {", ".join(map(str, sorted(EVERYWHERE)))}; the tables have the others.
        """
    ]
    for theme in dict.fromkeys(GROUPS.values()):
        rows = [http_row(route) for route in operations.ROUTES if GROUPS[route.role] == theme]
        parts.append(
            f"## {theme}\n\n{table(['method', 'path', 'operation', 'role', 'what', 'statuses'], rows)}"
        )
    others = [
        (method.upper(), code(path), told["summary"])
        for path in {**OTHERS, **STREAMS, **api_paths()}
        for method, told in described[path].items()
    ]
    parts.append(f"## Beside the operations\n\n{table(['method', 'path', 'what'], others)}")
    meant: dict[int, list[str]] = {}
    for route in operations.ROUTES:
        for status, names in by_status(route).items():
            known = meant.setdefault(status, [])
            known += [name for name in names if name not in known]
    statuses = [
        (str(status), ", ".join(map(code, names))) for status, names in sorted(meant.items())
    ]
    parts.append(f"## Statuses\n\n{table(['status', 'reasons and codes'], statuses)}")
    return page("HTTP", *parts)


def http_row(route: operations.Route) -> tuple[str, ...]:
    own = [status for status in by_status(route) if status not in EVERYWHERE]
    return (
        route.method,
        code(path_of(route).removeprefix(HTTP_PLACE)),
        code(route.name),
        route.role,
        doc(route.call),
        " ".join(map(str, [200, *own])),
    )


HTTP_PLACE = f"{operations.PREFIX}/{{tenant}}/{{project}}/"
EVERYWHERE = frozenset({400, 401, 403, 421, 426, 429, 500, 503})
"""Statuses of any operation, which need not be said of each."""

COMMON_OPTIONS = (
    "as_json",
    "quiet",
    "set_url",
    "set_tenant",
    "set_project",
    "set_session",
    "set_agent",
    "set_user",
    "help",
)
"""What they are called in the code: an option of a verb's own may have one of the words to
itself."""


def command_reference() -> str:
    parts = [
        """
        On a terminal commands print text and tables. Elsewhere, or with `--json`, they print one JSON document (`events` and `export`:
        one object per line). Answers go to stdout, messages and errors to stderr. `--quiet` prints only ids and numbers, one per line.
        """,
        """
        Every verb knows `--json`, `--quiet` and `--help` (`genlock help VERB` is the same); those that look into a store also `--url`,
        `--tenant` and `--project`; those of workers also `--session`, `--agent` and `--user`. What is not given as an option comes from the
        environment (`GENLOCK_URL`, `GENLOCK_TENANT`, `GENLOCK_PROJECT`, `GENLOCK_SESSION`, `GENLOCK_AGENT`, `GENLOCK_USER`,
        `GENLOCK_LEASE_SECONDS`), then from the project's file, then from the user's; `genlock config show --origin` says which it was.
        Without an agent's name, `renew`, `submit`, `release` and `spawn` act as the agent that the claim was granted to.
        """,
        "## Exit codes\n\n"
        + table(
            ["code", "name", "meaning"],
            [
                (str(getattr(exit_codes, name)), code(name), meaning)
                for name, meaning in EXIT_CODES.items()
            ],
        ),
    ]
    for section, verbs in SECTIONS.items():
        parts.append(f"## {section}")
        for name in verbs:
            command = group.genlock.get_command(
                click.Context(group.genlock, info_name="genlock"), name
            )
            assert command is not None
            parts += command_part(f"genlock {name}", command)
    return page("Commands", *parts)


def command_part(path: str, command: click.Command) -> list[str]:
    context = click.Context(command, info_name=path)
    usage = " ".join(
        [path, *(piece for piece in command.collect_usage_pieces(context) if piece != "[OPTIONS]")]
    )
    parts = [f"### {path}\n\n`{usage}`", re.sub(r"\x08\n?", "", doc_of(command))]
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            assert below is not None
            parts += [
                part.replace("### ", "#### ", 1) for part in command_part(f"{path} {name}", below)
            ]
        return parts
    rows = []
    for parameter in command.params:
        record = parameter.get_help_record(context)
        if (
            record is None
            or isinstance(parameter, click.Argument)
            or parameter.name in COMMON_OPTIONS
        ):
            continue
        rows.append((code(record[0]), record[1]))
    return [*parts, table(["option", "meaning"], rows)] if rows else parts


def doc_of(command: click.Command) -> str:
    return inspect.cleandoc(command.help or "")


def metric_rows(listed: Iterable[metrics.Metric]) -> str:
    rows = [
        (
            code(f"genlock_{metric.name}"),
            metric.kind.value,
            ", ".join(map(code, metric.labels)),
            ", ".join(map(shown, metric.buckets)),
            metric.help,
        )
        for metric in listed
    ]
    return table(["metric", "kind", "labels", "buckets", "meaning"], rows)


def words(title: str, said: dict[Any, str], error: str) -> str:
    rows = [(code(reason.value), code(word)) for reason, word in said.items()]
    return f"### {title}\n\n{table(['reason', 'result'], [*rows, ('*not decided*', code(error))])}"


def metric_reference() -> str:
    return page(
        "Metrics",
        f"""
        What `/metrics` answers, in Prometheus' text format, or in OpenMetrics if the caller accepts that. Another prefix than `genlock`
        may be chosen. How to scrape it, and what to be woken for: [Watching a service](../how-to/watching-a-service.md).

        **Counters and histograms count what this coordinator itself did** since it started: add them up over all services of a store.
        **Gauges by project are counted in the store**, whichever service changed it: take the highest of all services, not their sum. They are
        counted when somebody asks, at most once in ten seconds for a project in which this service has changed something, and once a
        minute otherwise.

        At most {MOST_PLACES:,} projects have series of their own; the rest is counted together, as tenant and project `{OTHER[0]}`, and
        has no gauges. A project has series once something was written there: names that somebody only guesses make none.
        """,
        "## The eleven of the generation clock\n\n" + metric_rows(metrics.GC),
        "## Further ones\n\n" + metric_rows(metrics.OURS),
        """
        ## By which word an answer is counted

        What was asked for and not decided (an unknown task, an ended session, a store that is away) has a word of its own, or is a failure.
        """,
        words("`claims_total`", metrics.CLAIM_WORDS, metrics.ERROR),
        words("`results_total`", metrics.RESULT_WORDS, metrics.ERROR),
        words("`lease_renewals_total`", metrics.RENEWAL_WORDS, "failed"),
        """
        ## Questions to ask

        A rate by project, the share of claims that are denied because somebody else has the task, and the 99th percentile of a commit:

        ```text
        sum by (tenant, project) (rate(genlock_claims_total{result="granted"}[5m]))
        sum(rate(genlock_claims_total{result="denied_active"}[5m])) / sum(rate(genlock_claims_total[5m]))
        histogram_quantile(0.99, sum by (le) (rate(genlock_commit_duration_seconds_bucket[5m])))
        max by (tenant, project) (genlock_pending_tasks)
        ```
        """,
    )


def invariants() -> str:
    """Each invariant with the tests that hold it, from invariants.toml."""
    sections: dict[str, list[str]] = {}
    for entry in tomllib.loads((DOCS / "invariants.toml").read_text(encoding="utf-8"))["invariant"]:
        held = "".join(f"\n  - `{test}`" for test in entry["tests"])
        note = f"\n  - ({entry['note']})" if "note" in entry else ""
        sections.setdefault(entry["about"], []).append(f"- {entry['text']}{held}{note}")
    return page(
        "Invariants",
        "What must stay true, and the tests that hold it. The list is `docs/invariants.toml`.",
        *(f"## {about}\n\n" + "\n".join(found) for about, found in sections.items()),
    )


DOCUMENTS = {
    "GC": "The generation clock",
    "DDB": "Claims by conditional writes",
    "SC": "Claims of sessions",
    "ID": "Task ids and spool folders",
    "TD": "Task files of gptodo",
}
"""The five documents that the product is built from, as the rulings call them."""

STANDS = {
    "works": "works",
    "ruling": "differs by ruling",
    "part": "in part",
    "missing": "missing",
    "building": "in work",
    "later": "open issue",
}
"""How a requirement stands, as documents.toml and as the page have it."""


def requirements() -> dict[str, list[list[str]]]:
    """The rows of documents.toml by document: section, requirement, state, note, where…"""
    read = tomllib.loads((DOCS / "documents.toml").read_text(encoding="utf-8"))
    return {document["name"]: document["rows"] for document in read["document"]}


def documents() -> str:
    """What became of each requirement of the five documents, from documents.toml."""
    found = requirements()
    counts = {
        name: [*(sum(row[2] == state for row in rows) for state in STANDS), len(rows)]
        for name, rows in found.items()
    }
    counts["all"] = [sum(column) for column in zip(*counts.values(), strict=True)]
    parts = [
        f"## {name}: {DOCUMENTS[name]}\n\n"
        + table(
            ("section", "requirement", "state", "where"),
            (
                (section, text, STANDS[state], " ".join([*map(code, where), note]).strip())
                for section, text, state, note, *where in rows
            ),
        )
        for name, rows in found.items()
    ]
    return page(
        "The five documents",
        """
Genlock is built from five design documents. This page walks them requirement by requirement and
says how each stands and what shows it: a test, a scenario or a page. The list is
`docs/documents.toml`; `tests/test_docs_documents.py` checks that what it names exists.

- *works*: as the document has it, or more.
- *differs by ruling*: decided otherwise, for the reason beside it.
- *in part*: the note says what there is and what is missing.
- *missing*: the note says what there is instead.
- *in work*: being built now.
- *open issue*: owned by a later issue; the package for it is reserved.
""",
        table(
            ("document", *STANDS.values(), "rows"),
            ((name, *map(str, numbers)) for name, numbers in counts.items()),
        ),
        *parts,
    )


def summary(package: Path) -> str:
    """The first sentences of a package's docstring, as many as fit beside its name."""
    told = ast.get_docstring(ast.parse((package / "__init__.py").read_text(encoding="utf-8"))) or ""
    first, *others = re.split(r"(?<=\.) ", " ".join(told.partition("\n\n")[0].split()))
    for sentence in others:
        if len(first) + len(sentence) < WIDTH - 18:
            first += f" {sentence}"
    return first


def package_lines(package: Path) -> list[str]:
    """A package of the map: its summary and modules, then the packages in it with their modules."""
    lines = [f"{package.name + '/':<14}{summary(package)}", *names_of(package, "  ")]
    for inner in sorted(package.glob("*/__init__.py")):
        lines += names_of(inner.parent, f"  {inner.parent.name + '/':<14}", " " * 16)
    return lines


def names_of(package: Path, first: str, others: str | None = None) -> list[str]:
    modules = sorted(file.stem for file in package.glob("*.py") if not file.stem.startswith("__"))
    return wrap(" ".join(modules), WIDTH, initial_indent=first, subsequent_indent=others or first)


def code_map() -> str:
    """The packages of today and those to come, and what is in them."""
    parts = {name: [f"{name + '/':<14}(reserved) {text}"] for name, text in RESERVED.items()}
    parts |= {
        inner.parent.name: package_lines(inner.parent) for inner in SOURCE.glob("*/__init__.py")
    }
    return "\n".join(
        [
            "src/genlock/",
            *names_of(SOURCE, "  "),
            *(line for name in sorted(parts) for line in parts[name]),
        ]
    )


def architecture() -> str:
    """ARCHITECTURE.md with its code map as the code is now."""
    begin, end = "<!-- code map -->\n", "<!-- end of code map -->\n"
    before, _, rest = ARCHITECTURE.read_text(encoding="utf-8").partition(begin)
    after = rest.partition(end)[2]
    return f"{before}{begin}```text\n{code_map()}\n```\n{end}{after}"


PAGES: dict[str, Callable[[], str]] = {
    "commands.md": command_reference,
    "states-and-reasons.md": states_and_reasons,
    "events.md": event_reference,
    "policies-and-limits.md": policies_and_limits,
    "errors.md": error_reference,
    "http.md": http_reference,
    "metrics.md": metric_reference,
    "invariants.md": invariants,
    "documents.md": documents,
}


def main() -> None:
    REFERENCE.mkdir(exist_ok=True)
    for name, make in PAGES.items():
        (REFERENCE / name).write_text(make(), encoding="utf-8")
    ARCHITECTURE.write_text(architecture(), encoding="utf-8")
    WEB_TYPES.write_text(web_types(), encoding="utf-8")


if __name__ == "__main__":
    main()
