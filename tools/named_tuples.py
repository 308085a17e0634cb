"""Give griffe the parameters of a `NamedTuple`: its fields, as Python itself does. An extension named in mkdocs.yml."""

import ast
from typing import Any

import griffe


class NamedTuples(griffe.Extension):
    """Adds to every class derived from `NamedTuple` the constructor that Python derives from its fields."""

    def on_class_members(self, *, node: ast.AST | griffe.ObjectNode, cls: griffe.Class, **_: Any) -> None:  # noqa: ARG002  griffe's signature
        """Look at a class whose members are known."""
        if any(str(base) == "NamedTuple" for base in cls.bases):
            cls.set_member("__init__", constructor_of(cls))


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
