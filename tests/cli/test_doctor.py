"""The doctor's report names what is wrong and the command that helps."""

from decodebench.cli.doctor import _as_json, _as_text
from decodebench.engine.doctor import CANNOT_BE_COMBINED, Finding, Report
from decodebench.engine.noise import describe

NOISE = describe([1_000_000] * 100, seconds=0.1, load=0.5)


def test_a_problem_is_told_with_what_fixes_it():
    report = Report(
        (Finding("python", "3.11"), Finding("vllm", "not installed", "no engine", "pip install x")), NOISE
    )
    text = _as_text(report)
    assert "vllm: no engine\n    -> pip install x" in text
    assert "python: " not in text
    assert all(what in text for what, _ in CANNOT_BE_COMBINED)


def test_a_healthy_machine_is_told_so_with_its_noise():
    text = _as_text(Report((Finding("python", "3.11"),), NOISE))
    assert "Nothing is wrong." in text
    assert "jitter 0.0%" in text


def test_the_json_report_carries_the_noise_as_results_do():
    assert '"noise": {"seconds": 0.1, "samples": 100' in _as_json(Report((Finding("a", "b"),), NOISE))
