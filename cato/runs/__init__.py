"""Runs: settings, the run folder, checkpoints, loading."""
