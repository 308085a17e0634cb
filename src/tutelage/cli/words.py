"""How the command line calls parameters of the library: by entries of a configuration, or options."""

import sys

from tutelage.exceptions import in_python

_ESTIMATORS = ("PATEClassifier", "PATERegressor")
_OF_PRIVACY = ("epsilon", "budget", "releases", "delta", "ledger", "report", "holdout")
_OF_TARGET = ("classes", "goal", "class_weight", "question", "groups")
_ENTRIES = {
    **{name: f"`{name}` in [privacy]" for name in _OF_PRIVACY},
    **{name: f"`{name}` in [target]" for name in _OF_TARGET},
    "unit": "`unit` in [private]",
    "X": "`file` in [private]",
    "y": "`column` in [target]",
    "entity_ids": "`entity` in [private]",
    "silos": "`silo` in [private]",
    "tiers": "`tier` in [private]",
    "target_range": "`range` in [target]",
    "X_public": "`file` in [public]",
    "y_public": "`label` in [public]",
    "columns": "`schema` in [public]",
    "whole_rows": "`file` in [private]",
    "features": "`map` in [features]",
    "method": "[method]",
    "random_state": "`seed` in [run]",
    "n_jobs": "`jobs` in [run]",
    "release": "--as",
    "data_changed": "--data-changed",
    "insist": "--insist",
    "proposal": "`proposal` in [privacy]",
    "scored": "`evaluate_last` in [public]",
}
_SECTIONS = ("private", "public", "privacy", "output")
_OPTIONS = {"X_public": "--public", "y_public": "--label", "method": "the [method] of --for"}


def on_command_line(owner: str, name: str, *, first: bool = True) -> str:
    """Return how the command line calls a parameter."""
    kind, _, call = owner.partition(".")
    if kind in _ESTIMATORS and call in ("", "fit", "prepare") and name in _ENTRIES:
        return _ENTRIES[name]
    if kind == "Tiers":
        return "[privacy.tiers]"
    if kind == "LearnedMap":
        return f"`{name.replace('name', 'map')}` in [features]"
    if owner == "plan":
        return _OPTIONS.get(name, f"--{name.replace('_', '-')}")
    if kind in _methods():
        return f"`{name}` in [method]"
    if kind in _SECTIONS:
        return f"`{name}` in [{kind}]"
    return in_python(owner, name, first=first)


def _methods() -> set[str]:
    """Return the names of methods that may have raised an error: to import them takes seconds."""
    loaded = sys.modules.get("tutelage.methods")
    if loaded is None:
        return set()
    return {kind.__name__ for kind in (*loaded.METHODS.values(), loaded.AdditiveMean)}
