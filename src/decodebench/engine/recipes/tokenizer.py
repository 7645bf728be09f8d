"""A word-level tokenizer for built-in models: one made-up word a token id.

A benchmark's prompts are token ids; the tokenizer is there because vLLM's server loads one, and so that answers can be
read. Words are two syllables (`babe`, `bidu`, ...): no word list is shipped, and the same id is always the same word.
"""

import json
from itertools import islice, product
from pathlib import Path

SPECIAL = ("<pad>", "<bos>", "<eos>", "<unk>")
"""Token ids 0 to 3."""

PAD, BOS, EOS, UNK = range(len(SPECIAL))

_SYLLABLES = [consonant + vowel for consonant in "bcdfghjklmnpqrstvwxz" for vowel in "aeiou"]
MAX_VOCAB = len(SPECIAL) + len(_SYLLABLES) ** 2


def words(vocab_size: int) -> list[str]:
    """The vocabulary, by token id."""
    assert vocab_size <= MAX_VOCAB, f"{vocab_size} words asked, {MAX_VOCAB} can be made"
    made = ("".join(pair) for pair in product(_SYLLABLES, repeat=2))
    return [*SPECIAL, *islice(made, vocab_size - len(SPECIAL))]


def write(directory: Path, vocab_size: int, max_tokens: int) -> None:
    """Write `tokenizer.json` and `tokenizer_config.json` as Hugging Face's fast tokenizers read them."""
    vocab = words(vocab_size)
    tokenizer = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            {
                "id": token_id,
                "content": text,
                "special": True,
                "single_word": False,
                "lstrip": False,
                "rstrip": False,
                "normalized": False,
            }
            for token_id, text in enumerate(SPECIAL)
        ],
        "normalizer": None,
        "pre_tokenizer": {"type": "WhitespaceSplit"},
        "post_processor": None,
        "decoder": None,
        "model": {
            "type": "WordLevel",
            "vocab": {text: token_id for token_id, text in enumerate(vocab)},
            "unk_token": SPECIAL[UNK],
        },
    }
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": max_tokens,
        "pad_token": SPECIAL[PAD],
        "bos_token": SPECIAL[BOS],
        "eos_token": SPECIAL[EOS],
        "unk_token": SPECIAL[UNK],
        "clean_up_tokenization_spaces": False,
    }
    (directory / "tokenizer.json").write_text(json.dumps(tokenizer))
    (directory / "tokenizer_config.json").write_text(json.dumps(settings, indent=2))
