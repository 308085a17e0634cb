"""Give griffe what readers of the reference need. An extension named in mkdocs.yml.

Classes derived from `NamedTuple`, sections of settings, parts of a card, and records get the constructor that Python
gives them. Types read as in the docstring, or else without private aliases. Names and parameters that begin with an
underscore are left out, and the parameters of the estimators are grouped.
"""

import ast
import re
from collections.abc import Iterator
from typing import Any, cast

import griffe

ARRAY = re.compile(
    r"\b(?:np[t.]?\.)?(?:NDArray\[[^\[\]]*(?:\[\w+\])?\]|(?:ArrayLike|Matrix|FloatArray|IntArray|Ballots)\b)"
)
DESCRIBED = re.compile(r"^(\*{0,2}\w+(?:, \*{0,2}\w+)*)(?: : (.+))?(?=\n +\S)", re.MULTILINE)
NOT_A_TYPE = re.compile(r", (?:optional|default\b.*)$")
BETWEEN_TYPES = re.compile(r", (?![^(]*\))")
DATACLASS = griffe.ExprName("dataclasses.dataclass")
RECORDS: dict[str, griffe.Expr] = {
    "frozen": DATACLASS,
    "by_identity": DATACLASS,
    "settable": DATACLASS,
    "by_keywords": griffe.ExprCall(DATACLASS, [griffe.ExprKeyword("kw_only", "True")]),
}
# Bases whose classes take their fields.
WITH_CONSTRUCTOR = ("NamedTuple", "Part", "Section", "Settings")
GROUPED = ("PATEClassifier", "PATERegressor")
GROUPS = {
    "Privacy": "epsilon delta budget ledger releases unit noise",
    "Target": "classes target_range question goal class_weight",
    "Method": "method columns features",
    "Running": "random_state n_jobs progress",
}


class Readable(griffe.Extension):
    """Makes what the reference shows readable."""

    def on_class_members(
        self,
        *,
        node: ast.AST | griffe.ObjectNode,  # noqa: ARG002  griffe's signature
        cls: griffe.Class,
        **_: Any,
    ) -> None:
        """Look at a class whose members are known."""
        for decorator in cls.decorators:
            decorator.value = RECORDS.get(str(decorator.value), decorator.value)
        if any(str(base) in WITH_CONSTRUCTOR for base in cls.bases):
            cls.set_member("__init__", constructor_of(cls))

    def on_package(self, *, pkg: griffe.Module, **_: Any) -> None:
        """Change signatures first, from which docstrings take types that they do not state."""
        objects = [one for one in members_of(pkg) if not re.search(r"\._[a-z]", one.path)]
        for one in objects:
            if isinstance(one, griffe.Function):
                one.parameters = griffe.Parameters(*parameters_of(one))
                one.returns = without_aliases(one.returns)
            elif isinstance(one, griffe.Attribute):
                one.annotation = without_aliases(one.annotation)
        for one in objects:
            if one.docstring:
                describe(one, one.docstring)


def constructor_of(fields: griffe.Class) -> griffe.Function:
    """Return the constructor that takes the annotated attributes of a class in their order."""
    parameters = [
        griffe.Parameter(
            field.name,
            annotation=field.annotation,
            default=field.value,
            kind=griffe.ParameterKind.positional_or_keyword,
        )
        for field in fields.attributes.values()
        if field.annotation is not None
    ]
    own = griffe.Parameter("self", kind=griffe.ParameterKind.positional_or_keyword)
    return griffe.Function("__init__", parameters=griffe.Parameters(own, *parameters))


def members_of(parent: griffe.Object) -> Iterator[griffe.Object]:
    """Yield all that is defined in a module or class."""
    for member in parent.members.values():
        if isinstance(member, griffe.Object):
            yield member
            yield from members_of(member)


def parameters_of(function: griffe.Function) -> Iterator[griffe.Parameter]:
    """Yield the parameters of a function without private names: of fields, of what is unused, and of defaults."""
    for one in function.parameters:
        if one.name.startswith("_") and function.name == "__init__":
            continue
        one.name = one.name.lstrip("_")
        one.annotation = without_aliases(one.annotation)
        if re.fullmatch(r"_\w+", str(one.default)):
            one.default = function.modules_collection[function.resolve(str(one.default))].value
        yield one


def without_aliases(annotation: Any) -> str | None:
    """Return an annotation that names no alias of arrays."""
    return None if annotation is None else ARRAY.sub("array", str(annotation))


def describe(documented: griffe.Object, docstring: griffe.Docstring) -> None:
    """Let the docstring of an object state types in its own words."""
    stated = dict(types_in(docstring.value))
    signature = {one.name: one for one in getattr(documented, "parameters", ())}
    for item in elements_of(docstring):
        name = getattr(item, "name", "")
        own = signature.get(name)
        if isinstance(item, griffe.DocstringParameter) and own:
            item.value = own.default
            item.annotation = None if own.annotation == "Any" else own.annotation
        item.annotation = stated.get(name) or as_prose(item.annotation)
    if documented.name in GROUPED:
        docstring.parsed = list(grouped(docstring.parsed))


def elements_of(docstring: griffe.Docstring) -> Iterator[griffe.DocstringElement]:
    """Yield what the sections of a docstring list: parameters, attributes, values and errors."""
    for section in docstring.parsed:
        if isinstance(section.value, list):
            for item in cast("list[object]", section.value):
                if isinstance(item, griffe.DocstringElement):
                    yield item


def types_in(text: str) -> Iterator[tuple[str, str]]:
    """Yield each name that a docstring describes, with its type; several names may share one or have one each."""
    for words, stated in DESCRIBED.findall(text):
        names, shared = words.split(", "), NOT_A_TYPE.sub("", stated).strip("{}")
        types = BETWEEN_TYPES.split(shared)
        yield from zip(
            names, types if len(types) == len(names) > 1 else [shared] * len(names), strict=True
        )


def as_prose(annotation: Any) -> str | None:
    """Return a Python type in words."""
    if annotation is None:
        return None
    return re.sub(r"(\w+)\[(\w+)(?:, \.\.\.)?\]", r"\1 of \2", str(annotation)).replace(
        " | ", " or "
    )


def grouped(sections: list[griffe.DocstringSection]) -> Iterator[griffe.DocstringSection]:
    """Yield the sections of a docstring with the parameters in groups; the last group has those of no group too."""
    for section in sections:
        if isinstance(section, griffe.DocstringSectionParameters):
            left = {one.name: one for one in section.value}
            for title, names in GROUPS.items():
                members = [left.pop(name) for name in names.split() if name in left]
                members += left.values() if title == "Running" else ()
                if members:
                    yield griffe.DocstringSectionParameters(
                        members, title=f"Parameters: {title.lower()}"
                    )
        else:
            yield section
