"""What a user may call a model, told before anything is looked for on the hub."""

import pytest

from decodebench.engine import recipes
from decodebench.engine.models import check_name
from decodebench.errors import UserError


@pytest.mark.parametrize(
    ("name", "meant"),
    [("tiny-gema3", "tiny-gemma3"), ("small-moes", "small-moe"), ("tiny_llama", "tiny-llama")],
)
def test_a_misspelt_built_in_model_is_refused_with_the_one_that_was_meant(name: str, meant: str) -> None:
    with pytest.raises(UserError, match=f"did you mean {meant}"):
        check_name(name)


@pytest.mark.parametrize("name", [*recipes.names(), "org/tiny-gema3", "./tiny-gema3", "gpt2", "opt-125m", ""])
def test_other_names_are_left_alone(name: str) -> None:
    check_name(name)


def test_a_folder_is_a_model_whatever_its_name_is_like(tmp_path, monkeypatch) -> None:
    (tmp_path / "tiny-gema3").mkdir()
    monkeypatch.chdir(tmp_path)
    check_name("tiny-gema3")
