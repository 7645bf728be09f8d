"""What a request may ask for: legal values are read, all others become an error that names the path; nothing raises."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from decodebench.connector.params import KEY, CohortParams, RequestParams

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary() | st.just(10**4000),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=8,
)


@given(
    values | st.builds(lambda value: {KEY: value}, values) | st.builds(lambda v: {KEY: {"cohort": v}}, values)
)
def test_parsing_never_raises_and_an_error_can_be_sent(value):
    parsed = RequestParams.parse(value)
    json.dumps(parsed.error).encode()
    assert parsed.error is None or len(parsed.error) < 400


@pytest.mark.parametrize("value", [None, 7, "x", [], {}, {"other": {"decodebench": 1}}])
def test_a_request_that_does_not_name_the_key_is_filled_and_asks_nothing(value):
    parsed = RequestParams.parse(value)
    assert (parsed.fill, parsed.info, parsed.cohort, parsed.error) == (
        True,
        False,
        None,
        None,
    )


def test_legal_values_are_taken():
    asked = {"fill": True, "info": True, "cohort": {"id": "a", "size": 8, "timeout_s": 1.5}}
    assert RequestParams.parse({KEY: asked}) == RequestParams(
        fill=True, info=True, cohort=CohortParams("a", 8, 1.5)
    )
    assert RequestParams.parse({KEY: {"cohort": {"id": "a", "size": 1}}}).cohort == CohortParams(
        "a", 1, 600.0
    )


def test_donors_are_asked_for_and_named():
    asked = {"donor": {"id": "d0"}, "forget": ["a", "b"], "fill": False}
    assert RequestParams.parse({KEY: asked}) == RequestParams(fill=False, donor="d0", forget=("a", "b"))
    assert RequestParams.parse({KEY: {"donors": ["d0", "d1"], "seed": 7}}) == RequestParams(
        donors=("d0", "d1"), seed=7
    )


@pytest.mark.parametrize(
    ("asked", "path"),
    [
        ({"donor": "d0"}, ".donor must be an object"),
        ({"donor": {}}, ".donor.id"),
        ({"donor": {"id": 5}}, ".donor.id"),
        ({"donor": {"id": "a", "x": 1}}, ".donor has an unknown key"),
        ({"donor": {"id": "a"}, "fill": True}, ".donor is really prefilled"),
        ({"donor": {"id": "a"}, "donors": ["b"]}, ".donor and .donors exclude each other"),
        ({"donor": {"id": "a"}, "cohort": {"id": "a", "size": 1}}, ".donor and .cohort exclude each other"),
        ({"donors": []}, ".donors must be a list of 1 to"),
        ({"donors": "d0"}, ".donors must be a list"),
        ({"donors": ["a", 1]}, ".donors[1]"),
        ({"donors": ["a", "a"]}, ".donors names a donor twice"),
        ({"donors": ["a"], "fill": False}, ".donors needs fill"),
        ({"donors": ["a"], "seed": -1}, ".seed must be"),
        ({"donors": ["a"], "seed": True}, ".seed must be"),
        ({"donors": ["a"], "seed": 2**63}, ".seed must be"),
        ({"seed": 1}, ".seed needs donors"),
        ({"forget": {"a": 1}}, ".forget must be a list"),
        (7, "decodebench must be an object"),
        ({"fil": True}, "unknown key 'fil'"),
        ({"fill": 1}, ".fill must be true or false"),
        ({"cohort": 3}, ".cohort must be an object"),
        ({"cohort": {"id": "", "size": 1}}, ".cohort.id"),
        ({"cohort": {"id": "\ud800", "size": 1}}, ".cohort.id"),  # cannot be encoded in the response
        ({"cohort": {"id": "a"}}, ".cohort.size"),
        ({"cohort": {"id": "a", "size": True}}, ".cohort.size"),
        ({"cohort": {"id": "a", "size": 0}}, ".cohort.size"),
        ({"cohort": {"id": "a", "size": 1, "timeout_s": float("nan")}}, ".cohort.timeout_s"),
        ({"cohort": {"id": "a", "size": 1, "timeout_s": 10**400}}, ".cohort.timeout_s"),
        ({"cohort": {"id": "a", "size": 1, "timeout_s": 0}}, ".cohort.timeout_s"),
        ({"cohort": {"id": "a", "size": 1}, "fill": False}, ".cohort needs fill"),
    ],
)
def test_a_wrong_value_is_named_by_its_path(asked, path):
    parsed = RequestParams.parse({KEY: asked})
    assert path in parsed.error
    assert parsed.cohort is None
