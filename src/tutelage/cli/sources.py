"""The sources that a configuration names: private and public rows, their feature map, and the release of them.

The same public row is the same query in every verb.
"""

import warnings
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, final

import numpy as np
from msgspec import structs

from tutelage._internal.files import StoredArrays, name_in, read_arrays
from tutelage._internal.typing import Matrix
from tutelage.cli.config import PrivateSection, RunConfig, TargetSection, problems_of_classes
from tutelage.cli.text import remark
from tutelage.cli.words import on_command_line
from tutelage.datasets import DATASETS
from tutelage.digests import canonical
from tutelage.estimator import PATEClassifier, PATERegressor
from tutelage.estimator.inputs import Caller
from tutelage.exceptions import (
    ConfigError,
    FewPublicRowsWarning,
    InvalidDataError,
    PreflightWarning,
    TutelageError,
)
from tutelage.features import PublicColumns, PublicRows, Schema
from tutelage.features.columns import FEATURE_MAPS, Columns, require_as_public
from tutelage.methods.choice import Chooser
from tutelage.partition import canonical_ids
from tutelage.preflight import Words, sorted_by
from tutelage.release import PreparedRelease
from tutelage.tables import TABLE_FILES, Batches, Table, is_missing, read_batches, read_table
from tutelage.targets import Classes, numbers_of

_LIST = (
    ". Correct these rows, or list every class in `classes`, in which `other = [...]` can merge labels. Classes are "
    "published, so add only public knowledge. To see the labels, print `set(read_table(FILE).texts(LABEL))` in Python."
)
_EMPTY = {"", "nan", "none", "null", "na", "n/a", "nat"}
_IN_TOML = Words(
    entity='set `entity = "{name}"` in [private]',
    of_array="store it as an array of its own, and name it as `entity` in [private]",
    row='set `unit = "row"` in [private]',
    insist="pass --insist to `tutelage run`",
    public_labels='set `label = "{name}"` in [public]',
)


@final
@dataclass(frozen=True, slots=True, eq=False)
class RowsInBatches:
    """Private rows that are read in batches, their settings, and the public rows as read."""

    rows: Batches
    target: TargetSection
    entity: str | None
    public: Table


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RunData:
    """The rows of a run and the public names of their columns: first those of numbers, then those of categories."""

    X_private: Matrix
    y_private: Matrix
    X_public: Matrix
    y_public: Matrix | None
    classes: tuple[Any, ...]
    features: tuple[str, ...]
    numbers: tuple[str, ...]
    categorical: tuple[str, ...] = ()
    entity_ids: Matrix | None = None
    silos: Matrix | None = None
    columns: PublicColumns | None = None  # how named columns became numbers, if public rows say so
    whole_rows: Table | None = None  # as read, by which a ledger knows them; None if `X_private` has all columns
    others: dict[str, Matrix] = field(default_factory=dict, repr=False)  # private columns of an npz file beside `X`
    public: Table | None = None  # public rows as read, if a schema reads them and they have numbers
    unused_labels: str | None = None  # the column of public labels that the configuration does not name
    batches: RowsInBatches | None = None  # if rows are read in batches; then the private rows above are of the first


def load_sources(config: RunConfig, *, by_schema: bool = False) -> RunData:
    """Read the rows that `config` names; refusals quote no private cell."""
    if config.schema is not None and not by_schema:
        fix = "No other verb takes a `range` in [target]." if config.of_numbers else "Name public rows in `file`."
        raise ConfigError(f"Only `tutelage run` and `tutelage audit` take a `schema` in [public]. {fix}")
    if config.dataset is not None:
        return _bundled(config.dataset)
    if config.schema is not None and config.private is not None:
        public = read_table(config.input_file("public")) if config.public.file else None
        return _by_schema(config, config.private, config.schema, public)
    if config.private is None or config.public.file is None:
        raise ConfigError("Name the private rows in [private] `file` and the public rows in [public] `file`.")
    private, public = config.input_file("private"), config.input_file("public")
    if all(path.name.lower().endswith(TABLE_FILES) for path in (private, public)):
        return _from_tables(config, config.private)
    if {private.suffix.lower(), public.suffix.lower()} == {".npz"}:
        if config.columns:
            raise ConfigError("[columns] is only for tables, and npz files contain arrays of numbers. Leave it out.")
        return _from_npz(config, config.private)
    raise ConfigError(
        "`file` in [private] and [public] must both be tables (.csv, .tsv or .txt, also .gz; or .parquet) or both .npz."
    )


def check_public_rows(config: RunConfig, data: RunData) -> bool:
    """Refuse to keep all public rows for the score; return whether those kept are unlike the others, and warn of it."""
    public, last = len(data.X_public), config.public.evaluate_last or 0
    if last >= public and config.schema is None:
        raise ConfigError(f"`evaluate_last` in [public] must be less than the {public} public rows. Got {last}.")
    if not last or data.y_public is None or config.public.later:
        return False
    columns = dict(zip((*data.numbers, *data.categorical), data.X_public.T, strict=False))
    doubts = [*sorted_by(columns, data.y_public, last)]
    for doubt in doubts:
        remark(f"warning: {doubt}")
    return bool(doubts)


def pool_of(config: RunConfig, data: RunData) -> Matrix:
    """Return the public rows that features, choice of queries and student may see: not those kept for scoring."""
    return data.X_public[: len(data.X_public) - (config.public.evaluate_last or 0)]


def labels_of_pool(config: RunConfig, data: RunData) -> Matrix | None:
    """Return the labels of the public rows that are not kept for scoring, if the method starts from labels."""
    labels = config.chosen.start_from(data.y_public)
    return labels if labels is None or config.of_numbers else labels[: len(pool_of(config, data))]


def _bundled(name: str) -> RunData:
    split = DATASETS[name]()
    names = np.array(split.classes)
    categorical = tuple(name for name in split.feature_names if name not in split.numbers)
    features = (*split.numbers, *categorical)
    order = [split.feature_names.index(name) for name in features]
    return RunData(
        X_private=split.X_private[:, order],
        y_private=names[split.y_private],
        X_public=split.X_public[:, order],
        y_public=names[split.y_public],
        classes=split.classes,
        features=features,
        numbers=split.numbers,
        categorical=categorical,
        columns=PublicColumns(features, (None,) * len(features)),
    )


def _from_tables(config: RunConfig, private: PrivateSection) -> RunData:
    private_path, public_path = config.input_file("private"), config.input_file("public")
    public_label, kinds = config.public.label, config.columns
    public_rows = read_table(public_path)
    batches = read_batches(private_path) if private.batches else None
    rows = read_table(private_path) if batches is None else next(batches.tables(batches.names))
    public_labels = [] if public_label is None else public_rows.texts(public_label)
    target = _with_classes(config.target, public_labels)
    for name in kinds:
        if name not in public_rows.columns:
            raise ConfigError(f"`{name}` in [columns] must be a column of {public_path.name}. Check the spelling.")
    ignored = [name for name, kind in kinds.items() if kind == "ignore"]
    special = {target.column, private.entity, private.silo, public_label, *private.ignore, *ignored}
    names = tuple(name for name in public_rows.columns if name not in special)
    if not names:
        raise InvalidDataError(f"{public_path.name} has no feature columns besides those named in the configuration.")
    columns = PublicColumns.learn(public_rows, names, {name: kinds[name] for name in names if name in kinds})
    require_as_public(rows, public_rows, columns)
    return RunData(
        X_private=columns.transform(rows),
        y_private=_declared(rows.texts(target.column), target, private.file),
        X_public=columns.transform(public_rows),
        y_public=_declared_public(public_labels, target),
        classes=tuple(target.classes or ()),
        features=names,
        numbers=columns.numbers,
        categorical=columns.categorical,
        entity_ids=ids_in(rows, private.entity),
        silos=ids_in(rows, private.silo),
        columns=columns,
        whole_rows=rows,
        unused_labels=_unused(target, public_label, public_rows.columns),
        batches=None if batches is None else RowsInBatches(batches, target, private.entity, public_rows),
    )


def _by_schema(config: RunConfig, private: PrivateSection, schema: Schema, public: Table | None) -> RunData:
    """Return private rows that are read by a public schema, and public rows if they have the target."""
    path, target = config.input_file("private"), config.target
    if not path.name.lower().endswith(TABLE_FILES):
        raise ConfigError(
            "`file` in [private] must be a table if [public] has a `schema`, because its columns need names."
        )
    if public is not None and (target.range is None or target.column not in public.columns):
        public = None  # which has proposed the schema
    rows = read_table(path)
    for name in schema.names:
        rows.column(name)  # refuses a name that is misspelled
    if special := {target.column, private.entity, private.silo, *private.ignore} & set(schema.names):
        raise ConfigError(
            f"`{sorted(special)[0]}` is named in [private] or [target], so it must not be in the schema. Remove it "
            "from the schema."
        )
    ids = ids_in(rows, private.entity)
    schema.table(rows, ids)
    if target.range is not None:
        Schema({target.column: target.range}).table(rows, ids)
    return RunData(
        X_private=schema.transform(rows),
        y_private=_declared(rows.texts(target.column), target, private.file)
        if target.range is None
        else numbers_of(rows.column(target.column), f"'{target.column}' of {path.name}"),
        X_public=np.empty((0, len(schema.names))),
        y_public=None if public is None else numbers_of(public.column(target.column), f"'{target.column}' of [public]"),
        public=public,
        classes=tuple(target.classes or target.range or ()),
        features=schema.names,
        numbers=schema.names,
        entity_ids=ids,
        silos=ids_in(rows, private.silo),
        whole_rows=rows,
    )


def ids_in(table: Table, name: str | None) -> Matrix | None:
    """Return a column of ids in one spelling; fractions, which may have lost digits, are refused."""
    if name is None:
        return None
    cells = ["" if is_missing(cell) else cell for cell in table.column(name).tolist()]
    return canonical_ids(cells, f"An id in '{name}' of {table.source}")


def _from_npz(config: RunConfig, private: PrivateSection) -> RunData:
    private_path, public_path = config.input_file("private"), config.input_file("public")
    public_label = config.public.label
    rows, public_rows = read_arrays(private_path), read_arrays(public_path)
    _check_forms(rows, config.target.column, private.entity, private.silo)
    _check_forms(public_rows, public_label)
    public_labels = np.array([]) if public_label is None else public_rows[public_label]
    target = _with_classes(config.target, public_labels.tolist())
    features = [arrays.form("X").shape[1] for arrays in (rows, public_rows)]
    if features[0] != features[1]:
        raise InvalidDataError(
            f"Array 'X' must have as many features in {private_path.name} as in {public_path.name}. Got {features[0]} "
            f"and {features[1]}."
        )

    def optional(name: str | None) -> Matrix | None:
        return None if name is None else rows[name]

    names = tuple(f"column {number}" for number in range(features[1]))
    return RunData(
        X_private=rows["X"],
        y_private=_declared(rows[target.column].astype(str).tolist(), target, private.file),
        X_public=public_rows["X"],
        y_public=_declared_public(public_labels.astype(str).tolist(), target),
        classes=tuple(target.classes or ()),
        features=names,
        numbers=names,
        entity_ids=optional(private.entity),
        silos=optional(private.silo),
        unused_labels=_unused(target, public_label, public_rows),
        others={name: rows[name] for name in rows if rows.form(name).shape == rows.form("X").shape[:1]},
    )


def _with_classes(target: TargetSection, public_labels: list[Any]) -> TargetSection:
    """Return what is learned, with the labels of the public rows as classes if none are declared."""
    if target.classes is not None:
        return target
    classes = sorted({label for label in public_labels if not is_missing(label)})
    if problems := list(problems_of_classes(classes)):
        raise ConfigError(f"{problems[0]} Since [target] lists no classes, the labels of the public rows were taken.")
    return structs.replace(target, classes=classes)


def _unused(target: TargetSection, public_label: str | None, columns: Collection[str]) -> str | None:
    """Return the column of labels that public rows have, if the configuration does not name it."""
    return target.column if public_label is None and target.column in columns else None


def _check_forms(arrays: StoredArrays, *columns: str | None) -> None:
    """Refuse, before anything is unpacked, arrays that are no rows of numbers, and columns that do not fit them."""
    file = arrays.path.name
    for name in ("X", *filter(None, columns)):
        if name not in arrays:
            raise InvalidDataError(f"{file} has no array '{name}'. It has: {', '.join(arrays)}.")
        found, shape = arrays.form(name), "(rows, features)" if name == "X" else "(rows,)"
        if len(found.shape) != (2 if name == "X" else 1):
            raise InvalidDataError(f"Array '{name}' of {file} must have shape {shape}. Got {found.shape}.")
        if found.shape[0] != arrays.form("X").shape[0]:
            raise InvalidDataError(f"Arrays '{name}' and 'X' of {file} must have equally many rows.")
    if arrays.form("X").dtype.kind not in "biuf":
        raise InvalidDataError(f"Array 'X' of {file} must hold numbers.")


def _declared(spellings: list[str], target: TargetSection, file: str) -> Matrix:
    """Return the private labels as declared classes; a refusal does not name the unknown label."""
    class_of = Classes(values=target.classes).class_of()
    known = {str(label): name for label, name in class_of.items()}
    unknown = set(spellings) - set(known)
    if unknown:
        raise InvalidDataError(
            f"'{target.column}' of {file} contains a value that is not among `classes` in [target]"
            f"{cause_of_unknown(unknown, list(class_of))}"
        )
    return np.array([known[spelling] for spelling in spellings])


def _declared_public(spellings: list[str], target: TargetSection) -> Matrix | None:
    """Return the public labels, if there are any, as declared classes; being public, a stranger may be quoted."""
    known = list(map(str, Classes(values=target.classes).class_of()))
    unknown = sorted(set(spellings) - set(known))
    if unknown:
        raise InvalidDataError(
            f"The public labels contain {unknown[0]!r}, which is not among `classes` in [target]: {', '.join(known)}. "
            "Use one spelling for both."
        )
    return _declared(spellings, target, "[public]") if spellings else None


def cause_of_unknown(unknown: Iterable[str], classes: list[Any]) -> str:
    """Return the end of a refusal of private labels that are not classes: the likely mistake, without a label."""
    left = {text.strip() for text in unknown}
    empty = {text for text in left if text.casefold() in _EMPTY}
    if empty:
        return ": some labels are missing. Remove these rows, or declare a class for them."
    spellings = {str(value) for value in classes}
    if left <= spellings or {text.casefold() for text in left} <= {text.casefold() for text in spellings}:
        return ": some labels differ from a class by capital letters or blanks only. Use one spelling for both."
    numbers = [_number(text) for text in left]
    whole_classes = all(isinstance(value, int) for value in classes)
    if None in numbers:
        if whole_classes and set(numbers) == {None}:
            return ": it contains text, and `classes` are whole numbers. List the text itself in `classes`."
        return _LIST
    if any(number != round(number) for number in numbers if number is not None):
        return ": it contains numbers with fractions, which cannot be classes. Group them into classes first."
    if not whole_classes:
        return ": it contains numbers, and `classes` are text. List the numbers in `classes`."
    if {round(number) for number in numbers if number is not None} <= set(classes):
        return ": it contains whole numbers with a decimal point. Write them as integers."
    return _LIST


def _number(text: str) -> float | None:
    """Return the finite number that a text spells, if it does."""
    try:
        number = float(text)
    except ValueError:
        return None
    return number if abs(number) < float("inf") else None


def read_rows(path: Path, question: str) -> tuple[Matrix, str]:
    """Return public rows as they are asked, and the question with the names of their columns, where they have any."""
    if not path.name.lower().endswith(TABLE_FILES):
        arrays = read_arrays(path)
        return arrays[name_in(arrays, path, None, "X")], question
    table = read_table(path)
    return table.rows(), canonical([question, list(table.columns)])  # as text: a row is the same row in every file


def read_predictions(path: Path, rows: int) -> Matrix:
    """Return a student's probabilities from an npz file, one row per public row."""
    arrays = read_arrays(path)
    name = name_in(arrays, path, None, "X")
    form = arrays.form(name)
    if len(form.shape) != 2 or form.shape[0] != rows or form.dtype.kind not in "fiu":
        raise InvalidDataError(
            f"`predictions` must be numbers with one row per public row, {rows} x classes. Got {form.dtype} of shape "
            f"{form.shape} in {path}."
        )
    return arrays[name]


def learn_features(settings: RunConfig, data: RunData) -> Any:
    """Return the feature map, if any, learned from public rows that are not kept for scoring."""
    if settings.map is None:
        return None
    public, section = PublicRows(pool_of(settings, data), _source(settings)), settings.features
    try:
        columns = Columns(len(data.numbers), 0 if data.columns is None else data.columns.n_text_features)
        return FEATURE_MAPS[settings.map](public, section.components, section.image_shape, columns)
    except ValueError as error:  # about public rows and settings only
        said = " ".join(error.said(on_command_line)) if isinstance(error, TutelageError) else str(error)
        raise ConfigError(f"[features] does not fit the public rows. {said}") from None


def describe_features(settings: RunConfig) -> str:
    """Return what a card says about the feature map."""
    name = settings.map
    return "none" if name is None else f"{name}, learned from {_source(settings)}, published with the student"


def _source(settings: RunConfig) -> str:
    return settings.public.file or f"the public rows of {settings.dataset}"


def build_estimator(settings: RunConfig, data: RunData, **more: Any) -> PATEClassifier | PATERegressor:
    """Return the estimator that a configuration describes, with the parameters that one verb changes."""
    features, private, target = learn_features(settings, data), settings.private, settings.target
    model: Any = settings.estimator()
    classes: Any = data.classes
    if data.batches is not None:  # whose cells become numbers and classes while they are read
        model.columns = data.columns
        classes = data.batches.target.classes
        question = data.batches.target.asked
    elif private is None:
        question = settings.dataset
    else:
        question = Classes(values=target.classes, question=target.asked).question_key
    model.set_params(question=question, **more)
    if isinstance(model, PATEClassifier):
        model.set_params(features=features, classes=classes)
        if model.class_weight is not None:
            value_of = {str(value): value for value in classes}  # a configuration names classes by text
            model.class_weight = {value_of.get(name, name): weight for name, weight in model.class_weight.items()}
    special = {} if private is None else {"entity_ids": private.entity, "silos": private.silo}
    model._caller = Caller(
        words=_IN_TOML,
        columns=data.columns,
        others=data.others,
        apart=() if private is None else tuple(filter(None, (target.column, private.silo))),
        named={parameter: f"column '{name}'" for parameter, name in special.items()},
        unused_labels=data.unused_labels,
        tuned_on=settings.privacy.tuned_on,
    )
    return model


def prepared(
    settings: RunConfig,
    data: RunData,
    choose: Chooser | None = None,
    *,
    file: Callable[[int, Any], object] | None = None,
    progress: bool = False,
    **once: Any,
) -> PreparedRelease:
    """Return the release of a configuration, checked; `once` holds arguments of `fit` for this run alone."""
    model = build_estimator(settings, data, progress=progress)
    model._caller = replace(model._caller, file=file)
    pool = len(pool_of(settings, data))
    X, y, given = _rows(data, pool)
    if data.batches is None and settings.schema is None and pool < len(data.X_public):
        given["scored"] = data.X_public[pool:]
    with warnings.catch_warnings():
        for told in (PreflightWarning, FewPublicRowsWarning):
            warnings.simplefilter("always", told)
        return model.prepare(X, y, y_public=labels_of_pool(settings, data), choose=choose, **given, **once)


def _rows(data: RunData, n_public: int) -> tuple[Any, Any, dict[str, Any]]:
    """Return private rows, their labels and the other arguments of a fit, with the first `n_public` public rows."""
    if data.batches is not None:
        public = data.batches.public.take(range(n_public))
        ids = {"entity_ids": data.batches.entity, "silos": data.silos}
        return data.batches.rows, data.batches.target.column, {"X_public": public, **ids}
    given = {"entity_ids": data.entity_ids, "silos": data.silos, "whole_rows": data.whole_rows}
    if data.columns is None and data.whole_rows is not None:  # read by a schema
        return data.whole_rows, data.y_private, {**given, "X_public": data.public}
    return data.X_private, data.y_private, {"X_public": data.X_public[:n_public], **given}
