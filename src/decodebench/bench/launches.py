"""Where the server that is measured comes from: started for the run, or already there."""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from decodebench.bench.client import Target
from decodebench.bench.running import Launch, Running
from decodebench.engine import cpu_shims, recipes
from decodebench.engine.command import EngineCommand
from decodebench.engine.phases import Phase
from decodebench.engine.proof import prove_connector
from decodebench.engine.server import Server
from decodebench.report.progress import Moment, Progress

_DOING = {
    "starting": "waiting for vLLM to start",
    "loading": "waiting for vLLM to load the model",
    "compiling": "waiting for vLLM to compile and warm up",
    "ready": "the server is ready",
}


def started(
    command: EngineCommand,
    log_path: Path,
    startup_timeout_s: float,
    recipe: str | None,
    hma_reason: str | None,
) -> Launch:
    """A server of our own for every launch, stopped at its end."""

    @contextmanager
    def launch(progress: Progress) -> Iterator[Running]:
        def show(phase: Phase) -> None:
            progress.show(Moment(_DOING[phase.name]))

        with Server(command.server_spec(log_path, startup_timeout_s)) as server:
            server.start(show)
            prove_connector(server.base_url, command.served_model_name, command.api_key)
            yield Running(
                Target(server.base_url, command.served_model_name, command.api_key),
                server.check,
                recipe=recipe,
                weights="seeded" if recipe else None,
                shims=_shims(recipe, {**os.environ, **command.env}),
                hma_reason=hma_reason,
            )

    return launch


def attached(url: str, model: str, api_key: str | None) -> Launch:
    """A server that somebody else started and will stop."""

    @contextmanager
    def launch(progress: Progress) -> Iterator[Running]:
        progress.show(Moment(f"using the server at {url}"))
        yield Running(Target(url, model, api_key), lambda: None, is_ours=False)

    return launch


def _shims(recipe: str | None, env: Mapping[str, str]) -> tuple[str, ...]:
    """The CPU shims that the model comes near: a recipe knows its own, for another model all that stand ready."""
    ready = cpu_shims.active(env)
    return tuple(name for name in ready if recipe is None or name in recipes.get(recipe).shims)
