"""What a result says of the engine."""

from pathlib import Path

import pytest

from decodebench.bench.facts import model_name


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
