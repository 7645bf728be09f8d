"""What the user called a model: a parsed config, a directory or config.json, a built-in recipe, or a hub id."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from decodebench.errors import UserError
from decodebench.models import ModelConfig, parse, read


@dataclass(frozen=True, slots=True)
class NamedModel:
    """A model's config and, for a recipe, the engine options that its server is started with."""

    name: str
    config: ModelConfig
    engine_args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    is_recipe: bool = False


def find_model(model: str | Path | Mapping[str, Any]) -> NamedModel:
    """The config of a model; `ConfigError` or `UserError` where there is none."""
    if isinstance(model, Mapping):
        return NamedModel("the given config", parse(dict(model), source="the given config"))
    name = str(model)
    if name and Path(name).expanduser().exists():
        return NamedModel(name, read(Path(name).expanduser()))
    if "/" not in name:
        recipe = _recipe(name)
        if recipe is not None:
            return recipe
    if _looks_like_a_path(name):
        raise UserError(
            f"MODEL {name}: no such file or directory", "give a directory with a config.json, or that file"
        )
    if name.count("/") == 1:
        from decodebench.planner.hub import fetch_config

        return NamedModel(name, parse(fetch_config(name), source=name))
    raise UserError(f"MODEL {name!r} is neither a directory, a config.json nor a hub id", _accepted())


def _recipe(name: str) -> NamedModel | None:
    from decodebench.engine import recipes

    if name not in recipes.names():
        return None
    recipe = recipes.get(name)
    config = parse(dict(recipe.config), source=name)
    return NamedModel(name, config, recipe.vllm_args, recipe.env, is_recipe=True)


def _looks_like_a_path(name: str) -> bool:
    return name.startswith((".", "/", "~")) or name.endswith(".json") or name.count("/") > 1


def _accepted() -> str:
    from decodebench.engine import recipes

    return f"accepted: a directory, a config.json, an id such as openai/gpt-oss-120b, or {', '.join(recipes.names())}"
