"""The paper's evidence: experiments, tables, claims and theory. Not part of the wheel."""
