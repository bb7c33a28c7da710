"""Metrics of the service, for Prometheus.

`table` lists the metrics, `tallies` counts what the engine reports, `census` counts what is in the
store, and `collector` writes both when Prometheus scrapes.
"""

from genlock.service.metrics.metrics import Metrics, metrics_endpoint

__all__ = ["Metrics", "metrics_endpoint"]
