"""`decodebench doctor`: is this machine fit to measure on, and what to do where it is not."""

import argparse
import json
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from decodebench.engine.doctor import Report


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = subparsers.add_parser(
        "doctor", help="check this machine and its installation, and say what helps"
    )
    parser.add_argument("--json", action="store_true", help="print the report as one JSON document")


def run(args: argparse.Namespace) -> int:
    from decodebench.engine.doctor import examine

    print("measuring the noise of this machine for 5 s, then importing vLLM ...", file=sys.stderr, flush=True)
    report = examine()
    print(_as_json(report) if args.json else _as_text(report))
    return 0


def _as_json(report: "Report") -> str:
    return json.dumps({"schema": "decodebench.doctor/1", **asdict(report)})


def _as_text(report: "Report") -> str:
    from decodebench.engine.doctor import CANNOT_BE_COMBINED

    width = max(len(finding.what) for finding in report.findings)
    lines = [f"{finding.what:<{width}}  {finding.value}" for finding in report.findings]
    lines.append(f"{'noise':<{width}}  {report.noise}")
    lines += ["", "A KV connector cannot be combined with:"]
    lines += [f"  {what}: {who}" for what, who in CANNOT_BE_COMBINED]
    lines += ["", "Found to be wrong:" if report.problems else "Nothing is wrong."]
    for finding in report.problems:
        lines += [f"  {finding.what}: {finding.problem}", f"    -> {finding.fix}"]
    return "\n".join(lines)
