"""The shape of the package: who may import whom, what is public, and what privacy code never does."""

import ast
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from graphlib import TopologicalSorter
from importlib import import_module
from pathlib import Path

import pytest

import tutelage
import tutelage_consortium
import tutelage_reproductions
from tutelage import exceptions

PACKAGE = Path(tutelage.__file__).parent
SOURCES = sorted(PACKAGE.rglob("*.py"))
OF_CONSORTIUM = Path(tutelage_consortium.__file__).parent
CONSORTIUM = sorted(OF_CONSORTIUM.rglob("*.py"))
REPRODUCTIONS = sorted(Path(tutelage_reproductions.__file__).parent.rglob("*.py"))

# Each imports those before it.
ROOT_ORDER = ["exceptions", "_internal", "privacy", "tables", "digests", "events", "targets"]
ROOT_WORDS = set(ROOT_ORDER)
PIPELINE = {
    "accounting",
    "ballots",
    "ledger",
    "mechanisms",
    "noise",
    "partition",
    "people",
    "students",
    "teachers",
}
# Each unit of the package and what it may import besides the root words; the privacy boundary runs before "students".
MAY_IMPORT: dict[str, set[str]] = {
    "noise": set(),
    "datasets": set(),
    "partition": set(),
    "preflight": {"accounting", "features", "partition"},
    "features": set(),
    "networks": set(),
    "ballots": set(),
    "people": {"ballots", "features", "partition"},
    "signing": set(),
    "teachers": {"ballots", "features", "networks", "partition", "people"},
    "mechanisms": {"ballots", "noise"},
    "accounting": {"ballots"},
    "students": {"features", "networks", "reporting"},
    "reporting": set(),
    "ledger": {"accounting", "partition"},
    "publishing": {
        "accounting",
        "ballots",
        "boundary",
        "ledger",
        "mechanisms",
        "methods",
        "noise",
        "reporting",
    },
    "compat": {"accounting", "ballots"},
    "methods": PIPELINE - {"ledger"} | {"features", "reporting", "terms"},
    "terms": {"accounting"},
    "boundary": {"ledger", "mechanisms", "methods", "noise"},
    "budget": {"accounting", "ledger", "methods", "terms"},
    "release": {
        "accounting",
        "boundary",
        "budget",
        "ledger",
        "mechanisms",
        "methods",
        "noise",
        "people",
        "preflight",
        "publishing",
    },
    "planning": PIPELINE - {"ledger"} | {"features", "methods", "reporting"},
    "testing": {"accounting", "ballots", "mechanisms", "noise"},
    "labeling": PIPELINE | {"boundary", "methods"},
    "published": {"accounting", "features", "ledger", "noise", "reporting", "students"},
    "estimator": PIPELINE
    | {
        "boundary",
        "budget",
        "features",
        "methods",
        "preflight",
        "published",
        "publishing",
        "release",
        "reporting",
        "terms",
    },
    "audit": PIPELINE
    | {
        "boundary",
        "estimator",
        "features",
        "methods",
        "preflight",
        "release",
        "reporting",
        "terms",
        "testing",
    },
    "cli": PIPELINE
    | {"audit", "datasets", "estimator", "features", "labeling", "methods", "planning"}
    | {"preflight", "published", "publishing", "release", "reporting", "signing", "terms"},
}
# What the consortium may import, and its two modules of the command line beside that.
OF_PROTOCOL = PIPELINE | ROOT_WORDS | {"boundary", "features", "methods", "preflight", "signing"}
OF_COMMANDS = {"command.py", "terms_file.py"}


def unit_of(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imports_of(nodes: Iterable[ast.AST]) -> Iterator[tuple[str, str]]:
    """Yield each module that these parts of a tree import, and the name that they import from it."""
    for node in nodes:
        if isinstance(node, ast.ImportFrom):
            assert not node.level, "imports are absolute"
            yield from ((node.module or "", alias.name) for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from ((alias.name, "") for alias in node.names)


def units_in(source: str) -> set[str]:
    names = set[str]()
    for module, name in imports_of(ast.walk(ast.parse(source))):
        if module == "tutelage" and name:
            module = f"tutelage.{tutelage._HOME.get(name, name)}"
        names.add(module)
    return {name.split(".")[1] for name in names if name.startswith("tutelage.")}


def packages_in(source: str) -> set[str]:
    """Return the packages of this repository that Python source names in an import."""
    return {*re.findall(r"^\s*(?:import|from) (tutelage\w*)", source, re.MULTILINE)}


def imported_units(path: Path) -> set[str]:
    return units_in(path.read_text())


def test_every_spelling_of_an_import_is_seen():
    assert units_in("from tutelage import VoteHistogram") == {"ballots"}
    assert units_in("from tutelage import ballots") == {"ballots"}
    assert units_in("from tutelage.ballots import tally") == {"ballots"}
    assert units_in("def f():\n    import tutelage.ballots") == {"ballots"}
    with pytest.raises(AssertionError, match="absolute"):
        units_in("from ..votes import tally")


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_run_one_way(path):
    unit, found = unit_of(path), imported_units(path)
    if unit in ("__init__", "__main__"):
        return
    if unit in ROOT_WORDS:
        assert found - {unit} <= set(ROOT_ORDER[: ROOT_ORDER.index(unit)])
    else:
        assert found - {unit} <= MAY_IMPORT[unit] | ROOT_WORDS


@pytest.mark.parametrize("path", CONSORTIUM, ids=lambda path: str(path.relative_to(OF_CONSORTIUM)))
def test_a_consortium_imports_the_core_one_way(path):
    allowed = OF_PROTOCOL | ({"cli", "reporting"} if path.name in OF_COMMANDS else set())
    assert imported_units(path) <= allowed
    assert packages_in(path.read_text()) <= {"tutelage", "tutelage_consortium"}


def run_nodes(tree: ast.AST) -> Iterator[ast.AST]:
    """Yield the parts of a tree that run, bodies of functions included: all but those for type checkers."""
    for node in ast.iter_child_nodes(tree):
        if not (isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"):
            yield node
            yield from run_nodes(node)


def imported_modules() -> dict[str, set[str]]:
    """Return the modules that each module of the core and of the consortium imports, functions included."""
    files = dict[str, Path]()
    for path in [*SOURCES, *CONSORTIUM]:
        package = OF_CONSORTIUM if path in CONSORTIUM else PACKAGE
        name = ".".join(path.relative_to(package.parent).with_suffix("").parts)
        files[name.removesuffix(".__init__")] = path
    imports = dict[str, set[str]]()
    for name, path in files.items():
        found = set[str]()
        for module, inner in imports_of(run_nodes(ast.parse(path.read_text()))):
            submodule = f"{module}.{inner}"
            found.add(submodule if submodule in files else module)
        imports[name] = found & files.keys() - {name}
    return imports


def test_no_modules_import_each_other_in_a_circle():
    imports = imported_modules()
    assert "tutelage.methods.base" in imports["tutelage.methods.needs"]
    imports["tutelage"] |= {f"tutelage.{home}" for home in tutelage._HOME.values()}
    TopologicalSorter(imports).prepare()  # raises an error that names a circle


def reached_from(name: str, imports: dict[str, set[str]]) -> set[str]:
    """Return a unit or a module, with all that it imports and those import in turn."""
    reached, frontier = set[str](), {name}
    while frontier:
        reached |= frontier
        frontier = set[str]().union(*(imports[other] for other in frontier)) - reached
    return reached


def test_every_file_has_its_place():
    assert {unit_of(path) for path in SOURCES} == ROOT_WORDS | set(MAY_IMPORT) | {
        "__init__",
        "__main__",
    }


def test_beyond_the_privacy_boundary_nothing_can_hold_a_vote():
    sensitive = {
        "ballots",
        "teachers",
        "partition",
        "mechanisms",
        "accounting",
        "noise",
        "methods",
        "labeling",
    }
    imports = {unit: set[str]() for unit in map(unit_of, SOURCES)}
    for path in SOURCES:
        imports[unit_of(path)] |= imported_units(path)
    for unit in ("students", "reporting"):
        assert not reached_from(unit, imports) & sensitive


def test_people_noise_and_ledger_meet_at_the_boundary_alone():
    """Elsewhere no budget is spent, and noise is simulated: a rehearsal refuses any other (tests/test_boundary.py)."""
    apart = {"audit", "testing", "ledger"}
    files = {
        str(path.relative_to(PACKAGE)): path.read_text()
        for path in SOURCES
        if unit_of(path) not in apart
    }

    def found(pattern: str) -> set[str]:
        return {name for name, text in files.items() if re.search(pattern, text)}

    assert found(r"\.(reserve|reserve_new|reserve_votes|drawing|settle|forfeit)\(") == {
        "boundary.py"
    }
    text = "\n".join(path.read_text() for path in CONSORTIUM)
    assert not re.search(
        r"\.(reserve|reserve_new|reserve_votes|settle|forfeit)\(|SystemNoise\(", text
    )
    draws = r"(?<!self)(?<!boundary)\.release\((?!\)|file=|votes, SimulationNoise\()"
    assert found(draws) == {"boundary.py", "methods/rehearsal.py"}


def test_whoever_receives_labels_has_no_code_that_holds_a_vote_or_computes_on_shares():
    reached = reached_from("tutelage_consortium.aggregator", imported_modules())
    names = {name.removeprefix("tutelage_consortium.") for name in reached}
    assert {"aggregator", "sharing", "mailbox"} <= names
    forbidden = {"entity", "computing_party"}
    assert all((OF_CONSORTIUM / f"{name}.py").is_file() for name in forbidden)
    assert not forbidden & names
    assert not [name for name in names if name.startswith("mpc")]


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_the_core_does_without_the_distributions_beside_it(path):
    assert packages_in(path.read_text()) <= {"tutelage"}


def test_each_import_of_another_distribution_is_seen():
    source = "import tutelage\ndef f():\n    from tutelage_consortium.keys import Member"
    assert packages_in(source) == {"tutelage", "tutelage_consortium"}


def test_mechanisms_and_accounting_meet_in_events_only():
    for one, other in (("mechanisms", "accounting"), ("accounting", "mechanisms")):
        assert not any(other in imported_units(path) for path in SOURCES if unit_of(path) == one)


def test_public_names_are_curated_and_exist():
    expected = tutelage.__all__  # which docs/stability.md lists, by test_hosting.py
    assert dir(tutelage) == sorted(expected)
    for name in expected:
        assert getattr(tutelage, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = tutelage.nonsense


@pytest.mark.parametrize(
    "name", ["accounting", "estimator", "features", "publishing", "students", "teachers"]
)
def test_names_that_are_loaded_on_first_use_are_listed_before(name):
    package = import_module(f"tutelage.{name}")
    assert dir(package) == sorted(package.__all__)
    assert all(getattr(package, public) is not None for public in package.__all__)
    with pytest.raises(AttributeError, match=f"module 'tutelage.{name}' has no attribute"):
        _ = package.nonsense


def test_import_is_light():
    script = "import sys, tutelage; print(*sorted({name.split('.')[0] for name in sys.modules}))"
    loaded = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    ).stdout.split()
    assert not {
        "torch",
        "opendp",
        "sklearn",
        "scipy",
        "numpy",
        "joblib",
        "rich",
        "typer",
        "skops",
    } & set(loaded)


def test_torch_is_an_extra_that_only_networks_import():
    for path in [*SOURCES, *CONSORTIUM]:
        if "networks" not in (path.parent.name, path.stem):
            assert not re.search(
                r"^\s*(import|from) (torch|safetensors)", path.read_text(), re.MULTILINE
            ), path
    for path in REPRODUCTIONS:
        if path.name != "distillation.py" and path.parent.name != "students":
            assert not re.search(
                r"^(import|from) (torch|safetensors)", path.read_text(), re.MULTILINE
            ), path


FORBIDDEN = {
    "pickled objects": r"^\s*(import|from) (pickle|cloudpickle|dill)|joblib\.(load|dump)\(|allow_pickle\s*=\s*True",
    "the global numpy generator": r"np\.random\.(?!default_rng|SeedSequence|Generator)\w+|check_random_state",
    "Python's own generator": r"^\s*(import|from) random\b",
}


@pytest.mark.parametrize("what", FORBIDDEN)
def test_the_source_never_uses(what):
    for path in [*SOURCES, *CONSORTIUM, *REPRODUCTIONS]:
        if path.name == "streams.py":
            continue  # keeps estimators that draw from the process's own streams from sharing them
        found = re.search(FORBIDDEN[what], path.read_text(), re.MULTILINE)
        assert not found, f"{path.name}: {found and found[0]}"


def test_privacy_noise_is_drawn_in_one_module_and_is_no_float():
    draws = r"\.(normal|laplace|gumbel|exponential|standard_normal|uniform)\("
    for path in [*SOURCES, *CONSORTIUM, *REPRODUCTIONS]:
        assert not re.search(draws, path.read_text()), path
        if path != PACKAGE / "noise.py":
            assert not re.search(r"^\s*(import|from) opendp", path.read_text(), re.MULTILINE), path


def test_only_the_simulation_takes_a_seed_on_the_privacy_path():
    owners = set()
    for path in SOURCES:
        if unit_of(path) not in {"noise", "mechanisms", "ballots", "accounting"}:
            continue
        tree = ast.parse(path.read_text())
        for owner in [tree, *(node for node in ast.walk(tree) if isinstance(node, ast.ClassDef))]:
            for function in (node for node in owner.body if isinstance(node, ast.FunctionDef)):
                names = {
                    argument.arg for argument in [*function.args.args, *function.args.kwonlyargs]
                }
                if names & {"seed", "random_state", "rng", "generator"}:
                    owners.add(getattr(owner, "name", path.name))
    assert owners == {"SimulationNoise"}


def test_every_error_has_a_code_of_its_own():
    classes = [
        one
        for one in vars(exceptions).values()
        if isinstance(one, type) and issubclass(one, Exception)
    ]
    codes = [error.code for error in classes if issubclass(error, exceptions.TutelageError)]
    assert len(set(codes)) == len(codes)
    assert all(issubclass(error, exceptions.TutelageError | UserWarning) for error in classes)
