"""The donors of `decodebench run`: what is asked of them, and what is refused before anything is started."""

import pytest

from decodebench.bench.donor_set import DonorOptions
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
    ("words", "said"),
    [
        (("--donors", "4"), "--donors: the fill is constant"),
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


def test_serve_fills_by_numbers_only():
    with pytest.raises(UserError, match="donor"):
        build_parser(("serve",)).parse_args(["serve", "--fill", "donor"])
