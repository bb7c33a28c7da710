"""The sample alerts and the dashboard template: they can be read, say what to do, and name only metrics, labels and words that
there are."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from genlock.core.reasons import Status
from genlock.service.metrics import table
from genlock.service.metrics.table import Kind
from tests.cli.console import run

ALERTS = Path(table.__file__).with_name("alerts.yml")
RULES: list[dict[str, Any]] = [
    rule
    for group in YAML(typ="safe").load(ALERTS.read_text(encoding="utf-8"))["groups"]
    for rule in group["rules"]
]
METRICS = {
    f"genlock_{metric.name}{suffix}": metric
    for metric in (*table.GC, *table.OURS)
    for suffix in ("", "_bucket", "_sum", "_count")
}
VALUES = {
    "result": {
        *table.CLAIM_WORDS.values(),
        *table.RESULT_WORDS.values(),
        *table.RENEWAL_WORDS.values(),
        table.ERROR,
    },
    "state": {state.value for state in Status},
}


def test_the_rules_follow_the_prefix_of_the_metrics() -> None:
    usual = run("config", "alerts").out
    assert usual == ALERTS.read_text(encoding="utf-8")
    printed = run("config", "alerts", "--metrics-prefix", "coditect").out
    assert YAML(typ="safe").load(printed)["groups"]
    assert not re.search(r"\bgenlock_", printed)
    assert printed.count("coditect_") == usual.count("genlock_") == 11
    said = run("config", "alerts", env={"GENLOCK_SERVE_METRICS_PREFIX": "coditect"}).out
    assert said == printed


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule["alert"])
def test_an_alert_says_what_is_wrong_and_what_to_do(rule: dict[str, Any]) -> None:
    assert set(rule) <= {"alert", "expr", "for", "labels", "annotations"}
    assert rule["labels"]["severity"] in ("info", "warning", "critical")
    assert set(rule["annotations"]) == {"summary", "action"}


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule["alert"])
def test_an_alert_names_only_what_there_is(rule: dict[str, Any]) -> None:
    check_names(rule["expr"])


def check_names(query: str) -> None:
    """Fails if a query names a metric, label or word that there is not."""
    named = re.findall(r"\b(genlock_\w+)(?:\{(.*?)\})?", query)
    assert named
    for name, selectors in named:
        metric = METRICS[name]
        assert name.endswith("_bucket") == (metric.kind is Kind.HISTOGRAM)
        for label, value in re.findall(r'(\w+)=~?"([$\w]+)"', selectors):
            assert label in metric.labels
            assert value in VALUES.get(label, {f"${label}"})
    assert query.count("(") == query.count(")")


DASHBOARD = json.loads(ALERTS.with_name("grafana.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("panel", DASHBOARD["panels"], ids=lambda panel: panel["title"])
def test_a_panel_of_the_dashboard_template_names_only_what_there_is(panel: dict[str, Any]) -> None:
    for target in panel["targets"]:
        check_names(target["expr"])


def test_the_dashboard_template_shows_every_metric_of_the_document() -> None:
    queries = " ".join(
        target["expr"] for panel in DASHBOARD["panels"] for target in panel["targets"]
    )
    # Pending and completed tasks are among the tasks by state; generations are shown per task.
    elsewhere = {"pending_tasks", "completed_tasks", "generation_increments_total"}
    assert {one.name for one in table.GC if one.name not in queries} == elsewhere


def test_the_panels_of_the_dashboard_template_do_not_overlap() -> None:
    cells = [
        (x, y)
        for panel in DASHBOARD["panels"]
        for x in range(panel["gridPos"]["x"], panel["gridPos"]["x"] + panel["gridPos"]["w"])
        for y in range(panel["gridPos"]["y"], panel["gridPos"]["y"] + panel["gridPos"]["h"])
    ]
    assert len(cells) == len(set(cells))
    assert max(x for x, _ in cells) < 24


def test_the_dashboard_template_follows_the_prefix_of_the_metrics() -> None:
    printed = run("config", "grafana", "--metrics-prefix", "coditect")
    assert (printed.code, printed.err) == (0, "")
    query = printed.json()["panels"][0]["targets"][0]["expr"]
    assert query.startswith("sum by (result) (rate(coditect_claims_total{")
    assert "genlock_" not in printed.out
    assert run("config", "grafana").json() == DASHBOARD
