"""What is called in a step, and what comes out of it."""

import builtins
import inspect
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import lru_cache, partial
from types import FunctionType, MethodType, NoneType
from typing import Any, Final, Literal, Never, NoReturn, cast, get_args, get_origin

from stagewright.definitions import Schema
from stagewright.definitions.signature import MISSING, AnnotationProblem, FunctionReader
from stagewright.errors import (
    DefinitionError,
    SchemaMismatchError,
    StepResultNotSerializableError,
    ValueNotSerializableError,
)
from stagewright.json_values import Json
from stagewright.runtime.failure import describe_exception

__all__ = ["StepFunction", "load_payload", "payload_schema", "require_predicate"]

_GENERATORS: Final = inspect.CO_GENERATOR | inspect.CO_ASYNC_GENERATOR | inspect.CO_ITERABLE_COROUTINE
_OWN_PARAMETERS: Final = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


@dataclass(frozen=True, slots=True)
class StepFunction:
    """A step's function.

    Attributes:
        step_id: The step.
        call: The function.
        takes_run: Whether it is called with a `StepRun`.
        is_blocking: Whether calling it does the work, so that it needs a thread.
        schema: The type of its result.
    """

    step_id: str
    call: Callable[..., object]
    takes_run: bool
    is_blocking: bool
    schema: Schema[Any]

    @classmethod
    def read(
        cls, step_id: str, function: object, returns: object, *, role: Literal["fn", "poll"] = "fn"
    ) -> "StepFunction":
        """Read a function's signature.

        Args:
            step_id: The step.
            function: The function.
            returns: The type of its result, or None for its annotation.
            role: The argument it was given for; only `fn` may take a `StepRun`.

        Raises:
            DefinitionError: If it can't be a step's function, or its result's type is unknown.
        """
        if not callable(function):
            problem = f"{role}={function!r} can't be called; give a function"
            raise DefinitionError(f"step {step_id!r}", (problem,))
        plain = _read_plain(function, returns)
        if plain is not None and not (plain.takes_run and role == "poll"):
            return cls(step_id, function, plain.takes_run, plain.is_blocking, plain.schema)
        subject = f"step {step_id!r}"
        fix = f"give the type with ctx.step.{'run' if role == 'fn' else 'wait_for'}(..., returns=...)"
        reader = FunctionReader(function, {}, fix=fix)
        if reader.is_generator:
            raise DefinitionError(
                subject, (f"{reader.name} is a generator; return a list of what it yields",)
            )
        try:
            takes_run = _takes_run(function)
            if takes_run and role == "poll":
                raise AnnotationProblem(
                    "it is called with nothing, and it needs an argument; give it before, for instance by a lambda"
                )
            annotation = _result_type(function, reader) if returns is None else returns
        except AnnotationProblem as problem:
            raise DefinitionError(
                f"{subject}, function {reader.name} ({reader.place})", (str(problem),)
            ) from problem
        try:
            schema = _schema_of(annotation)
            _ = schema.codec
        except DefinitionError as error:
            what = f"its result has {error}; {fix}"
            raise DefinitionError(f"{subject}, function {reader.name} ({reader.place})", (what,)) from error
        return cls(step_id, function, takes_run, reader.is_blocking, schema)

    def keep(self, value: object) -> tuple[Json, object]:
        """The JSON form of a result, and the result as that form gives it back.

        Raises:
            StepResultNotSerializableError: If it doesn't fit its type, or has no exact JSON form.
        """
        try:
            return self.schema.keep(value, what="it")
        except ValueNotSerializableError as error:
            raise StepResultNotSerializableError(self.step_id, error.path, error.problem) from error
        except SchemaMismatchError as error:
            first = error.problems[0]
            raise StepResultNotSerializableError(self.step_id, first.path, first.message) from error
        except Exception as error:  # what a result does when it is looked at is no failure of the engine
            problem = f"it can't be read: {describe_exception(error)}"
            raise StepResultNotSerializableError(self.step_id, "$", problem) from error

    def load(self, stored: Json) -> object:
        """A stored result, as its type.

        Raises:
            SchemaMismatchError: If it doesn't fit, because the type has changed.
        """
        return self.schema.load(stored, what=f"the stored result of step {self.step_id!r}")


def require_predicate(step_id: str, ready: object) -> None:
    """Make sure that answers can be judged by this.

    Raises:
        DefinitionError: If not.
    """
    problem: str | None = None
    if not callable(ready):
        problem = f"ready={ready!r} can't be called; give a function of the answer"
    elif inspect.iscoroutinefunction(ready):
        problem = "ready is an async def; give a plain function, and do what takes time in poll"
    if problem is not None:
        raise DefinitionError(f"step {step_id!r}", (problem,))


def payload_schema(step_id: str, returns: object) -> Schema[Any]:
    """The schema of what a signal brings; None is plain JSON.

    Raises:
        DefinitionError: If the type can't be one.
    """
    try:
        schema = _schema_of(Any if returns is None else returns)
        _ = schema.codec
    except DefinitionError as error:
        raise DefinitionError(f"step {step_id!r}", (f"returns={returns!r}: {error}",)) from error
    return schema


def load_payload(step_id: str, schema: Schema[Any], payload: Json) -> object:
    """What a signal brought, as its type.

    Raises:
        StepResultNotSerializableError: If it doesn't fit; no other attempt can help.
    """
    try:
        return schema.load(payload, what=f"the payload of the signal to step {step_id!r}")
    except SchemaMismatchError as error:
        first = error.problems[0]
        problem = f"the signal's payload doesn't fit: {first.message}"
        raise StepResultNotSerializableError(step_id, first.path, problem) from error


@dataclass(frozen=True, slots=True)
class _Traits:
    takes_run: bool
    is_blocking: bool
    schema: Schema[Any]


def _read_plain(function: Callable[..., object], returns: object) -> _Traits | None:
    """What the code of an ordinary function says; None for every other one, which `inspect` has to look at.

    A step asks for it each time it is called, also when it is only answered again.
    """
    plain, given = _unbound(function)
    if plain is None:
        return None
    code = plain.__code__
    required = code.co_argcount - given - len(plain.__defaults__ or ())
    is_odd = required > 1 or given > code.co_argcount or code.co_kwonlyargcount
    if is_odd or code.co_flags & _GENERATORS:
        return None
    annotation = _plain_annotation(plain) if returns is None else returns
    schema = None if annotation is MISSING else _ready_schema(annotation)
    if schema is None:
        return None
    return _Traits(required == 1, not code.co_flags & inspect.CO_COROUTINE, schema)


def _unbound(function: object) -> tuple[FunctionType | None, int]:
    """The ordinary function that is called in the end, and how many arguments it has got already."""
    given = 0
    if type(function) is partial and not function.keywords and not function.__dict__:
        given, function = len(function.args), function.func
    if isinstance(function, MethodType):
        given, function = given + 1, function.__func__
    if type(function) is not FunctionType or function.__dict__:
        return None, 0  # it is wrapped, marked as a coroutine function, or has a signature of its own
    return function, given


def _plain_annotation(function: FunctionType) -> object:
    """The type of a result where it is a class, or not said; MISSING where it has to be taken apart."""
    annotation = function.__annotations__.get("return", Any)
    if isinstance(annotation, str):
        if annotation in function.__code__.co_freevars or getattr(function, "__type_params__", None):
            return MISSING
        annotation = function.__globals__.get(annotation, getattr(builtins, annotation, MISSING))
    if annotation is None:
        return NoneType
    return annotation if annotation is Any or isinstance(annotation, type) else MISSING


def _ready_schema(annotation: object) -> Schema[Any] | None:
    """The schema of a type that can be one."""
    try:
        schema = _schema_of(annotation)
        _ = schema.codec
    except DefinitionError:
        return None
    return schema


def _takes_run(function: Callable[..., object]) -> bool:
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        return False
    empty = inspect.Parameter.empty
    required = [one for one in parameters if one.kind in _OWN_PARAMETERS and one.default is empty]
    named = [
        one.name for one in parameters if one.kind is inspect.Parameter.KEYWORD_ONLY and one.default is empty
    ]
    if len(required) > 1 or named:
        needed = ", ".join([*(one.name for one in required), *named])
        raise AnnotationProblem(
            f"it is called with nothing, or with a StepRun, and it needs {needed}; "
            "give the others before, for instance by a lambda or functools.partial"
        )
    return bool(required)


def _result_type(function: Callable[..., object], reader: FunctionReader) -> object:
    if isinstance(function, type):
        return function
    annotation = reader.annotation_of("return")
    origin = get_origin(annotation)
    if isinstance(origin, type) and issubclass(origin, Awaitable) and get_args(annotation):
        annotation = get_args(annotation)[-1]
    return Any if annotation in (MISSING, NoReturn, Never) else annotation


def _schema_of(annotation: object) -> Schema[Any]:
    try:
        # Types that are equal may be spelled in another order, which can matter to a union.
        return _known_schema(annotation, repr(annotation))
    except TypeError:
        return Schema.of(annotation)


@lru_cache(maxsize=512)
def _known_schema(annotation: object, _spelled: str) -> Schema[Any]:
    return Schema.of(cast(Any, annotation))
