import json
from contextlib import suppress
from pathlib import Path

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from decodebench.errors import UserError
from decodebench.results.audit import AuditProof
from decodebench.results.fidelity import Arm, PointFidelity
from decodebench.results.point import Point, StepTime
from decodebench.results.provenance import Settings
from decodebench.results.schema import RunDocument, parse
from decodebench.results.status import Status
from tests.results.documents import document, other_point, valid_point

SCHEMA_FILE = Path(__file__).parents[2] / "docs" / "schema" / "run-1.json"


def test_the_published_schema_is_the_models_schema() -> None:
    published = json.loads(SCHEMA_FILE.read_text())
    assert published == RunDocument.published_schema(), (
        "python -m decodebench.results.schema > docs/schema/run-1.json"
    )


def test_a_document_conforms_to_the_published_schema() -> None:
    run = document("out", valid_point(0, 2), other_point(1, Status.FAILED, "the engine died"))
    jsonschema.validate(json.loads(run.to_json()), json.loads(SCHEMA_FILE.read_text()))


def proved_and_compared() -> RunDocument:
    arm = Arm(step_time_ns=50_000_000, measured_context=1000, distinct_tokens=15.6, distinct_experts=40.5)
    found = PointFidelity(
        fill="donor",
        launch=0,
        rounds=5,
        error=0.01,
        low=-0.02,
        high=0.04,
        real=arm,
        filled=arm,
        duration_ns=10**9,
    )
    proof = AuditProof(pages=(30, 5), unowned_pages=200, unowned_changed=None, duration_ns=10**8)
    point = valid_point(0, 2).model_copy(update={"fidelity": found, "audit": proof})
    return document(
        "out", point, settings=Settings(batch_sizes=(2,), context_lens=(1000,), audit=True, fidelity=True)
    )


def test_a_point_with_audit_and_fidelity_conforms_and_reads_back() -> None:
    run = proved_and_compared()
    jsonschema.validate(json.loads(run.to_json()), json.loads(SCHEMA_FILE.read_text()))
    assert parse(run.to_json(), "run.json") == run


def test_a_document_from_before_there_were_audit_and_fidelity_is_read() -> None:
    raw = json.loads(proved_and_compared().to_json())
    del raw["fidelity_reason"], raw["settings"]["audit"], raw["settings"]["fidelity"]
    for point in raw["points"]:
        del point["audit"], point["fidelity"]
        for detail in point["repeat_details"]:
            del detail["audit"]
    assert parse(json.dumps(raw), "run.json").points[0].audit is None


def test_a_document_reads_back_as_it_was_written() -> None:
    run = document(
        "out", valid_point(0, 2, ranks=2), other_point(1, Status.INVALID, "step 31 decoded 7 of 8")
    )
    assert parse(run.to_json(), "run.json") == run


def test_json_on_one_line_is_one_line_and_names_its_schema_first() -> None:
    line = document("out", valid_point(0, 2)).to_json(indent=None)
    assert "\n" not in line
    assert line.startswith('{"schema":"decodebench.run/1","out":"out",')


def test_fields_of_a_later_release_with_the_same_version_are_ignored() -> None:
    run = document("out", valid_point(0, 2))
    raw = json.loads(run.to_json())
    raw["new"] = raw["points"][0]["new"] = raw["engine"]["new"] = {"anything": [1]}
    assert parse(json.dumps(raw), "run.json") == run


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ("decodebench.run/2", "reads decodebench.run/1 to decodebench.run/1"),
        ("decodebench.run/0", "reads decodebench.run/1 to decodebench.run/1"),
        ("decodebench.traffic/1", "not a result of decodebench run"),
        ("decodebench.run/one", "not a result of decodebench run"),
        (7, "no"),
    ],
)
def test_another_schema_is_refused_by_name(schema: object, message: str) -> None:
    raw = json.loads(document("out").to_json()) | {"schema": schema}
    with pytest.raises(UserError, match=message) as refused:
        parse(json.dumps(raw), "there/run.json")
    assert "there/run.json" in str(refused.value)
    assert str(schema) in str(refused.value)


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "null", "7", '"decodebench.run/1"', "{}", "[" * 100_000, b"\xff\xfe"]
)
def test_what_is_no_document_is_one_clear_error(text: str | bytes) -> None:
    with pytest.raises(UserError, match=r"run\.json"):
        parse(text, "run.json")


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (["points", 0, "batch_size"], "8"),
        (["points", 0, "step_time_ns", "mean"], None),
        (["points", 0, "step_time_ns", "mean"], 1e999),
        (["points", 0, "status"], "fine"),
        (["points", 0, "status"], "invalid"),  # with step times
        (["started"], "yesterday"),
        (["points"], {}),
        (["engine", "groups", 0, "layers"], 1.5),
    ],
)
def test_a_damaged_field_is_named_in_the_error(path: list[str | int], value: object) -> None:
    raw = json.loads(document("out", valid_point(0, 2)).to_json())
    parent = raw
    for key in path[:-1]:
        parent = parent[key]
    parent[path[-1]] = value
    with pytest.raises(UserError, match=r"field .*" + str(path[0])):
        parse(json.dumps(raw), "run.json")


@given(
    st.recursive(
        st.none() | st.booleans() | st.floats() | st.text(),
        lambda s: st.lists(s) | st.dictionaries(st.text(), s),
    )
)
def test_no_json_value_in_any_place_crashes_the_reader(value: object) -> None:
    raw = json.loads(document("out").to_json())
    for field in raw:
        with suppress(UserError):
            parse(json.dumps(raw | {field: value}), "run.json")


def test_a_point_has_step_times_if_and_only_if_it_is_valid() -> None:
    base = {"point": 0, "batch_size": 1, "batch_size_total": 1, "context_len": 1}
    time = StepTime(mean=1, median=1, p90=1, p99=1, max=1)
    with pytest.raises(ValidationError, match="if and only if"):
        Point(**base, status=Status.VALID)
    with pytest.raises(ValidationError, match="if and only if"):
        Point(**base, status=Status.INVALID, reason="x", step_time_ns=time)
    with pytest.raises(ValidationError, match="needs a reason"):
        Point(**base, status=Status.NOT_RUN)


def test_nanoseconds_are_rounded_to_whole_ones_and_must_be_finite() -> None:
    assert StepTime(mean=1.6, median=1, p90=1, p99=1, max=1).mean == 2
    with pytest.raises(ValidationError):
        StepTime(mean=float("nan"), median=1, p90=1, p99=1, max=1)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_figure_that_is_no_number_is_refused_when_it_is_made(value: float) -> None:
    with pytest.raises(ValidationError, match="finite"):
        Point(
            point=0,
            batch_size=1,
            batch_size_total=1,
            context_len=1,
            status=Status.FAILED,
            reason="x",
            measured_context=value,
        )


def test_a_precision_is_missed_only_if_it_was_asked_for() -> None:
    point = valid_point(0, 2)
    assert point.precision_reached is not None
    for asked, missed in (
        (None, False),
        (point.precision_reached, False),
        (point.precision_reached / 2, True),
    ):
        assert point.model_copy(update={"precision_asked": asked}).precision_missed is missed
    assert point.model_copy(update={"precision_reached": None}).precision_missed
