"""Built-in models, by name. Importing this imports neither torch nor vLLM nor transformers."""

import re

from decodebench.engine.recipes import (
    deepseek_v2,
    deepseek_v4,
    gemma3,
    gptoss,
    granite,
    jamba,
    llama,
    llama4,
    qwen3_next,
    small_hybrid,
    small_moe,
)
from decodebench.engine.recipes.base import Fits, Group, Recipe
from decodebench.engine.recipes.errors import RecipeError
from decodebench.errors import UserError

DEFAULT = "tiny-gemma3"

_KEY = re.compile(r"[0-9a-f]{12}")

_RECIPES = {
    recipe.name: recipe
    for recipe in (
        llama.RECIPE,
        gemma3.RECIPE,
        gptoss.RECIPE,
        llama4.RECIPE,
        deepseek_v2.RECIPE,
        granite.RECIPE,
        jamba.RECIPE,
        qwen3_next.RECIPE,
        deepseek_v4.RECIPE,
        small_moe.RECIPE,
        small_hybrid.RECIPE,
    )
}

__all__ = ["DEFAULT", "Fits", "Group", "Recipe", "RecipeError", "get", "made_in", "names"]


def names() -> tuple[str, ...]:
    """Names of all recipes, simplest first."""
    return tuple(_RECIPES)


def get(name: str) -> Recipe:
    """The recipe of that name; raises `UserError` with the names there are."""
    if name not in _RECIPES:
        raise UserError(f"MODEL {name}: no built-in model of this name", f"built in are {', '.join(names())}")
    return _RECIPES[name]


def made_in(folder: str) -> str | None:
    """The recipe whose model lies in a folder of this name (`tiny-llama-2bd8da7a985b`, see cache.py), if it is one's.

    Any key will do: the server's transformers may be of another version than ours, and the key then differs.
    """
    name, _, key = folder.rpartition("-")
    return name if name in _RECIPES and _KEY.fullmatch(key) else None
