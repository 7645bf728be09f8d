"""Which donors a request names, what donors read, and what is refused before any is made."""

import asyncio
from collections import Counter
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from decodebench.bench.client import Answer, CohortRequest, Target
from decodebench.bench.donor_prompts import FIRST, Text, Unreadable, random_ids, text_ids
from decodebench.bench.donor_set import DonorOptions, DonorSet
from decodebench.bench.donors import prefill_donors
from decodebench.bench.outcome import Outcome
from decodebench.bench.prompts import PromptSource
from decodebench.bench.window_plan import WindowPlan
from decodebench.connector.limits import Limits
from decodebench.errors import UserError
from decodebench.kv.blocks import GroupShape, blocks_filled

SOURCE = PromptSource.of(0, 4096, [0, 1, 2])


def donor_set(count: int, length: int = 100) -> DonorSet:
    return DonorSet(tuple(f"d/{number}" for number in range(count)), length)


@given(first=st.integers(0, 10_000), batch=st.integers(1, 40), more=st.integers(0, 10))
def test_with_enough_donors_every_request_of_a_batch_has_one_of_its_own(first, batch, more):
    donors = donor_set(batch + more)
    named = [donors.asked(first, member, batch, 100)["donors"] for member in range(batch)]
    assert all(len(each) == 1 for each in named)
    assert len({each[0] for each in named}) == batch


@given(first=st.integers(0, 10_000), batch=st.integers(2, 40), count=st.integers(1, 39))
def test_with_fewer_donors_every_request_draws_from_all_by_a_seed_of_its_own(first, batch, count):
    count = min(count, batch - 1)
    asked = [donor_set(count).asked(first, member, batch, 100) for member in range(batch)]
    assert all(sorted(each["donors"]) == sorted(donor_set(count).ids) for each in asked)
    assert len({each["seed"] for each in asked}) == batch


@given(tokens=st.integers(1, 2000), count=st.integers(1, 30))
def test_a_context_longer_than_a_donor_alternates_donors(tokens, count):
    named = donor_set(count).asked(0, 0, 1, tokens)["donors"]
    assert len(named) == len(set(named)) == min(count, -(-tokens // 100))


def test_random_donors_share_no_prefix_with_each_other_or_with_a_measured_prompt():
    donors = [random_ids(SOURCE, number, 64) for number in range(50)]
    measured = [[int(t) for piece in SOURCE.tokens(number, 64) for t in piece] for number in range(50)]
    heads = Counter(tuple(prompt[:8]) for prompt in donors + measured)
    assert set(heads.values()) == {1}
    assert FIRST > 10**9


def words(text: str) -> list[int]:
    return [hash(word) % 50_000 for word in text.split()]


def prompt(number: int, length: int = 2048, text: Text | None = None) -> list[int]:
    async def tokenize(piece: str) -> list[int]:
        return words(piece)

    return asyncio.run(text_ids(text or Text.shipped(), 0, number, length, tokenize))


def test_text_donors_have_the_asked_length_and_each_reads_in_another_order():
    first, second = prompt(0), prompt(1)
    assert len(first) == len(second) == 2048
    assert first[:32] != second[:32]
    assert prompt(0) == first


def test_a_donor_longer_than_the_text_reads_it_again():
    assert len(prompt(0, 500, Text.of("one two three\n\nfour five six"))) == 500


def test_a_tokenizer_that_knows_no_word_of_the_text_is_told():
    async def unknown(piece: str) -> list[int]:
        return [3] * len(piece.split())

    with pytest.raises(Unreadable, match=r"are the same one \(3\)"):
        asyncio.run(text_ids(Text.shipped(), 0, 0, 100, unknown))


def test_the_shipped_text_is_varied_and_of_one_piece():
    text = Text.shipped()
    assert 40_000 < sum(map(len, text.paragraphs)) < 64_000
    assert len(set(text.paragraphs)) == len(text.paragraphs) > 60


def test_an_empty_or_binary_donor_text_is_refused(tmp_path):
    empty, binary = tmp_path / "empty.txt", tmp_path / "binary"
    empty.write_text("\n\n \n")
    binary.write_bytes(b"\xff\xfe\x00")
    for path in (empty, binary, tmp_path / "absent"):
        with pytest.raises(UserError, match="--donor-text"):
            Text.read(path)


def facts(min_tokens: int = 1023, max_model_len: int = 8192):
    return SimpleNamespace(
        first={"donor_bank": {"min_tokens": min_tokens}}, limits=SimpleNamespace(max_model_len=max_model_len)
    )


@pytest.mark.parametrize(
    ("asked", "known", "longest", "length"),
    [
        (None, facts(), 4000, 2048),
        (None, facts(min_tokens=4095), 8000, 4095),
        (None, facts(min_tokens=4095), 3000, 3000),
        (None, facts(max_model_len=1500), 900, 1499),
        (600, facts(), 500, 600),
    ],
)
def test_the_length_of_a_donor_fits_window_prompt_and_model(asked, known, longest, length):
    assert DonorOptions(length=asked).length_on(known, longest) == length


@pytest.mark.parametrize(
    ("asked", "limit"), [(600, "at least 1023"), (8192, "max_model_len 8192, .* at most 8191")]
)
def test_a_donor_too_short_for_the_window_or_too_long_for_the_model_is_wrong_input(asked, limit):
    with pytest.raises(UserError, match=f"--donor-len {asked}: .*{limit}") as refused:
        DonorOptions(length=asked).length_on(facts(), 4000)
    assert "ask for 1023 to 8191 tokens" in refused.value.next_step


@pytest.mark.parametrize(
    ("bank", "why"), [({}, "its version 0.0.1 keeps none"), ({"donor_bank": {"limit_bytes": 0}}, "is 0")]
)
def test_a_server_that_cannot_hold_donors_is_one_message_that_names_the_fill_and_the_way_out(bank, why):
    first = {"connector": {"version": "0.0.1"}} | bank
    server = SimpleNamespace(ranks=(first,), first=first)
    with pytest.raises(
        UserError, match=f"--fill donor .*http://there.* cannot hold donors: .*{why}"
    ) as refused:
        prefill_donors(
            Target("http://there", "m"),
            server,
            DonorOptions(),
            text=None,
            batch=1,
            longest=100,
            seed=0,
            launch=0,
            name="d",
            check=lambda: None,
        )
    assert "--fill constant" in refused.value.next_step


LIMITS = Limits(
    shapes=(
        GroupShape("full_attention", 16),
        GroupShape("sliding_window", 16, 64),
        GroupShape("circular_buffer", 4),
    ),
    num_blocks=1000,
    watermark_blocks=0,
    max_num_seqs=8,
    max_num_batched_tokens=8192,
    max_model_len=4096,
    num_drafts=0,
    lookahead=0,
    batches_in_flight=1,
)


def fault_of(donor_pages) -> str | None:
    plan = WindowPlan.of(500, max_model_len=4096, window_steps=8)
    cohort = CohortRequest("c", 1, 1, plan, 0, donors=donor_set(1))
    pages = [blocks_filled(shape, plan.prompt_len - 1) for shape in LIMITS.shapes]
    said = {
        "cohort": {"released_step": 0, "pages": pages, "workers": 1, "local_tokens": 0, "aborted": 0},
        "steps": {},
    }
    if donor_pages is not None:
        said["donor_pages"] = donor_pages(pages)
    answer = Answer(0, plan.prompt_len, plan.max_tokens, said)
    return Outcome.of(0, cohort, [answer], LIMITS, (True, True, True)).fault


def test_every_page_must_come_from_a_donor_but_for_rings():
    assert fault_of(lambda pages: [pages[0], pages[1], 0]) is None
    assert fault_of(lambda pages: pages) is None


def test_a_page_that_comes_from_no_donor_spoils_the_repeat():
    assert "group 1" in str(fault_of(lambda pages: [pages[0], pages[1] - 1, 0]))
    assert "did not say" in str(fault_of(None))
