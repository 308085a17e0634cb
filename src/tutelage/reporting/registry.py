"""A card as an entry of the Differential Privacy Deployments Registry."""

import re
from datetime import date
from typing import Any

from tutelage.exceptions import InvalidParameterError, NotPublishableError
from tutelage.privacy import round_up
from tutelage.reporting.content import NOT_STATED
from tutelage.reporting.record import CardRecord
from tutelage.reporting.sections import NOT_PROTECTED, SIDE_CHANNELS, TRUST

FORMAT = 1
TOPICS = ("title", "controller", "intended_use", "region", "private_data", "signed_by")  # that an entry needs
_NOTES = (
    f"Written by tutelage as format {FORMAT} of its entries, for schemas/deployments-schema.yaml of "
    "github.com/opendp/deployments-registry-data as of July 2026."
)


def registry_record(card: CardRecord) -> dict[str, Any]:
    """Return a draft entry for the public registry of deployments that OpenDP hosts, from public values only.

    Parameters
    ----------
    card : PrivacyCard
        The card. A statement that it lacks is "not stated" in the entry.

    Raises
    ------
    NotPublishableError
        If the noise was simulated.
    InvalidParameterError
        If the card does not say when it was made.
    """
    if card.epsilon.simulated:
        raise NotPublishableError("The noise was simulated, so there is no deployment to register. Use real noise.")
    said = {topic: card.statements.get(topic, NOT_STATED) for topic in (*TOPICS, "why_epsilon", "other_releases")}
    made, epsilon = _day(card.created), card.epsilon
    unit, relation = epsilon.unit.name, epsilon.unit.neighboring.sentence
    student = card.student != NOT_STATED
    product = "Labels of public rows, and a student that learned from them" if student else "Labels of public rows"
    released = "noisy sums" if card.releases_sums else "released labels"
    slug = re.sub("[^a-z0-9]+", "-", said["title"].lower()).strip("-") or "release"
    deployment = {
        "basic": {
            "name": said["title"],
            "data_curators": [said["controller"]],
            "description": f"{product}. Private data: {said['private_data']}",
            "intended_use": said["intended_use"],
            "data_product_type": "Machine learning model" if student else "Dataset",
            "data_product_region": said["region"],
            "publication_date": made,
        },
        "dp_variant": {
            "variant_name": "Approximate DP" if epsilon.delta else "Pure DP",
            "data_domain": said["private_data"],
            "unprotected_quantities": " ".join(NOT_PROTECTED),
        },
        "privacy_loss": {
            "privacy_unit": unit,
            "privacy_unit_details": f"Neighboring data sets differ as follows: {relation}.",
            "privacy_parameters": {"epsilon": round_up(epsilon.epsilon), "delta": epsilon.delta},
            "privacy_parameters_details": f"Proved by: {epsilon.method}. The budget of the private data is ε = "
            f"{round_up(card.budget['budget'])} at δ = {card.budget['delta']:.10g}. {_objections(card)}",
        },
        "deployment_model": {
            "model_name": card.model.capitalize(),
            "actors": TRUST[card.model],
            "release_type": "Many releases" if len(card.batches) > 1 else "One release",
            "release_type_details": f"Other releases: {said['other_releases']}",
            **({"access_type": "Non-interactive"} if student else {}),
        },
        "accounting": {
            "post_processing": f"The student is computed from {released} and public rows alone.",
            "composition": "A ledger spends the budget of the private data before noise is drawn, for all releases.",
        },
        "implementation": {
            "preprocessing_and_hyperparameter_tuning": f"Feature map: {card.feature_map}. Queries: {card.selection}.",
            "mechanisms": " ".join((f"{card.mechanism}; noise: {card.noise_source}.", *SIDE_CHANNELS)),
            "justification": said["why_epsilon"],
        },
        "administrative": {"notes": _NOTES, "registry_authors": [said["signed_by"]]},
    }
    return {"url_slug": f"{slug}-{made[:4]}", "status": "Draft", "tier": 2, "deployment": deployment}


def _objections(card: CardRecord) -> str:
    if card.findings is None:
        return "The settings were not checked for objections."
    return " ".join(f"Objection ({one.severity}): {one.reason}" for one in card.findings) or "Objections: none."


def _day(created: str) -> str:
    try:
        return date.fromisoformat(created[:10]).isoformat()
    except ValueError:
        raise InvalidParameterError("`created` of a card must begin with a date, such as 2026-01-31.") from None
