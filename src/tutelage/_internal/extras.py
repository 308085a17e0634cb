"""How an extra is added to the package from where that was installed, which may be on no index."""

import json
from importlib.metadata import distribution
from urllib.parse import urlsplit
from urllib.request import url2pathname


def install(extra: str) -> str:
    """Return the command that adds an extra to the installed package."""
    origin = json.loads(distribution("tutelage").read_text("direct_url.json") or "{}")
    url = urlsplit(origin.get("url", ""))
    source = url2pathname(url.path) if url.scheme == "file" else "tutelage"
    return f"pip install '{source}[{extra}]'"
