"""What `decodebench fidelity` takes and refuses, before anything is started."""

import pytest

from decodebench.cli.arguments import split_engine_args
from decodebench.cli.fidelity_session import read
from decodebench.cli.main import build_parser
from decodebench.errors import UserError


def request(*words: str):
    ours, engine_args = split_engine_args(["fidelity", *words])
    args = build_parser(("fidelity",)).parse_args(ours)
    args.engine_args, args.argv = engine_args, ("fidelity", *words)
    return read(args)


def test_without_options_constant_and_one_donor_a_request_are_compared():
    asked = request()
    assert asked.fills == ("constant", "donor")
    assert asked.settings.donor_counts == (None,)
    assert [(point.batch_size, point.context_len) for point in asked.settings.points] == [(8, 1000)]


def test_numbers_of_donors_are_arms_of_their_own():
    assert request("--donors", "1,4,all,4").settings.donor_counts == (1, 4, None)


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (("--fills", "constant,random"), "'random'"),
        (("--donors", "0"), "--donors '0'"),
        (("--donors", "many"), "--donors 'many'"),
        (("--fills", "constant", "--donors", "4"), "add donor to --fills"),
        (("--", "tiny-llama"), "MODEL goes before `--`"),
        (("tiny-gema3",), "did you mean tiny-gemma3?"),
        (("--max-draws", "2"), "--max-draws 2"),
        (("--passes", "0"), "--passes 0"),
        (("--donor-len", "1"), "--donor-len 1"),
        (("--precision", "0"), "--precision"),
        (("--batch-size", "x"), "--batch-size"),
        (("--donor-text", "no-such-file"), "--donor-text no-such-file"),
    ],
)
def test_wrong_input_is_told_by_its_option(words, named):
    with pytest.raises(UserError) as refused:
        request(*words)
    assert named in str(refused.value)
