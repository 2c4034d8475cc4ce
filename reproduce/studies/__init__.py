"""The studies, one module per kind of experiment.

Each has `run(experiment)`, which returns the contents of the results file and draws the pictures
that need run folders; `page(results)`, which shapes the rows for the template of the same name;
`SUMMARY`, the table and columns that the command prints; and, if pictures follow from the results
alone, `draw(results, out)`.
"""
