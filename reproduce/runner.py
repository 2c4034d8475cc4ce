"""The runner: one experiment from its definition to results file, pictures and page."""

from reproduce.experiment import Experiment
from reproduce.pages import study_of, write_page
from reproduce.results import Row, save_results


def run(experiment: Experiment) -> Row:
    """Run what is missing of an experiment; write results file, pictures and page.

    Returns:
        The contents of the results file.
    """
    study = study_of(experiment.kind)
    found = study.run(experiment)
    results = save_results(experiment.results, experiment.name, experiment.kind, found)
    if hasattr(study, "draw"):
        study.draw(results, experiment.out)
    write_page(results, experiment.out)
    return results
