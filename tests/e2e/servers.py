"""The real servers that the cases share: one at a time, started for its first case, stopped after its last.

A case names the server it runs on (`on(GEMMA3)`); `conftest.py` puts the cases of one server beside each other.
"""

import json
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path

import pytest

from decodebench.bench.client import Target, describe_ranks
from decodebench.bench.facts import EngineFacts
from decodebench.bench.grid import GridPoint
from decodebench.bench.point_state import PointPlan
from decodebench.bench.prompts import PromptSource
from decodebench.bench.window_plan import WindowPlan
from decodebench.engine import recipes
from decodebench.engine.command import CONNECTOR_MODULE, EngineCommand, build_command
from decodebench.engine.composition import Siblings
from decodebench.engine.server import Server
from decodebench.errors import EngineFailed

STARTUP_TIMEOUT_S = 500.0
SMALL_POOL = ("--kv-cache-memory-bytes", "64M", "--max-num-seqs", "16")
"""1,024 blocks of the attention-only recipes."""
UNBOUND = {"VLLM_CPU_OMP_THREADS_BIND": "nobind"}
"""Environment of several workers on a CPU: else vLLM wants a NUMA node of its own for each."""
CHAT_TEMPLATE = "{% for message in messages %}{{ message['content'] }} {% endfor %}"


@dataclass(frozen=True)
class ServerKind:
    """How a server is started: a recipe with options of vLLM and of the connector."""

    name: str
    recipe: str
    args: tuple[str, ...] = ()
    connector: Mapping[str, object] = field(default_factory=dict)
    traced: bool = False  # the connector writes its steps to files
    with_connector: bool = True
    env: Mapping[str, str] = field(default_factory=dict)
    module: str = CONNECTOR_MODULE  # that the connector's class is loaded from
    before: tuple[str, ...] = ()  # connectors asked before ours; DIRECTORY in them is the server's own folder
    after: tuple[str, ...] = ()
    change: Callable[[Path], None] | None = None  # what is changed in a copy of the recipe's folder

    def __str__(self) -> str:
        return self.name


GEMMA3 = ServerKind(
    "tiny-gemma3", "tiny-gemma3", (*SMALL_POOL, "--chat-template", CHAT_TEMPLATE), traced=True
)
GEMMA3_SYNC = ServerKind(
    "tiny-gemma3-sync-normal-salted",
    "tiny-gemma3",
    SMALL_POOL,
    {"async_fill": False, "fill_std": 0.5, "require_salt": True},
    traced=True,
)
GEMMA3_PLAIN = ServerKind("tiny-gemma3-without-connector", "tiny-gemma3", SMALL_POOL, with_connector=False)


def on(*kinds: ServerKind) -> pytest.MarkDecorator:
    """Run the case on each of these servers."""
    return pytest.mark.parametrize("server", kinds, ids=str, indirect=True)


class Running:
    """A server that answers, and what it said of itself."""

    def __init__(
        self, server: Server, command: EngineCommand, trace_dir: Path | None, directory: Path
    ) -> None:
        self.server = server
        self.command = command
        self.target = target = Target(server.base_url, command.served_model_name)
        self.trace_dir = trace_dir
        self.directory = directory
        ranks = describe_ranks(target)
        self.facts = EngineFacts.of(ranks) if ranks else None
        self._numbers = count()

    @property
    def engine(self) -> EngineFacts:
        assert self.facts is not None, "the server does not run the connector"
        return self.facts

    @property
    def source(self) -> PromptSource:
        return PromptSource.for_engine(0, self.engine)

    def numbers(self, size: int = 1) -> int:
        """The first of `size` prompt numbers that no other case has."""
        first = next(self._numbers)
        for _ in range(size - 1):
            next(self._numbers)
        return first

    def prompt(self, length: int) -> list[int]:
        """Random tokens that share no prefix with any other prompt on this server."""
        return [int(each) for piece in self.source.tokens(self.numbers(), length) for each in piece]

    def plan(self, context: int, window_steps: int = 64) -> WindowPlan:
        """The window that `decodebench run` would measure at this context."""
        planned = PointPlan.of(
            GridPoint(0, 1, context), self.engine.limits, self.engine.periods, window_steps
        )
        assert planned.window is not None, planned.misfit
        return planned.window


class Servers:
    """Holds at most one running server."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._kind: ServerKind | None = None
        self._running: Running | None = None
        self._failed: dict[str, EngineFailed] = {}

    def get(self, kind: ServerKind) -> Running:
        """The server of this kind; a running one of another kind is stopped first."""
        if self._kind == kind and self._running is not None:
            return self._running
        self.stop()
        if kind.name in self._failed:  # it would fail for every case, and take its time
            raise self._failed[kind.name]
        try:
            self._running, self._kind = self._start(kind), kind
        except EngineFailed as error:
            self._failed[kind.name] = error
            raise
        return self._running

    def stop(self) -> None:
        if self._running is not None:
            self._running.server.stop()
        self._kind = self._running = None

    def _start(self, kind: ServerKind) -> Running:
        recipe = recipes.get(kind.recipe)
        directory = self._directory / kind.name
        trace_dir = directory / "trace" if kind.traced else None
        before, after = (
            [text.replace("DIRECTORY", str(directory)) for text in texts]
            for texts in (kind.before, kind.after)
        )
        model = recipe.materialise()
        if kind.change is not None:
            model = shutil.copytree(model, directory / "model")
            kind.change(model)
        command = build_command(
            str(model),
            kind.args,
            {**kind.connector, **({"trace_dir": str(trace_dir)} if trace_dir else {})},
            recipe_args=recipe.vllm_args,
            env={**recipe.env, "OMP_NUM_THREADS": "1", **kind.env},
            siblings=Siblings.read(before, after),
        )
        spec = command.server_spec(directory / "server.log", STARTUP_TIMEOUT_S)
        if kind.module != CONNECTOR_MODULE:
            spec = loading(spec, kind.module)
        if not kind.with_connector:
            spec = without_connector(spec)
        spec.log_path.parent.mkdir(parents=True, exist_ok=True)
        server = Server(spec)
        server.start()
        try:
            return Running(server, command, trace_dir, directory)
        except BaseException:
            server.stop()
            raise


def without_connector(spec):
    """The same server as anybody would start it who does not know decodebench."""
    args = spec.args[: spec.args.index("--kv-transfer-config")]
    return type(spec)(
        model=spec.model,
        args=args,
        env=spec.env,
        log_path=spec.log_path,
        startup_timeout_s=spec.startup_timeout_s,
    )


def loading(spec, module: str):
    """The same server with the connector's class of another module."""
    at = spec.args.index("--kv-transfer-config") + 1
    config = json.loads(spec.args[at]) | {"kv_connector_module_path": module}
    return replace(spec, args=(*spec.args[:at], json.dumps(config), *spec.args[at + 1 :]))
