"""`decodebench recipes`: the built-in models, and the KV cache groups that each one brings."""

import argparse
import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from decodebench.engine.recipes import Recipe


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = subparsers.add_parser(
        "recipes",
        help="list the built-in models and their KV cache groups",
        description="List the built-in models: tiny models of real families, made on the spot with random weights.",
    )
    parser.add_argument("--json", action="store_true", help="print the list as one JSON document")


def run(args: argparse.Namespace) -> int:
    from decodebench.engine import recipes

    known = [recipes.get(name) for name in recipes.names()]
    print(_as_json(known) if args.json else _as_text(known, recipes.DEFAULT))
    return 0


def _as_text(known: "list[Recipe]", default: str) -> str:
    blocks = []
    for recipe in known:
        mark = "  (default)" if recipe.name == default else ""
        groups = ", ".join(_group(recipe, kind) for kind in recipe.kinds)
        fits = f"{recipe.fits.batch_size} x {recipe.fits.context_len:,} tokens"
        shims = f"\n  CPU shims  {', '.join(recipe.shims)}" if recipe.shims else ""
        blocks.append(
            f"{recipe.name}{mark}\n"
            f"  {recipe.summary}\n"
            f"  {len(recipe.groups)} KV cache group{'s' if len(recipe.groups) > 1 else ''}: {groups}\n"
            f"  {recipe.dtype}, holds {fits}{shims}"
        )
    return "\n\n".join(blocks)


def _group(recipe: "Recipe", kind: str) -> str:
    count = sum(group.kind == kind for group in recipe.groups)
    return f"{count} x {kind}" if count > 1 else kind


def _as_json(known: "list[Recipe]") -> str:
    return json.dumps(
        {"schema": "decodebench.recipes/1", "recipes": [_described(recipe) for recipe in known]}
    )


def _described(recipe: "Recipe") -> dict[str, Any]:
    return {
        "name": recipe.name,
        "summary": recipe.summary,
        "dtype": recipe.dtype,
        "groups": [{"kind": group.kind, "layers": group.layers} for group in recipe.groups],
        "fits": {"batch_size": recipe.fits.batch_size, "context_len": recipe.fits.context_len},
        "vllm_args": list(recipe.vllm_args),
        "env": dict(recipe.env),
        "shims": list(recipe.shims),
    }
