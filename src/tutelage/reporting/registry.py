"""A card as an entry for the registry of differential privacy deployments that NIST and OpenDP keep.

The fields are those of github.com/opendp/deployments-registry-data at 3e9c812a, schemas/deployments-schema.yaml.
"""

import json
import re
from collections.abc import Iterator
from typing import cast

from tutelage._internal.records import Entries, Names
from tutelage.privacy import NeighboringRelation
from tutelage.reporting.card import PrivacyCard
from tutelage.reporting.lints import UNCOUNTED

FIRST_KEY = "url_slug: "
_PUBLIC_COUNTS = {
    NeighboringRelation.CHANGE_ONE_ROW: "The number of private rows.",
    NeighboringRelation.ADD_REMOVE_OR_CHANGE_WITHIN_SILO: "The list of silos.",
}


def entry_of(card: PrivacyCard, card_hash: str) -> str:
    """Return a draft of an entry, as YAML, in which a field that only people know is marked TODO.

    `card_hash` is that of ``card.json``.
    """
    fields = _fields(card, card_hash)
    basic = fields["basic"]
    year = card.release.created.partition("-")[0]
    words = (basic["name"], basic["data_curators"][0], year)
    # As the registry makes it: two such characters beside each other, of two words, stay two.
    slug = "_".join(re.sub(r"\W+", "_", word.lower()) for word in words).replace("_", "-")
    lines = [f"{FIRST_KEY}{slug}", "status: Draft", "tier: 3", *_lines({"deployment": fields})]
    return "\n".join(lines) + "\n"


def _fields(card: PrivacyCard, card_hash: str) -> Entries:
    """Return the groups of an entry; None is a field that is left out, because an empty one is not allowed."""
    said = card.statements.get
    epsilon = card.epsilon
    release = card.release
    versions = ", ".join(f"{name} {number}" for name, number in release.versions.items())
    return {
        "basic": {
            "name": said("title", ""),
            "data_curators": (said("controller", ""),),
            "intended_use": _paragraphs(
                said("purpose"), said("intended_use"), _with_title("Excluded", said("excluded_use"))
            ),
            "data_product_type": "Dataset" if card.of_ledger else "Machine learning model",
            "data_product_region": "",
            "description": _description(card),
            "publication_date": release.created,
            "data_product_sector": None,
        },
        "dp_variant": {
            "variant_name": "Approximate DP" if epsilon.delta else "Pure DP",
            "data_domain": _paragraphs(said("private_data"), said("people")),
            "unprotected_quantities": _PUBLIC_COUNTS.get(epsilon.unit.neighboring, ""),
        },
        "privacy_loss": _privacy_loss(card),
        "deployment_model": {
            "model_name": card.model.capitalize(),
            "model_name_details": said("leaves_site", ""),
            "actors": said("trust", ""),
            "release_type": None,
            "release_type_details": _paragraphs(card.usage, said("other_releases")),
            "data_source_type": None,
            "access_type": "Non-interactive",
        },
        "accounting": {
            "post_processing": "Students are trained on released values and public data alone.",
            "composition": f"All releases from one budget are composed adaptively: {epsilon.method}.",
        },
        "implementation": {
            "preprocessing_and_hyperparameter_tuning": "",
            "mechanisms": _paragraphs(
                f"{release.mechanism}. Noise: {release.noise_source}. Software: {versions}.",
                _with_title("Side channels", said("side_channels")),
                _with_title("Access to private files", said("access")),
            ),
            "justification": said("why_epsilon", ""),
        },
        "administrative": {
            "sources": "",
            "notes": f"SHA-256 of the privacy card, card.json: {card_hash}",
            "registry_authors": ("",),
        },
    }


def _privacy_loss(card: PrivacyCard) -> Entries:
    epsilon = card.epsilon
    parameters = {"epsilon": epsilon.epsilon}
    if epsilon.delta:
        parameters["delta"] = epsilon.delta
    objections = [str(one) for one in card.findings if one.code in UNCOUNTED]
    if epsilon.simulated:
        objections.append("The noise was simulated, so nothing is guaranteed.")
    return {
        "privacy_unit": epsilon.unit.name,
        "privacy_unit_details": f"Between neighboring data sets, {epsilon.unit.neighboring.sentence}.",
        "privacy_parameters": parameters,
        "privacy_parameters_details": _paragraphs(f"Proved by: {epsilon.method}.", *objections),
    }


def _description(card: PrivacyCard) -> str:
    if card.of_ledger:
        return "Labels and noisy sums that were released by Private Aggregation of Teacher Ensembles (PATE)."
    text = f"A model ({card.student.name}), trained by Private Aggregation of Teacher Ensembles (PATE)."
    if card.release.classes:
        text += f" It predicts one of these classes: {', '.join(card.release.classes)}."
    return text


def _with_title(title: str, text: str | None) -> str:
    return f"{title}: {text}" if text else ""


def _paragraphs(*parts: str | None) -> str:
    return "\n\n".join(part for part in parts if part)


def _lines(fields: Entries, indent: str = "") -> Iterator[str]:
    """Yield the lines of a mapping in YAML; texts are quoted as in JSON, which YAML contains."""
    for key, value in fields.items():
        if value is None:
            yield f"{indent}# {key}: TODO"
        elif isinstance(value, dict):
            yield f"{indent}{key}:"
            yield from _lines(cast("Entries", value), indent + "  ")
        elif isinstance(value, tuple):
            yield f"{indent}{key}:"
            yield from (f"{indent}  - {_scalar(one)}" for one in cast("Names", value))
        else:
            yield f"{indent}{key}: {_scalar(value)}"


def _scalar(value: str | float) -> str:
    if isinstance(value, str):
        if not value:
            return "'' # TODO"
        quoted = json.dumps(value, ensure_ascii=False)
        return "".join(one if one.isprintable() else f"\\U{ord(one):08x}" for one in quoted)
    text = repr(value)
    if "e" in text and "." not in text:  # a number without a point is text in YAML 1.1
        text = text.replace("e", ".0e")
    return text
