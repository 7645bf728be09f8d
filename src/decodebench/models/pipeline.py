"""Which decoder layers run on which pipeline stage (vLLM 0.32 `distributed/utils.py get_pp_indices`)."""

from decodebench.models.engine import EngineFlags
from decodebench.models.errors import ModelError


def partition(num_layers: int, engine: EngineFlags) -> tuple[int, ...]:
    """Layers of each stage. A remainder goes, from behind, to all stages but the last."""
    stages = engine.pipeline_parallel_size
    given = engine.pp_layer_partition
    if given is not None:
        if len(given) != stages or sum(given) != num_layers or min(given) < 0:
            raise ModelError(
                f"VLLM_PP_LAYER_PARTITION {','.join(map(str, given))}: expected {stages} counts with sum {num_layers}"
            )
        return given
    if stages > num_layers:
        raise ModelError(
            f"--pipeline-parallel-size {stages} is more than the {num_layers} layers of the model"
        )
    sizes = [num_layers // stages] * stages
    for i in range(2, num_layers % stages + 2):
        sizes[-i] += 1
    return tuple(sizes)


def stage_of_layers(num_layers: int, engine: EngineFlags) -> list[int]:
    """The stage of every decoder layer; a drafter's layers come after them and run on the last stage."""
    return [stage for stage, size in enumerate(partition(num_layers, engine)) for _ in range(size)]
