"""A payment provider for trying things out: a process of its own that charges each idempotency key once.

    python examples/orders/provider.py PORT FOLDER

It keeps its charges in FOLDER, so it may be killed and started anew. `POST /charges` with the header `Idempotency-Key`
and a JSON body charges, or answers what that key was charged; `GET /charges/KEY` answers it too. While the file `hold`
is in FOLDER, a charge is recorded and not answered: what happens then to whoever waits is the point of this example.
"""

import json
import sqlite3
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

__all__ = ["Provider", "serve"]

_TABLE = """
CREATE TABLE IF NOT EXISTS charges (
    key TEXT PRIMARY KEY, customer TEXT NOT NULL, amount TEXT NOT NULL, asked INTEGER NOT NULL, at REAL NOT NULL
)
"""
_CHARGE = """
INSERT INTO charges (key, customer, amount, asked, at) VALUES (?, ?, ?, 1, ?)
ON CONFLICT (key) DO UPDATE SET asked = asked + 1
"""
_SETTLES_AFTER = 0.3


class Provider:
    """The provider's books.

    Args:
        folder: Where they are.
    """

    def __init__(self, folder: Path) -> None:
        self._file = folder / "provider.db"
        self._hold = folder / "hold"
        with self._open() as books:
            books.execute(_TABLE)

    def charge(self, key: str, customer: str, amount: str) -> dict[str, str]:
        """Charge a customer unless that key was charged before, and say what was charged."""
        with self._open() as books:
            books.execute(_CHARGE, (key, customer, amount, time.time()))
        while self._hold.exists():
            time.sleep(0.02)
        return self.find(key) or {}

    def find(self, key: str) -> dict[str, str] | None:
        """What was charged under a key; a charge is settled a moment later."""
        with self._open() as books:
            row = books.execute("SELECT customer, amount, at FROM charges WHERE key = ?", (key,)).fetchone()
        if row is None:
            return None
        customer, amount, at = row
        state = "settled" if time.time() - at >= _SETTLES_AFTER else "pending"
        return {"id": key, "customer": customer, "amount": amount, "state": state}

    def _open(self) -> sqlite3.Connection:
        # Each statement is on disk before it is answered.
        return sqlite3.connect(self._file, timeout=10)


class _Requests(BaseHTTPRequestHandler):
    provider: Provider

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        key = self.headers["Idempotency-Key"]
        self._answer(self.provider.charge(key, body["customer"], body["amount"]))

    def do_GET(self) -> None:
        self._answer(self.provider.find(self.path.rsplit("/", 1)[-1]))

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""

    def _answer(self, answer: dict[str, str] | None) -> None:
        data = json.dumps(answer).encode()
        self.send_response(404 if answer is None else 200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


def serve(port: int, folder: Path) -> None:
    """Answer requests on the loopback until the process ends."""
    requests = type("Requests", (_Requests,), {"provider": Provider(folder)})
    with ThreadingHTTPServer(("127.0.0.1", port), requests) as server:
        sys.stdout.write(f"listening on port {server.server_port}\n")
        sys.stdout.flush()
        server.serve_forever()


if __name__ == "__main__":
    serve(int(sys.argv[1]), Path(sys.argv[2]))
