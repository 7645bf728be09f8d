import re
from pathlib import Path

from decodebench.results.metrics import METRICS
from decodebench.results.point import Point, StepTime
from decodebench.results.steps import STEP_COLUMNS
from tests.results.documents import valid_point

PAGE = Path(__file__).parents[2] / "docs" / "metrics.md"


def sections() -> dict[str, str]:
    """Heading (the metric's name in backticks) to the text under it."""
    parts = re.split(r"^## `(.+)`$", PAGE.read_text(), flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def test_the_page_has_one_section_per_metric_with_its_formula_unit_and_weighting() -> None:
    assert list(sections()) == list(METRICS)
    for name, text in sections().items():
        words = " ".join(text.split())
        metric = METRICS[name]
        for said in (metric.formula, f"Unit: {metric.unit}.", f"Weighting: {metric.weighting}."):
            assert said in words, name


def test_every_metric_is_a_figure_of_a_valid_point() -> None:
    point = valid_point(0, 2)
    assert all(point.figure(name) is not None for name in METRICS)


def test_the_schema_describes_every_metric_in_the_registrys_words() -> None:
    for name, metric in METRICS.items():
        owner, _, field = name.rpartition(".")
        model = StepTime if owner else Point
        assert model.model_fields[field].description == metric.description


def test_a_metric_needs_step_log_columns_or_fields_of_a_point() -> None:
    known = {*STEP_COLUMNS, *Point.model_fields, "devices"}
    assert {need for metric in METRICS.values() for need in metric.needs} <= known
