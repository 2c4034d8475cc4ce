"""Typed settings: frozen dataclasses beside the class they configure, checked once at the boundary.

Ranges are written with `annotated_types` (`Annotated[int, Gt(0)]`) and checked here, whether a
value comes from a recipe, the command line, a saved run or Python.
"""

from collections.abc import Callable
from dataclasses import asdict, fields, is_dataclass
from functools import lru_cache
from typing import Annotated, Any, TypeVar, get_type_hints

from annotated_types import Ge, Gt, Lt
from pydantic import ConfigDict, TypeAdapter, ValidationError, with_config

from cato.errors import InputError

Config = TypeVar("Config")

Count = Annotated[int, Gt(0)]
Positive = Annotated[float, Gt(0)]
NonNegative = Annotated[float, Ge(0)]
Fraction = Annotated[float, Ge(0), Lt(1)]


@lru_cache
def _adapter(cls: Any) -> TypeAdapter[Any]:
    return TypeAdapter(with_config(ConfigDict(extra="forbid"))(cls))


def from_dict(cls: Callable[..., Config], values: dict[str, Any], where: str) -> Config:
    """Build a config from plain values; unknown keys, wrong types and ranges are named errors.

    Args:
        cls: The dataclass to build.
        values: Its fields, nested dataclasses as nested dictionaries.
        where: Named in the message, such as "recipe darcy.toml" or "command line".
    """
    try:
        return _adapter(cls).validate_python(values)
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(str(part) for part in first["loc"]) or cls.__name__
        if first["type"] == "unexpected_keyword_argument":
            raise InputError(
                f"{where}: unknown setting {field!r}; known are {_known(cls, first['loc'])}"
            ) from None
        message = first["msg"][0].lower() + first["msg"][1:]
        raise InputError(f"{where}: {field}: {message}; got {first['input']!r}") from None


def _known(cls: Any, loc: tuple[int | str, ...]) -> str:
    """The settings that exist on the level of the unknown one."""
    for part in loc[:-1]:
        cls = get_type_hints(cls)[str(part)]
    return ", ".join(field.name for field in fields(cls))


def checked(config: Config, where: str) -> Config:
    """The same config after all its types and ranges have been checked."""
    return from_dict(type(config), to_dict(config), where)


def to_dict(config: Any) -> dict[str, Any]:
    """Plain nested values of a config, as JSON gives them back: lists, no tuples."""
    assert is_dataclass(config)
    assert not isinstance(config, type)
    return asdict(config, dict_factory=_with_lists)


def _with_lists(items: list[tuple[str, Any]]) -> dict[str, Any]:
    return {name: list(v) if isinstance(v, tuple) else v for name, v in items}
