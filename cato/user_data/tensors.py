"""PyTorch files of plain tensors: a dictionary, a list or one tensor, saved by `torch.save`.

They are read with `weights_only=True`, which builds tensors and containers only. A short second
axis holds channels, as in PyTorch's own layers, and is moved to the end; predictions have it second
again.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from cato.errors import InputError
from cato.user_data.axes import MAX_CHANNELS, ArrayFile

SUFFIXES = (".pt", ".pth")


def open_tensors(path: Path) -> ArrayFile:
    """Open a file of tensors; nested ones are named with slashes, those of a list by number."""
    arrays = read_tensors(path)
    second = second_axes(arrays)
    shapes = {n: np.moveaxis(a, 1, -1).shape if n in second else a.shape for n, a in arrays.items()}
    return ArrayFile(
        path,
        shapes,
        lambda name: np.moveaxis(arrays[name], 1, -1) if name in second else arrays[name],
        "tensors",
        notes=tuple(f"the second axis of {name} is taken for channels" for name in second),
    )


def second_axes(arrays: Mapping[str, np.ndarray]) -> list[str]:
    """Tensors whose second axis is taken for channels."""
    return [
        name
        for name, array in arrays.items()
        if array.ndim > 3 and array.shape[1] <= MAX_CHANNELS < min(array.shape[2:])
    ]


def channels_second(path: Path) -> list[str]:
    """Tensors of a file whose second axis is taken for channels."""
    return second_axes(read_tensors(path))


def read_tensors(path: Path) -> dict[str, np.ndarray]:
    """The tensors of a file by name."""
    import torch

    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise InputError(
            f"{path} cannot be read as tensors without pickle: {reason} Save plain tensors: "
            f"torch.save({{'inputs': x, 'targets': y}}, file)"
        ) from None
    arrays = {}
    for name, tensor in _tensors("", content):
        if tensor.is_sparse or tensor.is_quantized:
            raise InputError(
                f"{path}: tensor {name!r} should be dense numbers; save its to_dense()"
            )
        arrays[name] = (tensor.float() if tensor.dtype == torch.bfloat16 else tensor).numpy()
    if not arrays:
        raise InputError(f"{path} holds no tensors; save a dictionary of tensors")
    return arrays


def save_tensors(path: Path, arrays: dict[str, np.ndarray]) -> None:
    """Write arrays as a dictionary of tensors."""
    import torch

    from cato.files import atomic_write

    with atomic_write(path) as temporary:
        torch.save({name: torch.from_numpy(array) for name, array in arrays.items()}, temporary)


def _tensors(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    import torch

    if isinstance(value, torch.Tensor):
        yield name or "data", value.detach()
    elif isinstance(value, dict | list | tuple):
        items = value.items() if isinstance(value, dict) else enumerate(value)
        for key, item in items:
            yield from _tensors(f"{name}/{key}" if name else str(key), item)
