"""What the user called a model: a built-in recipe, a folder, or a name that vLLM looks up itself."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from decodebench.engine import recipes
from decodebench.engine.cores import cpu_environment
from decodebench.engine.installed import require_vllm
from decodebench.errors import EngineFailed, UserError


@dataclass(frozen=True, slots=True)
class ResolvedModel:
    """What goes to vLLM as the model, and what a recipe wants to have around it."""

    path: str
    vllm_args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)


def resolve_model(name: str) -> ResolvedModel:
    """Make the recipe of this name, or check the folder, or leave the name to vLLM."""
    require_vllm()
    if name in recipes.names():
        recipe = recipes.get(name)
        try:
            folder = recipe.materialise()
        except recipes.RecipeError as error:
            raise EngineFailed(str(error)) from error
        return ResolvedModel(str(folder), tuple(recipe.vllm_args), {**cpu_environment(), **recipe.env})
    if name.startswith((os.sep, "./", "../", "~")):
        folder = Path(name).expanduser()
        if not (folder / "config.json").is_file():
            raise UserError(
                f"MODEL {name}: {'no config.json in this folder' if folder.is_dir() else 'no such folder'}",
                "name a folder with a model in it, a model of the hub, or one that `decodebench recipes` lists",
            )
        return ResolvedModel(str(folder), env=cpu_environment())
    return ResolvedModel(name, env=cpu_environment())
