"""The engine's command line: what is kept, what is added, what is refused, and by which name."""

import json

import pytest

from decodebench.engine.command import CONNECTOR_MODULE, CONNECTOR_NAME, build_command
from decodebench.errors import UserError


def transfer_config(args: tuple[str, ...]) -> dict[str, object]:
    assert args.count("--kv-transfer-config") == 1
    return json.loads(args[args.index("--kv-transfer-config") + 1])


def test_our_connector_is_added_and_everything_else_is_passed_on_unchanged():
    flags = ("-tp", "2", "--max-model-len=8k", "--no-enable-prefix-caching", "--hf-overrides", '{"a": 1}')
    command = build_command("m", flags, {"fill_mean": 0.5})
    assert command.args[: len(flags)] == flags
    assert transfer_config(command.args) == {
        "kv_connector": CONNECTOR_NAME,
        "kv_connector_module_path": CONNECTOR_MODULE,
        "kv_role": "kv_both",
        "kv_connector_extra_config": {"fill_mean": 0.5},
    }


def test_a_recipes_arguments_come_before_the_users_so_that_the_users_win():
    command = build_command(
        "m", ("--max-model-len", "2"), recipe_args=("--max-model-len", "1", "--served-model-name", "r")
    )
    assert command.args[:6] == ("--max-model-len", "1", "--served-model-name", "r", "--max-model-len", "2")
    assert command.served_model_name == "r"
    assert (
        build_command("m", ("--served-model-name", "u"), recipe_args=command.args[:4]).served_model_name
        == "u"
    )


def test_the_port_is_taken_over_and_loopback_is_the_only_host():
    command = build_command("m", ("--host", "localhost", "--port", "8123", "-q", "fp8"))
    assert command.port == 8123
    assert command.args[:2] == ("-q", "fp8")
    assert "8123" not in command.args
    with pytest.raises(UserError, match=r"--host 0\.0\.0\.0"):
        build_command("m", ("--host", "0.0.0.0"))
    with pytest.raises(UserError, match="--port x"):
        build_command("m", ("--port", "x"))


@pytest.mark.parametrize(
    ("flags", "named"),
    [
        (("--kv-transfer-config", "{}"), "--kv-transfer-config"),
        (("--kv_transfer_config={}",), "--kv-transfer-config"),
        (("--kv-transfer-config.kv_connector", "X"), "--kv-transfer-config"),
        (("--kv-offloading-size", "4"), "--kv-offloading-size"),
        (("--config", "f.yaml"), "--config"),
        (("--model", "other"), "--model"),
        (("--headless",), "--headless"),
        (("--uds", "/s"), "--uds"),
        (("-pp", "2"), "--pipeline-parallel-size 2"),
        (("--pipeline-parallel-size=4",), "--pipeline-parallel-size 4"),
        (("-dcp", "2"), "--decode-context-parallel-size 2"),
        (("--use-replayssm",), "--use-replayssm"),
        (("--data-parallel-external-lb",), "--data-parallel-external-lb"),
        (("-dph",), "--data-parallel-hybrid-lb"),
        (("-dpn", "1"), "--data-parallel-rank"),
        (("-dpr", "1"), "--data-parallel-start-rank"),
        (("--speculative-config", '{"method": "ngram"}'), "--speculative-config"),
        (("-sc", "not json"), "--speculative-config"),
        (("--spec-method", "ngram"), "--spec-method"),
    ],
)
def test_what_breaks_the_measurement_is_refused_by_name_with_a_next_step(flags, named):
    with pytest.raises(UserError) as refused:
        build_command("m", ("--seed", "1", *flags))
    assert refused.value.message.startswith(named)
    assert refused.value.exit_code == 2


@pytest.mark.parametrize(
    "flags",
    [
        ("-pp", "1"),
        ("--enable-prefix-caching",),
        ("-dp", "4", "-ep"),
        ("--speculative-config", '{"method": "ngram", "rejection_sample_method": "synthetic"}'),
        ("--speculative-config.method", "ngram", "--speculative-config.rejection_sample_method", "synthetic"),
    ],
)
def test_what_can_be_measured_passes(flags):
    command = build_command("m", flags)
    assert command.args[: len(flags)] == flags
    assert command.warnings == ()


def test_switching_the_hybrid_manager_off_is_respected_with_a_warning():
    command = build_command("m", ("--disable-hybrid-kv-cache-manager",))
    assert "--disable-hybrid-kv-cache-manager" in command.args
    assert len(command.warnings) == 1
    assert command.warnings[0].startswith("--disable-hybrid-kv-cache-manager:")


def test_an_api_key_reaches_the_engine_and_the_client_but_no_repr():
    command = build_command("m", ("--api-key", "SECRET9"))
    assert command.args[:2] == ("--api-key", "SECRET9")
    assert command.api_key == "SECRET9"
