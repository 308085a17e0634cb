"""Attacks on one's own pipeline: what a release gives away at least, and whether one person moves one vote only."""

from tutelage.audit.checklist import Checked, PrivateRows
from tutelage.audit.fits import check_fit
from tutelage.audit.mechanism import (
    MechanismAudit,
    Neighbors,
    audit_law,
    audit_mechanism,
    audit_sum,
    worst_neighbors,
)
from tutelage.audit.one_run import audit_in_one_run, epsilon_lower_bound, pate_canaries
from tutelage.audit.overlap import audit_overlap, entities_in_several_shards
from tutelage.audit.sensitivity import audit_sensitivity, ballots_of_teachers

__all__ = [
    "Checked",
    "MechanismAudit",
    "Neighbors",
    "PrivateRows",
    "audit_in_one_run",
    "audit_law",
    "audit_mechanism",
    "audit_overlap",
    "audit_sensitivity",
    "audit_sum",
    "ballots_of_teachers",
    "check_fit",
    "entities_in_several_shards",
    "epsilon_lower_bound",
    "pate_canaries",
    "worst_neighbors",
]
