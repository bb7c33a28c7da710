"""Benchmarks: ratios against a raw floor measured in the same run. `make bench` runs them all; see
docs/benchmarks.md."""
