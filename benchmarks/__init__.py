"""Measurements: `python -m benchmarks.NAME` compares with peers in the same run."""
