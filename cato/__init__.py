"""cato: neural networks that replace PDE solvers.

    import cato

    run = cato.train("darcy", scale="small", out="runs/x", minutes=2)   # generates the data too
    model = cato.load("runs/x")                                         # a `Surrogate`
    test = cato.load_dataset("darcy", "small").test
    u = model.predict(**test.arrays("inputs", "coords"))                # NumPy in, NumPy out
    cato.plot(model, test, 0).savefig("sample.png")

The names below are all of the public interface; they are imported when first used, so that
`import cato` costs nothing.
"""

from importlib import import_module
from typing import Any

__version__ = "0.2.0.dev0"

_PUBLIC = {
    "Dataset": "cato.data.dataset",
    "InputError": "cato.errors",
    "OutsideTrainingRange": "cato.errors",
    "Problem": "cato.problem",
    "Surrogate": "cato.surrogate",
    "build_model": "cato.models.registry",
    "evaluate": "cato.api",
    "fit": "cato.api",
    "generate": "cato.data.generate",
    "load": "cato.api",
    "load_dataset": "cato.data.dataset",
    "model_config": "cato.api",
    "plot": "cato.api",
    "resume": "cato.api",
    "train": "cato.api",
}
__all__ = sorted(_PUBLIC)


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module 'cato' has no attribute {name!r}")
    return getattr(import_module(_PUBLIC[name]), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
