"""The editors by benchmark. To add one: a class, and its name in `EDITORS`."""

from cato.benchmarks import get_benchmark
from cato.benchmarks.editor import Editor
from cato.errors import InputError
from cato.problem import Problem
from cato.serve.input_fields import DarcyEditor, NavierStokesEditor
from cato.serve.input_shapes import AirfoilEditor, ElasticityEditor, PipeEditor, PlasticityEditor

EDITORS: dict[str, type[Editor]] = {
    editor.name: editor
    for editor in (
        DarcyEditor,
        NavierStokesEditor,
        AirfoilEditor,
        PipeEditor,
        PlasticityEditor,
        ElasticityEditor,
    )
}


def editor_for(problem: Problem, scale: str | None = None) -> Editor | None:
    """The editor of a benchmark's problem; None for problems that are no benchmark's.

    Args:
        problem: What a model has learnt.
        scale: Where several scales have this problem, the one to take.
    """
    if problem.name not in EDITORS:
        return None
    benchmark = get_benchmark(problem.name)
    for name in sorted(benchmark.scales, key=lambda other: other != scale):
        for resolution in (None, problem.shape[0]):
            try:
                parameters = benchmark.parameters(name, resolution)
                found = benchmark.problem_for(parameters)
            except InputError:  # this benchmark has one mesh only
                continue
            same = ("geometry", "shape", "inputs", "outputs", "time", "num_steps")
            if all(getattr(found, key) == getattr(problem, key) for key in same):
                return EDITORS[problem.name](parameters)
    return None
