"""What users choose: each setting is declared once, with its type, default, range and words.

A field of a class of `Settings` is annotated with a `Setting`. From these declarations come the parameters of functions
that take settings by name, their checks, the options of the command line, what files keep, and the descriptions.
"""

from __future__ import annotations

import dataclasses
import difflib
import inspect
import math
import textwrap
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import NoneType
from typing import Annotated, Any, ClassVar, NamedTuple, Protocol, Self, TypeVar, get_args, get_origin, get_type_hints

from mpimbs.base.errors import InputError

# Names to choose among, known before what they name is imported.
BALANCED, SERIAL, AUTO = SCHEDULES = ("balanced", "serial", "auto")
BODIES, SWEEPS = LEAVES = ("bodies", "sweeps")  # what the coupling assembly joins
DOUBLING, RECURSIVE = FORMS = ("doubling", "recursive")  # of the inertia matrix over ranks

Made = TypeVar("Made", bound="type[Settings]")
Function = TypeVar("Function", bound=Callable[..., Any])


class Must(Protocol):
    """A condition on the values of a setting."""

    def complaint(self, setting: Setting, path: str, value: Any) -> str:
        """Say what is wrong with a value; empty where nothing is."""


class Range(NamedTuple):
    """Values that make sense, and how a message says what they must be."""

    holds: Callable[[Any], bool]
    words: str

    def complaint(self, setting: Setting, path: str, value: Any) -> str:
        """Say what is wrong with a value; empty where nothing is."""
        said = f"{value:g}" if isinstance(value, float) else value
        return "" if self.holds(value) else f"{setting.noun} must be {self.words}, got `{path}={said}`"


class OneOf(NamedTuple):
    """Names that there are."""

    names: Sequence[str]

    def complaint(self, setting: Setting, path: str, value: Any) -> str:
        """Say what is wrong with a name; empty where nothing is."""
        known = ", ".join(self.names)
        return "" if value in self.names else f"unknown {setting.noun} '{value}'; choose one of: {known}"


TIME = Range(lambda value: 0.0 < value < math.inf, "a positive time in seconds")
POSITIVE = Range(lambda value: 0.0 < value < math.inf, "positive and finite")
FRACTION = Range(lambda value: 0.0 < value < 1.0, "between 0 and 1")
COUNT = Range(lambda value: value >= 1, "1 or more")


class Setting(NamedTuple):
    """How a setting is described and checked; names of others stand between backticks."""

    text: str  # what it is, without a full stop
    unit: str = ""
    default: str = ""  # what the default does, where its value does not say so
    more: str = ""  # further sentences, for the documentation
    noun: str = ""  # what a message calls its value
    must: Must | None = None  # values that make sense whatever the others are; None always does where it is the default
    option: str = ""  # its name on the command line, where that is another one


class Field(NamedTuple):
    """A setting as a class has it."""

    name: str
    path: str  # as messages name it, such as `solver.rtol`
    kind: Any  # without None
    default: Any  # dataclasses.MISSING: it must be given
    setting: Setting

    @property
    def option(self) -> str:
        """Name of its parameter on the command line."""
        return self.setting.option or self.name

    @property
    def default_words(self) -> str:
        """The default in words; empty where there is nothing to say."""
        silent = self.default in (None, False, dataclasses.MISSING) or isinstance(self.default, Settings)
        return self.setting.default or ("" if silent else str(self.default))


@dataclass(frozen=True)
class Settings:
    """Settings that belong together."""

    called: ClassVar[str] = ""  # what they are among others

    @classmethod
    def fields(cls) -> tuple[Field, ...]:
        """All settings, in order."""
        if cls not in _FIELDS:
            _FIELDS[cls] = tuple(_declared(cls))
        return _FIELDS[cls]

    @classmethod
    def asked(cls, given: Mapping[str, Any], base: Self | None = None) -> Self:
        """Give the settings that a user asks for by name, on top of others.

        Raises
        ------
        InputError
            There is none of a name, one is missing, of another kind, or makes no sense.
        """
        known = cls._known(given)
        if base is not None:
            if not isinstance(base, cls):
                raise InputError(f"settings must be {cls.__name__}, got a {type(base).__name__}")
            return dataclasses.replace(base, **given).checked()
        for name, field in known.items():
            if field.default is dataclasses.MISSING and name not in given:
                raise InputError(f"`{name}` is missing: {_lower(field.setting.text)}")
        return cls(**given).checked()

    @classmethod
    def _known(cls, given: Mapping[str, Any]) -> dict[str, Field]:
        """All settings by name, after a check that there are those of a mapping."""
        known = {field.name: field for field in cls.fields()}
        for name in given:
            if name not in known:
                raise InputError(f"there is no setting `{name}`; {remedy_for(name, known)}")
        return known

    def checked(self) -> Self:
        """Give the settings if each is of its kind, and makes sense.

        Raises
        ------
        InputError
        """
        from mpimbs.base.arguments import check_kinds  # needs numpy

        check_kinds(type(self), {field.name: getattr(self, field.name) for field in self.fields()}, self.called)
        for field in self.fields():
            value, must = getattr(self, field.name), field.setting.must
            if isinstance(value, Settings):
                value.checked()
            elif value is not None and must is not None and (wrong := must.complaint(field.setting, field.path, value)):
                raise InputError(wrong)
        return self

    def part(self, kind: type[Settings]) -> dict[str, Any]:
        """The settings that another class has too, by name."""
        return {field.name: getattr(self, field.name) for field in kind.fields()}

    def described(self) -> dict[str, str]:
        """The settings in words by name, for ranks to compare."""
        return {field.name: str(getattr(self, field.name)) for field in self.fields()}

    def data(self) -> dict[str, Any]:
        """The settings as JSON holds them."""
        values = {field.name: getattr(self, field.name) for field in self.fields()}
        return {name: value.data() if isinstance(value, Settings) else value for name, value in values.items()}

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> Self:
        """Give the settings that `data` gave; those that a file is too old to have are as they were then: defaults."""
        known = cls._known(data)
        return cls(**{n: known[n].kind.of(v) if isinstance(v, Mapping) else v for n, v in data.items()})


_FIELDS: dict[type, tuple[Field, ...]] = {}  # of classes that were asked for theirs


def _declared(kind: type[Settings]) -> Iterator[Field]:
    hints = get_type_hints(kind, include_extras=True)
    for item in dataclasses.fields(kind):
        declared = hints[item.name]
        if get_origin(declared) is not Annotated:
            raise TypeError(f"{kind.__name__}.{item.name} is not declared as a Setting")
        whole, setting = get_args(declared)
        kinds = [one for one in get_args(whole) or (whole,) if one is not NoneType]
        path = f"{kind.called}.{item.name}" if kind.called else item.name
        yield Field(item.name, path, kinds[-1], item.default, setting)


def single(fields: Sequence[Field]) -> Iterator[Field]:
    """Give settings one by one: in place of those that are classes themselves, what these have."""
    for field in fields:
        if isinstance(field.kind, type) and issubclass(field.kind, Settings):
            yield from single(field.kind.fields())
        else:
            yield field


def remedy_for(name: str, known: Collection[str]) -> str:
    """Say what may be meant by the name of a setting that there is not."""
    meant = difflib.get_close_matches(name, known, 1)
    return f"is `{meant[0]}` meant?" if meant else f"choose among {', '.join(known)}"


def described(kind: Made) -> Made:
    """Add the settings of a class to its docstring."""
    lines = [inspect.cleandoc(kind.__doc__ or ""), "", "Attributes", "----------"]
    for field in kind.fields():
        setting, must_be_given = field.setting, field.default is dataclasses.MISSING
        unit = f" ({setting.unit})" if setting.unit else ""
        default = f"; {field.default_words} by default" if field.default_words and not must_be_given else ""
        kind_name = getattr(field.kind, "__name__", str(field.kind))
        lines.append(f"{field.name} : {kind_name}{', optional' if field.default is None else ''}")
        text = f"{setting.text}{unit}{default}.{f' {setting.more}' if setting.more else ''}"
        lines += [f"    {line}" for line in textwrap.wrap(text, 110, break_on_hyphens=False)]
    kind.__doc__ = "\n".join(lines)
    return kind


def takes(kind: type[Settings]) -> Callable[[Function], Function]:
    """Have a function that takes settings by name, as `**settings`, show them in its signature."""

    def decorated(function: Function) -> Function:
        shown = inspect.signature(function)
        own = [p for p in shown.parameters.values() if p.kind is not inspect.Parameter.VAR_KEYWORD]
        hints = get_type_hints(kind)
        theirs = [
            inspect.Parameter(
                field.name,
                inspect.Parameter.KEYWORD_ONLY,
                default=inspect.Parameter.empty if field.default is dataclasses.MISSING else field.default,
                annotation=hints[field.name],
            )
            for field in kind.fields()
            if field.name not in shown.parameters
        ]
        function.__signature__ = shown.replace(parameters=own + theirs)  # type: ignore[attr-defined]  # as inspect asks
        return function

    return decorated


def _lower(text: str) -> str:
    return text[:1].lower() + text[1:]
