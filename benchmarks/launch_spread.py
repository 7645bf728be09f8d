"""How much a step time differs from launch to launch of the server, beside what it differs within one launch.

    python benchmarks/launch_spread.py [--launches 12] [--model tiny-gemma3]

One `decodebench run` with that many launches; the spread is that of the launches' means, each over at least five
repeats.
It is what an interval "within one launch" cannot know.
"""

import argparse
import json
import statistics
import subprocess
import sys


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--launches", type=int, default=12)
    parser.add_argument("--model", default="tiny-gemma3")
    args = parser.parse_args()
    command = [sys.executable, "-m", "decodebench.cli.main", "run", args.model]
    command += ["--batch-size", "8", "--context-len", "4k", "--launches", str(args.launches)]
    command += ["--max-repeats", "5", "--json"]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    document = json.loads(done.stdout.splitlines()[-1])
    (point,) = document["points"]
    launches = {}
    for detail in point["repeat_details"]:
        if detail["status"] == "valid" and not detail["discarded"]:
            launches.setdefault(detail["launch"], []).append(detail["duration_ns"] / detail["steps"] / 1e6)
    means = [statistics.mean(repeats) for repeats in launches.values()]
    within = [statistics.stdev(repeats) for repeats in launches.values() if len(repeats) > 1]
    row = {
        "launches": len(means),
        "mean_ms": statistics.mean(means),
        "launch_means_ms": [min(means), statistics.median(means), max(means)],
        "between_launches": statistics.stdev(means) / statistics.mean(means),
        "within_a_launch": statistics.median(within) / statistics.mean(means),
    }
    print(f"{row['launches']} launches, mean step {row['mean_ms']:.2f} ms")
    print(f"standard deviation of launch means: {row['between_launches']:.1%} of the mean")
    print(f"standard deviation of repeats within a launch (median): {row['within_a_launch']:.1%}")
    print(json.dumps({"benchmark": "launch_spread", "model": args.model, "row": row}))


if __name__ == "__main__":
    main()
