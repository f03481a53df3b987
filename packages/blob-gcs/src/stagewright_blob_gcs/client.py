"""The client of Cloud Storage."""

import os
from typing import Any, Final

import google.auth
from google.auth.credentials import AnonymousCredentials
from google.auth.transport.requests import AuthorizedSession
from google.cloud import storage  # type: ignore[import-untyped]  # it has no types of its own
from google.cloud.storage.retry import DEFAULT_RETRY  # type: ignore[import-untyped]  # as above
from requests.adapters import HTTPAdapter

from stagewright_blob_gcs.settings import GcsSettings

__all__ = ["calling", "connect", "credentials_of_this_process"]

_SCOPES: Final = ("https://www.googleapis.com/auth/cloud-platform",)
_EMULATOR: Final = "STORAGE_EMULATOR_HOST"


def credentials_of_this_process() -> Any:  # Any: Google's libraries have few types
    """Those that Google's tools use here; none at an emulator that the environment names.

    Raises:
        DefaultCredentialsError: If there are none.
    """
    if os.environ.get(_EMULATOR):
        return AnonymousCredentials()
    return google.auth.default(scopes=_SCOPES)[0]


def connect(credentials: Any, settings: GcsSettings) -> Any:  # Any: as above
    """A client that signs with these; nothing is sent yet."""
    session = AuthorizedSession(credentials)
    for scheme in ("https", "http"):
        session.mount(f"{scheme}://", HTTPAdapter(pool_connections=4, pool_maxsize=settings.connections))
    options = {} if settings.endpoint_url is None else {"api_endpoint": settings.endpoint_url}
    client: Any = storage.Client(project=None, credentials=credentials, client_options=options, _http=session)
    # For traces, newer clients ask for the bucket's metadata in a thread of their own: a right that nobody here needs.
    client._bucket_metadata_cache = None
    return client


def calling(settings: GcsSettings) -> dict[str, Any]:  # Any: as above
    """The arguments by which every call knows how long to wait and to try."""
    return {
        "timeout": (settings.connect_timeout, settings.read_timeout),
        "retry": DEFAULT_RETRY.with_timeout(settings.retry_for),
    }
