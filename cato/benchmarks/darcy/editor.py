"""The Darcy medium, painted."""

from typing import Any

import numpy as np

from cato.benchmarks.darcy.medium import HIGH, LOW
from cato.benchmarks.editor import Editor, ModelInputs
from cato.errors import InputError


class DarcyEditor(Editor):
    """The medium as painted on the solver's grid: 1 where it is permeable, 0 elsewhere."""

    kind = "paint"
    hint = "Paint the porous medium: fluid passes the light parts four times as easily."

    def neutral(self) -> np.ndarray:
        """The same permeability everywhere."""
        num_nodes = self.parameters.num_solver_nodes
        return np.zeros((num_nodes, num_nodes), np.uint8)

    def encode(self, drawn: np.ndarray) -> np.ndarray:
        return (drawn == HIGH).astype(np.uint8)

    def decode(self, values: np.ndarray) -> np.ndarray:
        """The permeability."""
        return np.where(values == 1, HIGH, LOW)

    def check(self, values: np.ndarray) -> np.ndarray:
        """Zeros and ones at the nodes of the solver's grid."""
        expected = self.neutral().shape
        if values.shape != expected:
            raise InputError(
                f"darcy: the medium must have shape {list(expected)}; got {list(values.shape)}"
            )
        if not np.isin(values, (0, 1)).all():
            raise InputError("darcy: the medium must be 1 (permeable) or 0 everywhere")
        return values.astype(np.uint8)

    def model_inputs(self, values: np.ndarray) -> ModelInputs:
        """The permeability at every `stride`-th node."""
        stride = self.parameters.stride
        kept = self.decode(values)[::stride, ::stride, None]
        return ModelInputs(kept.astype(np.float32), self.shared_coords())

    def describe(self) -> dict[str, Any]:
        """Also the grid that is painted on, and names for values 0 and 1."""
        names = [f"Tight (a = {LOW:g})", f"Permeable (a = {HIGH:g})"]
        size = self.parameters.num_solver_nodes
        return super().describe() | {
            "paint": {"size": size, "label": "Porous medium", "names": names}
        }
