"""Datasets: generation, the on-disk store, loading and normalisation.

`cato.data.dataset.load_dataset` loads (and generates) a benchmark, `Dataset.from_arrays` takes your
arrays. Nothing is imported here, because the worker processes of a generation do not import torch.
"""
