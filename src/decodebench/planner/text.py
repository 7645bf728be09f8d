"""A plan as text for a person. Plain columns: it must be there in a fraction of a second, and survive a pipe."""

from collections.abc import Iterator, Sequence
from textwrap import wrap

from decodebench.kv.capacity import NULL_BLOCKS
from decodebench.planner.cost import Cost, cost_of_off
from decodebench.planner.plan import Plan
from decodebench.planner.shape import Group, Shape

_WIDTH = 110
_UNITS = (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10))


def render(plan: Plan) -> str:
    """The whole answer: verdict, groups, pool, requests, points, and what was taken for granted."""
    return "\n".join(_lines(plan)) + "\n"


def _lines(plan: Plan) -> Iterator[str]:
    yield _headline(plan)
    yield ""
    yield from _verdict(plan)
    main = plan.in_force or plan.on or plan.off
    assert main is not None, "a plan has a shape at least one way"
    state = "off" if main is plan.off and plan.off is not plan.on else "on"
    yield ""
    yield f"KV cache groups with the manager {state}"
    yield from _groups(main.groups)
    yield from _other_way(plan, main)
    yield ""
    yield from _pool(plan, main)
    yield ""
    yield from _requests(main)
    if main.points:
        yield ""
        yield from _points(main)
    yield from _notes(plan)


def _headline(plan: Plan) -> str:
    settings = plan.settings
    specs = settings.specs
    return (
        f"{plan.model}: {specs.family}, vLLM {settings.target.version} on {settings.target.gpu.name}, "
        f"max_model_len {specs.max_model_len:,}, KV cache dtype {specs.kv_cache_dtype}"
    )


def _verdict(plan: Plan) -> Iterator[str]:
    decision = plan.hma
    yield f"Hybrid KV cache manager: {decision.verdict.value}"
    yield from wrap(f"because {decision.reason}", _WIDTH, initial_indent="  ", subsequent_indent="    ")
    if decision.path:
        yield f"  forced by {decision.path}"
    if decision.flag:
        yield f"  changed by: {decision.flag}"
    cost = cost_of_off(plan)
    if cost is None:
        way, error = ("off", plan.off_error) if plan.off is None else ("on", plan.on_error)
        yield from wrap(
            f"{way} is not possible: {error}", _WIDTH, initial_indent="  ", subsequent_indent="    "
        )
    elif _differs(cost):
        yield ""
        yield "What it costs to have it off"
        yield from _cost(cost)
    else:
        yield "  off would cost nothing: the cache is the same"


def _differs(cost: Cost) -> bool:
    return cost.tokens_on != cost.tokens_off or any(row.bytes_on != row.bytes_off for row in cost.requests)


def _cost(cost: Cost) -> Iterator[str]:
    known = cost.tokens_on is not None
    rows = (
        [("tokens, as the engine logs them", f"{cost.tokens_on:,}", f"{cost.tokens_off:,}")] if known else []
    )
    for row in cost.requests:
        what = f"of {row.context_len:,} tokens"
        rows.append((f"one request {what}", _bytes(row.bytes_on), _bytes(row.bytes_off)))
        if known:
            rows.append((f"most requests {what}", f"{row.max_requests_on:,}", f"{row.max_requests_off:,}"))
    yield from _table(("", "on", "off"), rows)


def _groups(groups: Sequence[Group]) -> Iterator[str]:
    rows = [
        (
            group.kind,
            str(group.layers),
            f"{group.block_size:,}",
            f"{group.page_bytes:,}",
            str(group.padding_layers),
            _share(group.unused_bytes, group.unused_bytes + group.block_bytes),
            "yes" if group.zeroed else "no",
        )
        for group in groups
    ]
    titles = ("kind", "layers", "tokens/block", "page bytes", "padding layers", "unused", "zeroed by engine")
    yield from _table(titles, rows)


def _other_way(plan: Plan, main: Shape) -> Iterator[str]:
    """The groups the other way round, if they differ."""
    for state, shape in (("on", plan.on), ("off", plan.off)):
        if shape is not None and shape is not main and shape.groups != main.groups:
            yield ""
            yield f"and with it {state}"
            yield from _groups(shape.groups)


def _pool(plan: Plan, shape: Shape) -> Iterator[str]:
    pool, ranks = shape.pool, plan.settings.arguments.data_parallel_size
    if not shape.memory.is_known:
        yield f"Pool: a block is {_bytes(pool.bytes_per_block)}; give --available-kv-memory to see how many there are"
        return
    yield (
        f"Pool: {pool.num_blocks:,} blocks of {_bytes(pool.bytes_per_block)}, "
        f"{max(pool.usable_blocks, 0):,} usable ({NULL_BLOCKS} is the null block)"
        + (f"; that is one of {ranks} data-parallel ranks, each with its own" if ranks > 1 else "")
    )
    yield "The engine will log:"
    yield from (f"  {line}" for line in pool.log_lines())
    yield f"  ({_meaning(shape)})"
    if pool.max_num_seqs is not None:
        yield f"Largest --max-num-seqs with CUDA graphs: {pool.max_num_seqs:,} (a state block for every sequence)"


def _meaning(shape: Shape) -> str:
    if shape.pool.limits.rules.log_capacity_by_concurrency:
        return "tokens = blocks / blocks of one max_model_len request x max_model_len; the null block is counted in"
    return "tokens = blocks // groups x smallest block; the null block is counted in"


def _requests(shape: Shape) -> Iterator[str]:
    known = shape.memory.is_known
    rows = [
        (
            f"{cost.context:,}",
            f"{sum(cost.blocks):,}",
            " + ".join(f"{blocks:,}" for blocks in cost.blocks),
            _bytes(cost.bytes),
            _bytes(cost.fixed_bytes),
            f"{cost.bytes_per_token:,.0f}",
            f"{cost.max_requests:,}" if known else "-",
        )
        for cost in shape.requests
    ]
    yield "One decoding request"
    titles = ("context", "blocks", "by group", "bytes", "of which fixed", "bytes/token", "most requests")
    yield from _table(titles, rows)


def _points(shape: Shape) -> Iterator[str]:
    rows = [
        (f"{point.batch_size:,}", f"{point.context_len:,}", "yes" if point.fits else "no", point.reason)
        for point in shape.points
    ]
    yield "Points (batch size per data-parallel rank)"
    yield from _table(("batch", "context", "fits", "why"), rows)


def _notes(plan: Plan) -> Iterator[str]:
    for title, texts in (("Warnings", plan.warnings), ("Assumed", plan.assumed), ("Not read", plan.ignored)):
        if texts:
            yield ""
            yield title
            yield from (f"  {text}" for text in texts)


def _table(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Columns two blanks apart; those whose every cell begins with a digit stand to the right."""
    widths = [max(len(row[at]) for row in (titles, *rows)) for at in range(len(titles))]
    right = [
        bool(rows) and all(row[at][:1].isdigit() or row[at] == "-" for row in rows)
        for at in range(len(titles))
    ]
    for row in (titles, *rows):
        cells = [
            cell.rjust(width) if to_the_right else cell.ljust(width)
            for cell, width, to_the_right in zip(row, widths, right, strict=True)
        ]
        yield ("  " + "  ".join(cells)).rstrip()


def _bytes(count: int) -> str:
    for unit, size in _UNITS:
        if count >= size:
            return f"{count / size:,.2f} {unit}"
    return f"{count:,} B"


def _share(part: int, whole: int) -> str:
    return f"{100 * part / whole:.1f} %" if part else "0"
