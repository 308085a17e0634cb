"""The rows that a configuration names, as its files have them.

Columns keep their names, and cells their types. The estimator decides what they mean, as in Python.
"""

from typing import Any, final

from tutelage._internal.files import rows_in
from tutelage._internal.records import by_keywords
from tutelage._internal.typing import Array, Private
from tutelage.cli.config import PrivateSection, RunConfig
from tutelage.datasets import DATASETS
from tutelage.exceptions import ConfigError
from tutelage.features.columns import public_features
from tutelage.tables import Table, read_batches, read_table


@final
@by_keywords
class Sources(Private):
    """The rows of a configuration: tables, batches of a table, or arrays."""

    # X, y, entity_ids and silos, as `fit` takes them, and other private columns.
    private: dict[str, Any]
    public: Any = None  # all public rows; None where a schema takes their place
    label: str | None = None  # the column of public numbers, beside a schema
    labels: Any = None  # of all public rows
    classes: Any = None  # as declared; None if public labels say them
    kinds: Any = None  # of named columns, as far as they are declared

    def public_rows(self, rows: Any) -> Any:
        """Return some of the public rows, by their numbers."""
        features = self.features
        return features.take(rows) if isinstance(features, Table) else features[rows]

    @property
    def features(self) -> Any:
        """The public rows without columns of labels and ids."""
        return public_features(self.public, *self.private.values())


def load_sources(config: RunConfig) -> Sources:
    """Read the files that `config` names; refusals quote no private cell."""
    private = config.private
    if config.dataset is not None:
        return _bundled(config.dataset)
    if private is None or (config.public.file is None and config.schema is None):
        raise ConfigError(
            "Name the private rows in [private] `file` and the public rows in [public] `file`."
        )
    return _from_tables(config, private) if private.is_table else _from_arrays(config, private)


def _bundled(name: str) -> Sources:
    split = DATASETS[name]()
    rows, public = split.tables()
    return Sources(
        private={"X": rows, "y": "income", "entity_ids": None, "silos": None},
        public=public.without(["income"]),
        labels=public.column("income"),
        classes=split.classes,
        kinds=split.kinds,
    )


def _from_tables(config: RunConfig, private: PrivateSection) -> Sources:
    target, label = config.target.column, config.public.label
    path = config.input_file("private")
    rows: Any = read_batches(path) if private.batches else read_table(path)
    special = [target, *filter(None, (private.entity, private.silo))]
    # Before the public rows are looked at, which would have a misspelled one as a feature.
    for name in special:
        rows.require([name]) if private.batches else rows.column(name)
    given = {"X": rows, "y": target, "entity_ids": private.entity, "silos": private.silo}
    public = read_table(config.input_file("public")) if config.public.file else None
    if public is None or config.schema is not None:
        numbers = None if public is None or target not in public.columns else public
        known = None if numbers is None else target
        return Sources(private=given, public=numbers, label=known, classes=config.target.classes)
    for name in config.columns:
        if name not in public.columns:
            raise ConfigError(
                f"`{name}` in [columns] must be a column of {public.source}. Check the spelling."
            )
    kinds = {name: kind for name, kind in config.columns.items() if kind != "ignore"}
    ignored = {*private.ignore, *(config.columns.keys() - kinds.keys())}
    if not public.columns.keys() - {*special, label, *ignored}:
        raise ConfigError(
            f"{public.source} must have feature columns besides those named in the configuration."
        )
    labels = None if label is None else public.column(label)
    return Sources(
        private=given,
        public=public.without(({label, *ignored} & public.columns.keys()) - {*special}),
        labels=labels,
        classes=config.target.classes,
        kinds=kinds,
    )


def _from_arrays(config: RunConfig, private: PrivateSection) -> Sources:
    target, label = config.target.column, config.public.label
    rows = rows_in(config.input_file("private"), target, private.entity, private.silo)
    public = rows_in(config.input_file("public"), label)
    labels = None if label is None else _texts(public[label])
    # Other arrays may say whose row it is. They are no part of the rows by which a ledger knows the data.
    others = {
        name: rows[name]
        for name in rows
        if name not in ("X", target, private.silo)
        and rows.form(name).shape == rows.form("X").shape[:1]
    }
    return Sources(
        private={
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
