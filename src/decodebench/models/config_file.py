"""config.json as the engine sees it: one dict for the language model, typed access, and one clear error per fault.

A multimodal model keeps its language model's keys under `text_config` (or an older name for it); those keys win over
the outer ones, as `PretrainedConfig.get_text_config` hands them to vLLM. Keys that a checkpoint omits take the default
of its transformers config class, which each family states.

    config = read("models/Qwen3-8B")
    config.integer("num_hidden_layers")
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

from decodebench.models.errors import ConfigError

# Names of the nested language-model config (transformers 5.19 `PreTrainedConfig.get_text_config` and vLLM wrappers).
TEXT_CONFIG_KEYS = ("text_config", "llm_config", "language_config")


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """The parsed file. `text` holds the language model's keys; `outer` the file's top level, the same dict if flat."""

    source: str
    outer: Mapping[str, Any]
    text: Mapping[str, Any]
    text_key: str | None = None

    @property
    def architecture(self) -> str | None:
        names = self.outer.get("architectures")
        if names is None:
            return None
        if not isinstance(names, list) or not names or not isinstance(names[0], str):
            raise self.wrong("architectures", names, "a list of class names")
        return names[0]

    @property
    def model_type(self) -> str | None:
        return self._name(self.outer, "model_type")

    @property
    def text_model_type(self) -> str | None:
        return self._name(self.text, "model_type")

    @property
    def module_prefix(self) -> str:
        """Where the decoder layers sit in the module tree, so that layer names equal the engine's."""
        return "model" if self.text_key is None else "language_model.model"

    def with_defaults(self, defaults: Mapping[str, Any]) -> Self:
        """The same config with `defaults` for the keys that it leaves out."""
        return replace(self, text={**defaults, **self.text})

    def get(self, key: str) -> Any:
        """The value of a language-model key as it stands; None where absent."""
        return self.text.get(key)

    def require(self, key: str) -> Any:
        value = self.text.get(key)
        if value is None:
            raise ConfigError(
                f"{self.source}: key {self._path(key)!r} is missing; the cache cannot be sized without it"
            )
        return value

    def integer(self, key: str) -> int:
        """A positive integer that must be there."""
        value = self.require(key)
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise self.wrong(key, value, "a positive integer")
        return value

    def optional_integer(self, key: str) -> int | None:
        """A non-negative integer; None where absent or null."""
        value = self.text.get(key)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise self.wrong(key, value, "a non-negative integer or null")
        return value

    def strings(self, key: str) -> list[str] | None:
        value = self.text.get(key)
        if value is None:
            return None
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise self.wrong(key, value, "a list of strings")
        return value

    def integers(self, key: str) -> list[int] | None:
        value = self.text.get(key)
        if value is None:
            return None
        if not isinstance(value, list) or not all(
            isinstance(i, int) and not isinstance(i, bool) for i in value
        ):
            raise self.wrong(key, value, "a list of integers")
        return value

    def mapping(self, key: str) -> "ModelConfig":
        """A nested object, as a config of its own whose errors name the full path."""
        value = self.require(key)
        if not isinstance(value, dict):
            raise self.wrong(key, value, "an object")
        return ModelConfig(self.source, self.outer, value, self._path(key))

    def wrong(self, key: str, value: object, accepted: str) -> ConfigError:
        return ConfigError(f"{self.source}: key {self._path(key)!r} is {_short(value)}; expected {accepted}")

    def _path(self, key: str) -> str:
        return key if self.text_key is None or key not in self.text else f"{self.text_key}.{key}"

    def _name(self, mapping: Mapping[str, Any], key: str) -> str | None:
        value = mapping.get(key)
        if value is not None and not isinstance(value, str):
            raise self.wrong(key, value, "a string")
        return value


def read(path: str | Path) -> ModelConfig:
    """Read a model directory, or a config.json itself."""
    given = Path(path)
    file = given / "config.json" if given.is_dir() else given
    try:
        content = file.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise ConfigError(f"{file}: no such file; give a model directory or a config.json") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{file}: cannot be read: {error}") from None
    try:
        parsed = json.loads(content)
    except (json.JSONDecodeError, RecursionError) as error:
        raise ConfigError(f"{file}: not valid JSON: {error}") from None
    return parse(parsed, source=str(file))


def parse(content: object, *, source: str) -> ModelConfig:
    """The config in an already parsed JSON value; `source` is what errors call it."""
    if not isinstance(content, dict):
        raise ConfigError(f"{source}: the top level is {_short(content)}; expected an object")
    for key in TEXT_CONFIG_KEYS:
        nested = content.get(key)
        if nested is None:
            continue
        if not isinstance(nested, dict):
            raise ConfigError(f"{source}: key {key!r} is {_short(nested)}; expected an object")
        return ModelConfig(source, content, nested, key)
    return ModelConfig(source, content, content)


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
