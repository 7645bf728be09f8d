"""What a result says of the engine."""

from pathlib import Path

import pytest

from decodebench.bench.facts import EngineFacts, model_name
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
