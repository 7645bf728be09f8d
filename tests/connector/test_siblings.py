"""A connector that is a child of a MultiConnector cannot see it, but what a step carries tells."""

from dataclasses import dataclass

import pytest

from decodebench.connector.siblings import connectors_in


class Ours:
    pass


class Other:
    pass


@dataclass
class Multi:
    metadata: tuple


@pytest.mark.parametrize("metadata", [None, Ours(), object(), Multi([Ours()])])
def test_ours_alone_has_no_siblings(metadata):
    assert connectors_in(metadata, Ours, ("A", "B")) == ()


def test_children_have_the_names_of_our_settings_where_the_numbers_agree():
    assert connectors_in(Multi((Other(), Ours())), Ours, ("A", "B")) == ("A", "B")


@pytest.mark.parametrize("named", [(), ("A",), ("A", "B", "C")])
def test_children_have_the_names_of_their_metadata_elsewhere(named):
    assert connectors_in(Multi((Other(), Ours())), Ours, named) == ("Other", "Ours")
