"""The one call a party makes before it has a certificate: to the registrar, known by the token's CA."""

from __future__ import annotations

import ssl

import httpx
from pydantic import ValidationError
from tenacity import Retrying, retry_if_exception, stop_after_attempt, wait_random_exponential

from aggregator.enrolment.messages import ENROL_PATH, MAX_ANSWER_BYTES, EnrolAnswer, EnrolRequest, Invitation
from privacy.canonical import canonical_bytes
from privacy.errors import ConfigurationError, PeerFault
from silo_agent.problems import Unreachable, fault_from

_TIMEOUT_S = 30.0
_CONNECT_ATTEMPTS = 5


class AnswerLost(PeerFault):
    """The request was sent and no usable answer came: the invitation may be used up."""

    kind = "answer-lost"


def request_certificate(
    invitation: Invitation, request: EnrolRequest, transport: httpx.BaseTransport | None = None
) -> EnrolAnswer:
    """Send the request once. Only connecting is tried again: a sent request may have used the invitation.

    Raises:
        AnswerLost: sent, and nothing usable came back. Unreachable: nothing was sent.
        PeerFault: the registrar's refusal; nothing was issued.
    """
    where = f"registrar {invitation.registrar}"
    with httpx.Client(
        base_url=invitation.registrar, verify=_trust(invitation), timeout=_TIMEOUT_S, transport=transport
    ) as http:
        retrying = Retrying(
            retry=retry_if_exception(_not_sent),
            stop=stop_after_attempt(_CONNECT_ATTEMPTS),
            wait=wait_random_exponential(multiplier=0.2, max=5.0),
            reraise=True,
        )
        try:
            status, body = retrying(_post, http, canonical_bytes(request))
        except (httpx.ConnectError, httpx.ConnectTimeout, httpx.ProxyError) as error:
            raise Unreachable(f"{where}: cannot be reached ({error}); nothing was sent, try again") from error
        except httpx.TransportError as error:
            raise AnswerLost(f"{where}: the answer was lost ({type(error).__name__})") from error
    if httpx.codes.is_client_error(status):
        raise fault_from(where, status, body)
    if status != httpx.codes.CREATED:
        raise AnswerLost(f"{where}: expected 201, got {status}")
    try:
        return EnrolAnswer.model_validate_json(body)
    except ValidationError as error:
        raise AnswerLost(f"{where}: expected a certificate chain in its answer") from error


def _post(http: httpx.Client, raw: bytes) -> tuple[int, bytes]:
    headers = {"Content-Type": "application/json"}
    with http.stream("POST", ENROL_PATH, content=raw, headers=headers) as response:
        body = bytearray()
        for chunk in response.iter_bytes():
            body += chunk
            if len(body) > MAX_ANSWER_BYTES:
                raise AnswerLost(f"registrar: expected an answer of at most {MAX_ANSWER_BYTES} bytes")
        return response.status_code, bytes(body)


def _trust(invitation: Invitation) -> ssl.SSLContext:
    """TLS 1.3, believing the federation's CA and nobody else's."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    try:
        context.load_verify_locations(cadata=invitation.ca)
    except (ssl.SSLError, ValueError) as error:
        raise ConfigurationError("token file: ca: expected a certificate in PEM") from error
    return context


def _not_sent(error: BaseException) -> bool:
    """Whether trying again can help and cannot harm: no connection came about, and not for want of trust."""
    if not isinstance(error, httpx.ConnectError | httpx.ConnectTimeout | httpx.ProxyError):
        return False
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ssl.SSLCertVerificationError):
            return False
        cause = cause.__cause__ or cause.__context__
    return True
