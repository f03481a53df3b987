"""A blob store in memory whose blobs can be read and written by presigned URLs."""

import asyncio
import hashlib
import hmac
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Self
from urllib.parse import parse_qs, quote, unquote, urlencode, urlsplit

from stagewright.blob_keys import require_blob_key
from stagewright.duration import Duration
from stagewright.errors import BlobNotFoundError
from stagewright.memory import InMemoryBlobStore, InMemoryDatabase
from stagewright.presigned_urls import PresignedUrl, seconds_to_sign
from stagewright.testing import FakeClock

__all__ = ["SigningStore"]


class SigningStore(InMemoryBlobStore):
    """A `BlobStore` that is a `Presigner`; its server listens on this machine alone."""

    def __init__(self, clock: FakeClock) -> None:
        super().__init__(InMemoryDatabase(clock))
        self.clock = clock
        self.place = ""

    @classmethod
    @contextmanager
    def serving(cls, clock: FakeClock) -> Iterator[Self]:
        """A store whose URLs are answered until the block ends."""
        store = cls(clock)
        server = ThreadingHTTPServer(("127.0.0.1", 0), _handler_of(store))
        store.place = f"http://127.0.0.1:{server.server_port}/"
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()
        try:
            yield store
        finally:
            server.shutdown()
            server.server_close()
            thread.join()

    async def presign_put(
        self, key: str, *, expires: Duration, content_type: str | None = None
    ) -> PresignedUrl:
        """A URL that accepts a PUT."""
        return self.url("PUT", key, expires, content_type or "")

    async def presign_get(self, key: str, *, expires: Duration) -> PresignedUrl:
        """A URL that answers a GET."""
        return self.url("GET", key, expires, "")

    def url(self, method: str, key: str, expires: Duration, content_type: str) -> PresignedUrl:
        """A signed URL."""
        require_blob_key(key)
        expires_at = self.clock.now() + timedelta(seconds=seconds_to_sign(expires))
        until = str(expires_at.timestamp())
        said = {"until": until, "type": content_type}
        query = urlencode(said | {"signature": self.signature(method, key, until, content_type)})
        return PresignedUrl(f"{self.place}{quote(key, safe='')}?{query}", expires_at)

    def signature(self, method: str, key: str, until: str, content_type: str) -> str:
        """What only the store can write."""
        said = f"{method} {until} {content_type} {key}".encode()
        return hmac.new(b"nobody else knows this", said, hashlib.sha256).hexdigest()

    def is_late(self, until: str) -> bool:
        """Whether a URL has expired."""
        return self.clock.now().timestamp() > float(until)

    def is_allowed(self, method: str, key: str, query: dict[str, list[str]], sent_type: str) -> bool:
        """Whether the URL is one of this store's, for this."""
        until, signature = query.get("until", ["0"])[0], query.get("signature", [""])[0]
        content_type = query.get("type", [""])[0]
        signed = self.signature(method, key, until, content_type)
        is_signed = hmac.compare_digest(signature, signed) and content_type in ("", sent_type)
        return is_signed and not self.is_late(until)

    async def answer(self, method: str, path: str, data: bytes, sent_type: str) -> tuple[int, bytes]:
        """Do what a request asks for, if it may."""
        parts = urlsplit(path)
        key = unquote(parts.path.removeprefix("/"))
        if not self.is_allowed(method, key, parse_qs(parts.query, keep_blank_values=True), sent_type):
            return 403, b"refused"
        if method == "PUT":
            await self.put(key, data)
            return 200, b""
        try:
            return 200, await self.get(key)
        except BlobNotFoundError:
            return 404, b"not found"


def _handler_of(store: SigningStore) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            data = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            sent_type = self.headers.get("Content-Type", "")
            status, body = asyncio.run(store.answer(self.command, self.path, data, sent_type))
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def do_PUT(self) -> None:
            self.do_GET()

        def do_DELETE(self) -> None:
            self.do_GET()

        def log_message(self, format: str, *args: object) -> None:
            return

    return Handler
