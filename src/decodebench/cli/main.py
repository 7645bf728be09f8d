"""The `decodebench` command: its verbs, and what each way to end is worth as an exit code.

    decodebench run | fidelity | serve | plan | recipes | doctor | show | cache

A verb is one module beside this one with `add_parser(subparsers)` and `run(args) -> int`. Nothing that a verb needs
(vLLM, torch, numpy, pyarrow) is imported before the verb runs, so `--help` answers at once.

Exit codes: 0 ok; 2 wrong input; 3 engine failed; 4 no valid point or a required precision missed; 5 kept for a
regression, which no verb looks for yet; 6 cannot tell; 70 internal error; 128 + n ended by signal n (130 Ctrl-C, 143
SIGTERM).
"""

import os
import sys
from collections.abc import Sequence
from importlib import import_module

from decodebench import __version__
from decodebench.cli.arguments import Parser, split_engine_args
from decodebench.cli.signals import Interrupted, as_interrupt
from decodebench.errors import EXIT_INTERNAL, DecodebenchError

VERBS = ("run", "fidelity", "serve", "plan", "recipes", "doctor", "show", "cache")


def build_parser(verbs: Sequence[str] = VERBS) -> Parser:
    parser = Parser(
        prog="decodebench",
        description="Measure the decode phase of LLM servers without running prefill, on the real engine.",
        epilog="Everything after `--` goes to `vllm serve`. `decodebench VERB --help` shows a verb's options.",
    )
    parser.add_argument("--version", action="version", version=f"decodebench {__version__}")
    subparsers = parser.add_subparsers(dest="verb", required=True, metavar="VERB", parser_class=Parser)
    for verb in verbs:
        import_module(f"decodebench.cli.{verb}").add_parser(subparsers)
    for verb_parser in subparsers.choices.values():
        verb_parser.add_argument("--debug", action="store_true", help="show the traceback of an error")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns its exit code."""
    ours, engine_args = split_engine_args(sys.argv[1:] if argv is None else argv)
    debug = "--debug" in ours
    try:
        with as_interrupt():
            named = ours[0] if ours and ours[0] in VERBS else None  # then no other verb's module is read
            args = build_parser((named,) if named else VERBS).parse_args(ours)
            args.engine_args = engine_args
            args.argv = tuple(sys.argv[1:] if argv is None else argv)
            code: int = import_module(f"decodebench.cli.{args.verb}").run(args)
            return code
    except DecodebenchError as error:
        _trace(debug)
        print(f"decodebench: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt as interrupt:
        signum = interrupt.signum if isinstance(interrupt, Interrupted) else 2
        print("decodebench: interrupted", file=sys.stderr)
        return 128 + signum
    except BrokenPipeError:
        # Our reader has gone; do not fail again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 128 + 13
    except Exception as error:
        return _internal(error, debug)


def _trace(debug: bool) -> None:
    """The traceback of the error being handled, for who asked for it."""
    if debug:
        import traceback

        traceback.print_exc()


def _internal(error: Exception, debug: bool) -> int:
    _trace(debug)
    print(f"decodebench: internal error: {type(error).__name__}: {error}", file=sys.stderr)
    if not debug:
        print("  -> this is a fault of decodebench; `--debug` shows where it happened", file=sys.stderr)
    return EXIT_INTERNAL


if __name__ == "__main__":
    sys.exit(main())
