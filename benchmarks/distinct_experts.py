"""How many experts does a batch visit in a decode step, over really prefilled KV and over each kind of fill?

vLLM's CPU build does not tell. So the same weights are run by transformers, on KV made up as the fills make it up: by
a real prefill, of one number, of normal numbers, of donors' pages. It measures no time: it explains an error of
`decodebench fidelity`.

    python benchmarks/distinct_experts.py [--model small-moe] [--batch-size 16] [--context-len 983] [--draws 1]

Prints distinct experts a layer and step, their mean, and distinct tokens a step, by kind; then one JSON line.
"""

import argparse
import json
from collections.abc import Callable

import numpy as np
import torch
from transformers import AutoModelForCausalLM, DynamicCache

from decodebench.connector.config import DEFAULT_NUMBER
from decodebench.engine.models import resolve_model
from decodebench.kv.arithmetic import ceil_div

BLOCK = 16  # tokens of a donor's page

Fill = Callable[[torch.Tensor], torch.Tensor]


class Model:
    """A MoE model of transformers whose routers are counted."""

    def __init__(self, path: str) -> None:
        self.model = AutoModelForCausalLM.from_pretrained(path, dtype=torch.bfloat16).eval()
        self.routers = [layer.mlp.gate for layer in self.model.model.layers]
        self.top = self.model.config.num_experts_per_tok
        self.visited: list[int] = []
        for router in self.routers:
            router.register_forward_hook(self._count)

    def _count(self, router: torch.nn.Module, inputs: tuple[torch.Tensor, ...], _: object) -> None:
        rows = inputs[0].reshape(-1, inputs[0].shape[-1])
        chosen = torch.nn.functional.linear(rows, router.weight).topk(self.top, -1).indices
        self.visited.append(len(torch.unique(chosen)))

    def prefill(self, prompts: torch.Tensor) -> list[DynamicCache]:
        """One cache a prompt, of shape (1, heads, tokens, head size) a layer."""
        with torch.no_grad():
            return [self.model(prompt[None], logits_to_keep=1).past_key_values for prompt in prompts]

    def decode(self, cache: DynamicCache, last: torch.Tensor, steps: int) -> tuple[list[float], float]:
        """Distinct experts of each layer, and distinct tokens: means over the last two thirds of the steps."""
        self.visited.clear()
        tokens, distinct = last, []
        with torch.no_grad():
            for _ in range(steps):
                logits = self.model(tokens, past_key_values=cache).logits
                tokens = logits[:, -1].argmax(-1, keepdim=True)
                distinct.append(len(torch.unique(tokens)))
        visited = np.array(self.visited).reshape(steps, len(self.routers))[steps // 3 :]
        return visited.mean(0).tolist(), float(np.mean(distinct[steps // 3 :]))


def made(caches: list[DynamicCache], fill: Fill) -> DynamicCache:
    """A batch's cache, keys and values of each layer made by `fill` from those of the caches, stacked."""
    out = DynamicCache()
    for layer in range(len(caches[0].layers)):
        keys = torch.cat([cache.layers[layer].keys for cache in caches])
        values = torch.cat([cache.layers[layer].values for cache in caches])
        out.update(fill(keys), fill(values), layer)
    return out


def fills(batch: int, tokens: int, rng: np.random.Generator) -> dict[str, tuple[int | None, Fill]]:
    """By name: how many donors it takes (None: the batch's own prefills), and what becomes of them."""

    def pages(donors: int) -> Fill:
        drawn = np.repeat(rng.integers(0, donors, (batch, ceil_div(tokens, BLOCK))), BLOCK, axis=1)[
            :, :tokens
        ]
        which, place = torch.tensor(drawn), torch.arange(tokens)
        return lambda kept: kept[which, :, place].permute(0, 2, 1, 3).contiguous()

    def numbers(draw: Callable[[tuple[int, ...]], torch.Tensor]) -> Fill:
        return lambda kept: draw((batch, kept.shape[1], tokens, kept.shape[3])).to(kept.dtype)

    return {
        "real prefill": (None, lambda kept: kept),
        "constant": (1, numbers(lambda shape: torch.full(shape, DEFAULT_NUMBER))),
        "normal": (1, numbers(lambda shape: DEFAULT_NUMBER + DEFAULT_NUMBER * torch.randn(shape))),
        "donor:1": (1, pages(1)),
        "donor:4": (4, pages(4)),
        "donor": (batch, lambda kept: kept[:, :, :tokens].clone()),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--model", default="small-moe")
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--context-len", type=int, default=983)
    parser.add_argument("--steps", type=int, default=45)
    parser.add_argument("--draws", type=int, default=1)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    rng = np.random.default_rng(0)
    model = Model(str(resolve_model(args.model).path))
    vocabulary = model.model.config.vocab_size

    def prompts() -> torch.Tensor:
        return torch.tensor(rng.integers(8, vocabulary, (args.batch_size, args.context_len + 1)))

    donors = model.prefill(prompts())
    found: dict[str, list[float]] = {}
    print(f"{'':<14} {'distinct experts a layer':<48} {'mean':>6} {'tokens':>7}")
    for _ in range(args.draws):
        asked = prompts()
        real = model.prefill(asked[:, :-1])
        for name, (count, fill) in fills(args.batch_size, args.context_len, rng).items():
            cache = made(real if count is None else donors[:count], fill)
            layers, tokens = model.decode(cache, asked[:, -1:], args.steps)
            found.setdefault(name, []).append(float(np.mean(layers)))
            each = " ".join(f"{layer:5.1f}" for layer in layers)
            print(f"{name:<14} {each:<48} {np.mean(layers):6.2f} {tokens:7.1f}", flush=True)
    means = {name: float(np.mean(draws)) for name, draws in found.items()}
    for name, mean in means.items():
        print(f"{name:<14} {mean / means['real prefill'] - 1:+.1%} of real prefill's experts")
    print(json.dumps({"benchmark": "distinct_experts", "model": args.model, "experts": means}))


if __name__ == "__main__":
    main()
