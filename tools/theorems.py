"""Write docs/theorems.md: every theorem behind the accounting, the function that uses it, and its tests.

    python tools/theorems.py

Functions are imported, and tests are found by what they import and use, so every name on the page exists. The page of
the proof must name the function too.
"""

import ast
import importlib
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "theorems.md"

# Page of the proof: theorems, each with the function that applies it.
THEOREMS = {
    "sensitivity.md": [
        ("One unit moves at most one ballot per query", "partition:Shards"),
    ],
    "data_independent.md": [
        (
            "LNMax, PATE 2017 Theorem 2; GNMax, CKS 2020 Proposition 5; exponential mechanism",
            "accounting.data_independent:rdp",
        ),
        ("Randomized response is the worst pure pair", "accounting.data_independent:pure_dp_renyi"),
        ("Optimal composition; KOV 2015 Theorem 3.3", "accounting.composition:pure_dp_composition"),
        ("Composition of discrete Gaussian answers", "accounting.composition:gaussian_composition"),
        (
            "Composition of Gaussian answers; Balle and Wang 2018 Theorem 8",
            "accounting.composition:gaussian_dp_epsilon",
        ),
        ("Conversion; CKS 2020 Proposition 12", "accounting.rdp:cks2020"),
    ],
    "argmax_bound.md": [
        ("Three outcomes of a moved ballot", "accounting.data_independent:rdp_of_three_outcomes"),
        ("Search for Laplace noise", "accounting.argmax_bound:laplace_argmax"),
        ("Search for Gaussian noise", "accounting.argmax_bound:gaussian_argmax"),
        ("A threshold check", "accounting.argmax_bound:gaussian_check"),
    ],
    "ballots.md": [
        ("Distance of two bounded ballots; cost of a noisy sum", "events:NoisySumGaussian"),
        ("One count of an argmax changes", "accounting.argmax_bound:gaussian_check"),
        ("A cap on all votes of a teacher; Feldman and Zrnic 2021", "events:CappedArgmaxGaussian"),
        (
            "Discrete noise is rounded continuous noise; Peikert 2010",
            "accounting.composition:rounding_variance",
        ),
        ("Composition without a conversion", "accounting.composition:shifted_gaussian_composition"),
        (
            "A budget of μ² for adaptive releases; Smith and Thakurta 2022",
            "accounting.filter:GaussianFilter",
        ),
        ("A public map depends on one row at a time", "features.stored:map_from_bytes"),
        (
            "Ballots that are only added or removed",
            "accounting.data_independent:epsilon_if_added_or_removed",
        ),
        ("Length of the ballot that weighs public labels", "students.stacking:joint_norm"),
        ("Ballots without negative numbers, and their mean over rows", "ballots:sum_of_cells"),
        ("A smaller ε for people whose ballots are shortened", "ballots:sum_of_tiers"),
    ],
    "pate2017.md": [
        ("Conversion; Mironov 2017 Proposition 3, PATE 2017 Theorem 1", "accounting.rdp:classic"),
        ("PATE 2017 Theorem 3", "accounting.pate_bounds:log_moments"),
        ("PATE 2017 Lemma 4", "accounting.pate_bounds:log_q_laplace"),
        (
            "Lemma 4 for discrete noise and ties",
            "tutelage_reproductions.two_sided_bound:log_q_discrete",
        ),
    ],
    "pate2018.md": [
        ("PATE 2018 Theorem 6 and Proposition 10", "accounting.pate_bounds:answer_costs"),
        ("PATE 2018 Proposition 7", "accounting.pate_bounds:log_q_gaussian"),
        ("Cost of a confidence check; PATE 2018", "accounting.pate_bounds:check_costs"),
    ],
    "ledger.md": [
        ("A budget at one order covers adaptive queries", "accounting.filter:RenyiFilter"),
        ("An ε at every moment", "accounting.filter:epsilon_so_far"),
        ("Reserve, draw, settle", "ledger:Ledger"),
    ],
    "cohorts.md": [
        ("A budget for each cohort of people", "ledger:Ledger"),
    ],
    "certificate.md": [
        ("How many liars a prediction survives", "students.certificate:Certificate"),
    ],
    "local.md": [
        (
            "The worst pair of votes under a local response",
            "accounting.data_independent:response_rdp",
        ),
        ("Composition of local responses", "accounting.data_independent:response_composition"),
        ("When plurality elects the wrong class", "tutelage_consortium.local:plurality_threshold"),
    ],
    "release.md": [
        ("Reach of exact costs: two classes and checks", "publishing.cost_envelope:reach"),
        ("Reach of a noisy argmax with any number of classes", "publishing.cost_envelope:reach"),
        ("Guarantee after a passed test", "publishing.proposal:Proposal"),
        ("The best probabilities of a test", "publishing.proposal:best_chances"),
        ("Publishable ε after a test", "publishing:publish_epsilon"),
    ],
    "summed_noise.md": [
        ("A sum of discrete Gaussians is nearly one", "accounting.composition:log_ratio"),
        ("Cost of summed noise", "accounting.composition:log_distance"),
        (
            "Guarantee if fewer members are honest",
            "tutelage_consortium.schemes:epsilon_if_fewer_honest",
        ),
        (
            "View of two computing parties: votes",
            "tutelage_consortium.schemes:epsilon_for_two_computing_parties",
        ),
        ("View of two computing parties: sums", "tutelage_consortium.sharing:open_sum"),
        ("Bits of secure comparisons", "tutelage_consortium.schemes:SharedVotes"),
        ("Size of an honest sum of ballots", "tutelage_consortium.sums:SharedSums"),
    ],
    "report.md": [
        ("Length of a ballot about a classifier", "reporting.measured:ClassLayout"),
        ("Length of a ballot about a regressor", "reporting.measured:NumberLayout"),
        ("Interval of a ratio of noisy sums; Fieller 1954", "reporting.intervals:of_ratio"),
        ("Interval of an AUC of noisy counts", "reporting.intervals:of_ranking"),
        ("Largest gap of groups; Donner and Zou 2012", "reporting.intervals:of_largest_distance"),
    ],
    "exact.md": [
        ("Exact cost of every answer and check", "accounting.exact:ExactCosts"),
        ("Composition of Rényi costs; Mironov 2017 Proposition 1", "accounting:Accountant"),
    ],
}


def page() -> str:
    """Return the page as it should be."""
    trees = {
        f"{folder}/{path.name}": ast.parse(path.read_text())
        for folder in ("consortium/tests", "tests")
        for path in sorted((ROOT / folder).glob("test_*.py"))
    }
    lines = [
        "# Theorems, functions, tests",
        "",
        "Each line names a proof, the function that applies it, and the test file that uses this function most.",
        "[The notation](notation.md) lists the papers.",
        "",
    ]
    for proof, theorem, where in [
        (proof, *entry) for proof, entries in THEOREMS.items() for entry in entries
    ]:
        module, name = where.split(":")
        function = f"`{module}.{name}`"
        if function not in (ROOT / "docs" / "proofs" / proof).read_text():
            raise SystemExit(
                f"{proof} does not name {function}; add it behind the theorem that it uses."
            )
        home = module if module.startswith("tutelage_") else f"tutelage.{module}"
        applied = getattr(importlib.import_module(home), name)
        uses = {
            path: number
            for path, tree in trees.items()
            if (number := tests_that_use(applied, tree))
        }
        if not uses:
            raise SystemExit(f"No test uses {function}; add one.")
        most = min(uses, key=lambda path: (-uses[path], path))
        lines.append(f"- [{theorem}](proofs/{proof}): {function}, `{most}`")
    return "\n".join([*lines, ""])


def tests_that_use(applied: Any, tree: ast.Module) -> int:
    """Return how many tests of a file use a function that it imports, themselves or through a helper of that file."""
    spellings = spellings_of(applied, tree)
    functions = (
        {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
        if spellings
        else {}
    )
    used = {name: names_in(node) for name, node in functions.items()}
    tests = [name for name in functions if name.startswith("test_")]
    return sum(
        bool(spellings & used[test].union(*(used[name] for name in used[test] & functions.keys())))
        for test in tests
    )


def spellings_of(applied: Any, tree: ast.Module) -> set[str]:
    """Return what a file calls something of the package: by the name it imports, or as an attribute of a module."""
    found = set[str]()
    for module, original, name in imports_in(tree):
        within = f"{name}.{applied.__name__}"
        if original == applied.__name__ and imported(module, original) is applied:
            found.add(name)
        elif (
            within in names_in(tree)
            and getattr(imported(module, original), applied.__name__, None) is applied
        ):
            found.add(within)
    return found


@cache
def imports_in(tree: ast.Module) -> list[tuple[str, str, str]]:
    """Return what a file imports from the package: from where, its name there, and its name here."""
    found = [
        (node.module or "", node.names)
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
    ]
    ours = [(module, names) for module, names in found if module.startswith("tutelage")]
    return [
        (module, alias.name, alias.asname or alias.name)
        for module, names in ours
        for alias in names
    ]


def imported(module: str, name: str) -> Any:
    """Return what `from module import name` binds."""
    home = importlib.import_module(module)
    return (
        getattr(home, name) if hasattr(home, name) else importlib.import_module(f"{module}.{name}")
    )


@cache
def names_in(node: ast.AST) -> set[str]:
    """Return every name and dotted name that is mentioned in a piece of code."""
    return {
        ast.unparse(part) for part in ast.walk(node) if isinstance(part, ast.Name | ast.Attribute)
    }


if __name__ == "__main__":
    PAGE.write_text(page())
