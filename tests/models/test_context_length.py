"""`max_model_len`: from the config, bounded by it, stretched by its rope scaling."""

import pytest

from decodebench.models import ConfigError, ModelError
from tests.models.configs import LLAMA, specs_of


def test_the_length_of_the_config_bounds_the_flag() -> None:
    assert specs_of(LLAMA).max_model_len == 8192
    with pytest.raises(ModelError, match="--max-model-len 8193 is above the 8192 tokens"):
        specs_of(LLAMA, max_model_len=8193)
    assert specs_of(LLAMA, max_model_len=8193, allow_long_max_model_len=True).max_model_len == 8193


@pytest.mark.parametrize(
    ("scaling", "length"),
    [
        ({"type": "linear", "factor": 4.0}, 32768),
        ({"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 2048}, 8192),
        ({"rope_type": "llama3", "factor": 8.0}, 8192),
        (None, 8192),
    ],
)
def test_the_length_is_stretched_by_linear_scaling_only(scaling: object, length: int) -> None:
    assert specs_of({**LLAMA, "rope_scaling": scaling}).max_model_len == length


@pytest.mark.parametrize("factor", [float("inf"), float("nan"), 0, -2, "4"])
def test_a_factor_that_stretches_nothing_is_refused(factor: object) -> None:
    with pytest.raises(ConfigError, match="rope_scaling"):
        specs_of({**LLAMA, "rope_scaling": {"type": "linear", "factor": factor}})
