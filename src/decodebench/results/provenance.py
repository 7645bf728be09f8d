"""Where a figure comes from: the engine, the host and what was asked of the run."""

from pydantic import Field, JsonValue

from decodebench.results.model import Record


class Group(Record):
    """One KV cache group, as the engine formed it."""

    kind: str
    """Kind of KV cache spec, e.g. `full_attention`, `sliding_window`, `mamba`."""
    block_size: int
    """Tokens per block of this group."""
    layers: int
    """Number of layers in the group."""


class Provenance(Record):
    """What every point carries, so that a row taken out of its document still says what it measured."""

    vllm_version: str | None = None
    connector_version: str | None = None
    weights: str | None = None
    mamba_cache_mode: str | None = None
    num_groups: int = 0
    hma: bool | None = None
    devices: tuple[str, ...] = ()
    scheduler: str | None = None
    shims: tuple[str, ...] = ()
    connectors: tuple[str, ...] = ()


class Engine(Record):
    """The server that was measured, in vLLM's field names where it has one. None: it did not say."""

    model: str
    recipe: str | None = None
    """Name of the built-in recipe, if the model is one."""
    weights: str | None = None
    """`real`, `seeded` (written by a recipe) or `dummy`."""
    vllm_version: str | None = None
    connector: str | None = None
    """Module and name of the connector class that the engine loaded."""
    connector_version: str | None = None
    connectors: tuple[str, ...] = ()
    """All KV connectors of the engine in the order in which it asks them: ours and its siblings in a MultiConnector."""
    devices: tuple[str, ...] = ()
    """Name of each device the server runs on, all data-parallel ranks together."""
    dtype: str | None = None
    kv_cache_dtype: str | None = None
    groups: tuple[Group, ...] = ()
    num_blocks: int | None = None
    """Blocks of the shared pool of one data-parallel rank, null block included."""
    hma: bool | None = None
    """Whether the hybrid KV cache manager is on."""
    hma_reason: str | None = None
    scheduler: str | None = None
    """Scheduler class that ran."""
    async_scheduling: bool | None = None
    batches_in_flight: int | None = None
    enable_prefix_caching: bool | None = None
    mamba_cache_mode: str | None = None
    cudagraph_capture_sizes: tuple[int, ...] = ()
    """Batch sizes that a step is padded to; empty: steps are not padded."""
    tensor_parallel_size: int = 1
    pipeline_parallel_size: int = 1
    data_parallel_size: int = 1
    max_num_seqs: int | None = None
    max_num_batched_tokens: int | None = None
    max_model_len: int | None = None
    num_speculative_tokens: int = 0
    shims: tuple[str, ...] = ()
    """Changes to vLLM in force in the server's processes (CPU recipes only)."""

    @property
    def provenance(self) -> Provenance:
        return Provenance(
            vllm_version=self.vllm_version,
            connector_version=self.connector_version,
            weights=self.weights,
            mamba_cache_mode=self.mamba_cache_mode,
            num_groups=len(self.groups),
            hma=self.hma,
            devices=self.devices,
            scheduler=self.scheduler,
            shims=self.shims,
            connectors=self.connectors,
        )


class Host(Record):
    """The machine the client side ran on."""

    cpu: str | None = None
    cores: int | None = None
    platform: str | None = None
    python: str | None = None
    noise: dict[str, JsonValue] | None = None
    """Figures of the noise test, as `decodebench doctor` prints them. Of a resumed run those of its noisiest part."""
    noise_warning: str | None = None
    """What that test warned of; absent: it did not warn."""
    env: dict[str, str] = Field(default_factory=dict)
    """The environment variables on the allow-list that were set."""


class Fill(Record):
    """What the filled pages hold."""

    content: str = "constant"
    params: dict[str, JsonValue] = Field(default_factory=dict)


class Settings(Record):
    """What was asked of the run."""

    batch_sizes: tuple[int, ...]
    """Per data-parallel rank."""
    context_lens: tuple[int, ...]
    precision: float | None = None
    """Half-width of the interval that was aimed at, as a fraction of the mean."""
    require_precision: bool = False
    seed: int = 0
    fill: Fill = Fill()
    min_repeats: int | None = None
    max_repeats: int | None = None
    launches: int = 1
    max_time_s: float | None = None
    window_steps: int | None = None
    """Steps that a window should have, before context and periods shorten or lengthen it (`--window-steps`)."""
    audit: bool = False
    """Whether every fill was read back and proved."""
    fidelity: bool = False
    """Whether the fill was to be compared with real prefill at a point."""
