"""Waiting and connections of threads; ``async_runtime.py`` has the same names for asyncio."""

from __future__ import annotations

import socket
import ssl
import threading

import httpx

Event = threading.Event
HttpClient = httpx.Client
Lock = threading.Lock
Timeout = TimeoutError

_READ_BYTES = 256 * 1024


class Canceled(Exception):
    """Never raised: a thread is not canceled."""


def wait(event: threading.Event, seconds: float) -> bool:
    """Waits for the event, at most so long; the answer is whether it is set."""
    return event.wait(seconds)


class Stream:
    """A connection of bytes. Its methods raise Timeout after their seconds, and OSError where it broke.

    No thread reads ahead: a reply is read by the one who waits for it, which costs no switches.
    """

    def __init__(self, connection: socket.socket):
        self._socket = connection

    @classmethod
    def connect(cls, host: str, port: int, secure: bool, seconds: float) -> Stream:
        stream = cls(socket.create_connection((host, port), seconds))
        try:
            stream._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, True)
            if secure:
                stream._socket = ssl.create_default_context().wrap_socket(stream._socket, server_hostname=host)
        except BaseException:
            stream.drop()
            raise
        return stream

    def read(self, seconds: float) -> bytes:
        """The next bytes; none at the end."""
        self._socket.settimeout(seconds)
        return self._socket.recv(_READ_BYTES)

    def write(self, data: bytes, seconds: float) -> None:
        """Writes all of it, or a part where it raises."""
        self._socket.settimeout(seconds)
        self._socket.sendall(data)

    def close(self, _seconds: float) -> None:
        """Ends the connection after what was written."""
        self._socket.close()

    def drop(self) -> None:
        """Lets go of the connection at once; a process that shares it since a fork keeps it."""
        self._socket.close()
