"""TLS contexts of clients that end a connection when the server's certificate counts no more. Opens none."""

from __future__ import annotations

import ssl
from typing import Any

from privacy.errors import SignatureRejected
from privacy.standing import Standing


def judging(context: ssl.SSLContext, standing: Standing) -> ssl.SSLContext:
    """The context of a client, whose connections end where the server's certificate counts no more.

    At the handshake, and at each read and write of a connection that was open before: nothing goes out to
    such a server, and nothing that it says is taken. What is raised is ``ssl.SSLCertVerificationError``, from
    the reason.
    """

    def judge(der: bytes | None) -> None:
        try:
            standing.assert_stands(der or b"")
        except SignatureRejected as fault:
            raise ssl.SSLCertVerificationError(str(fault)) from fault

    class JudgedSocket(ssl.SSLSocket):
        def do_handshake(self, block: bool = False) -> None:
            super().do_handshake(block)
            judge(self.getpeercert(True))

        def read(self, len: int = 1024, buffer: Any = None) -> Any:  # noqa: A002 - the base class names it so
            judge(self.getpeercert(True))
            return super().read(len, buffer)

        def send(self, data: Any, flags: int = 0) -> int:
            judge(self.getpeercert(True))
            return super().send(data, flags)

    class JudgedObject(ssl.SSLObject):
        def do_handshake(self) -> None:
            super().do_handshake()
            judge(self.getpeercert(True))

        def read(self, len: int = 1024, buffer: Any = None) -> Any:  # noqa: A002 - the base class names it so
            judge(self.getpeercert(True))
            return super().read(len, buffer)

        def write(self, data: Any) -> int:
            judge(self.getpeercert(True))
            return super().write(data)

    context.sslsocket_class, context.sslobject_class = JudgedSocket, JudgedObject
    return context
