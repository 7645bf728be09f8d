"""The groups, blocks and tokens that vLLM 0.33's own functions gave for real models' specs.

`configs/SPECS.md` of the project's shared facts lists, per model, the layer specs and what the engine made of them with
40 GiB. The tests parse the specs and compare what we make of them. Layer order inside a model is not in it: layers
are taken in the order listed.
"""

import re
from ast import literal_eval
from collections import Counter
from pathlib import Path

import pytest

from decodebench.kv.capacity import plan_pool
from decodebench.kv.errors import CannotStart
from decodebench.kv.grouping import group_layers
from decodebench.kv.layout import Layout
from decodebench.kv.limits import EngineLimits
from decodebench.kv.rules import rules_for
from decodebench.kv.specs import (
    MLA,
    ChunkedLocal,
    FullAttention,
    MambaState,
    SlidingWindow,
    SlidingWindowMLA,
)

TABLE = Path(__file__).parents[2].parent / "shared" / "configs" / "SPECS.md"
GIB40 = 40 << 30
SPEC_LINE = re.compile(r"^- (\d+) x `(\w+) (.*)`$")
ON = re.compile(
    r"HMA on : (\d+) groups, bytes/block\([^)]*\)=(\d+), 40 GiB -> (\d+) blocks, capacity (\d+) tokens"
)
OFF = re.compile(
    r"HMA off: (?:(\d+) groups, bytes/block\([^)]*\)=(\d+), 40 GiB -> (\d+) blocks, capacity (\d+)|(\w+Error))"
)
GROUP = re.compile(
    r"^  - (\d+) x \[(?:Uniform\((\d+) layers, bs=(\d+), bytes=(\d+)|(\d+)x \w+ bs=(\d+) page=(\d+))"
)


def sections() -> dict[str, str]:
    if not TABLE.exists():
        return {}
    parts = re.split(r"^### ", TABLE.read_text().split("## Per model")[1], flags=re.M)[1:]
    return {part.split("\n", 1)[0].strip(): part for part in parts}


SECTIONS = sections()
pytestmark = pytest.mark.skipif(not SECTIONS, reason="the shared table of model specs is not here")


def spec_of(kind: str, text: str, cache_mode: str):
    """One spec of the table. `text` holds `key=value` pairs as the table's author printed them."""
    values = dict(re.findall(r"(\w+)=(\([^=]*\)|\[[^=]*\]|\S+)", text))
    block = int(values["bs"])
    if kind == "mamba":
        return MambaState(
            block_size=block,
            shapes=literal_eval(values["shapes"]),
            dtypes=tuple(literal_eval(values["dtypes"])),
            page_bytes_padded=int(values["page"]),
            cache_mode=cache_mode,
            num_prefill_checkpoint_blocks=int(values["ckpt"]),
        )
    head, head_v = (int(size) for size in values["head"].split("/"))
    common = {
        "block_size": block,
        "num_kv_heads": int(values["kv_heads"]),
        "head_size": head,
        "head_size_v": head_v,
        "dtype": values["dtype"],
        "state_content_bytes": int(values["content"]) if "content" in values else None,
        "tokens_per_state": int(values.get("tokens_per_state", 1)),
    }
    latent = {**common, "alignment": int(values["align"]) if "align" in values else None}
    match kind:
        case "full_attention":
            return FullAttention(**common)
        case "sliding_window":
            return SlidingWindow(**common, sliding_window=int(values["window"]))
        case "chunked_local_attention":
            return ChunkedLocal(**common, attention_chunk_size=int(values["chunk"]))
        case "mla_attention":
            return MLA(**latent)
        case "sliding_window_mla":
            return SlidingWindowMLA(**latent, sliding_window=int(values["window"]))
    raise AssertionError(f"the table has a new kind: {kind}")


def parse(section: str):
    """Layer specs, layout and limits of one model."""
    max_len, layout, mode = re.search(
        r"max_model_len used (\d+); layout (\w+); mamba_cache_mode (\w+)", section
    ).groups()
    specs, pages = {}, {}
    for line in section.splitlines():
        if match := SPEC_LINE.match(line):
            count, kind, text = match.groups()
            spec = spec_of(kind, text, mode)
            pages[kind, text] = (spec.page_bytes, int(re.search(r"\bpage=(\d+)", text).group(1)))
            specs |= {f"{len(specs) + i}": spec for i in range(int(count))}
    limits = EngineLimits(
        max_model_len=int(max_len),
        max_num_batched_tokens=8192,
        rules=rules_for("0.33"),
    )
    return specs, pages, Layout[layout], limits


def expected_groups(section: str) -> Counter:
    """(layers, block size, page bytes of all layers) -> how many such groups, of the manager-on line."""
    found = Counter()
    for line in section.split("HMA off")[0].splitlines():
        if match := GROUP.match(line):
            count, layers, block, size, plain_layers, plain_block, page = match.groups()
            if layers is not None:
                found[int(layers), int(block), int(size)] += int(count)
            else:
                found[int(plain_layers), int(plain_block), int(plain_layers) * int(page)] += int(count)
    return found


@pytest.mark.parametrize("name", SECTIONS)
def test_pages_are_the_engines(name):
    _, pages, _, _ = parse(SECTIONS[name])
    assert pages
    for ours, theirs in pages.values():
        assert ours == theirs


@pytest.mark.parametrize("name", SECTIONS)
def test_groups_and_capacity_with_the_manager_on(name):
    specs, _, layout, limits = parse(SECTIONS[name])
    groups = group_layers(specs, layout=layout, rules=limits.rules)
    pool = plan_pool(groups, GIB40, limits, layout=layout)
    count, width, blocks, tokens = (int(value) for value in ON.search(SECTIONS[name]).groups())
    assert (len(groups), pool.bytes_per_block, pool.num_blocks, pool.logged_tokens) == (
        count,
        width,
        blocks,
        tokens,
    )
    ours = Counter((len(group.layer_names), group.block_size, group.page_bytes) for group in groups)
    assert ours == expected_groups(SECTIONS[name])


@pytest.mark.parametrize("name", SECTIONS)
def test_groups_and_capacity_with_the_manager_off(name):
    specs, _, layout, limits = parse(SECTIONS[name])
    count, width, blocks, tokens, error = OFF.search(SECTIONS[name]).groups()
    if error is not None:
        with pytest.raises(CannotStart, match="without the hybrid KV cache manager"):
            group_layers(specs, layout=layout, hybrid_manager=False, rules=limits.rules)
        return
    groups = group_layers(specs, layout=layout, hybrid_manager=False, rules=limits.rules)
    pool = plan_pool(groups, GIB40, limits, layout=layout)
    logged = (len(groups), pool.bytes_per_block, pool.num_blocks, pool.logged_tokens)
    assert logged == (int(count), int(width), int(blocks), int(tokens))
