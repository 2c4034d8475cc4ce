"""Benchmarks, their generation, the on-disk store and normalisation."""
