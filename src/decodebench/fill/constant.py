"""The same number everywhere."""

from math import isfinite

import torch

from decodebench.fill.bank import Bank, BankContent
from decodebench.fill.pages import Pages


class Constant(BankContent):
    """Every number is `mean`, rounded to the layer's number format and clamped to its finite range."""

    def __init__(self, mean: float) -> None:
        super().__init__()
        if not isfinite(mean):
            raise ValueError(f"fill_mean is {mean}; accepted is a finite number, such as 0.015")
        self.mean = mean

    def make_bank(self, pages: Pages, num_banks: int) -> Bank:
        return Bank.encoded(pages, 1, self._draw)

    def first_page(self, bank: Bank) -> int:
        return 0

    def _draw(self, rows: int, numbers: int) -> torch.Tensor:
        return torch.full((rows, numbers), self.mean, dtype=torch.float64)
