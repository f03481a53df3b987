"""A TCP proxy whose connections can be swallowed by a black hole: they stay open, and nothing comes through."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

__all__ = ["TcpProxy", "open_proxy"]


@dataclass(eq=False)
class _Connection:
    sent: bytearray = field(default_factory=bytearray)
    is_swallowed: bool = False


class TcpProxy:
    """Passes bytes on to one server, and remembers by connection what its clients have sent.

    Args:
        host: The server's host.
        port: The server's port.
    """

    def __init__(self, host: str, port: int) -> None:
        self._host = host
        self._port = port
        self._connections: list[_Connection] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self.port = 0

    def lead_to(self, port: int) -> None:
        """New connections go to the server on another port of the same host; those that are open stay."""
        self._port = port

    def swallow(self, said: bytes) -> int:
        """From now on nothing comes through the connections over which a client has said this; how many there are."""
        found = [one for one in self._connections if said in one.sent and not one.is_swallowed]
        for one in found:
            one.is_swallowed = True
        return len(found)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Attend to one client until one side has closed."""
        there_reader, there_writer = await asyncio.open_connection(self._host, self._port)
        connection = _Connection()
        self._connections.append(connection)
        both = [
            asyncio.create_task(self._pass_on(connection, reader, there_writer, keep=True)),
            asyncio.create_task(self._pass_on(connection, there_reader, writer, keep=False)),
        ]
        self._tasks.update(both)
        try:
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._connections.remove(connection)
            for task in both:
                task.cancel()
            self._tasks.difference_update(both)
            for end in (writer, there_writer):
                end.close()

    async def _pass_on(
        self,
        connection: _Connection,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        *,
        keep: bool,
    ) -> None:
        try:
            while data := await reader.read(65_536):
                if keep:
                    connection.sent += data
                if not connection.is_swallowed:
                    writer.write(data)
                    await writer.drain()
            if connection.is_swallowed and not keep:
                # What the server closes, nobody hears of.
                await asyncio.Event().wait()
        except OSError:
            return


@asynccontextmanager
async def open_proxy(host: str, port: int, *, tls: ssl.SSLContext | None = None) -> AsyncIterator[TcpProxy]:
    """A proxy before a server, on a loopback port of its own, `proxy.port`; with `tls`, its clients speak that."""
    proxy = TcpProxy(host, port)
    server = await asyncio.start_server(proxy.serve, "127.0.0.1", 0, ssl=tls)
    proxy.port = server.sockets[0].getsockname()[1]
    try:
        yield proxy
    finally:
        server.close()
