"""All commands by name. Each is a dataclass: its fields are the options, its docstring the help.

Commands import what they need when they run, so that help and errors appear at once.
"""

from typing import Any

from cato.cli.data import Benchmarks, Generate, Models
from cato.cli.deploy import Export, Serve
from cato.cli.pretrained import Pretrained
from cato.cli.runs import Evaluate, Predict, Report
from cato.cli.train import Demo, Train
from cato.cli.user_data import Inspect

SECTIONS: dict[str, dict[str, type[Any]]] = {
    "Start": {"demo": Demo, "pretrained": Pretrained},
    "Data": {"benchmarks": Benchmarks, "generate": Generate, "inspect": Inspect},
    "Train": {"models": Models, "train": Train, "evaluate": Evaluate, "report": Report},
    "Use": {"predict": Predict, "serve": Serve, "export": Export},
}
"""Commands as `cato --help` lists them."""
COMMANDS = {name: command for section in SECTIONS.values() for name, command in section.items()}
