"""Files that cannot be used give one error that names file and key."""

import json
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from decodebench.models import ConfigError, EngineFlags, ModelError, describe, load, parse, read
from tests.models.configs import LLAMA, specs_of

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 300) | st.floats() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=5,
)


def test_a_directory_and_its_config_json_are_read_alike(tmp_path: Path) -> None:
    file = tmp_path / "config.json"
    file.write_text(json.dumps(LLAMA))
    assert load(tmp_path, EngineFlags()) == load(file, EngineFlags())


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError, match=r"config\.json: no such file; give a model directory or a config\.json"
    ):
        read(tmp_path)


@pytest.mark.parametrize("content", ["", "{", '{"a": }', "[" * 100_000])
def test_bad_json_is_one_error_naming_the_file(tmp_path: Path, content: str) -> None:
    file = tmp_path / "config.json"
    file.write_text(content)
    with pytest.raises(ConfigError, match=r"config\.json: not valid JSON"):
        read(file)


def test_bytes_that_are_not_text_are_one_error(tmp_path: Path) -> None:
    file = tmp_path / "config.json"
    file.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match="cannot be read"):
        read(file)


@pytest.mark.parametrize("content", [[], "llama", 7, None])
def test_a_top_level_that_is_no_object_is_refused(content: object) -> None:
    with pytest.raises(ConfigError, match="the top level is"):
        parse(content, source="config.json")


@pytest.mark.parametrize("key", ["num_hidden_layers", "hidden_size", "num_attention_heads"])
def test_a_missing_key_is_named(key: str) -> None:
    with pytest.raises(ConfigError, match=f"config.json: key '{key}' is missing"):
        specs_of({name: value for name, value in LLAMA.items() if name != key})


@pytest.mark.parametrize("value", ["eight", 0, -1, True, 2.5, [8]])
def test_a_key_of_the_wrong_kind_is_named_with_its_value(value: object) -> None:
    with pytest.raises(ConfigError, match=r"key 'num_hidden_layers' is .*; expected a positive integer"):
        specs_of({**LLAMA, "num_hidden_layers": value})


def test_a_key_of_a_nested_config_is_named_with_its_path() -> None:
    wrapper = {
        "architectures": ["LlavaForConditionalGeneration"],
        "text_config": {**LLAMA, "hidden_size": "wide"},
    }
    with pytest.raises(ConfigError, match=r"key 'text_config\.hidden_size'"):
        specs_of(wrapper)


def test_fewer_layer_types_than_layers_are_refused() -> None:
    with pytest.raises(ConfigError, match="layer_types"):
        specs_of({**LLAMA, "layer_types": ["full_attention"]})


@given(
    key=st.sampled_from([*LLAMA, "layer_types", "sliding_window", "head_dim", "text_config", "rope_scaling"]),
    value=JSON,
)
def test_no_value_of_any_key_escapes_as_another_error(key: str, value: object) -> None:
    with suppress(ModelError):
        describe(parse({**LLAMA, key: value}, source="config.json"), EngineFlags())
