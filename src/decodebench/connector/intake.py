"""What a request may have of what it asks: its parameters, held against this server's rules and donors."""

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from decodebench.connector.config import ConnectorConfig
from decodebench.connector.donors import Donors
from decodebench.connector.params import RequestParams

if TYPE_CHECKING:
    from vllm.v1.request import Request


class Intake:
    """Reads each request once, on arrival.

    Args:
        config: the server owner's settings: `require_salt` refuses to fill a request without a cache salt, `audit`
            audits every fill.
        salt_matters: whether filled blocks would be found by later requests (prefix caching is on).
        donors: of this scheduler.
        warn: the engine's logger.
    """

    def __init__(
        self, config: ConnectorConfig, salt_matters: bool, donors: Donors, warn: Callable[[str], None]
    ) -> None:
        self._config = config
        self._salt_matters = salt_matters
        self._donors = donors
        self._warn = warn
        self._warned = False

    def read(self, request: "Request") -> tuple[RequestParams, str | None]:
        """What is done for the request, and what of its wishes is not done and why."""
        params = RequestParams.parse(request.kv_transfer_params)
        error = params.error
        if self._config.audit:
            params = replace(params, audit=True)
        if params.fill and (refusal := self._unsalted(request)) is not None:
            params, error = replace(params, fill=False, cohort=None, donors=()), refusal
        if params.forget:
            error = self._donors.forget(params.forget) or error
        if params.donor is not None and (refusal := self._refused_donor(request, params.donor)) is not None:
            params, error = replace(params, donor=None), refusal
        if (unfit := self._unfit_donors(request, params)) is not None:
            params = replace(params, donors=(), unfillable=unfit)
            error = f"filled with the server's numbers: {unfit}"
        return params, error

    def _refused_donor(self, request: "Request", donor_id: str) -> str | None:
        if request.max_tokens != 1:
            return f"not kept: a donor ends by its prompt; send max_tokens 1, got {request.max_tokens}"
        return self._donors.ask(donor_id, request.request_id, _adapter(request))

    def _unfit_donors(self, request: "Request", params: RequestParams) -> str | None:
        missing = self._donors.missing(params.donors)
        return missing or self._donors.of_another_model(params.donors, _adapter(request))

    def _unsalted(self, request: "Request") -> str | None:
        """Why an unsalted request may not be filled, or None; warns once where the owner allows it."""
        if not self._salt_matters or request.cache_salt:
            return None
        if self._config.require_salt:
            return "not filled: this server requires a cache_salt for filled requests (require_salt)"
        if not self._warned:
            self._warned = True
            self._warn(
                "DecodeBenchConnector: prefix caching is on and a filled request has no cache_salt: later requests "
                "with the same prompt will decode on made-up KV. Set cache_salt, or require_salt to refuse such fills."
            )
        return None


def _adapter(request: "Request") -> str | None:
    return request.lora_request.lora_name if request.lora_request is not None else None
