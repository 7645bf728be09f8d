"""`decodebench cache list | clean`: the built-in models that were made on this machine."""

import argparse


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = subparsers.add_parser("cache", help="list or remove the built-in models made on this machine")
    parser.add_argument("action", choices=("list", "clean"), help="what to do with them")


def run(args: argparse.Namespace) -> int:
    from decodebench.engine.recipes import cache

    entries = cache.clean() if args.action == "clean" else cache.entries()
    for entry in entries:
        print(f"{entry.num_bytes / 1e6:8.1f} MB  {entry.path}")
    total = sum(entry.num_bytes for entry in entries) / 1e6
    done = "removed" if args.action == "clean" else "in the cache"
    print(f"{total:8.1f} MB  {len(entries)} built-in models {done} ({cache.root()})")
    return 0
