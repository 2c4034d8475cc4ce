"""What a surrogate makes of samples: solutions, errors where the truth is known, and bands."""

import time
from dataclasses import dataclass

import numpy as np

from cato.inference.conformal import Band, num_nodes_needed
from cato.inference.evaluate import samples_at_once
from cato.problem import Problem
from cato.progress import progress_bar
from cato.surrogate import Surrogate
from cato.user_data.samples import UserSample, UserSamples


@dataclass(frozen=True, eq=False)
class Answer:
    """The solution of one sample on its mesh: arrays (*mesh, C_out), or (T, *mesh, C_out).

    Attributes:
        sample: What was asked.
        values: The prediction.
        half_width: Of the band around it, where the run has one for this mesh.
    """

    sample: UserSample
    values: np.ndarray
    half_width: np.ndarray | None

    @property
    def error(self) -> np.ndarray | None:
        """Prediction minus truth, where the file has it."""
        truth = self.sample.targets
        return None if truth is None else self.values - truth

    @property
    def relative_l2(self) -> float | None:
        """Over all nodes, frames and outputs; infinite where the truth is zero."""
        error, truth = self.error, self.sample.targets
        if error is None or truth is None:
            return None
        size, length = np.linalg.norm(truth), np.linalg.norm(error)
        return float(length / size) if size else (np.inf if length else 0.0)

    def is_covered(self) -> np.ndarray | None:
        """For each output, whether the promised share of nodes lies in the band."""
        if self.error is None or self.half_width is None:
            return None
        inside = np.abs(self.error) <= self.half_width
        rows = inside.reshape(-1, inside.shape[-1])
        return rows.sum(0) >= num_nodes_needed(len(rows))


def answer(
    surrogate: Surrogate, samples: UserSamples, band: Band | None
) -> tuple[list[Answer], float]:
    """The answer for every sample, and the seconds for each; samples of one mesh go together."""
    problem = surrogate.problem
    surrogate.predict(*_arrays(problem, samples.samples[:1]))  # compiles and allocates
    answers: list[Answer] = []
    began = time.perf_counter()
    with progress_bar("predicting", len(samples)) as bar:
        while len(answers) < len(samples):
            group = _batch(samples.samples[len(answers) :])
            solutions = surrogate.predict(*_arrays(problem, group))
            for sample, solution in zip(group, solutions, strict=True):
                values = _on_mesh(problem, sample, solution)
                width = None if band is None else band.on_mesh(problem, sample.mesh)
                answers.append(Answer(sample, values, width))
            bar(len(answers))
    return answers, (time.perf_counter() - began) / len(samples)


def _batch(samples: list[UserSample]) -> list[UserSample]:
    """The first samples, as long as they have the mesh of the first and fit into memory."""
    first = samples[0]
    num_nodes = first.coords.size // first.coords.shape[-1]
    same = [sample.mesh == first.mesh for sample in samples[: samples_at_once(num_nodes)]]
    return samples[: same.index(False) if False in same else len(same)]


def _arrays(problem: Problem, group: list[UserSample]) -> tuple[np.ndarray, np.ndarray]:
    """Inputs and coordinates as a surrogate takes them; the points of a cloud in one axis."""
    inputs = np.stack([sample.inputs for sample in group])
    coords = np.stack([sample.coords for sample in group])
    if problem.geometry != "cloud":
        return inputs, coords
    shape = (len(group), coords[0].size // problem.dimension)
    return inputs.reshape(*shape, problem.num_inputs), coords.reshape(*shape, problem.dimension)


def _on_mesh(problem: Problem, sample: UserSample, values: np.ndarray) -> np.ndarray:
    """Values (…, N, C) of a solution with the mesh axes of its sample."""
    frames = values.shape[:1] if problem.time != "steady" else ()
    return values.reshape(*frames, *sample.mesh, problem.num_outputs)
