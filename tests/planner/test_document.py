"""Real plans against the published schema, and the figures of the issue's own field list."""

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from decodebench import plan
from decodebench.engine import recipes

from .configs import deepseek_v3, gemma3, llama, llama4, qwen3_next, qwen35_27b

SCHEMA = json.loads((Path(__file__).parents[2] / "docs" / "schema" / "plan-1.json").read_text())
TARGET: dict[str, Any] = {"gpu": "h200", "vllm_version": "0.32"}
CONFIGS = {
    "llama": llama(),
    "gemma3": gemma3(),
    "llama4": llama4(),
    "deepseek_v3": deepseek_v3(),
    "qwen3_next": qwen3_next(),
    "qwen35_27b": qwen35_27b(),
}


def check(document: dict[str, Any]) -> None:
    jsonschema.Draft202012Validator(SCHEMA).validate(json.loads(json.dumps(document)))


def test_the_schema_is_one() -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)


@pytest.mark.parametrize("memory", [None, "40GiB"])
@pytest.mark.parametrize("name", CONFIGS)
def test_plans_follow_the_schema(name: str, memory: str | None) -> None:
    check(
        plan(
            CONFIGS[name], available_kv_memory=memory, batch_size="4,64", context_len="8k", **TARGET
        ).to_json()
    )


@pytest.mark.parametrize("name", recipes.names())
def test_plans_of_recipes_follow_the_schema(name: str) -> None:
    check(plan(name).to_json())


def test_a_plan_with_the_manager_forced_off_follows_the_schema() -> None:
    document = plan(
        gemma3(), disable_hybrid_kv_cache_manager=True, pasted=["--port", "1"], **TARGET
    ).to_json()
    check(document)
    assert document["hma"]["in_force"] == "off"
    assert document["ignored"] == ["--port"]


def test_the_schema_refuses_what_is_no_plan() -> None:
    document = plan(llama(), **TARGET).to_json()
    for spoilt in (
        {**document, "extra": 1},
        {**document, "hma": {}},
        {k: v for k, v in document.items() if k != "pool"},
    ):
        with pytest.raises(jsonschema.ValidationError):
            check(spoilt)
