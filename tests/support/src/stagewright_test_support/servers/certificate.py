"""A certificate for a server on the loopback address, and the authority that a client trusts for it."""

import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Self

__all__ = ["LoopbackCertificate"]


@dataclass(frozen=True, slots=True)
class LoopbackCertificate:
    """A certificate of `127.0.0.1` and `localhost`, by an authority that nobody else trusts.

    Attributes:
        folder: Where `authority.pem`, `chain.pem` and `key.pem` are.
        authority: The authority's certificate, as PEM.
        chain: The server's certificate, as PEM.
        key: The server's private key, as PEM.
    """

    folder: Path
    authority: str
    chain: str
    key: str

    @classmethod
    def make(cls, folder: Path) -> Self:
        """Makes an authority and a certificate by it, and writes them into the folder."""
        import trustme  # The plugin is loaded where the servers' packages are missing, too.

        authority = trustme.CA()
        issued = authority.issue_cert("127.0.0.1", "localhost")
        chain = b"".join(blob.bytes() for blob in issued.cert_chain_pems)
        texts = (authority.cert_pem.bytes(), chain, issued.private_key_pem.bytes())
        made = cls(folder, *(text.decode() for text in texts))
        for name, text in (("authority", made.authority), ("chain", made.chain), ("key", made.key)):
            (folder / f"{name}.pem").write_text(text, encoding="utf-8")
        return made

    @property
    def authority_file(self) -> Path:
        """What a client is given to trust the server."""
        return self.folder / "authority.pem"

    def server_context(self) -> ssl.SSLContext:
        """What a server of Python takes connections with."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.folder / "chain.pem", self.folder / "key.pem")
        return context
