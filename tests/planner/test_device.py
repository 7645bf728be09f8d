"""The target that is planned for when nobody names one."""

from pathlib import Path

import pytest

from decodebench.errors import UserError
from decodebench.hma.vllm_source import installed_version
from decodebench.planner.device import (
    StepLimits,
    choose_target,
    default_step_limits,
    installed_cpu,
    installed_gpu,
)


@pytest.mark.parametrize(
    ("model", "name"),
    [
        ("NVIDIA H100 80GB HBM3", "h100"),
        ("NVIDIA H200", "h200"),
        ("NVIDIA A100-SXM4-80GB", "a100"),
        ("NVIDIA L40S", "l40s"),
        ("NVIDIA L4", "l4"),
        ("NVIDIA GH200 480GB", "gh200"),
        ("NVIDIA RTX PRO 6000 Blackwell Server Edition", "rtx-pro-6000"),
        ("NVIDIA GeForce RTX 5090", "rtx-5090"),
        ("NVIDIA Something New", None),
    ],
)
def test_the_driver_names_the_gpu(tmp_path: Path, model: str, name: str | None) -> None:
    folder = tmp_path / "0000:01:00.0"
    folder.mkdir()
    (folder / "information").write_text(f"Model: \t\t {model}\nIRQ: 1\n")
    assert installed_gpu(tmp_path) == name


def test_without_a_gpu_it_is_an_h200_and_said_so() -> None:
    if installed_gpu() is not None:
        pytest.skip("there is a GPU here")
    target = choose_target(None, "0.32")
    assert target.gpu.name == "h200"
    assert any("h200" in text for text in target.assumed)
    assert choose_target("b200", "0.32").assumed == ()


def test_without_a_version_it_is_the_installed_one_else_the_newest() -> None:
    target = choose_target("h200", None)
    assert target.version == (installed_version() or "0.33")
    assert any(target.version in text for text in target.assumed)


def test_a_cpu_with_amx_has_a_name_of_its_own(tmp_path: Path) -> None:
    info = tmp_path / "cpuinfo"
    info.write_text("flags\t\t: fpu avx512f amx_bf16 amx_tile amx_int8\n")
    assert installed_cpu(info) == "cpu-amx"
    info.write_text("flags\t\t: fpu avx512f\n")
    assert installed_cpu(info) == installed_cpu(tmp_path / "none") == "cpu"


def test_an_unknown_gpu_is_refused_with_the_known_ones() -> None:
    with pytest.raises(UserError, match="h200"):
        choose_target("quantum-9000", "0.32")


@pytest.mark.parametrize(
    ("gpu", "version", "limits"),
    [
        ("h200", "0.32", StepLimits(8192, 1024)),
        ("a100", "0.32", StepLimits(2048, 256)),
        ("b200", "0.32", StepLimits(16384, 1024)),
        ("b200", "0.27", StepLimits(8192, 1024)),
        ("cpu", "0.32", StepLimits(4096, 256)),
    ],
)
def test_the_step_limits_are_those_of_vllm_serve(gpu: str, version: str, limits: StepLimits) -> None:
    assert default_step_limits(choose_target(gpu, version), world_size=2) == limits
