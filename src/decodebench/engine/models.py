"""What the user called a model: a built-in recipe, a folder, or a name that vLLM looks up itself."""

import difflib
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from decodebench.engine import recipes
from decodebench.engine.cores import cpu_environment
from decodebench.engine.installed import require_vllm
from decodebench.errors import EngineFailed, UserError

_NEAR = 0.8  # of 1: how alike two names are that one may have been meant for the other


@dataclass(frozen=True, slots=True)
class ResolvedModel:
    """What goes to vLLM as the model, and what a recipe wants to have around it."""

    path: str
    vllm_args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)


def check_name(name: str) -> None:
    """Raises `UserError` for a name that is nearly a built-in model's; it would be looked for on the hub."""
    if os.sep in name or name in recipes.names() or Path(name).expanduser().exists():
        return
    near = difflib.get_close_matches(name, recipes.names(), n=1, cutoff=_NEAR)
    if near:
        raise UserError(
            f"MODEL {name}: no folder and no built-in model of this name",
            f"did you mean {near[0]}? (`decodebench recipes` lists all; `./{name}` would be a folder)",
        )


def resolve_model(name: str) -> ResolvedModel:
    """Make the recipe of this name, or check the folder, or leave the name to vLLM."""
    check_name(name)
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
