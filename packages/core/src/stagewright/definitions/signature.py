"""What the annotations of a stage's functions say: what goes in, what comes out, and which context they take."""

import functools
import inspect
import typing
from collections.abc import Callable, Mapping
from pathlib import Path
from types import FunctionType, MethodType, NoneType, SimpleNamespace, UnionType
from typing import Annotated, Any, Final, TypeVar, Union, cast, get_args, get_origin

from stagewright.definitions.context import BlockingStageContext, EmptyConfig, StageContext
from stagewright.definitions.results import NotReady, Ready, StageResult, Suspend

__all__ = [
    "MISSING",
    "AnnotationProblem",
    "FunctionReader",
    "Missing",
    "context_types",
    "locals_of_caller",
    "output_type",
    "ready_type",
]


class Missing:
    """Stands for an argument or an annotation that isn't there, since None is a type."""

    def __repr__(self) -> str:
        return "..."


MISSING: Final = Missing()


def locals_of_caller(function: object) -> Mapping[str, object]:
    """The local names of whoever called the function that asks, and of the functions around the given one.

    Those around it count while they are the ones that called, one the other.
    """
    frame = inspect.currentframe()
    for _ in range(2):
        frame = frame.f_back if frame is not None else None
    if frame is None:
        return {}
    enclosing = _enclosing_names(function)
    scopes = [frame.f_locals]
    frame = frame.f_back
    while frame is not None and (frame.f_code.co_filename, frame.f_code.co_qualname) in enclosing:
        scopes.append(frame.f_locals)
        frame = frame.f_back
    return {name: value for scope in reversed(scopes) for name, value in scope.items()}


def _enclosing_names(function: object) -> set[tuple[str, str]]:
    """The file and the qualified name of each function and class body that a function is written in."""
    plain = inspect.unwrap(cast(Any, _plain_function(function))) if callable(function) else None
    if not isinstance(plain, FunctionType):
        return set()
    parts = plain.__qualname__.split(".")
    names = {".".join(parts[:count]) for count in range(1, len(parts)) if parts[count - 1] != "<locals>"}
    return {(plain.__code__.co_filename, name) for name in names}


class AnnotationProblem(Exception):
    """A sentence about what is wrong with an annotation, with the fix."""


class FunctionReader:
    """Reads one function: its place, its kind and its annotations.

    Annotations are resolved with the function's globals, its closure and the given locals, which are those of
    the place where it is defined.
    """

    def __init__(
        self,
        function: Callable[..., object],
        caller_locals: Mapping[str, object],
        *,
        fix: str = "give the types with define_stage(..., input=..., output=...)",
    ) -> None:
        self._function = function
        self._fix = fix
        self._plain = _plain_function(function)
        self._locals = dict(caller_locals)

    @property
    def name(self) -> str:
        """The function's name, or its class's when it is an object."""
        return getattr(self._plain, "__qualname__", None) or type(self._function).__qualname__

    @property
    def place(self) -> str:
        """The file's name and the line, or where else it comes from."""
        code = getattr(self._plain, "__code__", None)
        if code is None:
            return getattr(self._plain, "__module__", None) or "built in"
        return f"{Path(code.co_filename).name}:{code.co_firstlineno}"

    @property
    def is_coroutine(self) -> bool:
        """Whether calling it gives something to await."""
        # A plain wrapper that carries the name of a coroutine function hands its coroutine on.
        wrapped = (
            inspect.unwrap(cast("Callable[..., object]", self._plain)) if callable(self._plain) else None
        )
        called = getattr(type(self._function), "__call__", None)  # noqa: B004 - the method itself is wanted
        return any(
            inspect.iscoroutinefunction(candidate)
            for candidate in (self._function, self._plain, called, wrapped)
            if candidate
        )

    @property
    def is_blocking(self) -> bool:
        """Whether calling it does the work, so that it needs a thread."""
        return not self.is_coroutine and not inspect.isasyncgenfunction(self._plain)

    @property
    def is_generator(self) -> bool:
        """Whether calling it gives a generator, which no body may be."""
        return inspect.isgeneratorfunction(self._plain) or inspect.isasyncgenfunction(self._plain)

    def parameters(self, count: int) -> list[inspect.Parameter]:
        """The first positional parameters, which must be all that are required.

        Raises:
            AnnotationProblem: If the function can't be called with exactly `count` positional arguments.
        """
        try:
            parameters = list(inspect.signature(self._function).parameters.values())
        except (TypeError, ValueError):
            return []
        kinds = inspect.Parameter
        positional = [
            one for one in parameters if one.kind in (kinds.POSITIONAL_ONLY, kinds.POSITIONAL_OR_KEYWORD)
        ]
        has_rest = any(one.kind is kinds.VAR_POSITIONAL for one in parameters)
        required = [one for one in positional if one.default is kinds.empty]
        required += [
            one for one in parameters if one.kind is kinds.KEYWORD_ONLY and one.default is kinds.empty
        ]
        too_few = len(positional) < count and not has_rest
        too_many = any(one not in positional[:count] for one in required)
        if too_few or too_many:
            expected = "(ctx)" if count == 1 else "(state, ctx)"
            raise AnnotationProblem(
                f"it must take {expected} and nothing else that is required; it takes ({_names(parameters)})"
            )
        return positional[:count]

    def annotation_of(self, parameter: str) -> object:
        """A resolved annotation, by parameter name or `return`; `MISSING` where there is none.

        Raises:
            AnnotationProblem: If it names something that can't be found.
        """
        raw = self._raw_annotations().get(parameter, MISSING)
        if raw is MISSING:
            return MISSING
        where = "the return annotation" if parameter == "return" else f"the annotation of {parameter!r}"
        holder = SimpleNamespace(__annotations__={parameter: raw})
        try:
            hints = typing.get_type_hints(
                cast(Any, holder), globalns=self._globals(), localns=self._scope(), include_extras=True
            )
        except Exception as error:
            raise AnnotationProblem(
                f"{where}, {_shown(raw)}, can't be resolved: {error}; import what it names at run time, "
                f"or {self._fix}"
            ) from error
        return hints[parameter]

    def _raw_annotations(self) -> Mapping[str, object]:
        try:
            return inspect.get_annotations(cast(Any, self._plain))
        except (TypeError, NameError):
            return {}

    def _globals(self) -> dict[str, Any]:
        return dict(getattr(inspect.unwrap(cast(Any, self._plain)), "__globals__", {}))

    def _scope(self) -> dict[str, object]:
        scope = dict(self._locals)
        unwrapped = inspect.unwrap(cast(Any, self._plain))
        if isinstance(unwrapped, FunctionType):
            for name, cell in zip(unwrapped.__code__.co_freevars, unwrapped.__closure__ or (), strict=True):
                try:
                    scope[name] = cell.cell_contents
                except ValueError:  # the enclosing function hasn't set it yet
                    continue
            scope.update({one.__name__: one for one in getattr(unwrapped, "__type_params__", ())})
        return scope


def context_types(annotation: object, *, blocking: bool) -> tuple[object, object]:
    """The input and config types that a context annotation names.

    Raises:
        AnnotationProblem: If it is no usable context annotation.
    """
    right, wrong = (BlockingStageContext, StageContext) if blocking else (StageContext, BlockingStageContext)
    form = f"write ctx: {right.__name__}[Input, Config], or {right.__name__}[Input] without config"
    if annotation is MISSING:
        raise AnnotationProblem(
            f"the first parameter has no annotation; {form}, or use define_stage(..., input=...)"
        )
    annotation = _unaliased(annotation)
    origin = get_origin(annotation) or annotation
    if origin is wrong:
        body = "a plain def body" if blocking else "an async def body"
        raise AnnotationProblem(f"{body} takes a {right.__name__}, not a {wrong.__name__}; {form}")
    if origin is not right:
        raise AnnotationProblem(
            f"the first parameter is annotated {_shown(annotation)}, which is no context; {form}"
        )
    arguments = get_args(annotation)
    if not arguments:
        raise AnnotationProblem(
            f"{right.__name__} names no input type; {form}; None as the input means it takes none"
        )
    given, config = arguments if len(arguments) == 2 else (arguments[0], EmptyConfig)
    for role, argument in (("input", given), ("config", config)):
        if isinstance(argument, TypeVar):
            raise AnnotationProblem(f"the {role} type is the type variable {argument}; name a type")
    return given, config


def output_type(annotation: object, *, may_suspend: bool) -> object:
    """The output type that a return annotation names, or `MISSING` when it only ever suspends.

    Raises:
        AnnotationProblem: If it names none, or a suspension where none is allowed.
    """
    if annotation is MISSING:
        raise AnnotationProblem(
            "it has no return annotation; write -> Output, or -> None if it has no output, "
            "or use define_stage(..., output=...)"
        )
    outputs: list[object] = []
    for member in _members(annotation):
        if member is Suspend:
            if not may_suspend:
                raise AnnotationProblem('only a stage with mode="async-batch" may return a Suspend')
        elif member is StageResult or member is Ready:
            raise AnnotationProblem(
                f"{member.__name__} names no output type; write {member.__name__}[Output]"
            )
        elif get_origin(member) is StageResult:
            outputs.extend(_members(get_args(member)[0]))
        else:
            outputs.append(member)
    if any(isinstance(member, TypeVar) for member in outputs):
        raise AnnotationProblem(f"the output type is the type variable {outputs[0]}; name a type")
    return _union(outputs)


def ready_type(annotation: object) -> object:
    """The output type of a completion check's return annotation, or `MISSING` when it names none."""
    if annotation is MISSING:
        return MISSING
    outputs: list[object] = []
    for member in _members(annotation):
        if get_origin(member) is Ready:
            found = output_type(get_args(member)[0], may_suspend=False)
            outputs.extend([] if found is MISSING else [found])
        elif member is not NotReady:
            return MISSING
    return _union(outputs)


def _union(members: list[object]) -> object:
    if not members:
        return MISSING
    return members[0] if len(members) == 1 else Union[tuple(members)]  # noqa: UP007 - the members are known at run time only


def _members(annotation: object) -> list[object]:
    annotation = _unaliased(annotation)
    if get_origin(annotation) in (Union, UnionType):
        return [inner for member in get_args(annotation) for inner in _members(member)]
    return [None if annotation is NoneType else annotation]


def _unaliased(annotation: object) -> object:
    """What a `type X = ...` alias, or an `Annotated` context or union, stands for."""
    while type(annotation).__name__ == "TypeAliasType":
        annotation = cast(Any, annotation).__value__
    if get_origin(annotation) is Annotated:
        inner = get_args(annotation)[0]
        if get_origin(inner) in (StageContext, BlockingStageContext, StageResult):
            return inner
    return annotation


def _plain_function(function: Callable[..., object]) -> object:
    while isinstance(function, functools.partial):
        function = function.func
    if (
        isinstance(function, FunctionType | MethodType)
        or inspect.isbuiltin(function)
        or isinstance(function, type)
    ):
        return getattr(function, "__func__", function)
    called = getattr(type(function), "__call__", function)  # noqa: B004 - the method itself is wanted
    return getattr(called, "__func__", called)


def _names(parameters: list[inspect.Parameter]) -> str:
    return ", ".join(str(one.replace(annotation=inspect.Parameter.empty)) for one in parameters)


def _shown(annotation: object) -> str:
    return repr(annotation) if isinstance(annotation, str) else inspect.formatannotation(annotation)
