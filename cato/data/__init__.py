"""Benchmarks, their generation, the on-disk store and normalisation.

`cato.data.dataset.load_dataset` loads (and generates) a benchmark, `Dataset.from_arrays` takes your
own arrays. Nothing is imported here: the workers of a generation must start without torch.
"""
