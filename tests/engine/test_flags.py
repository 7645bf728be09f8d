"""The engine's options are read as vLLM's own parser reads them."""

import pytest

from decodebench.engine.flags import is_engine_flag, parse_flags

pytest.importorskip("vllm", reason="the options are those of the installed vLLM")


def test_values_switches_underscores_dots_and_short_names_are_understood():
    args = (
        "-tp",
        "2",
        "--max_model_len=8k",
        "--enforce-eager",
        "--compilation-config.level",
        "3",
        "--api-key",
        "A",
        "B",
    )
    assert [(flag.name, flag.value, flag.key, flag.end - flag.start) for flag in parse_flags(args)] == [
        ("--tensor-parallel-size", "2", "", 2),
        ("--max-model-len", "8k", "", 1),
        ("--enforce-eager", None, "", 1),
        ("--compilation-config", "3", "level", 2),
        ("--api-key", "A", "", 3),
    ]


def test_a_cut_name_is_spelled_out_as_vllms_parser_does():
    assert next(parse_flags(["--kv-transfer", "{}"])).name == "--kv-transfer-config"
    assert next(parse_flags(["--pipeline", "2"])).name == "--pipeline-parallel-size"


def test_a_negative_number_is_a_value():
    assert next(parse_flags(["--seed", "-1"])).value == "-1"


@pytest.mark.parametrize(
    "option",
    ["--max-model-len", "--max_model_len", "-tp", "--no-enable-prefix-caching", "--api-key", "--port"],
)
def test_the_installed_vllms_options_are_known(option):
    assert is_engine_flag(option)


@pytest.mark.parametrize("option", ["--batch-size", "--fill", "--nonsense"])
def test_other_options_are_not(option):
    assert not is_engine_flag(option)
