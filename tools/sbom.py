"""The bill of materials of a wheel: each distribution that it is installed with, in the tested version, as CycloneDX.

    python -m pip install --dry-run --ignore-installed --report report.json --constraint constraints.txt WHEEL
    python tools/sbom.py report.json > WHEEL.cdx.json

pip before 25 reports no license expressions.
"""

import json
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

_HASHES = {"sha256": "SHA-256", "sha384": "SHA-384", "sha512": "SHA-512"}
_LONGEST = 100  # characters of the name of a license; others hold its whole text
_CLASSIFIER = "License :: "
Entries = dict[str, Any]


def bom_of(report: Entries, timestamp: str) -> Entries:
    """Return the bill of materials of the one wheel that pip's installation report was asked for."""
    items: list[Entries] = report["install"]
    components = {_name(item): _component(item) for item in items}
    (wheel,) = (_name(item) for item in items if item["requested"])
    dependencies = [_dependency(item, components) for item in items]
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"timestamp": timestamp, "component": components.pop(wheel)},
        "components": [components[name] for name in sorted(components)],
        "dependencies": sorted(dependencies, key=lambda one: one["ref"]),
    }


def _name(item: Entries) -> str:
    return canonicalize_name(item["metadata"]["name"])


def _component(item: Entries) -> Entries:
    metadata: Entries = item["metadata"]
    hashes: dict[str, str] = item["download_info"]["archive_info"]["hashes"]
    purl = f"pkg:pypi/{_name(item)}@{metadata['version']}"
    component = {
        "type": "library",
        "bom-ref": purl,
        "name": metadata["name"],
        "version": metadata["version"],
        "purl": purl,
        "hashes": [{"alg": _HASHES[kind], "content": value} for kind, value in hashes.items()],
    }
    licenses = _licenses(metadata)
    return component | {"licenses": licenses} if licenses else component


def _licenses(metadata: Entries) -> list[Entries]:
    """Return what the metadata states: an expression, or else a name, or else classifiers."""
    if "license_expression" in metadata:
        return [{"expression": metadata["license_expression"]}]
    names: list[str] = [metadata.get("license", "")]
    if not 0 < len(names[0]) <= _LONGEST:
        classifiers: list[str] = metadata.get("classifier", [])
        names = [text.rpartition(" :: ")[2] for text in classifiers if text.startswith(_CLASSIFIER)]
    return [{"license": {"name": name}} for name in names]


def _dependency(item: Entries, components: dict[str, Entries]) -> Entries:
    """Return which of these components a distribution needs, by the markers of this machine."""
    extras: list[str] = ["", *item.get("requested_extras", [])]
    needed = set[str]()
    for text in item["metadata"].get("requires_dist", []):
        requirement = Requirement(text)
        name = canonicalize_name(requirement.name)
        marker = requirement.marker
        if name in components and (
            marker is None or any(marker.evaluate({"extra": extra}) for extra in extras)
        ):
            needed.add(components[name]["bom-ref"])
    return {"ref": components[_name(item)]["bom-ref"], "dependsOn": sorted(needed)}


if __name__ == "__main__":
    found = json.loads(Path(sys.argv[1]).read_text())
    print(json.dumps(bom_of(found, datetime.now(UTC).isoformat(timespec="seconds")), indent=1))
