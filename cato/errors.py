"""The one exception for what a user can cause and mend."""


class InputError(ValueError):
    """Something given by the user cannot be used.

    The message says what was expected, what came and what to do. The command line prints it as one
    line and exits with code 2; every other exception is a bug of ours and keeps its traceback.
    """
