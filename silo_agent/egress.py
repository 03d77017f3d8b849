"""How this silo gets out: through which proxy, with which further CA, and what it heard from servers.

A proxy only carries bytes: TLS goes through it to the federation's server, which asks for this silo's
certificate. One that opens TLS (inspection) has no such certificate; what it breaks is named here.
"""

from __future__ import annotations

import ssl
import urllib.request
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

import httpx
from cryptography import x509
from cryptography.x509.oid import NameOID

from privacy.errors import ConfigurationError
from privacy.key_reference import KeyReference
from silo_agent.contact import Contact
from silo_agent.settings import SiloSettings


@dataclass(frozen=True)
class Egress:
    """The way out of one silo."""

    proxy: str | None = None
    """``http(s)://host:port``; ``None`` leaves the choice to ``HTTPS_PROXY``."""
    ca_bundle: Path | None = None
    """Certificates (PEM) believed beside the federation's CA: of a proxy that is dialled by TLS."""
    credentials: tuple[str, str] | None = field(default=None, repr=False)
    """User and password at the proxy."""
    contact: Contact = field(default_factory=Contact)

    def proxy_to(self, host: str) -> httpx.Proxy | None:
        """The proxy to ``host``; ``None`` where ``NO_PROXY`` names it, or the environment is to decide."""
        if self.proxy is None or urllib.request.proxy_bypass(host):
            return None
        context = None
        if self.proxy.startswith("https:"):
            context = self.trusting(ssl.create_default_context())
        return httpx.Proxy(self.proxy, auth=self.credentials, ssl_context=context)

    def trusting(self, context: ssl.SSLContext) -> ssl.SSLContext:
        """The context, which also believes what ``ca_bundle`` holds.

        Raises:
            ConfigurationError: it holds no certificates.
        """
        if self.ca_bundle is not None:
            try:
                context.load_verify_locations(cafile=str(self.ca_bundle))
            except (OSError, ssl.SSLError) as error:
                raise ConfigurationError(
                    f"ca_bundle: {self.ca_bundle}: expected CA certificates in PEM ({error.strerror})"
                ) from error
        return context


def egress_of(settings: SiloSettings) -> Egress:
    """What ``silo.yaml`` says of the way out.

    Raises:
        ConfigurationError: the proxy's credentials cannot be read, or are not ``user:password``.
    """
    credentials = None
    if settings.proxy_credentials is not None:
        credentials = _user_and_password(settings.proxy_credentials)
    return Egress(settings.proxy, settings.ca_bundle, credentials)


def _user_and_password(reference: KeyReference) -> tuple[str, str]:
    user, colon, password = (
        reference.read("proxy_credentials").decode("utf-8", "replace").strip().partition(":")
    )
    if not colon or not user:
        raise ConfigurationError(
            f"proxy_credentials: expected user:password in {reference}, got something else"
        )
    return user, password


def issuer_of(certificate: x509.Certificate) -> str:
    """Who issued a certificate, in words."""
    for kind in (NameOID.COMMON_NAME, NameOID.ORGANIZATION_NAME):
        names = certificate.issuer.get_attributes_for_oid(kind)
        if names:
            return str(names[0].value)
    return certificate.issuer.rfc4514_string() or "nobody named"


def where_proxy(url: str | None) -> str:
    """A proxy's host and port, without what else its URL may hold."""
    if not url:
        return "no proxy"
    parts = urlsplit(url)
    return f"{parts.hostname}:{parts.port or (443 if parts.scheme == 'https' else 80)}"
