"""Ours and its siblings in one transfer config: the order, who wins, and what is refused before anything starts."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from decodebench.engine.command import CONNECTOR_NAME, build_command
from decodebench.engine.composition import AFTER, BEFORE, Siblings
from decodebench.engine.preflight import preflight
from decodebench.errors import UserError
from decodebench.hma import Verdict

OFFLOADING = {"kv_connector": "OffloadingConnector", "kv_role": "kv_both"}
NIXL = {"kv_connector": "NixlConnector", "kv_role": "kv_consumer"}
NO_HMA = {"kv_connector": "ExampleConnector", "kv_role": "kv_both"}


def multi(*children, **fields):
    extra = {"connectors": list(children)}
    return {
        "kv_connector": "MultiConnector",
        "kv_role": "kv_both",
        "kv_connector_extra_config": extra,
    } | fields


def read(after=(), before=()):
    return Siblings.read([json.dumps(each) for each in before], [json.dumps(each) for each in after])


def command_with(*siblings, model="tiny-gemma3", flags=()):
    return build_command(model, flags, siblings=read(siblings))


def config_of(command):
    return json.loads(command.args[command.args.index("--kv-transfer-config") + 1])


def children_of(config):
    return config["kv_connector_extra_config"]["connectors"]


def test_without_siblings_ours_is_alone():
    command = command_with()
    assert config_of(command)["kv_connector"] == CONNECTOR_NAME
    assert "connectors" not in config_of(command)["kv_connector_extra_config"]
    assert command.warnings == ()


def test_siblings_come_after_ours_unless_asked_for_before_it_and_keep_their_fields():
    config = config_of(build_command("m", siblings=read(after=[OFFLOADING, NO_HMA], before=[NIXL])))
    assert (config["kv_connector"], config["kv_role"]) == ("MultiConnector", "kv_both")
    nixl, ours, *others = children_of(config)
    assert (nixl, others) == (NIXL, [OFFLOADING, NO_HMA])
    assert ours["kv_connector"] == CONNECTOR_NAME


def test_ours_is_told_the_names_of_all_children_in_their_order():
    ours = children_of(config_of(build_command("m", siblings=read([OFFLOADING], [NIXL]))))[1]
    names = ours["kv_connector_extra_config"]["connectors"]
    assert names == ["NixlConnector", CONNECTOR_NAME, "OffloadingConnector"]


def test_a_user_is_told_who_wins_and_who_may_store():
    wins, stores = read([OFFLOADING, NIXL]).warnings
    assert "DecodeBenchConnector, then OffloadingConnector, then NixlConnector" in wins
    assert wins.endswith("ours, for every request that is to be filled")
    assert stores.startswith("OffloadingConnector may store")
    wins, _ = read(before=[OFFLOADING]).warnings
    assert wins.endswith("a point is invalid, and says so, where OffloadingConnector has some")
    assert len(read([NIXL]).warnings) == 1  # a consumer stores nothing


@pytest.mark.parametrize(
    "child",
    [
        OFFLOADING | {"engine_id": "e1"},
        multi(OFFLOADING | {"engine_id": "e1"}),
        multi(multi(OFFLOADING, engine_id="e1"), NIXL | {"engine_id": "e1"}),
    ],
)
def test_an_engine_id_moves_to_the_multi_connector_wherever_a_sibling_names_it(child):
    """vLLM's MultiConnector gives a child the parent's, and raises TypeError for one that names its own."""
    siblings = read([child, OFFLOADING])
    config = config_of(build_command("m", siblings=siblings))
    assert config["engine_id"] == "e1"
    assert "engine_id" not in json.dumps(children_of(config))
    assert siblings.warnings[-1].startswith(f"{AFTER} ")
    assert "engine_id 'e1' is moved to the MultiConnector" in siblings.warnings[-1]


def test_what_the_scheduler_reads_of_the_whole_config_moves_there_too():
    config = config_of(command_with(OFFLOADING | {"kv_load_failure_policy": "recompute"}))
    assert config["kv_load_failure_policy"] == "recompute"


def test_two_engine_ids_are_refused_with_both_places():
    with pytest.raises(UserError) as refusal:
        read([OFFLOADING | {"engine_id": "a"}], before=[multi(NIXL | {"engine_id": "b"})])
    assert "--with-connector OffloadingConnector names 'a'" in str(refusal.value)
    assert "--with-connector-first MultiConnector, connectors[0] names 'b'" in str(refusal.value)
    assert "name one engine_id, or leave it out" in str(refusal.value)


def test_two_engine_ids_of_connectors_of_one_name_are_refused_too():
    with pytest.raises(UserError, match=r"names 'a'.*names 'b'"):
        read([OFFLOADING | {"engine_id": "a"}, OFFLOADING | {"engine_id": "b"}])


def test_the_engine_takes_the_config_that_is_built():
    """vLLM builds every child's config from it, which is where an engine_id of a child's own ends the start."""
    pytest.importorskip("vllm", reason="asks vLLM's own MultiConnector")
    from types import SimpleNamespace

    from vllm.config import KVTransferConfig
    from vllm.distributed.kv_transfer.kv_connector.v1.multi_connector import MultiConnector

    siblings = [NO_HMA | {"engine_id": "e1"}, multi(NO_HMA | {"engine_id": "e1"})]
    root = KVTransferConfig(**config_of(command_with(*siblings)))
    found = MultiConnector._get_connector_classes_and_configs(SimpleNamespace(kv_transfer_config=root))
    assert [config.kv_transfer_config.engine_id for _, config in found] == ["e1"] * 3
    nested = found[2][1]
    assert len(MultiConnector._get_connector_classes_and_configs(nested)) == 1


@pytest.mark.parametrize(
    ("text", "field", "next_step"),
    [
        ('{"kv_connector": ', "not JSON", "quote the whole object with single quotes"),
        ("[]", "must be an object", ""),
        ("7", "must be an object", ""),
        ('{"kv_role": "kv_both"}', "`kv_connector` is missing", "name the connector's class"),
        ('{"kv_connector": "NixlConnector"}', "`kv_role` is missing", "add one of kv_producer"),
        ('{"kv_connector": "NixlConnector", "kv_role": "both"}', "unknown `kv_role` 'both'", "use one of"),
        ('{"kv_connector": "NixlConnector", "kv_rol": 1}', "unknown field 'kv_rol'", "known fields"),
        (json.dumps(OFFLOADING | {"kv_connector": CONNECTOR_NAME}), "is there already", "go beside it"),
        (json.dumps(multi(NIXL, {"kv_role": 1})), "connectors[1]: `kv_connector` is missing", "name the"),
        (json.dumps(multi(NIXL, "x")), "connectors[1]: must be an object", ""),
    ],
)
@pytest.mark.parametrize("option", [AFTER, BEFORE])
def test_wrong_input_is_refused_with_option_value_field_and_next_step(option, text, field, next_step):
    with pytest.raises(UserError) as refusal:
        Siblings.read(**{"after" if option == AFTER else "before": [text]})
    message = str(refusal.value)
    assert message.startswith(f"{option} {text[:20]!r}"[:-1])
    assert field in message
    assert next_step in message
    assert "--kv-transfer-config" not in message


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text() | st.sampled_from(list(OFFLOADING)), inner),
)


@given(
    st.text() | JSON.map(json.dumps),
    st.sampled_from(
        ["engine_id", "kv_role", "kv_connector", "kv_load_failure_policy", "kv_connector_extra_config"]
    ),
    JSON,
    st.booleans(),
)
def test_no_text_and_no_value_of_a_field_ends_in_anything_but_a_config_or_a_refusal(text, field, value, deep):
    wrong = OFFLOADING | {field: value}
    for given_text in (text, json.dumps(multi(wrong) if deep else wrong)):
        try:
            siblings = Siblings.read([given_text], [json.dumps(NIXL)])
        except UserError:
            continue
        assert config_of(build_command("m", siblings=siblings))["kv_connector"] == "MultiConnector"


def test_the_manager_stays_on_if_every_sibling_supports_it():
    command, decision = preflight(command_with(OFFLOADING | {"engine_id": "x"}, multi(NIXL)))
    assert decision.verdict is Verdict.ON
    assert not any("hybrid" in warning for warning in command.warnings)


def test_a_sibling_without_support_switches_the_manager_off_and_is_named():
    command, decision = preflight(command_with(OFFLOADING, multi(NIXL, NO_HMA)))
    assert (decision.verdict, decision.path) == (Verdict.OFF, "connectors[2].connectors[1]")
    assert command.warnings[-1].startswith("the hybrid KV cache manager will be off: ExampleConnector")
    assert "connectors[2].connectors[1]" in command.warnings[-1]


def test_a_sibling_without_support_is_refused_where_the_model_needs_the_manager():
    with pytest.raises(UserError, match=r"impossible .*ExampleConnector .*connectors\[1\]") as refusal:
        preflight(command_with(NO_HMA, model="tiny-granite"))
    assert "run without that --with-connector" in str(refusal.value)


def test_a_sibling_without_support_is_refused_where_the_manager_is_asked_for():
    flags = ("--no-disable-hybrid-kv-cache-manager",)
    with pytest.raises(UserError, match=r"ExampleConnector .*connectors\[1\]") as refusal:
        preflight(command_with(NO_HMA, flags=flags))
    assert "leave out --no-disable-hybrid-kv-cache-manager" in str(refusal.value)


def test_a_sibling_that_the_engine_would_not_find_is_refused():
    with pytest.raises(UserError, match=r"connectors\[1\]: vLLM .* registers no connector 'Nope'"):
        preflight(command_with(OFFLOADING | {"kv_connector": "Nope"}))


def test_siblings_are_judged_for_a_model_that_the_planner_does_not_know():
    _, decision = preflight(command_with(NO_HMA, model="nobody/knows-this"))
    assert (decision.verdict, decision.path) == (Verdict.OFF, "connectors[1]")
    assert preflight(command_with(model="nobody/knows-this"))[1] is None
