"""The engine that is measured, as it described itself in the answer to an `info` request (connector/info.py)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from decodebench.connector.limits import Limits
from decodebench.engine import recipes
from decodebench.errors import UserError
from decodebench.kv.blocks import GroupShape
from decodebench.results.provenance import Engine, Fill, Group


@dataclass(frozen=True, slots=True)
class EngineFacts:
    """One description per data-parallel rank; the ranks of one server are alike but for the size of their pools."""

    ranks: tuple[Mapping[str, Any], ...]

    @property
    def first(self) -> Mapping[str, Any]:
        return self.ranks[0]

    @property
    def limits(self) -> Limits:
        """What every rank can hold: those of the smallest pool."""
        facts = min(self.ranks, key=lambda rank: rank["num_blocks"])
        return Limits(
            shapes=tuple(
                GroupShape(group["kind"], group["block_size"], group["window"], group["scratch_blocks"])
                for group in facts["groups"]
            ),
            num_blocks=facts["num_blocks"],
            watermark_blocks=facts["watermark_blocks"],
            max_num_seqs=facts["max_num_seqs"],
            max_num_batched_tokens=facts["max_num_batched_tokens"],
            max_model_len=facts["max_model_len"],
            num_drafts=facts["num_drafts"],
            lookahead=facts["lookahead"],
            batches_in_flight=facts["batches_in_flight"],
        )

    @property
    def filled_groups(self) -> tuple[bool, ...]:
        return tuple(group["filled"] for group in self.first["groups"])

    @property
    def periods(self) -> tuple[int, ...]:
        """Steps after which a group's work repeats: its block size, and the tokens it compresses into one state."""
        found = set()
        for group in self.first["groups"]:
            if group["kind"] not in ("state", "circular_buffer"):
                found.add(group["block_size"])
                found |= {int(each) for each in group["tokens_per_state"] if each.isdigit() and int(each) > 1}
        return tuple(sorted(found))

    def check_fill(self, asked: Fill) -> None:
        """Raises `UserError` where a fill by numbers was asked for and the server, started by others, writes others."""
        if asked.content == "donor":
            return
        mean, std = self.first["fill"]["mean"], self.first["fill"]["std"]
        if (mean, std) != (asked.params["mean"], asked.params["std"]):
            raise UserError(
                f"--fill {asked.content} with mean {asked.params['mean']} and standard deviation "
                f"{asked.params['std']} was asked for: the server fills with mean {mean} and standard deviation {std}",
                "ask for its numbers (--fill-mean, --fill-std), or start it with others (`decodebench serve --help`)",
            )

    def padded_batch(self, batch: int) -> int | None:
        """The batch that a CUDA graph pads `batch` to; None where steps are not padded."""
        sizes = [size for size in self.first["cudagraph_capture_sizes"] if size >= batch]
        return None if self.first["enforce_eager"] or not sizes else min(sizes)

    def record(
        self, *, recipe: str | None, weights: str | None, shims: Sequence[str], hma_reason: str | None
    ) -> Engine:
        """The engine as a result keeps it. A server that others started is not said to have a built-in model: its
        folder's name tells.
        """
        facts = self.first
        model, loaded = model_name(facts["model"]), "dummy" if facts["load_format"] == "dummy" else "real"
        if recipe is None and (recipe := recipes.made_in(model)) is not None and loaded == "real":
            loaded = "seeded"
        devices = len(self.ranks) * facts["tensor_parallel_size"] * facts["pipeline_parallel_size"]
        return Engine(
            model=model,
            recipe=recipe,
            weights=weights or loaded,
            vllm_version=facts["vllm_version"],
            connector=facts["connector"]["class"],
            connector_version=facts["connector"]["version"],
            connectors=tuple(facts["connectors"]),
            devices=(facts["device"],) * devices,
            dtype=facts["dtype"],
            kv_cache_dtype=facts["kv_cache_dtype"],
            groups=tuple(
                Group(kind=group["kind"], block_size=group["block_size"], layers=group["layers"])
                for group in facts["groups"]
            ),
            num_blocks=facts["num_blocks"],
            hma=facts["hybrid_kv_cache_manager"],
            hma_reason=hma_reason,
            scheduler="AsyncScheduler" if facts["async_scheduling"] else "Scheduler",
            async_scheduling=facts["async_scheduling"],
            batches_in_flight=facts["batches_in_flight"],
            enable_prefix_caching=facts["prefix_caching"],
            mamba_cache_mode=facts["mamba_cache_mode"],
            cudagraph_capture_sizes=() if facts["enforce_eager"] else tuple(facts["cudagraph_capture_sizes"]),
            tensor_parallel_size=facts["tensor_parallel_size"],
            pipeline_parallel_size=facts["pipeline_parallel_size"],
            data_parallel_size=len(self.ranks),
            max_num_seqs=facts["max_num_seqs"],
            max_num_batched_tokens=facts["max_num_batched_tokens"],
            max_model_len=facts["max_model_len"],
            num_speculative_tokens=facts["num_drafts"],
            shims=tuple(shims),
        )

    @classmethod
    def of(cls, descriptions: Sequence[Mapping[str, Any]]) -> Self:
        assert descriptions, "a server has at least one rank"
        return cls(tuple(descriptions))


def model_name(model: str) -> str:
    """A model as a result names it: as the hub does, or by its folder's name; where folders lie is nobody's business.

    >>> model_name("/home/me/.cache/huggingface/hub/models--org--name/snapshots/0123abc")
    'org/name'
    """
    path = Path(model)
    if not (path.is_absolute() or model.startswith((".", "~"))):
        return model
    for repository, below in zip(path.parts, path.parts[1:], strict=False):
        if repository.startswith("models--") and below == "snapshots":
            return repository.removeprefix("models--").replace("--", "/")
    return path.resolve().name or model
