"""What the planner reads of a command line, and what it takes for defaults, against the installed vLLM."""

import pytest

pytest.importorskip("vllm", reason="vLLM is not installed")

from vllm.engine.arg_utils import EngineArgs
from vllm.platforms import current_platform
from vllm.usage.usage_lib import UsageContext
from vllm.utils.argparse_utils import human_readable_int

from decodebench.kv.units import parse_count
from decodebench.planner.arguments import OPTIONS
from decodebench.planner.device import StepLimits, choose_target, default_step_limits


def test_every_option_of_a_plan_is_one_of_vllm() -> None:
    assert {option.field for option in OPTIONS} <= set(EngineArgs.__dataclass_fields__)


@pytest.mark.parametrize("text", ["7", "4k", "4K", "25.6k", "2m", "2M", "3g", "3G", "1t", "1T"])
def test_counts_are_read_alike(text: str) -> None:
    assert parse_count(text) == human_readable_int(text)


@pytest.mark.skipif(not current_platform.is_cpu(), reason="the installed vLLM is not a CPU build")
@pytest.mark.parametrize("world_size", [1, 2])
def test_the_step_limits_are_those_of_vllm_serve(world_size: int) -> None:
    tokens, seqs = EngineArgs.get_batch_defaults(world_size)
    usage = UsageContext.OPENAI_API_SERVER
    assert default_step_limits(choose_target("cpu", None), world_size) == StepLimits(
        tokens[usage], seqs[usage]
    )
