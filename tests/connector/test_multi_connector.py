"""Ours beside another connector of a MultiConnector (rule 5.14, case F13), on vLLM's real scheduler."""

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
        ours = next(i for i, each in enumerate(children) if each is OURS)
        e.workers = Unwrapping(e.workers, ours, len(children))
        return e

    return build


class Unwrapping:
    """Hands our workers our part of the metadata, and wraps what they report."""

    def __init__(self, workers, index, count):
        self.workers, self.index, self.count = workers, index, count
        self.fills = []

    def answer(self, meta):
        from vllm.distributed.kv_transfer.kv_connector.v1.multi_connector import (
            MultiKVConnectorWorkerMetadata,
        )

        ours = meta.metadata[self.index]
        self.fills += ours.fills
        output = self.workers.answer(ours)
        parts = [None] * self.count
        parts[self.index] = output.kv_connector_worker_meta
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
