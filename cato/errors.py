"""The exceptions that users meet."""


class InputError(ValueError):
    """Something given by the user cannot be used.

    The message says what was expected, what came and what to do. The command line prints it as one
    line and exits with code 2; every other exception is a bug and keeps its traceback.
    """


class ClusterError(InputError):
    """A cluster cannot be used, or is lost; what is finished is kept."""


class Diverged(InputError):
    """The loss or gradient of a training is not finite any more."""


class OutsideTrainingRange(UserWarning):
    """A surrogate was applied to inputs unlike those that it was trained on."""


class Interrupted(Exception):
    """A training was stopped by a signal, after saving; the message says how to continue."""
