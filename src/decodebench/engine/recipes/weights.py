"""Random weights at the scale a trained model of the family starts from, under the family's checkpoint names.

transformers initialises the family's own class (norms, `A_log`, `dt_bias`, routers and all) and writes the safetensors
that vLLM's loader reads. vLLM's `--load-format dummy` is no stand-in: it draws every weight from +-0.001, with which
activations vanish, greedy answers repeat one token and experts are not chosen by the input.

Scale: the family's `initializer_range` belongs to the family's width. A projection's gain is
`initializer_range x sqrt(width)`, so a model shrunk in width keeps the gain by a range grown by the root of the
shrinkage (`range_at_width`). With the family's range at a 16th of its width, the part of the residual that is the same
for all tokens takes over within four layers (measured on tiny-llama, 2,000-token prompts: 3 or 4 distinct tokens among
24 greedy ones at a range of 0.02, 24 of 24 at 0.08).
"""

import json
from collections.abc import Callable
from math import sqrt
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from decodebench.engine.recipes.base import Recipe


def range_at_width(family_range: float, family_width: int, width: int) -> float:
    """The `initializer_range` that gives a model of hidden size `width` the gain of the family's published one."""
    return round(family_range * sqrt(family_width / width), 4)


def write(recipe: "Recipe", directory: Path) -> None:
    """Write `config.json` and `model.safetensors`; the same bytes for the same recipe and library versions."""
    import torch
    from safetensors.torch import load_file, save_file
    from transformers import AutoConfig, AutoModelForCausalLM

    settings = dict(recipe.config)
    config = AutoConfig.for_model(settings.pop("model_type"), **settings)
    torch.manual_seed(recipe.seed)
    from_config: Callable[..., Any] = AutoModelForCausalLM.from_config
    model = from_config(config, dtype=getattr(torch, recipe.dtype))
    model.save_pretrained(directory, max_shard_size="100GB")
    if recipe.finish is not None:
        file = directory / "model.safetensors"
        save_file(recipe.finish(load_file(file)), file)
    (directory / "config.json").write_text(json.dumps({**recipe.config, "dtype": recipe.dtype}, indent=2))
    (directory / "generation_config.json").unlink(missing_ok=True)
