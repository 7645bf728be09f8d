"""What a result says of the engine."""

from pathlib import Path

import pytest

from decodebench.bench.facts import EngineFacts, model_name
from decodebench.engine import recipes
from decodebench.engine.recipes import cache
from decodebench.errors import UserError
from decodebench.results.provenance import Fill


@pytest.mark.parametrize(
    ("model", "shown"),
    [
        ("openai/gpt-oss-120b", "openai/gpt-oss-120b"),
        ("gpt-oss", "gpt-oss"),
        ("/home/me/.cache/decodebench/models/tiny-gemma3-1c66061fe059", "tiny-gemma3-1c66061fe059"),
        ("/data/models/mine/", "mine"),
        ("~/mine", "mine"),
        ("./mine", "mine"),
        ("/hub/models--org--name/snapshots/0123abc", "org/name"),
        ("/", "/"),
    ],
)
def test_a_model_is_shown_without_the_folder_it_lies_in(model: str, shown: str) -> None:
    assert model_name(model) == shown


def test_the_folder_where_we_are_has_a_name_too() -> None:
    assert model_name(".") == Path.cwd().name


def _server(mean: float, std: float) -> EngineFacts:
    return EngineFacts(({"fill": {"mean": mean, "std": std, "seed": 0, "async": True}},))


@pytest.mark.parametrize(
    ("content", "mean", "std"), [("constant", 0.015, 0.0), ("constant", 0, 0), ("normal", 0.0, 1.0)]
)
def test_a_server_that_writes_the_numbers_asked_for_is_taken(content: str, mean: float, std: float) -> None:
    _server(mean, std).check_fill(Fill(content=content, params={"mean": mean, "std": std}))


@pytest.mark.parametrize(("content", "mean", "std"), [("constant", 0.5, 0.0), ("normal", 0.015, 0.015)])
def test_a_server_that_writes_other_numbers_is_no_place_for_the_run(
    content: str, mean: float, std: float
) -> None:
    with pytest.raises(UserError, match=r"the server fills with mean 0\.015 and standard deviation 0\.0"):
        _server(0.015, 0.0).check_fill(Fill(content=content, params={"mean": mean, "std": std}))


def test_a_fill_from_donors_does_not_ask_for_the_servers_numbers() -> None:
    _server(0.015, 0.0).check_fill(Fill(content="donor", params={"donors": None}))


FOLDER = "/home/me/.cache/decodebench/models/tiny-llama-2bd8da7a985b"


class Told(dict):
    """A server's description of which only the model matters; all else is whatever it may be."""

    def __missing__(self, key: str) -> object:
        return [] if key in ("groups", "connectors", "cudagraph_capture_sizes") else _OF_KEY.get(key, 1)


_OF_KEY = {
    "connector": {"class": "c", "version": "1"},
    **dict.fromkeys(("vllm_version", "device", "dtype", "kv_cache_dtype", "mamba_cache_mode"), "x"),
    **dict.fromkeys(("hybrid_kv_cache_manager", "async_scheduling", "prefix_caching", "enforce_eager"), True),
}


@pytest.mark.parametrize(
    ("model", "load_format", "recipe", "weights"),
    [
        (FOLDER, "auto", "tiny-llama", "seeded"),
        (FOLDER, "dummy", "tiny-llama", "dummy"),
        ("/models/my-llama-2bd8da7a985b", "auto", None, "real"),
        ("/models/tiny-llama-instruct", "auto", None, "real"),
        ("org/tiny-llama", "auto", None, "real"),
    ],
)
def test_a_built_in_model_is_known_by_its_folder_where_others_started_the_server(
    model: str, load_format: str, recipe: str | None, weights: str
) -> None:
    engine = EngineFacts((Told(model=model, load_format=load_format),)).record(
        recipe=None, weights=None, shims=(), hma_reason=None
    )
    assert (engine.recipe, engine.weights) == (recipe, weights)


def test_every_recipe_is_found_by_the_name_of_its_entry_in_the_cache() -> None:
    for name in recipes.names():
        assert recipes.made_in(cache._path(recipes.get(name)).name) == name
