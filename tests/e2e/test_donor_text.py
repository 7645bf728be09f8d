"""Donors of text: a model with a tokenizer that reads, and what its donors really read."""

import asyncio
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from decodebench.bench.client import describe_ranks
from decodebench.bench.donor_prompts import Text, text_ids
from decodebench.bench.donor_set import DonorOptions
from decodebench.bench.donors import forget_donors, prefill_donors
from decodebench.engine.recipes import tokenizer
from tests.e2e.client import talk
from tests.e2e.command import Command
from tests.e2e.self_donor import OUTPUT, Continuation, Donors, Trial, kind
from tests.e2e.servers import SMALL_POOL, on
from tests.e2e.test_run import assert_ended_well, assert_measured

pytest.importorskip("vllm", reason="runs vLLM's own server")
tokenizers = pytest.importorskip("tokenizers", reason="trains a tokenizer")
pytestmark = [pytest.mark.engine, pytest.mark.matrix]

VOCABULARY = 4096
DONORS, LENGTH = 3, 400


def write_reading_tokenizer(model: Path) -> None:
    """Put a byte-level BPE tokenizer, trained on the shipped text, into a model's folder."""
    bpe = tokenizers.ByteLevelBPETokenizer()
    bpe.train_from_iterator(
        Text.shipped().paragraphs, VOCABULARY, special_tokens=list(tokenizer.SPECIAL), show_progress=False
    )
    bpe.save(str(model / "tokenizer.json"))


READER = replace(
    kind("tiny-llama", "on"), name="tiny-llama-with-a-tokenizer-that-reads", change=write_reading_tokenizer
)


@pytest.fixture
def text(tmp_path) -> Path:
    """Forty paragraphs of words of the shipped text, none of which is in it."""
    words = " ".join(Text.shipped().paragraphs).split()
    draw = Random(0)
    path = tmp_path / "text.txt"
    path.write_text("\n\n".join(f"{number}. " + " ".join(draw.choices(words, k=60)) for number in range(40)))
    return path


def read(server, text: Text, number: int) -> list[int]:
    """What the `number`-th donor should read, by the tokenizer in the model's folder."""
    ours = tokenizers.Tokenizer.from_file(str(server.directory / "model" / "tokenizer.json"))

    async def tokenize(piece: str) -> list[int]:
        return ours.encode(piece, add_special_tokens=False).ids

    return asyncio.run(text_ids(text, 0, number, LENGTH, tokenize))


@on(READER)
def test_each_donor_holds_the_pages_of_its_own_stretch_of_the_text(server, text):
    """Shown by what follows: a prompt of the text goes on from its donor as really prefilled, and from no other."""
    own = Text.read(text)
    made = prefill_donors(
        server.target, server.engine, DonorOptions(DONORS, LENGTH), text=own,
        batch=DONORS, longest=LENGTH, seed=0, launch=0, name="text",
        check=server.server.check,
    )  # fmt: skip
    stretches = [read(server, own, number) for number in range(DONORS)]
    assert made.phase.source == "own text"
    for stretch in stretches:
        assert len(set(stretch)) > LENGTH // 8
        assert not set(stretch) & {*server.engine.first["special_token_ids"], tokenizer.UNK}
    assert len({tuple(stretch[:32]) for stretch in stretches}) == DONORS

    async def case(api):
        donors = Donors(api, server)
        for at, stretch in enumerate(stretches):
            real = Continuation.of(await donors.really(stretch, OUTPUT + 1))
            this = Trial([*stretch, real.tokens[0]], Continuation(real.tokens[1:], real.logprobs[1:]))
            passes = [this.passes(await donors.go_on(this.prompt, donor)) for donor in made.donors.ids]
            assert passes == [number == at for number in range(DONORS)]

    talk(server, case)
    forget_donors(server.target, made.donors, 1)


def measured(tmp_path: Path, *args: str, engine: tuple[str, ...] = ()) -> dict:
    """The document of a small run that is filled from donors; `engine`: options of the server it starts."""
    command = Command(
        tmp_path, "run", *args, "--fill", "donor", "--donor-len", str(LENGTH), "--json",
        *("--batch-size", "2", "--context-len", "500", "--window-steps", "8"),
        *("--max-repeats", "5", "--max-time", "1m"), *(("--", *engine) if engine else ()),
    )  # fmt: skip
    try:
        assert_ended_well(command)
        (point,) = command.document["points"]
        assert_measured(point)
        return command.document
    finally:
        command.clean_up()


@on(READER)
def test_a_model_with_real_weights_is_filled_from_the_shipped_text(server, tmp_path):
    document = measured(tmp_path, server.target.model, "--url", server.target.base_url)
    assert document["engine"]["weights"] == "real"
    (phase,) = document["donors"]
    assert phase["source"] == "shipped text"
    (rank,) = describe_ranks(server.target)
    assert rank["donor_bank"]["donors"] == {}


@on(READER)
def test_a_folder_is_served_and_filled_from_the_users_text(server, servers, text, tmp_path):
    model = server.directory / "model"
    servers.stop()
    document = measured(
        tmp_path, str(model), "--donor-text", str(text), engine=(*SMALL_POOL, "--enforce-eager")
    )
    (phase,) = document["donors"]
    assert phase["source"] == "own text"
    for point in document["points"]:
        for detail in point["repeat_details"]:
            proof = detail["filled"]
            assert proof["donor_pages"] == proof["pages_written"] == proof["pages_planned"]
