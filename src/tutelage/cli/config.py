"""The run configuration: TOML, checked whole before anything private is read.

Functions import what loads scikit-learn themselves: an entry that is wrong is refused at once.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from msgspec import Meta, field
from msgspec.structs import fields, replace

from tutelage._internal.gate import user_path
from tutelage._internal.records import Entries, Names
from tutelage.cli.settings import (
    Section,
    entries_in,
    is_list,
    read_entries,
    read_entry,
    read_settings,
)
from tutelage.cli.words import on_command_line
from tutelage.exceptions import ConfigError, InvalidDataError, InvalidParameterError
from tutelage.reporting.record import STATEMENTS, check_statements
from tutelage.tables import TABLE_FILES, Table, is_formula, read_table

if TYPE_CHECKING:
    from tutelage.estimator import PATEClassifier, PATERegressor
    from tutelage.features import LearnedMap, Schema
    from tutelage.methods import Method
else:  # the types of entries that are read here, not by msgspec
    Method = Schema = object

Positive = Annotated[int, Meta(ge=1)]
Labels = Annotated[list[str | int], Meta(min_length=1)]
_ColumnKind = (
    Literal["number", "decimal comma", "date", "dd.mm.yyyy", "category", "text", "ignore"] | Labels
)


class PrivateSection(Section, frozen=True):
    """The sensitive rows.

    Parameters
    ----------
    file
        Table or npz file of the private rows.
    entity
        Id column of the person, who is the privacy unit.
    unit
        Instead of `entity`: each row is protected alone.
    tier
        Column of the tier of a person; [privacy.tiers] has the ε of each.
    silo
        For teacher-votes: a column with one teacher per value.
    ignore
        Columns to leave out.
    batches
        Read a Parquet file in parts.
    people
        About how many people, for the plan; public.
    """

    file: str
    entity: str | None = None
    unit: Literal["row"] | None = None
    tier: str | None = None
    silo: str | None = None
    ignore: Names = ()
    batches: bool = False
    people: Annotated[int, Meta(ge=2)] | None = None

    @property
    def is_table(self) -> bool:
        """Whether the file holds a table, whose columns have names."""
        return self.file.lower().endswith(TABLE_FILES)

    @property
    def id_columns(self) -> list[str]:
        """The columns that name the person, its tier or the owner of a row."""
        return [name for name in (self.entity, self.tier, self.silo) if name]


class TargetSection(Section, frozen=True):
    """The column that the student learns to predict.

    Parameters
    ----------
    column
        Column of the private labels, or with `range` of numbers.
    classes
        Public class values, or tables of labels.
    range
        For a number: the lowest and the highest one; public.
    question
        Name of what is learned; default: of its column.
    goal
        Or balanced_accuracy, average_precision, recall at 5 %.
    class_weight
        How much classes count: { yes = 10 }; public.
    groups
        Column of the groups that the test report tells apart, or { column = [its values] }; public.
    """

    column: str = "y"
    classes: Labels | dict[str, Labels] | None = None
    range: list[int | float] | None = None
    question: str | None = None
    goal: str = "accuracy"
    class_weight: dict[str, float] | None = None
    groups: str | dict[str, Labels] | None = None

    @property
    def name_of_question(self) -> str:
        """The name by which the ledger knows what is learned."""
        return self.column if self.question is None else self.question


class PublicSection(Section, frozen=True):
    """The public rows.

    Parameters
    ----------
    file
        Table or npz file of the public rows.
    label
        Label column: the start of the student, and for plan and score.
    schema
        TOML file of columns, in place of public rows; see `tutelage schema --ranges`.
    evaluate_last
        Number of last rows, used for the score alone.
    later
        The last rows are meant to differ, as later ones do.
    only_score
        The labels are used for the score alone, and do not start the student.
    """

    file: str | None = None
    label: str | None = None
    schema: str | None = None
    evaluate_last: Positive | None = None
    later: bool = False
    only_score: bool = False


class FeaturesSection(Section, frozen=True):
    """A map that is learned from the public rows.

    Parameters
    ----------
    map
        Default: steps; with trained teachers none.
    image_shape
        For images: height, width, and the channels if there are any.
    components
        For pca (default 64) and images (default 200).
    """

    map: Literal["pca", "steps", "images"] | None = None
    image_shape: list[Any] | None = None
    components: Positive | None = None


class RunSection(Section, frozen=True):
    """The seed of all but the noise, and how many teachers are trained at once.

    Parameters
    ----------
    seed
        For partition, teachers and student, never for the noise.
    jobs
        Number of teachers trained at once; -1 for all cores.
    """

    seed: Annotated[int, Meta(ge=0)] = 0
    jobs: Annotated[int, Meta(ge=-1024, le=1024)] = -1


class PrivacySection(Section, frozen=True):
    """The privacy budget.

    Parameters
    ----------
    delta
        Below 1 / the number of people. Default: the ledger's, or 1e-5.
    epsilon
        ε of this run. Default: the budget, or else 1.
    budget
        ε of all releases. Default: what the first run spends.
    releases
        Number of equal releases that the budget is for.
    ledger
        File of the budget. Default: beside the private file.
    proposal
        File of a smaller ε, to be tested after the labels.
    tuned_on
        Data that chose the settings.
    tiers
        A smaller ε, for people of each tier.
    report
        Whether a noisy sum says how good the student is on the people. Default: if no public row has a label.
    holdout
        Share of the people who only test the student, such as 0.1.
    """

    delta: float | None = None
    epsilon: float | None = None
    budget: float | None = None
    releases: int = 1
    ledger: str | None = None
    proposal: str | None = None
    tuned_on: Literal["nothing", "public", "private"] | None = None
    tiers: dict[str, float] | None = None
    report: bool | None = None
    holdout: float = 0.0


class OutputSection(Section, frozen=True):
    """The results folder.

    Parameters
    ----------
    folder
        Folder of the results, all of which may be published.
    votes
        Also store the private votes, for the data set owner.
    """

    folder: str
    votes: bool = False


class PublishedSection(Section, frozen=True):
    """A result from elsewhere, printed beside the run's own.

    Parameters
    ----------
    source
        Where it is from.
    student_accuracy
        Its accuracy.
    epsilon
        Its ε.
    delta
        Its δ.
    note
        A remark, printed beside it.
    """

    source: str
    student_accuracy: float | None = None
    epsilon: float | None = None
    delta: float | None = None
    note: str = ""


class Settings(Section, frozen=True):
    """Configuration of `tutelage run`. Paths are relative to the file.

    Parameters
    ----------
    dataset
        A bundled data set, instead of files.
    columns
        Kinds of columns, or their categories.
    statements
        Statements for the card, by topic.
    published
        Results to print beside the run's.
    """

    output: OutputSection
    dataset: Literal["adult"] | None = None
    private: PrivateSection | None = None
    target: TargetSection = TargetSection()
    public: PublicSection = PublicSection()
    columns: dict[str, _ColumnKind] = field(default_factory=dict)
    features: FeaturesSection = FeaturesSection()
    method: Method | None = None  # None if it is open, so that a plan may choose
    privacy: PrivacySection = PrivacySection()
    run: RunSection = RunSection()
    statements: dict[str, str] = field(default_factory=dict)
    published: tuple[PublishedSection, ...] = ()


class RunConfig(Settings, frozen=True, kw_only=True):
    """A checked run configuration; `base` is the folder of the file."""

    base: Path
    # That of the file that [public] names or, for a number, as public rows propose it.
    schema: Schema | None = None

    @property
    def of_numbers(self) -> bool:
        """Whether a number is predicted, and no class."""
        return self.target.range is not None

    @property
    def method_meant(self) -> "Method":
        """The method that is named, or else the default one of the estimator."""
        return self.estimator().method_meant()

    @property
    def public_source(self) -> str:
        """Where the public rows are from, for a card."""
        return self.public.file or f"the public rows of {self.dataset}"

    @property
    def learned_map(self) -> "LearnedMap | None":
        """The map that [features] names."""
        from tutelage.features import LearnedMap

        features = self.features
        shape = None if features.image_shape is None else tuple(features.image_shape)
        if not (features.map or features.components or shape):
            return None
        return LearnedMap(features.map, features.components, shape, self.public_source)

    @property
    def folder(self) -> Path:
        """The output folder."""
        return self.base / user_path(self.output.folder, "output.folder")

    @property
    def ledger(self) -> Path:
        """The ledger: by default beside the private rows, because it belongs to them and not to a project."""
        if self.privacy.ledger is not None:
            return self.base / user_path(self.privacy.ledger, "privacy.ledger")
        if self.private is None:
            return self.base / f"{self.dataset}.ledger"
        return self.base / f"{user_path(self.private.file)}.ledger"

    def input_file(self, section: str) -> Path:
        """Return the file of the section ``private`` or ``public``."""
        return self.base / user_path(getattr(self, section).file or "", f"{section}.file")

    def estimator(self) -> "PATEClassifier | PATERegressor":
        """Return the estimator as the configuration describes it; `build_estimator` adds what public rows show."""
        from tutelage.estimator import PATEClassifier, PATERegressor

        private = self.private
        privacy = self.privacy
        shared: Entries = {
            "columns": self.schema,
            "unit": private and (private.entity or private.unit),
            "ledger": self.ledger,
            "question": self.dataset or self.target.name_of_question,
            "epsilon": privacy.epsilon,
            "budget": privacy.budget,
            "releases": privacy.releases,
            "delta": privacy.delta,
            "random_state": self.run.seed,
        }
        if self.of_numbers:
            return PATERegressor(**shared, target_range=self.target.range)
        return PATEClassifier(
            **shared,
            classes=self.target.classes,
            method=self.method,
            features=self.learned_map,
            n_jobs=self.run.jobs,
            goal=self.target.goal,
            class_weight=self.target.class_weight,
        )


def load_config(path: Path) -> RunConfig:
    """Read and check the configuration at `path`; an error names all problems."""
    return config_of(read_settings(path), path.parent)


def config_of(settings: Entries, base: Path) -> RunConfig:
    """Return settings, checked."""
    types = {field.name: field.type for field in fields(Settings)}
    where = "the configuration"
    tables: Entries = {"output": {}, **settings}
    sections, problems = entries_in(tables, types, where, read=_read_section)
    sections.setdefault("output", OutputSection(folder="."))
    config = RunConfig(**sections, base=base)
    needs_schema = config.public.schema is not None or (
        config.of_numbers and config.private and config.public.file
    )
    if needs_schema and not problems:
        try:
            config = replace(config, schema=_schema_of(config))
        except (ConfigError, InvalidParameterError) as error:
            problems["public"] = [*error.sentences(on_command_line)]
    sentences = [*chain(*problems.values())]
    # A check is left out if a section that it looks at has problems of its own.
    for names, check in _CHECKS:
        if problems.keys() & set(names):
            continue
        try:
            sentences += check(config) or ()
        except (ConfigError, InvalidParameterError) as error:
            sentences += error.sentences(on_command_line)
    if sentences:
        raise ConfigError(*dict.fromkeys(sentences))
    return config


def _schema_of(config: RunConfig) -> "Schema":
    """Return the schema that [public] names, or what its rows propose."""
    from tutelage.features import Schema

    private = config.private
    public = config.public
    if public.schema is not None or private is None:
        return read_schema(config.base / user_path(public.schema or ""))
    no_features = {config.target.column, *private.id_columns, *private.ignore}
    try:
        return Schema.learn(read_table(config.input_file("public")).without(no_features))
    except InvalidDataError as error:
        raise ConfigError(*error.sentences(on_command_line)) from None


def read_schema(path: Path) -> "Schema":
    """Return the public schema of a TOML file, with the rows that proposed it if their file is still there."""
    from tutelage.features import Schema

    settings = read_settings(path)
    proposed_by = settings.pop("proposed_by", "")
    if set(settings) != {"schema"} or not isinstance(proposed_by, str):
        raise ConfigError(
            f"{path} must contain [schema], with the range or categories of each column. Only `proposed_by` may "
            "precede it, the file of public rows that the schema was made from. `tutelage schema --ranges` writes it."
        )
    schema = Schema(settings["schema"])
    if proposed_by:
        rows = path.parent / user_path(proposed_by)
        schema.mark_proposed(read_table(rows) if rows.is_file() else Table(rows.name, {}))
    return schema


def _read_section(value: object, kind: object, name: str, where: str) -> object:
    if name == "statements":
        return read_entries(value, dict.fromkeys(STATEMENTS, str), "[statements]")
    if name == "method":
        from tutelage.cli.method import read_method

        return read_method(value)
    return read_entry(value, kind, name, where)


def _problems_of_sources(config: RunConfig) -> Iterator[str]:
    private = config.private
    public = config.public
    if config.dataset is not None:
        if private or public.file or public.label or public.schema:
            yield "`dataset` has its own rows and labels. Leave out [private], `file`, `label` and `schema`."
    elif private is None:
        yield "Name the private rows in [private] `file`."
    elif public.schema is not None:
        yield from _problems_of_schema(config)
        return
    elif config.of_numbers:  # whose schema may follow from public rows
        yield from _problems_of_one_file(config)
        return
    elif public.file is None:
        yield "Name the public rows in [public] `file`."
    if public.later and public.evaluate_last is None:
        yield "`later` in [public] is about the rows of `evaluate_last`. Set it, or leave `later` out."
    if public.only_score and public.evaluate_last is None:
        yield "`only_score` in [public] needs `evaluate_last`, the number of rows to score. Set both, or none."
    if public.evaluate_last is not None and not (config.dataset or public.label):
        yield "`evaluate_last` in [public] needs labels to score the student. Name their column in `label`."
    if private is None:
        return
    if config.target.classes is None and public.label is None:
        yield (
            "[target] needs `classes`, the class values, which are public. Add them, or name the column of the public "
            "rows that has them as `label` in [public]."
        )
    yield from _problems_of_one_file(config)


def _problems_of_one_file(config: RunConfig) -> Iterator[str]:
    if config.private is not None and config.public.file:
        private = config.input_file("private")
        public = config.input_file("public")
        is_same = private.resolve() == public.resolve()
        if private.exists() and public.exists():
            is_same = private.samefile(public)
        if is_same:
            yield "`file` in [public] must be another file than in [private], because public rows are not protected."


def _problems_of_files(config: RunConfig) -> Iterator[str]:
    """Yield problems of the kinds of files."""
    private = config.private
    public = config.public
    if private is None:
        return
    if private.batches and not private.file.lower().endswith(".parquet"):
        yield "`batches` in [private] is for a Parquet file. Leave it out, or write the rows to a Parquet file."
    if config.schema is not None and not private.is_table:
        yield "`file` in [private] must be a table if [public] has a `schema`, because its columns need names."
    elif public.file is not None:
        name = public.file.lower()
        are_tables = private.is_table and name.endswith(TABLE_FILES)
        are_arrays = private.file.lower().endswith(".npz") and name.endswith(".npz")
        if not are_tables and not are_arrays:
            yield (
                "`file` in [private] and [public] must both be tables (.csv, .tsv or .txt, also .gz; or .parquet) or "
                "both .npz."
            )
        elif config.columns and not private.is_table:
            yield "[columns] is only for tables, and npz files contain arrays of numbers. Leave it out."


def _problems_of_schema(config: RunConfig) -> Iterator[str]:
    if config.target.classes is None and not config.of_numbers:
        yield "[target] needs `classes`, the class values, which are public. Add them."
    if config.private is not None and config.schema is not None:
        for name in sorted({*config.private.ignore} & {*config.schema.names}):
            yield f"`ignore` in [private] must not name {name!r}, which is in the schema. Remove it from one of them."
    for name in _for_public_rows(config):
        yield f"{name} does not go with `schema` in [public], which takes the place of public rows. Leave it out."


def _for_public_rows(config: RunConfig) -> list[str]:
    """Return the settings given that only public rows have a use for."""
    private = config.private
    public = config.public
    features = config.features
    settings = {
        "`file` in [public]": public.file, "`label` in [public]": public.label, "[columns]": config.columns,
        "`evaluate_last` in [public]": public.evaluate_last, "`map` in [features]": features.map,
        "`components` in [features]": features.components, "`image_shape` in [features]": features.image_shape,
        "`batches` in [private]": private is not None and private.batches,
    }  # fmt: skip
    return _names_of_set(settings)


def _names_of_set(settings: Mapping[str, object]) -> list[str]:
    """Return the names of the settings that are set."""
    return [name for name, value in settings.items() if value]


def _problems_of_private(config: RunConfig) -> Iterator[str]:
    private = config.private
    if private is None:
        return
    if private.unit is not None and private.entity is not None:
        yield "`unit` in [private] protects each row alone, and `entity` all rows of a person. Leave out one of them."
    if (private.tier is None) != (config.privacy.tiers is None):
        yield "`tier` in [private] names the tier of a person, and [privacy.tiers] its ε. Set both, or neither."
    if private.tier is not None and private.entity is None:
        yield "`tier` in [private] is of a person, who may have several rows. Name the person in `entity`."
    if private.tier is not None and private.tier in (
        config.target.column,
        private.entity,
        private.silo,
    ):
        yield f"`tier` in [private] must be a column of its own. Got {private.tier!r}."
    if config.target.column in (private.entity, private.silo):
        yield (
            "`entity` and `silo` in [private] must be other columns than `column` in [target]. Got "
            f"{config.target.column!r} for both."
        )


def _problems_of_target(config: RunConfig) -> Iterator[str]:
    private = config.private
    target = config.target
    if target.classes is not None:
        yield from problems_of_names(target.classes)
    if config.dataset is not None:
        settings = {
            "`column`": target.column != TargetSection().column, "`classes`": target.classes, "`range`": target.range,
            "`question`": target.question,
        }  # fmt: skip
        for name in _names_of_set(settings):
            yield f"`dataset` has its own labels. Leave out {name} in [target]."
        return
    if private is None or target.range is None:
        return
    if config.public.schema is None and config.public.file is None:
        yield (
            "`range` in [target] needs public columns. Name in [public] a public schema as `schema`, or a table of "
            "public rows as `file`."
        )
    names = list[str]()
    if config.public.schema is None:
        names += [name for name in _for_public_rows(config) if name != "`file` in [public]"]
    settings = {
        "`classes` in [target]": target.classes, "[method]": config.method, "`silo` in [private]": private.silo,
        "`goal` in [target]": target.goal != TargetSection().goal,
        "`class_weight` in [target]": target.class_weight, "[[published]]": config.published,
    }  # fmt: skip
    for name in [*names, *_names_of_set(settings)]:
        yield f"{name} does not go with `range` in [target], by which a number is predicted. Leave it out."


def _problems_of_columns(config: RunConfig) -> Iterator[str]:
    private = config.private
    columns = config.columns
    if columns and config.dataset is not None:
        yield "`dataset` has its own columns. Leave out [columns]."
    purposes = {"`label` in [public]": config.public.label}
    if private is not None:
        purposes |= {
            "`column` in [target]": config.target.column,
            "`entity` in [private]": private.entity,
            "`silo` in [private]": private.silo,
            "`tier` in [private]": private.tier,
        }
    for name, kind in columns.items():
        if is_list(kind) and len(set(map(str, kind))) < len(kind):
            yield f"`{name}` in [columns] must list each category once. Got {kind!r}."
        for purpose, column in purposes.items():
            if column == name and kind != "ignore":
                yield f"`{name}` in [columns] is no feature: it is {purpose}. Leave it out."


def problems_of_names(classes: Iterable[object]) -> Iterator[str]:
    """Yield problems of class values in the files that are published."""
    for value in classes:
        if is_formula(value):
            yield (
                f"`classes` in [target] must not begin like a formula: spreadsheets would compute {value!r} in "
                "labels.csv. Rename the class in the data and here."
            )


def _check_estimator(config: RunConfig) -> None:
    """Check the parameters of the estimator, unless other checks refuse the schema or the target."""
    needs_schema = config.public.schema is not None or config.of_numbers
    has_schema = config.schema is not None or not needs_schema
    if has_schema and not [*_problems_of_target(config)]:
        config.estimator().resolved()


# Sections, and a check of them.
_CHECKS: tuple[tuple[Names, Callable[[RunConfig], Iterable[str] | None]], ...] = (
    (("dataset", "private", "target", "public"), _problems_of_sources),
    (("private", "public", "columns"), _problems_of_files),
    (("private", "target", "privacy"), _problems_of_private),
    (("dataset", "private", "target", "public", "method", "published"), _problems_of_target),
    (("private", "target", "public", "columns"), _problems_of_columns),
    (("statements",), lambda config: check_statements(config.statements)),
    (("method", "private", "target", "privacy", "features", "run"), _check_estimator),
)
