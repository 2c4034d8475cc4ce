"""How a solver says that it has no answer for the parameters that were drawn."""


class Rejected(RuntimeError):
    """The solution did not converge or left its range of validity; draw other parameters.

    The caller redraws with the next attempt number in the seed, so that rejection is as
    reproducible as the samples themselves.
    """
