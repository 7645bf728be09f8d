"""What is wrong with a transfer config is said with the path of the connector it is wrong in."""

import json
from typing import Any

import pytest

from decodebench.hma import TransferConfigError
from decodebench.hma.config import MAX_DEPTH, ConnectorConfig, read_children, read_config


def connector(**fields: Any) -> dict[str, Any]:
    return {"kv_connector": "NixlConnector", "kv_role": "kv_both", **fields}


def multi(*children: Any, **fields: Any) -> dict[str, Any]:
    extra = {"connectors": list(children)}
    return connector(kv_connector="MultiConnector", kv_connector_extra_config=extra, **fields)


def read_all(config: ConnectorConfig) -> None:
    for child in read_children(config):
        read_all(child)


def test_json_text_a_mapping_and_an_object_read_alike() -> None:
    class AsObject:
        kv_connector = "NixlConnector"
        kv_role = "kv_both"
        engine_id = "E"

    given = connector(engine_id="E")
    assert read_config(given) == read_config(json.dumps(given)) == read_config(AsObject())


@pytest.mark.parametrize(
    ("child", "problem"),
    [
        ("NixlConnector", "must be an object"),
        (None, "must be an object"),
        (["NixlConnector"], "must be an object"),
        ({"kv_role": "kv_both"}, "`kv_connector` is missing"),
        ({"kv_connector": "", "kv_role": "kv_both"}, "`kv_connector` is missing"),
        ({"kv_connector": 3, "kv_role": "kv_both"}, "`kv_connector` must be a string"),
        ({"kv_connector": "NixlConnector"}, "`kv_role` is missing"),
        (connector(kv_role="kv_boss"), "unknown `kv_role` 'kv_boss'"),
        (connector(kv_role=["kv_both"]), "unknown `kv_role`"),
        (connector(engine_id=7), "`engine_id` must be a string"),
        (connector(kv_connector_module_path=""), "`kv_connector_module_path` is empty"),
        (connector(kv_connector_extra_config=[]), "`kv_connector_extra_config` must be an object"),
        (connector(kv_conector="typo"), "unknown field 'kv_conector'"),
        (multi(connector())["kv_connector_extra_config"], "unknown field 'connectors'"),
    ],
)
def test_a_malformed_child_is_named_by_its_path(child: Any, problem: str) -> None:
    with pytest.raises(TransferConfigError) as caught:
        read_all(read_config(multi(connector(), multi(child))))
    assert caught.value.path == "connectors[1].connectors[0]"
    assert "connectors[1].connectors[0]" in str(caught.value)
    assert problem in str(caught.value)


@pytest.mark.parametrize("children", ["NixlConnector", {"kv_connector": "NixlConnector"}, 5])
def test_children_that_are_no_list_are_an_error(children: Any) -> None:
    given = connector(kv_connector="MultiConnector", kv_connector_extra_config={"connectors": children})
    with pytest.raises(TransferConfigError, match="must be a list"):
        read_children(read_config(given))


@pytest.mark.parametrize("text", ["", "{", "nixl", '{"kv_connector": "X"', "[" * 200_000])
def test_text_that_is_no_json_is_an_error(text: str) -> None:
    with pytest.raises(TransferConfigError, match="not JSON"):
        read_config(text)


@pytest.mark.parametrize("given", ["[]", "3", '"NixlConnector"', 3, [], ()])
def test_a_root_that_is_no_object_is_an_error(given: Any) -> None:
    with pytest.raises(TransferConfigError, match="must be an object"):
        read_config(given)


def test_nesting_has_an_end() -> None:
    deep = connector()
    for _ in range(MAX_DEPTH + 1):
        deep = multi(deep)
    with pytest.raises(TransferConfigError, match="levels deep"):
        read_all(read_config(deep))


def test_a_config_that_contains_itself_is_an_error() -> None:
    loop = multi()
    loop["kv_connector_extra_config"]["connectors"] += [loop, loop]
    with pytest.raises(TransferConfigError, match="levels deep"):
        read_all(read_config(loop))


def test_a_child_inherits_the_engine_id_unless_it_names_one() -> None:
    parent = read_config(multi(connector(), connector(engine_id="F"), multi(connector()), engine_id="E"))
    plain, own, nested = read_children(parent)
    assert (plain.engine_id, plain.own_engine_id) == ("E", None)
    assert (own.engine_id, own.own_engine_id) == ("F", "F")
    assert read_children(nested)[0].engine_id == "E"
