"""Why a connection fails, in words an administrator can act on: proxies that refuse, or that open TLS."""

from __future__ import annotations

import ssl
from collections.abc import Sequence

import httpx
from cryptography import x509
from cryptography.exceptions import InvalidSignature

from privacy.errors import PeerFault, SignatureRejected
from silo_agent.egress import issuer_of

_DOCTOR = "run: sealsum silo doctor"


class Inspected(SignatureRejected):
    """A proxy opened TLS: the server did not see our certificate, and its own is not what we saw."""


def why_no_answer(error: BaseException) -> str:
    """What a failed connection means, and what to do."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ssl.SSLCertVerificationError):
            reason = cause.__cause__  # of ``privacy.standing``: OpenSSL itself took the certificate
            return str(reason) if isinstance(reason, SignatureRejected) else _untrusted(cause)
        cause = cause.__cause__ or cause.__context__
    if isinstance(error, httpx.ProxyError):
        words = "".join(one for one in str(error) if one.isprintable())[:200]
        remedy = "set proxy_credentials" if "407" in words else "ask the proxy's owner"
        return f"the proxy answers {words or 'nothing'}; {remedy}, or {_DOCTOR}"
    return f"no answer ({type(error).__name__}); check url, proxy and certificate, or {_DOCTOR}"


def named_inspection(fault: PeerFault, response: httpx.Response, ours: Sequence[bytes]) -> Inspected | None:
    """The same refusal, if it came because TLS is opened on the way by a proxy whose CA is believed.

    ``ours``: certificates (DER) of the federation's CAs.
    """
    stream = response.extensions.get("network_stream")
    tls = stream.get_extra_info("ssl_object") if stream is not None else None
    der = tls.getpeercert(True) if tls is not None else None
    if not isinstance(fault, SignatureRejected) or der is None:
        return None
    shown = x509.load_der_x509_certificate(der)
    if any(_issued(shown, x509.load_der_x509_certificate(ca)) for ca in ours):
        return None
    return Inspected(
        f"{fault}; TLS is opened on the way: the certificate we see is issued by {issuer_of(shown)}, not by "
        "the federation's CA, and the server does not see ours; have the host exempted from TLS inspection"
    )


def _untrusted(error: ssl.SSLCertVerificationError) -> str:
    words = (getattr(error, "verify_message", "") or str(error) or "it does not verify").rstrip(".")
    if "mismatch" in words.lower():
        return f"its certificate is for another host ({words}); correct the url, or {_DOCTOR}"
    return (
        f"its certificate is not of the federation's CA ({words}); TLS is opened on the way (inspection), or "
        f"another server answers; have the host exempted, or {_DOCTOR}"
    )


def _issued(certificate: x509.Certificate, ca: x509.Certificate) -> bool:
    try:
        certificate.verify_directly_issued_by(ca)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True
