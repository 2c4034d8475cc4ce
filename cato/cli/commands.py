"""All commands by name. Each is a dataclass: its fields are the options, its docstring the help.

What a command needs is imported when it runs, so that help and errors come at once.
"""

from typing import Any

from cato.cli.data import Benchmarks, Generate, Models
from cato.cli.deploy import Export, Serve
from cato.cli.pretrained import Pretrained
from cato.cli.runs import Evaluate, Predict, Report
from cato.cli.train import Demo, Train
from cato.cli.user_data import Inspect

COMMANDS: dict[str, type[Any]] = {
    "generate": Generate,
    "inspect": Inspect,
    "train": Train,
    "evaluate": Evaluate,
    "predict": Predict,
    "report": Report,
    "models": Models,
    "benchmarks": Benchmarks,
    "pretrained": Pretrained,
    "export": Export,
    "serve": Serve,
    "demo": Demo,
}
