"""`decodebench plan MODEL [options]`: what the engine will build, what fits, and whether the hybrid manager stays on.

decodebench plan config.json --available-kv-memory 64.68GiB --batch-size 32,256 --context-len 8k,128k
decodebench plan --available-kv-memory 40GiB -- vllm serve openai/gpt-oss-120b -tp 2 --max-model-len 65536
"""

import argparse
import gc
import sys


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = subparsers.add_parser(
        "plan",
        help="say what an engine will build, what fits and whether the hybrid KV cache manager stays on",
        description="Plan an engine on paper: no GPU, no weights, no vLLM.",
        epilog="A `vllm serve` line can be pasted after `--`; options here win over it.",
    )
    parser.add_argument(
        "model", nargs="?", metavar="MODEL", help="directory, config.json, built-in model or hub id"
    )
    parser.add_argument(
        "--available-kv-memory", metavar="SIZE", help="memory of one GPU for the KV cache: 64.68GiB"
    )
    parser.add_argument("--batch-size", metavar="N,...", help="batch sizes per data-parallel rank: 32,256")
    parser.add_argument("--context-len", metavar="N,...", help="context lengths: 8k,128k (4K is 4,096)")
    parser.add_argument(
        "--output-len", metavar="N", default="0", help="tokens decoded from there (default: 0)"
    )
    parser.add_argument("--gpu", metavar="NAME", help="device to plan for: h200, b200, cpu, ...")
    parser.add_argument(
        "--vllm-version", metavar="X.Y", help="version to plan for (default: installed, else newest)"
    )
    parser.add_argument(
        "--allow-import", action="store_true", help="import the connectors named in the transfer config"
    )
    parser.add_argument("--json", action="store_true", help="print the plan as one JSON document")
    _add_engine_options(parser)


def _add_engine_options(parser: argparse.ArgumentParser) -> None:
    from decodebench.planner.arguments import OPTIONS

    group = parser.add_argument_group("engine options, as `vllm serve` calls them")
    for option in OPTIONS:
        if option.read is None:
            group.add_argument(
                *option.short,
                option.name,
                action=argparse.BooleanOptionalAction,
                default=None,
                help=option.help,
            )
        else:
            group.add_argument(*option.short, option.name, metavar="VALUE", help=option.help)


def run(args: argparse.Namespace) -> int:
    gc.disable()  # a tenth of a second leaves nothing worth collecting, and looking costs a tenth of it
    try:
        return _answer(args)
    finally:
        gc.enable()
        gc.freeze()  # nor does the interpreter's end, which looks once more and costs another tenth


def _answer(args: argparse.Namespace) -> int:
    import os

    from decodebench.errors import EXIT_CANNOT_TELL, EXIT_OK, UserError
    from decodebench.hma import Verdict
    from decodebench.kv.units import parse_count
    from decodebench.planner.arguments import OPTIONS, read_option
    from decodebench.planner.plan import plan

    given = {option: getattr(args, option.field) for option in OPTIONS}
    arguments = {
        option.field: value if option.read is None else read_option(option, value)
        for option, value in given.items()
        if value is not None
    }
    answer = plan(
        args.model,
        available_kv_memory=args.available_kv_memory,
        batch_size=() if args.batch_size is None else args.batch_size,
        context_len=() if args.context_len is None else args.context_len,
        output_len=parse_count(args.output_len, "--output-len"),
        gpu=args.gpu,
        vllm_version=args.vllm_version,
        pasted=args.engine_args,
        allow_import=args.allow_import,
        env={name: value for name, value in os.environ.items() if name.startswith("VLLM_")},
        **arguments,
    )
    if answer.hma.verdict is Verdict.ERROR:
        raise UserError(answer.hma.reason)
    if args.json:
        import json

        print(json.dumps(answer.to_json()))
    else:
        from decodebench.planner.text import render

        sys.stdout.write(render(answer))
    return EXIT_CANNOT_TELL if answer.hma.verdict is Verdict.CANNOT_TELL else EXIT_OK
