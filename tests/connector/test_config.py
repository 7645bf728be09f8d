"""`kv_connector_extra_config`: a wrong value of any key is one ValueError that names it."""

import json
import math

import pytest

from decodebench.connector.config import ConnectorConfig
from decodebench.fill.encode import as_bytes
from decodebench.fill.normal import Normal

WRONG = [None, "x", [], {}, [1], {"a": 1}, math.nan, math.inf, -math.inf, 10**400, -(10**400)]
KEYS = [
    "fill_mean",
    "fill_std",
    "seed",
    "donor_bank_gib",
    "startup_fill",
    "async_fill",
    "require_salt",
    "audit",
]


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("value", WRONG, ids=lambda value: repr(value)[:12])
def test_a_wrong_value_is_refused_and_its_key_named(key, value):
    with pytest.raises(ValueError, match=f"{key} in kv_connector_extra_config must be"):
        ConnectorConfig.from_extra({key: value})


@pytest.mark.parametrize("key", KEYS[:4])
def test_true_is_no_number(key):
    with pytest.raises(ValueError, match=key):
        ConnectorConfig.from_extra({key: True})


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("fill_std", -1),
        ("donor_bank_gib", -0.5),
        ("seed", -1),
        ("seed", 1 << 63),
        ("seed", 0.5),
        ("fill_mean", 1e39),
        ("trace_dir", ""),
        ("trace_dir", 3),
        ("connectors", "ours"),
        ("connectors", [1]),
    ],
)
def test_a_value_out_of_range_is_refused_and_its_key_named(key, value):
    with pytest.raises(ValueError, match=key):
        ConnectorConfig.from_extra({key: value})


def test_what_a_user_of_the_in_tree_connector_sets_is_taken():
    asked = json.loads('{"fill_mean": 1, "fill_std": 0.5, "startup_fill": true}')
    config = ConnectorConfig.from_extra(asked)
    assert (config.fill_mean, config.fill_std, config.startup_fill) == (1.0, 0.5, True)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float8_e4m3fn", "float8_e5m2"])
def test_the_largest_numbers_and_seeds_that_are_accepted_draw_finite_numbers(dtype):
    import torch

    largest = ConnectorConfig.from_extra({"fill_mean": 3e38, "fill_std": 3.4e38, "seed": (1 << 63) - 1})
    drawn = Normal(largest.fill_mean, largest.fill_std, largest.seed)._draw(64, 1000)
    numbers = as_bytes(drawn, dtype).view(getattr(torch, dtype))
    assert numbers.to(torch.float32).isfinite().all()
