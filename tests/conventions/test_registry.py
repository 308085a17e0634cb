"""Every mechanism is in the registry and has a page, a proof, a sharp instance, a law test and a planted fault."""

import re
import tomllib
from dataclasses import fields
from inspect import isabstract
from typing import Any

import numpy as np
import pytest

import test_mechanism_contract
import tutelage
from conftest import REPOSITORY
from tutelage import mechanisms
from tutelage.accounting import data_independent
from tutelage.audit.checklist import check_mechanism
from tutelage.cli.settings import read_mechanism
from tutelage.datasets import DATASETS
from tutelage.features.columns import FEATURE_MAPS
from tutelage.mechanisms import Mechanism, NoisySum
from tutelage.mechanisms.registry import CENTRAL, entry_of
from tutelage.noise import SimulationNoise
from tutelage.privacy import ONE_TEACHER
from tutelage.students import STUDENTS
from tutelage.students.selection import SELECTORS
from tutelage.teachers import TEACHERS
from tutelage_consortium import local
from tutelage_consortium.local import LOCAL, LocalMechanism
from tutelage_reproductions.mechanism_audits import random_configurations
from tutelage_reproductions.planted_faults.halved_noise import HALVED_NOISE

pytestmark = pytest.mark.filterwarnings("ignore::tutelage.exceptions.AsPrintedWarning")
ENTRIES = (*CENTRAL.values(), *LOCAL.values())
EVERY = pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.name)


def test_every_exported_mechanism_is_an_entry():
    exported = {
        getattr(module, name) for module in (tutelage, mechanisms, local) for name in module.__all__
    }
    kinds = {
        kind
        for kind in exported
        if isinstance(kind, type) and issubclass(kind, Mechanism | LocalMechanism)
    }
    assert {kind for kind in kinds if not isabstract(kind)} == {entry.kind for entry in ENTRIES}


@EVERY
def test_settings_are_the_fields_of_the_class(entry):
    parameters = {setting.parameter for setting in entry.settings}
    assert parameters == {field.name for field in fields(entry.kind)}
    made = entry.make_sharp()
    assert entry.settings_of(made) == {
        setting.name: getattr(made, setting.parameter) for setting in entry.settings
    }
    assert entry_of(made) is (entry if entry.name in CENTRAL else None)


def test_settings_of_one_name_are_the_same_option():
    meanings = {}
    for entry in CENTRAL.values():
        for setting in entry.settings:
            meanings.setdefault(setting.name, set()).add((setting.help, entry.type_of(setting)))
    assert all(len(found) == 1 for found in meanings.values())


@EVERY
def test_one_vote_shows_in_the_sharp_instances(entry):
    for made in (entry.make_sharp(), entry.make_of_few_votes()):
        one = made.event_of_one(3, ONE_TEACHER, simulated=False)
        assert 0.3 < data_independent.epsilon(one, 0.01).epsilon < np.inf


@EVERY
def test_the_page_has_a_row_with_a_proof(entry):
    page = (
        REPOSITORY / "docs" / ("local.md" if entry.name in LOCAL else "mechanisms.md")
    ).read_text()
    signature = f"{entry.kind.__name__}({', '.join(field.name for field in fields(entry.kind))})"
    row = next(line for line in page.splitlines() if line.startswith(f"| `{signature}` | "))
    assert f" | `{entry.name}` | {entry.line} | " in row
    (proof,) = re.findall(r"\((proofs/\w+\.md)[#)]", row)
    assert (REPOSITORY / "docs" / proof).is_file()
    assert f"({proof})" in (REPOSITORY / "docs" / "theorems.md").read_text()


@pytest.mark.parametrize("entry", CENTRAL.values(), ids=lambda entry: entry.name)
def test_its_law_is_tested(entry):
    suites = [kind for kind in vars(test_mechanism_contract).values() if isinstance(kind, type)]
    assert entry.kind in {type(kind.mechanism) for kind in suites if "mechanism" in vars(kind)}


@pytest.mark.rest
@EVERY
def test_a_fault_is_planted_in_it(entry):
    """Its releases are compared with their exact law; right ones are accused with a probability of 1e-6."""
    fault = HALVED_NOISE[entry.name]
    assert fault.caught
    assert fault.accepts_what_is_right


@pytest.mark.rest
@pytest.mark.parametrize("entry", CENTRAL.values(), ids=lambda entry: entry.name)
def test_the_audit_of_a_configuration_tries_its_sharp_instance(entry):
    wide = entry.kind(*(10 * value if value > 1 else value for value in entry.sharp))
    found = check_mechanism(wide, 50, 3, draws=1_000, noise=SimulationNoise(0))
    assert repr(entry.make_sharp()) in " ".join(one.reason for one in found)
    assert {one.verdict for one in found} == {"pass"}


def test_random_audits_try_every_central_mechanism():
    tried = {type(one.mechanism) for one in random_configurations(len(CENTRAL) + 1, seed=0)}
    assert tried == {NoisySum, *(entry.kind for entry in CENTRAL.values())}


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.name)
def test_a_configuration_can_name_it(entry):
    known: Any = CENTRAL if entry in CENTRAL.values() else LOCAL
    made = entry.make_sharp()
    lines = [
        f'name = "{entry.name}"',
        *(f"{name} = {value}" for name, value in entry.settings_of(made).items()),
    ]
    assert read_mechanism(tomllib.loads("\n".join(lines)), known, "`mechanism`") == made


@pytest.mark.parametrize(
    "names", [TEACHERS, STUDENTS, SELECTORS, FEATURE_MAPS, DATASETS, CENTRAL], ids=" ".join
)
def test_what_a_configuration_may_name_is_on_its_page(names):
    page = (REPOSITORY / "docs" / "configuration.md").read_text()
    assert {name for name in names if not re.search(rf"\b{name}\b", page)} == set()
