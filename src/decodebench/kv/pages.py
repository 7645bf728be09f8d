"""One page size for all layers: what lets groups of different kinds draw from one pool of blocks.

Source: vLLM 0.32 `v1/core/kv_cache_utils.py unify_kv_cache_spec_page_size`. Smaller pages get more tokens a
block where they divide the largest page, else padding where the version pads.
"""

from decodebench.kv.errors import CannotStart
from decodebench.kv.groups import LayerSpecs
from decodebench.kv.rules import Rules
from decodebench.kv.specs import MLA, AttentionSpec, LayerSpec, MambaState


class PageDoesNotFit(CannotStart):
    """A page that this version can neither scale nor pad to the largest one."""


def unify_page_sizes(specs: LayerSpecs, rules: Rules) -> dict[str, LayerSpec]:
    """`specs` with equal page sizes.

    Raises:
        PageDoesNotFit: a page can neither be scaled nor padded.
        CannotStart: a scaled page has another size than it should; the engine fails on its own assertion there.
    """
    largest = max(spec.page_bytes for spec in specs.values())
    return {name: _fit(name, spec, largest, rules) for name, spec in specs.items()}


def _fit(name: str, spec: LayerSpec, page_bytes: int, rules: Rules) -> LayerSpec:
    if spec.page_bytes == page_bytes:
        return spec
    if isinstance(spec, MambaState) and rules.pad_state_pages:
        return spec.with_padded_page(page_bytes)
    if page_bytes % spec.page_bytes == 0:
        fitted = spec.with_block_size(spec.block_size * page_bytes // spec.page_bytes)
    elif rules.pad_attention_pages and isinstance(spec, AttentionSpec) and not isinstance(spec, MLA):
        fitted = spec.with_padded_page(page_bytes)
    else:
        raise PageDoesNotFit(
            f"vLLM {rules.version} cannot start: the page of layer {name} ({spec.kind}, {spec.page_bytes} bytes) "
            f"does not divide the largest page ({page_bytes} bytes), and this version does not pad it"
        )
    if fitted.page_bytes != page_bytes:
        raise CannotStart(
            f"vLLM {rules.version} cannot start: the page of layer {name} ({spec.kind}) stays at {fitted.page_bytes} "
            f"bytes with {fitted.block_size} tokens a block, where {page_bytes} are needed"
        )
    return fitted
