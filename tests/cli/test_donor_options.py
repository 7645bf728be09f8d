"""The donors of `decodebench run`: what is asked of them, and what is refused before anything is started."""

import pytest

from decodebench.bench.donor_set import DonorOptions
from decodebench.cli.engine_options import connector_config_of
from decodebench.cli.main import build_parser
from decodebench.cli.run_arguments import read
from decodebench.errors import UserError


def request(*words: str):
    args = build_parser(("run",)).parse_args(["run", *words])
    args.engine_args, args.argv = (), ("run", *words)
    return read(args)


def test_a_donor_fill_is_told_apart_in_result_and_fingerprint():
    settings = request("--fill", "donor", "--donors", "4", "--donor-len", "640", "--seed", "7").settings
    assert settings.donors == DonorOptions(4, 640, None)
    assert settings.fill.content == "donor"
    assert settings.fill.params == {"donors": 4, "donor_len": 640, "donor_text": None, "seed": 7}


def test_another_text_is_another_fill(tmp_path):
    params = []
    for name in ("one", "two"):
        (tmp_path / name).write_text(f"the text called {name}")
        params.append(
            request("--fill", "donor", "--donor-text", str(tmp_path / name)).settings.fill.params[
                "donor_text"
            ]
        )
    assert len(set(params)) == 2


def test_made_up_fills_have_no_donors():
    assert request("--fill", "normal").settings.donors is None


@pytest.mark.parametrize(
    ("words", "content", "params"),
    [
        ((), "donor", {"donors": None, "donor_len": None, "donor_text": None, "seed": 0}),
        (("--donors", "4"), "donor", {"donors": 4, "donor_len": None, "donor_text": None, "seed": 0}),
        (("--fill-mean", "0.5"), "constant", {"mean": 0.5, "std": 0.0}),
        (("--fill-std", "0.1"), "normal", {"mean": 0.015, "std": 0.1}),
        (("--fill-mean", "1", "--fill-std", "0"), "constant", {"mean": 1.0, "std": 0.0}),
        (("--fill", "normal"), "normal", {"mean": 0.015, "std": 0.015}),
    ],
)
def test_the_fill_is_donor_unless_one_or_its_numbers_are_asked_for(words, content, params):
    fill = request(*words).settings.fill
    assert (fill.content, fill.params) == (content, params)


def test_audit_and_fidelity_are_settings_of_the_run_and_off_by_default():
    assert (request().settings.audit, request().settings.fidelity) == (False, False)
    asked = request("--audit", "--fidelity")
    assert (asked.settings.audit, asked.settings.fidelity) == (True, True)
    assert asked.argv == ("run", "--audit", "--fidelity")
    assert (asked.settings.record().audit, asked.settings.record().fidelity) == (True, True)


def test_a_text_that_is_to_be_halved_needs_two_paragraphs(tmp_path):
    text = tmp_path / "text"
    text.write_text("one paragraph only")
    assert request("--donor-text", str(text)).settings.donors is not None
    with pytest.raises(UserError, match="cannot be halved"):
        request("--donor-text", str(text), "--fidelity")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--fill", "constant", "--donors", "4"), "--donors: the fill is constant"),
        (("--fill-std", "1", "--donors", "4"), "--donors cannot go with --fill-mean and --fill-std"),
        (("--fill-mean", "1", "--fill", "donor"), "--fill-mean and --fill-std are of a fill by numbers"),
        (("--fill", "normal", "--fill-std", "0"), "--fill-std 0"),
        (("--fill", "constant", "--fill-std", "1"), "--fill-std 1"),
        (("--fill", "normal", "--donor-len", "64"), "--donor-len: the fill is normal"),
        (("--fill", "donor", "--donors", "0"), "--donors 0"),
        (("--fill", "donor", "--donor-len", "1"), "--donor-len 1"),
        (("--fill", "donor", "--fill-mean", "1"), "--fill-mean"),
        (("--fill", "donor", "--donor-text", "no-such-file"), "--donor-text no-such-file"),
    ],
)
def test_donor_options_that_cannot_be_meant_are_refused(words, said):
    with pytest.raises(UserError) as refused:
        request(*words)
    assert said in str(refused.value)


def test_serve_fills_with_a_constant_by_default():
    args = build_parser(("serve",)).parse_args(["serve"])
    assert connector_config_of(args) == {"fill_mean": 0.015, "fill_std": 0.0}


def test_serve_fills_by_numbers_only():
    with pytest.raises(UserError, match="donor"):
        build_parser(("serve",)).parse_args(["serve", "--fill", "donor"])
