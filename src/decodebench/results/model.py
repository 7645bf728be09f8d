"""The base of every record in a result document, and the field types they share."""

from math import isfinite
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from decodebench.results.metrics import METRICS


class Record(BaseModel):
    """Immutable. Unknown fields are ignored (see schema.py); NaN and infinity are refused, absent is None."""

    model_config = ConfigDict(
        frozen=True,
        extra="ignore",
        allow_inf_nan=False,
        validate_by_name=True,
        validate_by_alias=True,
        use_attribute_docstrings=True,
    )

    @classmethod
    def published_schema(cls) -> dict[str, Any]:
        """The JSON schema of a document of this kind, as docs/schema holds it."""
        schema = cls.model_json_schema(by_alias=True, mode="serialization")
        return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}


def _whole(value: object) -> object:
    """A float of nanoseconds becomes the nearest int: statistics compute in floats, documents hold ints."""
    if isinstance(value, float):
        if not isfinite(value):
            raise ValueError("not a finite number of nanoseconds")
        return round(value)
    return value


Nanoseconds = Annotated[int, BeforeValidator(_whole)]


def metric_field(name: str, default: Any = ...) -> Any:
    """A field that holds the metric `name`, described by the registry's own words."""
    metric = METRICS[name]
    return Field(default, description=metric.description, json_schema_extra={"unit": metric.unit})
