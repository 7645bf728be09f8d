"""The decision against vLLM's own: `VllmConfig.__post_init__` and `KVConnectorFactory.supports_hma_config`."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("vllm", reason="vLLM is not installed")

from vllm.config import KVTransferConfig, SchedulerConfig, VllmConfig
from vllm.distributed.kv_transfer.kv_connector.factory import KVConnectorFactory
from vllm.distributed.kv_transfer.kv_connector.v1 import base, multi_connector

from decodebench.hma import Verdict, decide, supports_hma_config
from decodebench.hma.asked import ask_class
from decodebench.hma.known import OUR_CLASS, OURS
from decodebench.hma.rules import ASK_OFF
from decodebench.hma.source import read_class
from decodebench.hma.vllm_source import installed_version, registered_connectors

NEEDS_CUDA = "HiSparseConnector"  # VllmConfig refuses it on the CPU before it comes to the manager


def one(name: str, **fields: Any) -> dict[str, Any]:
    return {"kv_connector": name, "kv_role": "kv_both", **fields}


def multi(children: list[dict[str, Any]], name: str = "MultiConnector") -> dict[str, Any]:
    return one(name, kv_connector_extra_config={"connectors": children})


def importable(name: str) -> bool:
    try:
        KVConnectorFactory.get_connector_class_by_name(name)
    except ImportError:
        return False
    return True


IMPORTABLE = sorted(filter(importable, registered_connectors()))
LEAVES = st.sampled_from([one(name) for name in IMPORTABLE if name not in ("MultiConnector", NEEDS_CUDA)])
OWN_ID = st.sampled_from([{}, {}, {"engine_id": "F"}])
TREES = st.recursive(
    st.builds(lambda leaf, own: {**leaf, **own}, LEAVES, OWN_ID),
    lambda below: st.lists(below, max_size=3).map(multi),
    max_leaves=12,
)


def engine_decides(config: dict[str, Any], asked: bool | None) -> str:
    """What the engine makes of a transfer config, its later check when the connector is built included."""
    scheduler = SchedulerConfig.default_factory(
        disable_hybrid_kv_cache_manager=None if asked is None else not asked
    )
    transfer = KVTransferConfig(**config)
    engine = VllmConfig(kv_transfer_config=transfer, scheduler_config=scheduler)
    if engine.scheduler_config.disable_hybrid_kv_cache_manager:
        return "off"
    return "on" if KVConnectorFactory.supports_hma_config(transfer) else "error"


def test_the_version_is_read_without_importing() -> None:
    import vllm

    assert installed_version() == vllm.__version__


def test_the_register_is_read_without_importing() -> None:
    assert set(registered_connectors()) == set(KVConnectorFactory._registry)


@pytest.mark.parametrize("allow_import", [False, True])
@pytest.mark.parametrize("name", sorted(registered_connectors()))
def test_every_registered_connector_is_decided_as_the_engine_does(name: str, allow_import: bool) -> None:
    decision = decide(one(name), allow_import=allow_import)
    assert decision.verdict in (Verdict.ON, Verdict.OFF)
    if name in IMPORTABLE and name != NEEDS_CUDA:
        assert decision.verdict.value == engine_decides(one(name), None)
    if name in IMPORTABLE:
        assert supports_hma_config(one(name)) == KVConnectorFactory.supports_hma_config(
            KVTransferConfig(**one(name))
        )


@pytest.mark.parametrize("name", IMPORTABLE)
def test_reading_the_source_says_what_the_class_says(name: str) -> None:
    read = read_class(*registered_connectors()[name])
    asked = ask_class(KVConnectorFactory.get_connector_class_by_name(name))
    for fact in ("declares_hma", "finishes_all_groups", "is_multi"):
        assert getattr(read, fact) == getattr(asked, fact), fact


@settings(max_examples=400, deadline=None)
@given(TREES, st.sampled_from([None, True, False]))
def test_nested_multi_connectors_are_decided_as_the_engine_does(
    config: dict[str, Any], asked: bool | None
) -> None:
    assert decide(config, asked=asked).verdict.value == engine_decides(config, asked)


def test_our_own_connector_is_what_the_table_says() -> None:
    ours = KVConnectorFactory.get_connector_class(
        KVTransferConfig(**one(OURS[1], kv_connector_module_path=OURS[0]))
    )
    asked = ask_class(ours)
    for fact in ("declares_hma", "finishes_all_groups", "is_multi"):
        assert getattr(asked, fact) == getattr(OUR_CLASS, fact)


class RegisteredFleet(multi_connector.MultiConnector):
    """A MultiConnector under another name."""


class SingleGroup(base.KVConnectorBase_V1, base.SupportsHMA):
    """Declares support and has no hook for all groups."""


@pytest.fixture
def registered_fleet() -> Any:
    KVConnectorFactory.register_connector("RegisteredFleet", __name__, "RegisteredFleet")
    yield "RegisteredFleet"
    KVConnectorFactory._registry.pop("RegisteredFleet")


def test_a_registered_subclass_is_decided_by_its_children_where_the_engine_goes_by_the_name(
    registered_fleet: str,
) -> None:
    config = multi([one("NixlConnector"), one("ExampleConnector")], name=registered_fleet)
    decision = decide(config)
    assert (decision.verdict, decision.path) == (Verdict.OFF, "connectors[1]")
    assert engine_decides(config, None) == "on"
    assert decision.serve_flags == (ASK_OFF,)
    both = [one("NixlConnector"), one("OffloadingConnector")]
    assert decide(multi(both, name=registered_fleet)).verdict is Verdict.ON


def test_a_class_without_the_hook_is_told_apart_and_cannot_be_constructed() -> None:
    decision = decide(one("SingleGroup", kv_connector_module_path=__name__))
    assert decision.verdict is Verdict.ERROR
    with pytest.raises(TypeError, match="abstract"):
        SingleGroup(None, None, None)  # type: ignore[abstract]


def test_the_engine_still_dies_of_a_child_that_names_its_engine_id() -> None:
    config = multi([one("NixlConnector", engine_id="F")])
    engine = VllmConfig(kv_transfer_config=KVTransferConfig(**config))
    with pytest.raises(TypeError, match="multiple values"):
        multi_connector.MultiConnector._get_connector_classes_and_configs(engine)
    assert any("TypeError" in warning for warning in decide(config).warnings)
