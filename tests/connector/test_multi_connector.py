"""Ours beside another connector of a MultiConnector (rule 5.14, case F13), on vLLM's real scheduler."""

from collections import deque
from dataclasses import dataclass, field

import pytest
from vllm.distributed.kv_transfer.kv_connector.v1.base import (
    KVConnectorBase_V1,
    KVConnectorMetadata,
    SupportsHMA,
)

OURS = {
    "kv_connector": "DecodeBenchConnector",
    "kv_connector_module_path": "decodebench.connector",
    "kv_role": "kv_both",
}


class Store(KVConnectorBase_V1, SupportsHMA):
    """A connector that claims to hold the first `hit` tokens of every prompt (loaded synchronously)."""

    hit = 0

    def __init__(self, vllm_config, role, kv_cache_config):
        super().__init__(vllm_config, role, kv_cache_config)

    def get_num_new_matched_tokens(self, request, num_computed_tokens):
        return max(0, self.hit - num_computed_tokens), False

    def update_state_after_alloc(self, request, blocks, num_external_tokens):
        pass

    def build_connector_meta(self, scheduler_output):
        return KVConnectorMetadata()

    def request_finished_all_groups(self, request, block_ids):
        return False, {"store": True}

    def request_finished(self, request, block_ids):
        return False, {"store": True}

    def start_load_kv(self, forward_context, **kwargs):
        pass

    def wait_for_layer_load(self, layer_name):
        pass

    def save_kv_layer(self, layer_name, kv_layer, attn_metadata, **kwargs):
        pass

    def wait_for_save(self):
        pass


class Winner(Store):
    hit = 32


@dataclass
class Saved(KVConnectorMetadata):
    requests: set = field(default_factory=set)


class Saver(Store):
    """Keeps the blocks of every request until they are saved."""

    def __init__(self, vllm_config, role, kv_cache_config):
        super().__init__(vllm_config, role, kv_cache_config)
        self.saving = Saved()

    def build_connector_meta(self, scheduler_output):
        saving, self.saving = self.saving, Saved()
        return saving

    def request_finished_all_groups(self, request, block_ids):
        self.saving.requests.add(request.request_id)
        return True, None


def child(name):
    return {"kv_connector": name, "kv_connector_module_path": __name__, "kv_role": "kv_both"}


@pytest.fixture
def multi(engine):
    def build(*children):
        e = engine(
            transfer={
                "kv_connector": "MultiConnector",
                "kv_role": "kv_both",
                "kv_connector_extra_config": {"connectors": list(children)},
            }
        )
        ours = next(i for i, each in enumerate(children) if each["kv_connector"] == "DecodeBenchConnector")
        e.workers = Unwrapping(e.workers, ours, len(children))
        return e

    return build


class Unwrapping:
    """Hands our workers our part of the metadata, and wraps what they report; what a `Saver` saves takes 4 steps.

    A request that several children save is named once, when all of them have, as vLLM's MultiConnector does.
    """

    def __init__(self, workers, index, count):
        self.workers, self.index, self.count = workers, index, count
        self.fills = []
        self.saves = deque([set()] * 4)

    def answer(self, meta):
        from vllm.distributed.kv_transfer.kv_connector.v1.multi_connector import (
            MultiKVConnectorWorkerMetadata,
        )

        ours = meta.metadata[self.index]
        self.fills += ours.fills
        output = self.workers.answer(ours)
        parts = [None] * self.count
        parts[self.index] = output.kv_connector_worker_meta
        self.saves.append(
            {each for part in meta.metadata if isinstance(part, Saved) for each in part.requests}
        )
        output.finished_sending = self.saves.popleft() or None
        output.kv_connector_worker_meta = MultiKVConnectorWorkerMetadata(metadata=tuple(parts))
        return output


@pytest.mark.parametrize("order", [[OURS, child("Winner")], [OURS, child("Store")], [child("Store"), OURS]])
def test_a_cohort_is_exact_when_ours_wins(multi, order):
    e = multi(*order)
    members = e.cohort(size=3, max_tokens=6)
    e.run()
    assert [batch for batch in e.batches if batch][:6] == [dict.fromkeys(members, 1)] * 6
    assert "error" not in e.answer(members[0])
    assert e.responses[members[0]]["store"] is True


def test_when_another_connector_wins_nothing_is_filled_and_the_cohort_says_why(multi):
    e = multi(child("Winner"), OURS)
    members = e.cohort(size=3, max_tokens=6)
    e.run()
    assert e.workers.fills == []
    assert all("first" in e.answer(m)["error"] for m in members)
    assert all(len(e.outputs[m]) == 6 for m in members)


@pytest.mark.parametrize(
    ("settings", "names"),
    [
        ({"connectors": ["Store", "DecodeBenchConnector"]}, ["Store", "DecodeBenchConnector"]),
        ({}, ["KVConnectorMetadata", "DecodeBenchConnectorMetadata"]),
        ({"connectors": ["one of three"]}, ["KVConnectorMetadata", "DecodeBenchConnectorMetadata"]),
    ],
)
def test_info_names_all_children_in_their_order(multi, settings, names):
    """By what the launcher told, or else by the metadata that each child sends."""
    e = multi(child("Store"), OURS | {"kv_connector_extra_config": settings})
    asked = e.add(decodebench={"info": True})
    e.run()
    info = e.answer(asked)["info"]
    assert (info["multi_connector"], info["connectors"]) == (True, names)


def test_info_of_ours_alone_names_no_other(engine):
    e = engine()
    asked = e.add(decodebench={"info": True})
    e.run()
    info = e.answer(asked)["info"]
    assert (info["multi_connector"], info["connectors"]) == (False, ["DecodeBenchConnector"])


@pytest.mark.parametrize("siblings", [["Saver"], ["Saver", "Saver"]])
def test_a_cohort_is_exact_behind_one_whose_blocks_are_still_being_saved(multi, siblings):
    """Each needs more than half of the pool, so the second waits until the first one's blocks are free."""
    e = multi(OURS, *map(child, siblings))
    cohorts = [e.cohort(name, size=3, prompt_len=3_000, max_tokens=6) for name in ("a", "b")]
    e.run()
    ran = [batch for batch in e.batches if batch]
    assert ran == [dict.fromkeys(members, 1) for members in cohorts for _ in range(6)]
    assert not any("error" in e.answer(member) for members in cohorts for member in members)
