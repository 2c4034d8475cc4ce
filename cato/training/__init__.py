"""The training loop, optimisers, checkpoints and the run folder."""
