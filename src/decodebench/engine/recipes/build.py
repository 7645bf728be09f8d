"""`python -m decodebench.engine.recipes.build NAME DIR`: make one built-in model, in a process of its own.

Apart from the rest because torch and transformers are imported here, and nowhere else on the client's side.
"""

import sys
from pathlib import Path

from decodebench.engine import recipes
from decodebench.engine.recipes import tokenizer


def build(name: str, directory: Path) -> None:
    """Write configuration, weights and tokenizer of the recipe into an existing directory."""
    from decodebench.engine.recipes import weights

    recipe = recipes.get(name)
    weights.write(recipe, directory)
    tokenizer.write(directory, recipe.config["vocab_size"], recipe.max_model_len)


if __name__ == "__main__":
    build(sys.argv[1], Path(sys.argv[2]))
