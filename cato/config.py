"""Typed settings: frozen dataclasses next to the class they configure, validated at the boundary.

Ranges are written with `annotated_types` (`Annotated[int, Gt(0)]`) and checked here, whether a
value comes from a recipe, the command line, a saved run or Python.
"""

from collections.abc import Callable, Mapping
from dataclasses import asdict, fields, is_dataclass
from functools import lru_cache
from typing import Annotated, Any, TypeVar, get_type_hints

from annotated_types import Ge, Gt, Le, Lt
from pydantic import BeforeValidator, ConfigDict, TypeAdapter, ValidationError, with_config

from cato.errors import InputError

Config = TypeVar("Config")

Count = Annotated[int, Gt(0), Le(10**9)]
Depth = Annotated[int, Gt(0), Le(1000)]
"""Number of parts that are built one by one, such as layers."""
Positive = Annotated[float, Ge(1e-12), Le(1e9)]
NonNegative = Annotated[float, Ge(0), Le(1e9)]
"""Bounds far from the limits of float32: squares and products with sizes stay finite."""
Ratio = Annotated[float, Ge(0.01), Le(100)]
"""Of two sizes."""
Fraction = Annotated[float, Ge(0), Lt(1)]


def one_or_more(value: Any) -> Any:
    """A single word of the command line as a list of one; "none" is an empty list."""
    if isinstance(value, str):
        return [] if value == "none" else [value]
    return value


Axes = Annotated[tuple[int, ...], BeforeValidator(one_or_more)]
"""Mesh axes, from 0; a single one may be a word of the command line."""


@lru_cache
def _adapter(cls: Any) -> TypeAdapter[Any]:
    return TypeAdapter(with_config(ConfigDict(extra="forbid", allow_inf_nan=False))(cls))


def from_dict(
    cls: Callable[..., Config], values: Mapping[str, Any], where: str, group: str = ""
) -> Config:
    """Build a config from plain values; unknown keys, wrong types and ranges are named errors.

    Messages start with `where`, the origin of the values, such as "recipe of darcy"; `group`
    prefixes the names of settings in them.
    """
    try:
        return _adapter(cls).validate_python(values)
    except ValidationError as error:
        first = error.errors()[0]
        path = [str(part) for part in (group, *first["loc"]) if part]
        name = ".".join(path) or cls.__name__
        if first["type"] == "unexpected_keyword_argument":
            raise InputError(
                f"{where}: unknown setting {name}; choose one of {_known(cls, first['loc'])}"
            ) from None
        message = first["msg"][0].lower() + first["msg"][1:]
        got = "no value" if first["input"] == [] else repr(first["input"])
        raise InputError(f"{where}: {name}: {message}; got {got}") from None


def _known(cls: Any, loc: tuple[int | str, ...]) -> str:
    """The settings that exist on the level of an unknown one."""
    for part in loc[:-1]:
        cls = get_type_hints(cls)[str(part)]
    return ", ".join(field.name for field in fields(cls))


def checked(config: Config, where: str) -> Config:
    """The config after validation of all types and ranges."""
    return from_dict(type(config), to_dict(config), where)


def to_dict(config: Any) -> dict[str, Any]:
    """Plain nested values of a config, as after a round trip through JSON: lists, no tuples."""
    assert is_dataclass(config)
    assert not isinstance(config, type)
    return asdict(config, dict_factory=_with_lists)


def _with_lists(items: list[tuple[str, Any]]) -> dict[str, Any]:
    return {name: list(v) if isinstance(v, tuple) else v for name, v in items}
