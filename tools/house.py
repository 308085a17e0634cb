"""Measure the package of a checkout: its size, its functions, who imports whom, and what lacks a docstring.

    python tools/house.py [FOLDER] [--json]

FOLDER is a checkout with a `pyproject.toml`, or a package; the default is this repository. The source is parsed with
`ast`. Nothing is imported. How each number is counted:

installed lines
    All lines of all `.py` files of the packages in the wheel: those that `[tool.hatch.build.targets.wheel]` names, or
    else every package in `src/`, or else in the checkout itself. Tests beside the package are not counted.
code lines
    Lines with at least one token that belongs neither to a comment nor to a docstring.
docstring lines
    Lines from the opening to the closing quotes of the docstring of a module, class or function.
blank and comment lines
    All others.
functions
    Every `def` and `async def`: functions, methods, and functions inside them. Their length is the number of code lines
    from `def` to the end: the signature counts, decorators and the docstring do not. Lines of a function inside a
    function count for both. The 95th percentile is the smallest length that at least 95 % of functions do not exceed.
median module
    The median of the code lines per module. Empty modules count.
modules with one importer
    Modules, except `__init__.py`, that exactly one other module imports. Imports in functions and under `TYPE_CHECKING`
    count too. `import a.b` and `from a.b import name` import the module `a.b`, or `a.b.name` if that is a module; the
    packages around it are not counted.
import cycles
    Groups of modules that import each other while they are loaded: imports in functions and under `TYPE_CHECKING` do
    not count. Each group is listed once, whole. The goal is none.
import cycles with deferred imports
    The same with the imports in functions and under `TYPE_CHECKING`.
public names without a docstring
    Modules, classes, functions and methods in whose dotted name no part starts with an underscore. Setters, deleters,
    overloads, overrides (`@override`) and functions inside functions are left out.
"""

import argparse
import ast
import io
import json
import math
import statistics
import tokenize
import tomllib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import Any

_LAYOUT = {
    tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER,
}  # fmt: skip
_Function = ast.FunctionDef | ast.AsyncFunctionDef
_Documented = ast.Module | ast.ClassDef | _Function


@dataclass(frozen=True)
class House:
    """The numbers of one package; the module's docstring says how each is counted."""

    modules: int
    installed_lines: int
    code_lines: int
    docstring_lines: int
    blank_and_comment_lines: int
    functions: int
    median_function: float
    p95_function: int
    longest_function: int
    functions_of_at_most_three_lines: int
    median_module: float
    longest_modules: dict[str, int]
    modules_with_one_importer: list[str]
    import_cycles: list[list[str]]
    import_cycles_with_deferred_imports: list[list[str]]
    public_names_without_docstring: list[str]


class Module:
    """One parsed file under its dotted name."""

    def __init__(self, name: str, path: Path) -> None:
        self.name = name
        self.is_package = path.name == "__init__.py"
        self._text = path.read_text(encoding="utf-8")
        self.tree = ast.parse(self._text)
        self.nodes = list(ast.walk(self.tree))
        self.lines = len(self._text.splitlines())

    @cached_property
    def docstring_lines(self) -> set[int]:
        """Numbers of the lines in docstrings."""
        lines = set[int]()
        for node in self.nodes:
            if isinstance(node, _Documented) and _has_docstring(node):
                lines.update(_lines_of(node.body[0]))
        return lines

    @cached_property
    def code_lines(self) -> set[int]:
        """Numbers of the lines with code."""
        lines = set[int]()
        for token in tokenize.generate_tokens(io.StringIO(self._text).readline):
            if token.type not in _LAYOUT:
                lines.update(range(token.start[0], token.end[0] + 1))
        return lines - self.docstring_lines

    @cached_property
    def function_lengths(self) -> list[int]:
        """Code lines of each function."""
        functions = (node for node in self.nodes if isinstance(node, _Function))
        return [len(self.code_lines.intersection(_lines_of(node))) for node in functions]

    def imports(self, known: set[str], *, while_loading: bool = False) -> set[str]:
        """Return the modules of the package that this one imports."""
        nodes = _run_while_loading(self.tree) if while_loading else self.nodes
        return {module for node in nodes for module in self._imported(node, known)} - {self.name}

    def _imported(self, node: ast.AST, known: set[str]) -> set[str]:
        if isinstance(node, ast.Import):
            return {alias.name for alias in node.names} & known
        if not isinstance(node, ast.ImportFrom):
            return set()
        base = self._absolute(node)
        inner = {f"{base}.{alias.name}" for alias in node.names}
        modules = inner & known
        if inner - known:
            modules |= {base} & known
        return modules

    def _absolute(self, node: ast.ImportFrom) -> str:
        """Return the module that `from … import` names, where dots count from this module too."""
        parts = self.name.split(".")
        parts = parts[: len(parts) + self.is_package - node.level] if node.level else []
        return ".".join([*parts, *filter(None, [node.module])])

    def undocumented(self) -> Iterator[str]:
        """Yield the public names without a docstring."""
        if not any(part.startswith("_") for part in self.name.split(".")):
            yield from _undocumented(self.tree, self.name)


def _lines_of(node: ast.stmt) -> range:
    return range(node.lineno, (node.end_lineno or 0) + 1)


def _has_docstring(node: _Documented) -> bool:
    return ast.get_docstring(node, clean=False) is not None


def _run_while_loading(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes that importing a module runs."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, _Function | ast.Lambda):
            continue
        if isinstance(child, ast.If) and ast.unparse(child.test).endswith("TYPE_CHECKING"):
            for other in child.orelse:
                yield other
                yield from _run_while_loading(other)
            continue
        yield child
        yield from _run_while_loading(child)


def _undocumented(node: _Documented, name: str) -> Iterator[str]:
    if not _has_docstring(node):
        yield name
    if isinstance(node, _Function):
        return
    for child in node.body:
        if (
            isinstance(child, _Function | ast.ClassDef)
            and not child.name.startswith("_")
            and not _is_described(child)
        ):
            yield from _undocumented(child, f"{name}.{child.name}")


def _is_described(node: _Function | ast.ClassDef) -> bool:
    """Return whether another definition describes this one: it sets a property, overloads or overrides."""
    decorators = {ast.unparse(decorator).rpartition(".")[2] for decorator in node.decorator_list}
    return bool(decorators & {"setter", "deleter", "overload", "override"})


def packages(folder: Path) -> list[Path]:
    """Return the package folders of a checkout; a package is its own."""
    if (folder / "__init__.py").is_file():
        return [folder]
    project = folder / "pyproject.toml"
    if project.is_file():
        setting: Any = tomllib.loads(project.read_text(encoding="utf-8"))
        for key in ("tool", "hatch", "build", "targets", "wheel"):
            setting = setting.get(key, {})
        if "packages" in setting:
            return [folder / name for name in setting["packages"]]
    home = folder / "src" if (folder / "src").is_dir() else folder
    return sorted(
        found.parent for found in home.glob("*/__init__.py") if found.parent.name != "tests"
    )


def modules_of(package: Path) -> Iterator[Module]:
    """Yield the modules of a package, by name."""
    for path in sorted(package.rglob("*.py")):
        parts = path.relative_to(package.parent).with_suffix("").parts
        yield Module(".".join(parts[:-1] if path.name == "__init__.py" else parts), path)


def cycles(imports: dict[str, set[str]]) -> list[list[str]]:
    """Return the groups of at least two modules that reach each other."""
    reached = {module: _reached(module, imports) for module in imports}
    groups = {
        frozenset(other for other in reached[one] if one in reached[other]) for one in imports
    }
    return sorted(sorted(group) for group in groups if len(group) > 1)


def _reached(module: str, imports: dict[str, set[str]]) -> set[str]:
    found = set[str]()
    frontier = imports[module]
    while frontier:
        found |= frontier
        frontier = {name for other in frontier for name in imports[other]} - found
    return found


def measure(folder: Path) -> House:
    """Return the numbers of a checkout or package."""
    modules = [module for package in packages(folder) for module in modules_of(package)]
    if not modules:
        raise SystemExit(
            f"FOLDER must be a package or a checkout with one. {folder} has no package."
        )
    known = {module.name for module in modules}
    imports = {module.name: module.imports(known) for module in modules}
    importers = Counter(name for names in imports.values() for name in names)
    code = {module.name: len(module.code_lines) for module in modules}
    installed = sum(module.lines for module in modules)
    docstrings = sum(len(module.docstring_lines) for module in modules)
    lengths = sorted(length for module in modules for length in module.function_lengths) or [0]
    return House(
        modules=len(modules),
        installed_lines=installed,
        code_lines=sum(code.values()),
        docstring_lines=docstrings,
        blank_and_comment_lines=installed - sum(code.values()) - docstrings,
        functions=sum(len(module.function_lengths) for module in modules),
        median_function=statistics.median(lengths),
        p95_function=lengths[math.ceil(0.95 * len(lengths)) - 1],
        longest_function=lengths[-1],
        functions_of_at_most_three_lines=sum(length <= 3 for length in lengths),
        median_module=statistics.median(code.values()),
        longest_modules=dict(sorted(code.items(), key=lambda item: (-item[1], item[0]))[:10]),
        modules_with_one_importer=[
            it.name for it in modules if importers[it.name] == 1 and not it.is_package
        ],
        import_cycles=cycles(
            {module.name: module.imports(known, while_loading=True) for module in modules}
        ),
        import_cycles_with_deferred_imports=cycles(imports),
        public_names_without_docstring=[
            name for module in modules for name in module.undocumented()
        ],
    )


def table(house: House) -> str:
    """Return the numbers one per line, then the names behind those that should be zero, and the longest modules."""
    numbers = dict[str, float]()
    lists = dict[str, list[str]]()
    for field in fields(house):
        label = field.name.replace("_", " ")
        value: Any = getattr(house, field.name)
        if field.name == "longest_modules":
            lists[label] = [f"{lines:>6,}  {name}" for name, lines in house.longest_modules.items()]
        elif isinstance(value, int | float):
            numbers[label] = value
        else:
            numbers[label] = len(value)
            if field.name != "modules_with_one_importer" and value:
                lists[label] = [name if isinstance(name, str) else " ".join(name) for name in value]
    width = max(len(label) for label in numbers)
    shown = [f"{label:<{width}}  {number:>8,}" for label, number in numbers.items()]
    for label, names in lists.items():
        shown += ["", f"{label}:", *(f"  {name}" for name in names)]
    return "\n".join(shown)


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the numbers of a checkout."""
    parser = argparse.ArgumentParser(description="Measure the package of a checkout, or a package.")
    parser.add_argument("folder", nargs="?", type=Path, default=Path(__file__).parent.parent)
    parser.add_argument("--json", action="store_true", help="print all numbers and names as JSON")
    given = parser.parse_args(arguments)
    house = measure(given.folder.resolve())
    print(json.dumps(asdict(house), indent=2) if given.json else table(house))


if __name__ == "__main__":
    main()
