"""Replacing a federation's CA in three steps, each after every party has renewed since the one before.

    begin     there is a new CA, certified by the old one: parties that renew believe both; the old one issues
    switch    the new CA issues
    retire    parties that renew believe the new CA only; the old key is deleted

Nobody is ever shown a certificate of a CA that she has not learned of: a server's certificate changes at
``switch``, when silos believe both.
"""

from __future__ import annotations

import os
from datetime import datetime
from typing import Final, Literal

from cryptography import x509

from aggregator.enrolment.authority import Authority, load_authority, write_atomically
from aggregator.enrolment.certificates import CertificateAuthority, chain_pem
from privacy.errors import ConfigurationError
from privacy.identity import SigningKey
from privacy.secret_files import read_secret, write_secret

Step = Literal["begin", "switch", "retire"]
STEPS: Final[tuple[Step, ...]] = ("begin", "switch", "retire")
_NEW, _OLD, _IN_FORCE = "ca-new.key", "ca-old.key", "ca.key"


def replace_ca(authority: Authority, step: Step, now: datetime) -> Authority:
    """Take one step; the registrar follows when it is started again.

    Raises:
        ConfigurationError: another step is due.
    """
    due = _due(authority)
    if step != due:
        raise ConfigurationError(f"step: expected {due}, got {step}; in order: {', '.join(STEPS)}")
    {"begin": _begin, "switch": _switch, "retire": _retire}[step](authority, now)
    return load_authority(authority.directory)


def own_issuer(authority: Authority) -> CertificateAuthority:
    """Whose certificate the registrar itself shows: the older CA's while there are two, which also a party
    knows that was away meanwhile."""
    path = authority.directory / _OLD
    if not path.exists():
        return authority.certificate_authority()
    _, old = x509.load_pem_x509_certificates(authority.ca_pem.encode())
    return CertificateAuthority(old, SigningKey.from_pem(read_secret(path)))


def _due(authority: Authority) -> Step:
    if (authority.directory / _NEW).exists():
        return "switch"
    return "retire" if (authority.directory / _OLD).exists() else "begin"


def _begin(authority: Authority, now: datetime) -> None:
    directory, old, key = authority.directory, authority.certificate_authority(), SigningKey.generate()
    new = CertificateAuthority.found(authority.federation, key, now)
    rollover = chain_pem([old.certify(new.certificate, now)])
    write_atomically(directory / "ca-rollover.pem", rollover.encode())
    write_atomically(directory / "ca.pem", chain_pem([old.certificate, new.certificate]).encode())
    write_secret(directory / _NEW, key.to_pem())


def _switch(authority: Authority, _now: datetime) -> None:
    directory = authority.directory
    old, new = x509.load_pem_x509_certificates(authority.ca_pem.encode())
    os.replace(directory / _IN_FORCE, directory / _OLD)
    os.replace(directory / _NEW, directory / _IN_FORCE)
    write_atomically(directory / "ca.pem", chain_pem([new, old]).encode())


def _retire(authority: Authority, _now: datetime) -> None:
    directory = authority.directory
    new, *_ = x509.load_pem_x509_certificates(authority.ca_pem.encode())
    write_atomically(directory / "ca.pem", chain_pem([new]).encode())
    (directory / _OLD).unlink()
