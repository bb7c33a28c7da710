"""The sample alerts: they can be read, say what to do, and name only metrics, labels and words that
there are."""

from __future__ import annotations

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
    assert printed.count("coditect_") == usual.count("genlock_") == 10
    said = run("config", "alerts", env={"GENLOCK_SERVE_METRICS_PREFIX": "coditect"}).out
    assert said == printed


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule["alert"])
def test_an_alert_says_what_is_wrong_and_what_to_do(rule: dict[str, Any]) -> None:
    assert set(rule) <= {"alert", "expr", "for", "labels", "annotations"}
    assert rule["labels"]["severity"] in ("info", "warning", "critical")
    assert set(rule["annotations"]) == {"summary", "action"}


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule["alert"])
def test_an_alert_names_only_what_there_is(rule: dict[str, Any]) -> None:
    named = re.findall(r"\b(genlock_\w+)(?:\{(.*?)\})?", rule["expr"])
    assert named
    for name, selectors in named:
        metric = METRICS[name]
        assert name.endswith("_bucket") == (metric.kind is Kind.HISTOGRAM)
        for label, value in re.findall(r'(\w+)="(\w+)"', selectors):
            assert label in metric.labels
            assert value in VALUES[label]
    assert rule["expr"].count("(") == rule["expr"].count(")")
