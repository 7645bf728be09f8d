"""Secrets stay out of what is printed and stored."""

import pytest

from decodebench.engine.redact import HIDDEN, Redactor, is_secret_name, secrets_in


@pytest.mark.parametrize(
    "name",
    [
        "HF_TOKEN",
        "OPENAI_API_KEY",
        "--api-key",
        "--hf-token",
        "aws_secret",
        "DB_PASSWORD",
        "api_key",
        "VLLM_API_KEY",
    ],
)
def test_names_of_secrets_are_known(name):
    assert is_secret_name(name)


@pytest.mark.parametrize(
    "name",
    ["--max-num-batched-tokens", "eos_token", "bos_token", "OMP_NUM_THREADS", "keyring", "--monkey", "PATH"],
)
def test_names_that_only_look_like_it_are_not(name):
    assert not is_secret_name(name)


@pytest.mark.parametrize(
    "text",
    [
        "--api-key SECRET9",
        "--api-key=SECRET9",
        "vllm serve m --hf-token SECRET9 --port 1",
        "HF_TOKEN=SECRET9 vllm serve",
        "'api_key': ['SECRET9', 'SECRET9']",
        '{"aws_secret": "SECRET9"}',
        "{'hf_token': 'SECRET9', 'port': 1}",
        "https://user:SECRET9@host/path",
        "s3://SECRET9@bucket",
        "Authorization: Bearer SECRET9",
    ],
)
def test_a_secret_is_hidden_wherever_its_name_or_place_gives_it_away(text):
    hidden = Redactor().text(text)
    assert "SECRET9" not in hidden
    assert HIDDEN in hidden


def test_a_known_value_is_hidden_without_any_name():
    assert Redactor(["SECRET9"]).text("the header was SECRET9!") == f"the header was {HIDDEN}!"


@pytest.mark.parametrize(
    "text",
    [
        "max_num_batched_tokens=2048",
        "eos_token: '</s>'",
        "http://127.0.0.1:8000/v1",
        "tokens/s: 7 @ 4 GHz",
        "a@b.c",
    ],
)
def test_what_is_no_secret_stays_as_it_was(text):
    assert Redactor().text(text) == text


def test_every_value_of_a_secret_option_is_hidden_and_the_rest_of_the_line_kept():
    args = ("m", "--api-key", "SECRET1", "SECRET2", "--port", "1", "--hf-token=SECRET3")
    assert Redactor().args(args) == ("m", "--api-key", HIDDEN, HIDDEN, "--port", "1", f"--hf-token={HIDDEN}")
    assert set(secrets_in(args, {"A_KEY": "SECRET4", "HOME": "x"})) == {
        "SECRET1",
        "SECRET2",
        "SECRET3",
        "SECRET4",
    }


def test_the_recorded_environment_is_an_allow_list():
    environ = {
        "VLLM_X": "1",
        "VLLM_API_KEY": "SECRET9",
        "HOME": "/home/me",
        "OMP_NUM_THREADS": "1",
        "HF_TOKEN": "SECRET9",
    }
    assert Redactor().environment(environ) == {"OMP_NUM_THREADS": "1", "VLLM_API_KEY": HIDDEN, "VLLM_X": "1"}
