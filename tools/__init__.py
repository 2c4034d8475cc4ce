"""Scripts that measure cato and write its generated pages; not part of the wheel.

    python -m tools.generate           write every generated page, card and table from results files
    python -m tools.generate --check   fail if one of them differs (`make check-generated`)

Measurements write their rows with provenance to tools/results/NAME.json: `tools.speed`,
`tools.recipes`, `tools.solvers`, `tools.serve`, `tools.exports`, `tools.fine_tuning`,
`tools.user_data` and `tools.survey`.
`tools.pretrained` trains and packages the models that come with cato.
"""
