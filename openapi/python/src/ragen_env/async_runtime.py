"""Waiting and connections of asyncio; ``sync_runtime.py`` has the same names for threads."""

from __future__ import annotations

import asyncio
import contextlib
import ssl

import httpx

Canceled = asyncio.CancelledError
Event = asyncio.Event
HttpClient = httpx.AsyncClient
Lock = asyncio.Lock
Timeout = asyncio.TimeoutError

_READ_BYTES = 256 * 1024


async def wait(event: asyncio.Event, seconds: float) -> bool:
    """Waits for the event, at most so long; the answer is whether it is set."""
    with contextlib.suppress(Timeout):
        await asyncio.wait_for(event.wait(), seconds)
    return event.is_set()


class Stream:
    """A connection of bytes. Its methods raise Timeout after their seconds, and OSError where it broke."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter):
        self._reader = reader
        self._writer = writer

    @classmethod
    async def connect(cls, host: str, port: int, secure: bool, seconds: float) -> Stream:
        tls = ssl.create_default_context() if secure else None
        return cls(*await asyncio.wait_for(asyncio.open_connection(host, port, ssl=tls, limit=_READ_BYTES), seconds))

    async def read(self, seconds: float) -> bytes:
        """The next bytes; none at the end. Nothing is lost where this is canceled."""
        return await asyncio.wait_for(self._reader.read(_READ_BYTES), seconds)

    async def write(self, data: bytes, seconds: float) -> None:
        """Writes all of it, also where this is canceled."""
        self._writer.write(data)
        if self._writer.transport.get_write_buffer_size() > _READ_BYTES:
            await asyncio.wait_for(self._writer.drain(), seconds)

    async def close(self, seconds: float) -> None:
        """Ends the connection after what was written."""
        self._writer.close()
        with contextlib.suppress(OSError, Timeout):
            await asyncio.wait_for(self._writer.wait_closed(), seconds)
        self.drop()

    def drop(self) -> None:
        """Lets go of the connection at once."""
        self._writer.transport.abort()
