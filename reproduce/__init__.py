"""The paper's evidence: experiments, tables, claims and theory. Not part of the wheel."""

import reproduce.variants  # noqa: F401  (worker processes of a study know them, too)
