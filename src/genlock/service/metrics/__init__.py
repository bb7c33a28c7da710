"""The service's figures, for Prometheus.

`table.py` says what there is, `tallies.py` counts it, `census.py` asks the store, `collector.py` writes it down when it is scraped.
"""

from genlock.service.metrics.metrics import Metrics, metrics_endpoint

__all__ = ["Metrics", "metrics_endpoint"]
