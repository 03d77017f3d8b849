"""A listener that says one thing to whoever connects."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def answering(answer: bytes, host: str = "127.0.0.1", tls: ssl.SSLContext | None = None) -> Iterator[int]:
    """A listener that says this to whoever connects; its port."""
    listener = socket.create_server((host, 0))
    listener.settimeout(20)

    def serve() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            with connection:
                connection.settimeout(5)
                try:
                    if tls is not None:
                        connection = tls.wrap_socket(connection, server_side=True)
                    connection.recv(4096)
                    connection.sendall(answer)
                except OSError:
                    continue
                finally:
                    connection.close()

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    yield listener.getsockname()[1]
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()
    thread.join()
