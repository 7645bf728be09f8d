"""A small KV connector that saves the pages of every finished request to disk, and loads them back.

It is what a sibling of ours in a MultiConnector may be: it claims hits of its own, stores whatever the engine computed
(and whatever ours made up), and honours every KV cache group. A request is found by its cache salt and by all tokens
but its last: what one request of n tokens left behind, the request of those n tokens and one more can start from.

The scheduler's half says which blocks; the worker's half copies whole pages, as bytes, into one file a request and
worker (`kv_connector_extra_config["directory"]`, in a folder named by the engine_id in force).
"""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch
from vllm.distributed.kv_transfer.kv_connector.v1.base import (
    KVConnectorBase_V1,
    KVConnectorMetadata,
    KVConnectorRole,
    SupportsHMA,
)
from vllm.v1.request import RequestStatus

Table = tuple[dict[int, int], ...]  # per KV cache group: position in the request's block table -> block id


@dataclass
class DiskMetadata(KVConnectorMetadata):
    """One step's orders: files to load into blocks, blocks to save into files."""

    loads: dict[str, Table] = field(default_factory=dict)  # by key of the file
    saves: dict[str, tuple[str, Table]] = field(default_factory=dict)  # by request: key of the file, blocks


class PlainDiskConnector(KVConnectorBase_V1):
    """Without a word about the hybrid KV cache manager, which is off beside it."""

    def __init__(self, vllm_config, role, kv_cache_config):
        super().__init__(vllm_config, role, kv_cache_config)
        transfer = vllm_config.kv_transfer_config
        directory = Path(transfer.kv_connector_extra_config["directory"]) / transfer.engine_id
        self._groups = [
            (group.layer_names, group.kv_cache_spec.block_size) for group in kv_cache_config.kv_cache_groups
        ]
        if role == KVConnectorRole.SCHEDULER:
            self._scheduler = DiskScheduler([size for _, size in self._groups])
        else:
            directory.mkdir(parents=True, exist_ok=True)
            rank = vllm_config.parallel_config.rank
            names = [names for names, _ in self._groups]
            self._worker = DiskWorker(directory, rank, names, kv_cache_config.num_blocks)

    # Scheduler side

    def get_num_new_matched_tokens(self, request, num_computed_tokens):
        return self._scheduler.hit(request, num_computed_tokens), False

    def update_state_after_alloc(self, request, blocks, num_external_tokens):
        if num_external_tokens:
            self._scheduler.load(request, blocks.get_block_ids(), num_external_tokens)

    def build_connector_meta(self, scheduler_output):
        return self._scheduler.take_orders()

    def update_connector_output(self, connector_output):
        self._scheduler.confirm(connector_output.finished_sending or ())

    def request_finished(self, request, block_ids):
        return self.request_finished_all_groups(request, (block_ids,))

    def request_finished_all_groups(self, request, block_ids):
        return self._scheduler.finish(request, block_ids)

    # Worker side

    def register_kv_caches(self, kv_caches):
        self._worker.caches = kv_caches

    def start_load_kv(self, forward_context, **kwargs):
        for key, table in self._get_connector_metadata().loads.items():
            self._worker.load(key, table)

    def get_finished(self, finished_req_ids):
        """Called in every step, after the forward; the blocks of what is saved here wait for it."""
        saves = self._get_connector_metadata().saves
        for key, table in saves.values():
            self._worker.save(key, table)
        return set(saves) or None, None

    def wait_for_layer_load(self, layer_name):
        pass

    def save_kv_layer(self, layer_name, kv_layer, attn_metadata, **kwargs):
        pass

    def wait_for_save(self):
        pass


class DiskConnector(PlainDiskConnector, SupportsHMA):
    """The one that lets the hybrid KV cache manager stay on."""


class DiskScheduler:
    """Knows what is on disk, and which blocks belong to it."""

    def __init__(self, block_sizes: Sequence[int]) -> None:
        self._block_sizes = block_sizes
        self._stored: set[str] = set()
        self._saving: dict[str, str] = {}
        self._loaded: dict[str, int] = {}
        self._orders = DiskMetadata()

    def hit(self, request, local: int) -> int | None:
        """Tokens beyond the `local` ones that a file has; None while it is being written. Asking changes nothing."""
        wanted = request.num_tokens - 1
        key = key_of(request, wanted)
        if key in self._saving.values():
            return None
        return max(0, wanted - local) if key in self._stored else 0

    def load(self, request, block_ids, external: int) -> None:
        wanted = request.num_tokens - 1
        self._orders.loads[key_of(request, wanted)] = self._table(block_ids, wanted - external, wanted)
        self._loaded[request.request_id] = external

    def finish(self, request, block_ids):
        """Keep the blocks of a finished request until they are saved; tell its client what was done."""
        said = {"disk": {"loaded_tokens": self._loaded.pop(request.request_id, 0)}}
        if request.status == RequestStatus.FINISHED_ABORTED or not request.num_computed_tokens:
            return False, said
        # The last output token was sampled but never computed.
        computed = min(request.num_computed_tokens, request.num_tokens - 1)
        key = key_of(request, computed)
        self._orders.saves[request.request_id] = key, self._table(block_ids, 0, computed)
        self._saving[request.request_id] = key
        return True, said

    def confirm(self, request_ids) -> None:
        self._stored |= {self._saving.pop(each) for each in request_ids if each in self._saving}

    def take_orders(self) -> DiskMetadata:
        orders, self._orders = self._orders, DiskMetadata()
        return orders

    def _table(self, block_ids, first: int, end: int) -> Table:
        """The blocks of tokens [first, end) in every group, null blocks (outside a window) left out."""
        return tuple(
            {at: ids[at] for at in range(first // size, min(-(-end // size), len(ids))) if ids[at]}
            for ids, size in zip(block_ids, self._block_sizes, strict=True)
        )


class DiskWorker:
    """Copies pages between the KV cache and files."""

    def __init__(self, directory: Path, rank: int, groups: Sequence[Sequence[str]], num_blocks: int) -> None:
        self._directory = directory
        self._rank = rank
        self._groups = groups
        self._num_blocks = num_blocks
        self.caches: dict[str, torch.Tensor | list[torch.Tensor]] = {}

    def save(self, key: str, table: Table) -> None:
        pages = {
            (group, at): [as_bytes(rows) for rows in self._pages(group, block)]
            for group, blocks in enumerate(table)
            for at, block in blocks.items()
        }
        torch.save(pages, self._file(key))

    def load(self, key: str, table: Table) -> None:
        pages = torch.load(self._file(key))
        for group, blocks in enumerate(table):
            for at, block in blocks.items():
                for rows, saved in zip(self._pages(group, block), pages[group, at], strict=True):
                    rows.copy_(saved.view(rows.dtype).view(rows.shape))

    def _pages(self, group: int, block: int) -> list[torch.Tensor]:
        """The rows of a block in every layer of its group; a block may be several kernel blocks."""
        found = []
        for layer in self._groups[group]:
            cache = self.caches[layer]
            for tensor in cache if isinstance(cache, list) else [cache]:
                ratio = tensor.shape[0] // self._num_blocks
                found.append(tensor[block * ratio : (block + 1) * ratio])
        return found

    def _file(self, key: str) -> Path:
        return self._directory / f"{key}-{self._rank}.pt"


def as_bytes(rows: torch.Tensor) -> torch.Tensor:
    return rows.contiguous().flatten().view(torch.uint8).clone()


def key_of(request, num_tokens: int) -> str:
    named = [request.cache_salt, list(request.all_token_ids[:num_tokens])]
    return hashlib.sha256(json.dumps(named).encode()).hexdigest()[:32]
