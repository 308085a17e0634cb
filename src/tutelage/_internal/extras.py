"""How to add an extra to the package, which may have been installed from a folder or a file and not from an index."""

import json
from importlib.metadata import distribution
from urllib.parse import unquote


def install(extra: str, package: str = "tutelage") -> str:
    """Return the command that adds an extra to an installed package."""
    origin = json.loads(distribution(package).read_text("direct_url.json") or "{}")
    _, is_file, path = origin.get("url", "").partition("file://")
    source = unquote(path) if is_file else package
    return f"pip install '{source}[{extra}]'"
