"""The rows that a configuration names, as its files have them.

Columns keep their names, and cells their types. The estimator decides what they mean, as in Python.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, final

from tutelage._internal.files import rows_in
from tutelage._internal.records import Entries, by_keywords
from tutelage._internal.typing import Array, IntArray, Private
from tutelage.cli.config import PrivateSection, RunConfig
from tutelage.datasets import DATASETS
from tutelage.exceptions import ConfigError
from tutelage.people.tiers import Tiers
from tutelage.tables import Batches, Table, read_batches, read_table


@final
@by_keywords
class Sources(Private):
    """The rows of a configuration: tables, batches of a table, or arrays."""

    # X, y, entity_ids, silos and tiers, as `fit` takes them, and other private columns.
    private: Entries
    special: Sequence[str] = ()  # columns of private tables that are no features
    public: Any = None  # all public rows; None where a schema takes their place
    label: str | None = None  # the column of public numbers, beside a schema
    labels: Array | None = None  # of all public rows
    classes: object = None  # as declared; None if public labels say them
    # Kinds of the named columns that are declared.
    kinds: Mapping[str, str | Sequence[Any]] | None = None

    def public_rows(self, rows: IntArray) -> Any:
        """Return some of the public rows, by their numbers."""
        features = self.features
        if isinstance(features, Table):
            return features.take(rows)
        return features[rows]

    @property
    def features(self) -> Any:
        """The public rows without columns of labels and ids."""
        # It loads scikit-learn, which a file that is refused does not need.
        from tutelage.features.columns import public_features

        return public_features(self.public, *self.private.values(), *self.special)


def load_sources(config: RunConfig) -> Sources:
    """Read the files that `config` names; refusals quote no private cell."""
    private = config.private
    if config.dataset is not None:
        split = DATASETS[config.dataset]()
        rows, public = split.tables()
        return Sources(
            private={"X": rows, "y": "income", "entity_ids": None, "silos": None},
            public=public.without(["income"]),
            labels=public.column("income"),
            classes=split.classes,
            kinds=split.kinds,
        )
    if private is None or (config.public.file is None and config.schema is None):
        raise ConfigError(
            "Name the private rows in [private] `file` and the public rows in [public] `file`."
        )
    if private.is_table:
        return _sources_in_tables(config, private)
    return _sources_in_arrays(config, private)


def _sources_in_tables(config: RunConfig, private: PrivateSection) -> Sources:
    target = config.target.column
    label = config.public.label
    special = [target, *private.id_columns]
    rows = _private_rows(config.input_file("private"), special, in_batches=private.batches)
    of_private: Entries = {
        "X": rows,
        "y": target,
        "entity_ids": private.entity,
        "silos": private.silo,
    }
    if private.tier is not None:
        of_private["tiers"] = Tiers(private.tier, config.privacy.tiers or {})
    public = None
    if config.public.file:
        public = read_table(config.input_file("public"))
    names = {*(rows.names if isinstance(rows, Batches) else rows.columns)}
    for name in private.ignore:
        if name not in names and (public is None or name not in public.columns):
            raise ConfigError(
                f"`ignore` in [private] must name columns of the private or public file. Neither has {name!r}; check "
                "the spelling."
            )
    if public is None or config.schema is not None:
        sources = Sources(private=of_private, special=special, classes=config.target.classes)
        if public is None or target not in public.columns:
            return sources
        return replace(sources, public=public, label=target)
    for name in config.columns:
        if name not in public.columns:
            raise ConfigError(
                f"`{name}` in [columns] must be a column of {public.source}. Check the spelling."
            )
    kinds = {name: kind for name, kind in config.columns.items() if kind != "ignore"}
    left_out = {*private.ignore, *(config.columns.keys() - kinds.keys())}
    if label is not None:
        left_out.add(label)
    if not public.columns.keys() - {*special, *left_out}:
        raise ConfigError(
            f"{public.source} must have feature columns besides those named in the configuration."
        )
    return Sources(
        private=of_private,
        special=special,
        public=public.without((left_out & public.columns.keys()) - {*special}),
        labels=None if label is None else public.column(label),
        classes=config.target.classes,
        kinds=kinds,
    )


def _private_rows(path: Path, special: list[str], *, in_batches: bool) -> Batches | Table:
    """Return a private table, once it has these columns: a misspelled one would be a feature of the public rows."""
    if in_batches:
        batches = read_batches(path)
        for name in special:
            batches.require([name])
        return batches
    table = read_table(path)
    for name in special:
        table.column(name)
    return table


def _sources_in_arrays(config: RunConfig, private: PrivateSection) -> Sources:
    target = config.target.column
    label = config.public.label
    rows = rows_in(config.input_file("private"), target, *private.id_columns)
    public = rows_in(config.input_file("public"), label)
    labels = None if label is None else _texts(public[label])
    # Other arrays may say whose row it is. They are no part of the rows by which a ledger knows the data.
    others = {
        name: rows[name]
        for name in rows
        if name not in ("X", target, private.silo, private.tier)
        and rows.form(name).shape == rows.form("X").shape[:1]
    }
    tiers: Entries = {}
    if private.tier is not None:
        tiers["tiers"] = Tiers(_texts(rows[private.tier]), config.privacy.tiers or {})
    return Sources(
        private={
            **tiers,
            "X": rows["X"],
            "y": _texts(rows[target]),
            "entity_ids": None if private.entity is None else rows[private.entity],
            "silos": None if private.silo is None else rows[private.silo],
            "others": others,
        },
        public=public["X"],
        labels=labels,
        classes=config.target.classes,
    )


def _texts(cells: Array) -> Array:
    """Return cells, and bytes as text."""
    return cells.astype(str) if cells.dtype.kind == "S" else cells
