"""`fidelity.json` keeps to the schema that is published."""

import json
from datetime import UTC, datetime
from pathlib import Path

import jsonschema
import pytest

from decodebench.results.donors import DonorPhase
from decodebench.results.fidelity import Arm, Comparison, FidelityDocument, FidelityPoint
from decodebench.results.provenance import Engine, Host

SCHEMA_FILE = Path(__file__).parents[2] / "docs" / "schema" / "fidelity-1.json"
REAL = Arm(step_time_ns=50_000_000, measured_context=1000, distinct_tokens=15.6)
FOUND = Comparison(fill="donor", launch=0, rounds=5, error=0.01, low=-0.02, high=0.04, real=REAL, filled=REAL)
PHASE = DonorPhase(
    donors=4,
    donor_len=640,
    seed=0,
    source="random ids",
    tokens=2560,
    duration_ns=10**9,
    bank_bytes=2**20,
    one_a_request=True,
)


def document() -> FidelityDocument:
    return FidelityDocument(
        schema="decodebench.fidelity/1",
        out="out",
        started=datetime(2026, 11, 30, tzinfo=UTC),
        command=("fidelity",),
        seed=0,
        window_steps=64,
        precision_asked=0.015,
        engine=Engine(model="tiny-gemma3"),
        host=Host(),
        donors=(PHASE,),
        points=(
            FidelityPoint(batch_size=4, context_len=1000, comparisons=(FOUND,)),
            FidelityPoint(batch_size=99, context_len=1000, reason="does not fit"),
        ),
    )


def test_the_published_schema_is_the_models_schema() -> None:
    published = json.loads(SCHEMA_FILE.read_text())
    expected = FidelityDocument.published_schema()
    assert published == expected, "python -m decodebench.results.fidelity > docs/schema/fidelity-1.json"


def test_a_document_conforms_to_the_published_schema() -> None:
    jsonschema.validate(json.loads(document().to_json()), json.loads(SCHEMA_FILE.read_text()))


def test_a_document_that_lacks_a_point_s_batch_size_does_not() -> None:
    raw = json.loads(document().to_json())
    del raw["points"][0]["batch_size"]
    with pytest.raises(jsonschema.ValidationError, match="batch_size"):
        jsonschema.validate(raw, json.loads(SCHEMA_FILE.read_text()))


def test_a_document_reads_back_as_it_was_written() -> None:
    assert FidelityDocument.model_validate_json(document().to_json()) == document()
