"""Load the data and the trained surrogate of a run."""

import hashlib
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from cato.data.dataset import Splits, load_spec
from cato.data.normalise import Normaliser
from cato.data.published import read_published
from cato.data.spec import DataSpec
from cato.data.streamed import Streamed
from cato.errors import InputError
from cato.models.registry import build_model
from cato.runs.checkpoint import load_checkpoint
from cato.runs.folder import Run
from cato.runs.measure import measure
from cato.runs.settings import RunConfig
from cato.surrogate import Surrogate


def is_generated(config: RunConfig) -> bool:
    """Whether the data of a run come from a benchmark's solver, not from files."""
    return config.data.file is None and config.data.original is None


def data_spec(config: RunConfig) -> DataSpec:
    """The generated data of a run; for a run on published files, their generated counterpart."""
    assert config.data.file is None, "user data are not generated"
    if config.data.original is not None:
        return DataSpec(config.benchmark, "paper")
    data = config.data
    return DataSpec(config.benchmark, config.scale, data.seed, data.count, data.resolution)


def load_splits(config: RunConfig) -> Splits:
    """The data of a run: user or published files, or generated data."""
    data = config.data
    if data.file is not None:
        if not Path(data.file).exists():
            raise InputError(
                f"the data {data.file} are gone; put them back. `cato predict` works without them"
            )
        return data.open_file()[1]
    if data.original is not None:
        return read_published(config.benchmark, Path(data.original))
    spec = data_spec(config)
    splits = load_spec(spec, Path(data.root), streamed=data.is_streamed(spec.num_bytes))
    if isinstance(splits.train, Streamed):
        measure(splits.train)
    return splits


def load_run_splits(run: Run, to_train: bool = False) -> Splits:
    """The data of a run; raises if they are not those it was trained on.

    `to_train` keeps them in memory, or streamed, as they were: that decides the order of samples.
    """
    config = run.config
    if to_train and config.data.streamed == "auto":  # a streamed training records "yes"
        config = replace(config, data=replace(config.data, streamed="no"))
    if config.data.original is None:
        require_same_data(run)  # before hours of generating
        return load_splits(config)
    splits = load_splits(config)
    if not _is_key_of(run, data_key(config, splits)):
        raise InputError(
            f"{run.folder} was trained on other published files than {config.data.original} now "
            f"holds; put those back, or train into a new folder"
        )
    return splits


def require_same_data(run: Run) -> None:
    """Raise if this version would generate different data."""
    if run.config.data.file is None and not _is_key_of(run, data_spec(run.config).key):
        raise InputError(
            f"{run.folder} was trained on other data than this cato generates for "
            f"{run.config.benchmark}; use cato {run.record['cato']}, or train into a new folder"
        )


def data_key(config: RunConfig, splits: Splits) -> str:
    """A short hash of the data of a run."""
    if config.data.file is not None:
        return config.data.fingerprint
    if config.data.original is None:
        return data_spec(config).key  # not of the arrays, which other CPUs round differently
    digest = hashlib.sha256()
    for data in splits.datasets.values():
        for array in data.arrays().values():
            digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()[:16]


def _is_key_of(run: Run, key: str) -> bool:
    """Whether a run was trained on the data of this key; old runs without a key accept any."""
    return run.record.get("data", "") in ("", key)


def load_surrogate(run: Run) -> Surrogate:
    """The surrogate with the best weights of a run, on a GPU if there is one."""
    checkpoint = load_checkpoint(run.checkpoints, "best")
    if checkpoint is None:
        raise InputError(
            f"{run.folder} has no trained weights yet; train it with "
            f"`cato train --resume {run.folder}`"
        )
    model = build_model(run.config.model_name, run.config.model, run.problem)
    coords = checkpoint.tensors.get("coords")
    has_flux = run.config.loss.needs_flux
    surrogate = Surrogate(model, Normaliser(run.problem), coords=coords, has_flux=has_flux)
    surrogate.step = int(checkpoint.state["step"])
    try:
        surrogate.load_state_dict(checkpoint.tensors)
    except RuntimeError as error:
        reason = str(error).splitlines()[-1].strip()
        raise InputError(
            f"the weights in {run.folder} do not fit its model ({reason}); train again"
        ) from None
    try:
        surrogate.require_finite_weights()
    except InputError as error:
        raise InputError(f"{run.folder}: {error}") from None
    return surrogate.eval().to("cuda" if torch.cuda.is_available() else "cpu")
