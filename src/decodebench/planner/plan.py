"""The plan of an engine: what it builds for a model under given flags and memory, what fits, may the manager stay on.

    from decodebench import plan
    answer = plan("config.json", available_kv_memory="64.68GiB", batch_size=[32, 256], context_len=["8k"])
    answer.hma.verdict, answer.on.pool.num_blocks, answer.to_json()

Everything is arithmetic on the config: no GPU, no weights, and neither torch nor vLLM is needed or imported.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from decodebench.errors import UserError
from decodebench.hma import Decision, ModelFacts, Verdict, decide
from decodebench.hma.rules import ASK_OFF
from decodebench.kv.errors import CannotStart
from decodebench.models import ModelError
from decodebench.planner.arguments import EngineArguments, read_arguments
from decodebench.planner.device import DEFAULT_GPU, choose_target, installed_cpu
from decodebench.planner.model import NamedModel, find_model
from decodebench.planner.pasted import read_pasted
from decodebench.planner.settings import Asked, Counts, Settings, settle
from decodebench.planner.shape import Shape, build_shape
from decodebench.planner.warnings import about_unread, warnings_about


class PlanError(UserError):
    """There is no plan: the model, the flags or the memory make none, and the message says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What the engine builds with the manager on and with it off, and which of the two it will be.

    `on_error` and `off_error` are why it cannot start that way; the shape is None then. All sizes are those of one
    data-parallel rank. `ignored` are options of a pasted line that do not shape the cache.
    """

    model: str
    settings: Settings
    hma: Decision
    on: Shape | None
    off: Shape | None
    on_error: str
    off_error: str
    warnings: tuple[str, ...]
    ignored: tuple[str, ...] = ()

    @property
    def in_force(self) -> Shape | None:
        """The shape the engine builds; None where it does not start, or nobody can tell."""
        if self.hma.verdict is Verdict.ON:
            return self.on
        return self.off if self.hma.verdict is Verdict.OFF else None

    @property
    def assumed(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys((*self.settings.assumed, *self.hma.assumed)))

    def to_json(self) -> dict[str, Any]:
        """The plan in the schema `decodebench.plan/1` (docs/schema/plan-1.json)."""
        from decodebench.planner.document import document

        return document(self)


def plan(
    model: str | Path | Mapping[str, Any] | None = None,
    *,
    available_kv_memory: int | str | None = None,
    batch_size: Counts = (),
    context_len: Counts = (),
    output_len: int = 0,
    gpu: str | None = None,
    vllm_version: str | None = None,
    pasted: Sequence[str] = (),
    allow_import: bool = False,
    env: Mapping[str, str] | None = None,
    **arguments: Any,
) -> Plan:
    """Plan an engine.

    `model` is a directory, a config.json, a parsed config, a built-in recipe or a hub id. `available_kv_memory` is what
    one GPU has for the cache: bytes, or text such as `64.68GiB`; without it the plan has no pool to count.
    `context_len` is where the points start (default: `max_model_len`), `output_len` what is decoded from there.
    `gpu` and `vllm_version` default to what is installed, else an H200 and the newest known. `pasted` is a `vllm serve`
    line in words; `arguments` are fields of `EngineArguments` and win over it. `env` holds vLLM's variables.
    `allow_import` lets the connector classes that the transfer config names be imported and asked.

    Raises `PlanError` or another `UserError`. A transfer config that cannot work is not an error but a verdict.
    """
    line = read_pasted(pasted)
    named = _named_model(model if model is not None else line.model)
    given = EngineArguments(
        **{**read_pasted(named.engine_args).arguments, **line.arguments, **read_arguments(arguments)}
    )
    asked = Asked(
        available_kv_memory=available_kv_memory,
        batch_size=batch_size,
        context_len=context_len,
        output_len=output_len,
    )
    try:
        device = installed_cpu() if named.is_recipe else DEFAULT_GPU  # recipes are made for the CPU build
        target = choose_target(gpu, vllm_version, without_gpu=device)
        settings = settle(named.config, given, {**named.env, **line.env, **(env or {})}, target, asked)
        return _plan(named, settings, allow_import, line.ignored)
    except UserError:
        raise
    except ValueError as error:  # ModelError, CannotStart and the limits' own: all are meant for the user
        raise PlanError(str(error)) from error


def _plan(named: NamedModel, settings: Settings, allow_import: bool, ignored: tuple[str, ...]) -> Plan:
    on, on_error = _shape(settings, hybrid_manager=True)
    off, off_error = _shape(settings, hybrid_manager=False)
    decision = decide(
        settings.transfer_config,
        asked=settings.arguments.asked_hybrid_manager,
        model=ModelFacts(
            off_error=off_error,
            chunked_local=settings.specs.attention_chunk_size is not None,
            drafter=settings.speculation.reads_hidden_states,
        ),
        vllm_version=settings.target.version,
        allow_import=allow_import,
        allow_chunked=settings.allows_chunked,
    )
    if on is None and (off is None or decision.verdict is Verdict.ON):
        raise PlanError(on_error, f"{ASK_OFF} leaves one kind of cache, which can be planned" if off else "")
    built = off if decision.verdict is Verdict.OFF else on or off
    assert built is not None, "off is a verdict only where the model can run that way"
    return Plan(
        model=named.name,
        settings=settings,
        hma=decision,
        on=on,
        off=off,
        on_error=on_error,
        off_error=off_error,
        warnings=(*decision.warnings, *warnings_about(built, settings), *about_unread(ignored)),
        ignored=ignored,
    )


def _shape(settings: Settings, *, hybrid_manager: bool) -> tuple[Shape | None, str]:
    """The shape, or None and why this version cannot build it."""
    try:
        shape = build_shape(
            settings.specs, settings.limits, settings.memory, settings.workload, hybrid_manager=hybrid_manager
        )
    except CannotStart as error:
        return None, str(error)
    return shape, ""


def _named_model(model: str | Path | Mapping[str, Any] | None) -> NamedModel:
    if model is None:
        raise PlanError("no MODEL is given", "name a config.json, a directory, a built-in model or a hub id")
    try:
        return find_model(model)
    except ModelError as error:
        raise PlanError(str(error)) from error
