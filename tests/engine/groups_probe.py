"""A connector that transfers nothing: it writes down which KV cache groups the engine formed.

Loaded by vLLM itself (`kv_connector_module_path`), so what is compared with a recipe is what the engine really has.
"""

import json
from pathlib import Path

from vllm.distributed.kv_transfer.kv_connector.v1.base import (
    KVConnectorBase_V1,
    KVConnectorMetadata,
    SupportsHMA,
)
from vllm.v1.kv_cache_interface import get_kv_cache_spec_kind


class GroupsProbe(KVConnectorBase_V1, SupportsHMA):
    def __init__(self, vllm_config, role, kv_cache_config):
        super().__init__(vllm_config, role, kv_cache_config)
        if role.name == "SCHEDULER":
            groups = [
                {"kind": get_kv_cache_spec_kind(group.kv_cache_spec).value, "layers": len(group.layer_names)}
                for group in kv_cache_config.kv_cache_groups
            ]
            path = vllm_config.kv_transfer_config.kv_connector_extra_config["path"]
            Path(path).write_text(json.dumps(groups))

    def start_load_kv(self, forward_context, **kwargs):
        pass

    def wait_for_layer_load(self, layer_name):
        pass

    def save_kv_layer(self, layer_name, kv_layer, attn_metadata, **kwargs):
        pass

    def wait_for_save(self):
        pass

    def get_num_new_matched_tokens(self, request, num_computed_tokens):
        return 0, False

    def update_state_after_alloc(self, request, blocks, num_external_tokens):
        pass

    def build_connector_meta(self, scheduler_output):
        return KVConnectorMetadata()

    def request_finished_all_groups(self, request, block_ids):
        return False, None
