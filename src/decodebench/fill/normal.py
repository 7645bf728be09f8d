"""Seeded normal numbers, drawn once.

Drawing runs at a fraction of a GB/s, copying at the speed of memory. So a bank of pages is drawn at registration, and
each write copies from another place in it: layers and requests differ, and the same seed and the same writes give the
same bytes on every device.
"""

import random
from math import isfinite

import torch

from decodebench.fill.bank import Bank, BankContent
from decodebench.fill.pages import Pages, bank_stride

BANK_BYTES = 64 << 20  # all banks of a worker together


class Normal(BankContent):
    """Numbers with `mean` and standard deviation `std`, clamped to the finite range of the layer's number format."""

    def __init__(self, mean: float, std: float, seed: int, bank_bytes: int = BANK_BYTES) -> None:
        super().__init__()
        if not isfinite(mean):
            raise ValueError(f"fill_mean is {mean}; accepted is a finite number, such as 0.015")
        if not (isfinite(std) and std >= 0):
            raise ValueError(f"fill_std is {std}; accepted is a finite number of at least 0")
        self.mean, self.std, self._bank_bytes = mean, std, bank_bytes
        self._numbers = torch.Generator().manual_seed(seed)
        self._places = random.Random(seed)

    def make_bank(self, pages: Pages, num_banks: int) -> Bank:
        fitting = self._bank_bytes // num_banks // bank_stride(pages.page_bytes)
        return Bank.encoded(pages, max(1, min(fitting, pages.num_blocks)), self._draw)

    def first_page(self, bank: Bank) -> int:
        return self._places.randrange(bank.size)

    def _draw(self, rows: int, numbers: int) -> torch.Tensor:
        return torch.empty(rows, numbers).normal_(self.mean, self.std, generator=self._numbers)
