import struct

import pytest
import torch

from decodebench.fill.words import widest_word, word_dtype, word_value


@pytest.mark.parametrize("word", [1, 2, 4, 8, 16])
@pytest.mark.parametrize("byte", [0x00, 0x3C, 0x7F, 0x80, 0xFF])
def test_a_filled_word_keeps_its_bits_even_where_they_are_a_nan(word: int, byte: int) -> None:
    raw = bytes([byte]) * (word - 1) + bytes([0x7F])
    target = torch.zeros(3, dtype=word_dtype(word))
    target[:2].fill_(word_value(raw))
    target.index_fill_(0, torch.tensor([2]), word_value(raw))
    assert bytes(target.view(torch.uint8).tolist()) == raw * 3


def test_signalling_nans_survive_as_well() -> None:
    raw = struct.pack("<Q", 0x7FF4000000000001) * 2
    target = torch.zeros(4, dtype=word_dtype(16)).fill_(word_value(raw))
    assert bytes(target.view(torch.uint8).tolist()) == raw * 4


def test_the_widest_word_divides_every_count() -> None:
    assert widest_word(0, 64, 48) == 16
    assert widest_word(584, 37440) == 8
    assert widest_word(132) == 4
    assert widest_word(3, 16) == 1
