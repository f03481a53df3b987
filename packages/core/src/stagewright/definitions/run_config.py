"""A run's config, `{stage_id: {...}}`: its defaults, and what is wrong with a given one."""

from collections.abc import Iterable, Mapping
from typing import Any, cast

from pydantic import BaseModel

from stagewright.definitions.schema import Schema
from stagewright.definitions.stage import Stage
from stagewright.errors import InvalidConfigError, Problem, SchemaMismatchError, ValueNotSerializableError
from stagewright.json_values import Json, child_path

__all__ = ["complete_config", "default_config"]


def complete_config(
    stages: Iterable[Stage[Any, Any, Any]], config: object, *, subject: str
) -> dict[str, Json]:
    """The config of every stage, validated and with its defaults filled in.

    Args:
        stages: The workflow's stages.
        config: What the caller gave: a mapping of stage ids to mappings or config objects.
        subject: Whose config it is, for the error.

    Raises:
        InvalidConfigError: Listing every problem of every stage, with paths such as `$.price.currency`.
    """
    if not isinstance(config, Mapping):
        message = f"a run's config is a mapping of stage ids to config, not {type(config).__name__}"
        raise InvalidConfigError(subject, (Problem(path="$", message=message),))
    given = cast("Mapping[object, object]", config)
    by_id = {stage.id: stage for stage in stages}
    known = ", ".join(map(repr, by_id))
    problems = [
        Problem(path=child_path("$", key), message=f"the workflow has no stage {key!r}; it has {known}")
        for key in given
        if key not in by_id
    ]
    complete: dict[str, Json] = {}
    for stage in by_id.values():
        try:
            complete[stage.id] = _filled(stage, given.get(stage.id, {}))
        except SchemaMismatchError as error:
            problems.extend(_under(stage.id, problem) for problem in error.problems)
        except ValueNotSerializableError as error:
            problems.append(_under(stage.id, Problem(path=error.path, message=error.problem)))
    if problems:
        raise InvalidConfigError(subject, tuple(problems))
    return complete


def default_config(stages: Iterable[Stage[Any, Any, Any]]) -> dict[str, Json]:
    """The defaults of every stage's config; a stage whose defaults have no JSON form has none here."""
    return {stage.id: _defaults(stage.config_schema) for stage in stages}


def _filled(stage: Stage[Any, Any, Any], given: object) -> Json:
    what, schema = f"the config of stage {stage.id!r}", stage.config_schema
    filled = schema.dump(schema.load(schema.accept(given, what=what), what=what), what=what)
    if not isinstance(filled, dict):
        raise SchemaMismatchError(
            what, (Problem(path="$", message="a stage's config must be a JSON object"),)
        )
    return filled


def _under(stage_id: str, problem: Problem) -> Problem:
    return Problem(path=child_path("$", stage_id) + problem.path.removeprefix("$"), message=problem.message)


def _defaults(schema: Schema[Any]) -> Json:
    try:
        complete = schema.dump(schema.load({}, what="the defaults"), what="the defaults")
        return complete if isinstance(complete, dict) else {}
    except (SchemaMismatchError, ValueNotSerializableError):
        return _declared_defaults(schema.annotation)


def _declared_defaults(annotation: object) -> Json:
    """The defaults of a model that also has required fields."""
    if not (isinstance(annotation, type) and issubclass(annotation, BaseModel)):
        return {}
    defaults: dict[str, Json] = {}
    try:
        for name, field in annotation.model_fields.items():
            if not field.is_required():
                value = field.get_default(call_default_factory=True, validated_data={})
                key = field.serialization_alias or field.alias or name
                defaults[key] = Schema.of(field.rebuild_annotation()).accept(value, what="a default")
    except Exception:  # a default factory is the author's code; a stage with exotic defaults has none to show
        return {}
    return defaults
