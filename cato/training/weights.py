"""What a run folder stands for: its data and its trained surrogate."""

from pathlib import Path

import torch

from cato.data.dataset import Splits, load_dataset
from cato.data.normalise import Normaliser
from cato.data.original import read_original
from cato.data.own.splits import own_splits
from cato.data.spec import DataSpec
from cato.errors import InputError
from cato.models.registry import build_model
from cato.surrogate import Surrogate
from cato.training.checkpoint import load_checkpoint
from cato.training.config import RunConfig
from cato.training.conformal import Band, load_band
from cato.training.run import Run


def data_spec(config: RunConfig) -> DataSpec:
    """The generated data of a run; of one on published files, those the solver would match."""
    assert config.data.file is None, "own data are not generated"
    if config.data.original is not None:
        return DataSpec(config.benchmark, "paper")
    data = config.data
    return DataSpec(config.benchmark, config.scale, data.seed, data.count, data.resolution)


def load_splits(config: RunConfig) -> Splits:
    """The data of a run: own or published files, or generated where missing."""
    data = config.data
    if data.file is not None:
        return own_splits(
            Path(data.file),
            data.naming,
            seed=data.seed,
            count=data.count,
            expected=data.fingerprint,
        )
    if data.original is not None:
        return read_original(config.benchmark, Path(data.original))
    return load_dataset(
        config.benchmark,
        config.scale,
        seed=data.seed,
        count=data.count,
        resolution=data.resolution,
        root=Path(data.root),
    )


def load_run_band(run: Run) -> Band | None:
    """The band around the predictions of a run's best weights; None before they are evaluated."""
    checkpoint = load_checkpoint(run.checkpoints, "best")
    return None if checkpoint is None else load_band(run.source, int(checkpoint.state["step"]))


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
    try:
        surrogate.load_state_dict(checkpoint.tensors)
    except RuntimeError as error:
        reason = str(error).splitlines()[-1].strip()
        raise InputError(
            f"the weights in {run.folder} do not fit its model ({reason}); train again"
        ) from None
    return surrogate.eval().to("cuda" if torch.cuda.is_available() else "cpu")
