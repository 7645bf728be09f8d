import pytest

from decodebench.errors import UserError
from decodebench.results.fingerprint import differences, require_equal


def test_equal_fingerprints_may_be_joined_whatever_the_order_of_their_fields() -> None:
    require_equal({"a": 1, "b": [1, 2]}, {"b": [1, 2], "a": 1}, "dir")


def test_every_difference_is_named_with_both_values() -> None:
    with pytest.raises(UserError) as refused:
        require_equal({"model": "a", "seed": 0, "gone": 1}, {"model": "b", "seed": 0, "new": None}, "dir")
    message = str(refused.value)
    assert 'model: "a" before, "b" now' in message
    assert "gone: 1 before, (absent) now" in message
    assert "new: (absent) before, null now" in message
    assert "seed" not in message


def test_a_number_and_its_text_differ() -> None:
    assert [str(found) for found in differences({"x": "1"}, {"x": 1})] == ['x: "1" before, 1 now']
