"""Writing content into pages.

layers = [LayerPages.of(name, cache, num_blocks=..., page_bytes=..., rows_per_block=..., content=...), ...]
group = GroupPages.of(layers, block_size=...)
content = Constant(0.015)
content.prepare(layers)
group.write(content, group.prepare([GroupWrites(whole=[3, 4, 5])]))
"""

from decodebench.fill.audit import Canaries, wrong_blocks
from decodebench.fill.base import Content
from decodebench.fill.constant import Constant
from decodebench.fill.donor import DonorBank
from decodebench.fill.executor import Executor, FillExecutor, ImmediateExecutor
from decodebench.fill.group import GroupPages, Written
from decodebench.fill.normal import Normal
from decodebench.fill.pages import LayerPages, Pages
from decodebench.fill.runs import PreparedWrites

__all__ = [
    "Canaries",
    "Constant",
    "Content",
    "DonorBank",
    "Executor",
    "FillExecutor",
    "GroupPages",
    "ImmediateExecutor",
    "LayerPages",
    "Normal",
    "Pages",
    "PreparedWrites",
    "Written",
    "wrong_blocks",
]
