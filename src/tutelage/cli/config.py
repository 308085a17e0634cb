"""The run configuration: TOML, checked whole before anything private is read."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any, final

from tutelage._internal.gate import user_path
from tutelage._internal.validation import problems_in
from tutelage.cli.method import read_method
from tutelage.cli.settings import OneOf, Whole, read_section, read_settings, unknown_entries
from tutelage.datasets import DATASETS
from tutelage.estimator import PATEClassifier
from tutelage.exceptions import ConfigError
from tutelage.features.named import FEATURE_MAPS, TABLE_MAP_OF_PEOPLE
from tutelage.methods import Method
from tutelage.methods.shortcuts import DEFAULTS, method_for
from tutelage.methods.tuned import DEFAULT_SHARE
from tutelage.privacy import ROW
from tutelage.published import is_formula
from tutelage.reporting.lints import TUNED_ON

_MOST_JOBS = 1024
_KINDS = ("number", "date", "category", "text", "ignore")  # of columns
_DEFAULT = method_for(None, **DEFAULTS)
_DEFAULT_TABLE = {"name": _DEFAULT.name}  # of the section [method]


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class PrivateSection:
    """``[private]``: the sensitive rows. `people`, about how many they are of, counts as public."""

    file: str
    label: str = "y"
    classes: list | dict | None = None
    entity: str | None = None
    unit: Annotated[str | None, OneOf([ROW])] = None
    silo: str | None = None
    ignore: list = field(default_factory=list)
    batches: bool = False
    people: Annotated[int | None, Whole(2)] = None


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class PublicSection:
    """``[public]``: the public rows, and labels to score the student with, if there are any."""

    file: str | None = None
    label: str | None = None
    evaluate_last: Annotated[int | None, Whole(1)] = None


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class FeaturesSection:
    """``[features]``: a map that is learned from the public rows, and whether the student sees its output."""

    map: Annotated[str | None, OneOf(FEATURE_MAPS)] = None
    image_shape: list | None = None
    components: Annotated[int | None, Whole(1)] = None
    student: Annotated[str, OneOf(["features", "rows"])] = "features"


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingSection:
    """``[training]``: the seed of everything but the noise, and how many teachers are trained at once."""

    seed: Annotated[int, Whole(0)] = 0
    jobs: int = -1


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class TuningSection:
    """``[tuning]``: settings, one of which is chosen, and the budget share of the choice."""

    settings: list
    share: float = DEFAULT_SHARE


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class PrivacySection:
    """``[privacy]``: ε of this run, the budget of the ledger, a proposal of a smaller ε, and what was tuned on."""

    delta: float = 1e-5
    epsilon: float | None = None
    budget: float | None = None
    ledger: str | None = None
    proposal: str | None = None
    tuned_on: Annotated[str | None, OneOf(TUNED_ON)] = None
    insist: bool = False


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class OutputSection:
    """``[output]``: the results folder; `votes` also keeps the private votes, for the data set owner."""

    folder: str
    votes: bool = False


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedSection:
    """``[[published]]``: a result from elsewhere to print beside the run's own, as it was published."""

    source: str
    student_accuracy: float | None = None
    epsilon: float | None = None
    delta: float | None = None
    note: str = ""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class RunConfig:
    """A checked run configuration; paths are relative to `base`, the folder of the file."""

    base: Path
    dataset: str | None
    public: PublicSection
    columns: dict[str, Any]
    features: FeaturesSection
    method: Method | None  # None if it is open, so that a plan may choose
    training: TrainingSection
    privacy: PrivacySection
    output: OutputSection
    published: tuple[PublishedSection, ...]
    private: PrivateSection | None = None
    tuning: TuningSection | None = None
    tried: "tuple[RunConfig, ...]" = ()  # with each setting of [tuning]

    @property
    def chosen(self) -> Method:
        """The method, or the default one if it is open."""
        return self.method or _DEFAULT

    @property
    def map(self) -> str | None:
        """The name of the feature map; if every person is a teacher, by default steps and 0/1 columns."""
        return self.features.map or (TABLE_MAP_OF_PEOPLE if self.chosen.of_people else None)

    @property
    def folder(self) -> Path:
        """The output folder."""
        return self.base / user_path(self.output.folder, "`folder` in [output]")

    @property
    def ledger(self) -> Path:
        """The ledger: by default beside the private rows, because it belongs to them and not to a project."""
        if self.privacy.ledger is not None:
            return self.base / user_path(self.privacy.ledger, "`ledger` in [privacy]")
        if self.private is None:
            return self.base / f"{self.dataset}.ledger"
        return self.base / f"{user_path(self.private.file)}.ledger"

    def input_file(self, section: str) -> Path:
        """Return the file of the section ``private`` or ``public``."""
        return self.base / user_path(getattr(self, section).file or "", f"`file` in [{section}]")

    def classifier(self) -> PATEClassifier:
        """Return the classifier, but for what follows from the rows: features, classes and question."""
        private, privacy = self.private, self.privacy
        return PATEClassifier(
            method=self.chosen,
            student_features="rows" if self.features.student == "rows" else None,
            unit=None if private is None else private.entity or private.unit,
            ledger=self.ledger,
            epsilon=privacy.epsilon,
            budget=privacy.budget,
            insist=privacy.insist,
            delta=privacy.delta,
            random_state=self.training.seed,
            n_jobs=self.training.jobs,
            tune=None if self.tuning is None else [{"method": one.chosen} for one in self.tried],
            tune_share=DEFAULT_SHARE if self.tuning is None else self.tuning.share,
        )

    def with_setting(self, method: dict[str, Any], setting: Any) -> "RunConfig":
        """Return the configuration with what one of ``settings`` in ``[tuning]`` changes; `method` is ``[method]``."""
        if not isinstance(setting, dict):
            raise ConfigError(f"Each of `settings` in [tuning] must be a table of settings. Got {setting!r}.")
        of_map = {name: value for name, value in setting.items() if name in ("map", "components")}
        of_method = {name: value for name, value in setting.items() if name not in of_map}
        new, features = read_section(FeaturesSection, of_map, "tuning.settings"), self.features
        if new.map is not None:
            shape = features.image_shape if new.map == "images" else None
            features = replace(new, image_shape=shape, student=features.student)
        elif new.components is not None:
            features = replace(features, components=new.components)
        return replace(self, method=read_method(method | of_method), features=features, tuning=None)


class _Reading:
    """The problems found so far, and the sections that have them."""

    def __init__(self, problems: list[str]) -> None:
        self.problems, self.broken = problems, set[str]()

    def read(self, name: str, read: Callable[[], Any], instead: Any = None) -> Any:
        """Return what is read of a section, or something else if it has problems."""
        found = list[Any]()
        problems = [*problems_in(lambda: found.append(read()))]
        self.problems += problems
        self.broken |= {name} if problems else set()
        return found[0] if found else instead

    def check(self, names: Iterable[str], check: Callable[[], object]) -> None:
        """Add the problems that a check finds, unless a section that it looks at has problems of its own."""
        if not self.broken & set(names):
            self.problems += problems_in(check)


def load_config(path: Path) -> RunConfig:
    """Read and check the configuration at `path`; an error names all problems."""
    table = read_settings(path)
    known = ["dataset", "columns", "published", "method", *_STAND_INS, *_OPTIONAL]
    reading = _Reading(unknown_entries(table, known, "the configuration"))

    def section(kind: type, name: str, given: Any, instead: Any = None) -> Any:
        return reading.read(name, lambda: read_section(kind, given, name), instead)

    read = {name: section(type(instead), name, table.get(name, {}), instead) for name, instead in _STAND_INS.items()}
    read |= {name: section(kind, name, table[name]) for name, kind in _OPTIONAL.items() if name in table}
    published = table.get("published", [])
    published = published if isinstance(published, list) else [published]
    read["published"] = tuple(section(PublishedSection, "published", entry) for entry in published)
    method = None
    if "method" in table or "tuning" in table:
        method = reading.read("method", lambda: read_method(table.get("method", _DEFAULT_TABLE)))
    config = RunConfig(
        base=path.parent, dataset=table.get("dataset"), columns=table.get("columns", {}), method=method, **read
    )
    if config.tuning is not None and not reading.broken & {"method", "features"}:
        tried = partial(config.with_setting, table.get("method", _DEFAULT_TABLE))
        config = replace(config, tried=reading.read("tuning", lambda: tuple(map(tried, read["tuning"].settings)), ()))
    for names, check in _CHECKS:
        reading.check(names, partial(check, config))
    if reading.problems:
        raise ConfigError(*dict.fromkeys(reading.problems))
    return config


def _problems_of_sources(config: RunConfig) -> Iterator[str]:
    private, public = config.private, config.public
    if config.dataset is not None:
        if config.dataset not in list(DATASETS):
            yield f"`dataset` must be one of {', '.join(DATASETS)}. Got {config.dataset!r}."
        if private or public.file or public.label:
            yield "`dataset` has its own rows and labels. Leave out [private], `file` and `label`."
    elif private is None or public.file is None:
        yield "Name the private rows in [private] `file` and the public rows in [public] `file`."
    if public.evaluate_last is not None and not (config.dataset or public.label):
        yield "`evaluate_last` in [public] needs labels to score the student. Name their column in `label`."
    if private is None:
        return
    if private.classes is None and public.label is None:
        yield (
            "[private] needs `classes`, the class values, which are public. Add them, or name the column of the public "
            "rows that has them as `label` in [public]."
        )
    if public.file:
        one, other = config.input_file("private"), config.input_file("public")
        if one.samefile(other) if one.exists() and other.exists() else one.resolve() == other.resolve():
            yield "`file` in [public] must be another file than in [private], because public rows are not protected."


def _problems_of_private(config: RunConfig) -> Iterator[str]:
    private = config.private
    if private is None:
        return
    if private.unit is not None and private.entity is not None:
        yield "`unit` in [private] protects each row alone, and `entity` all rows of a person. Leave out one of them."
    if private.label in (private.entity, private.silo):
        yield f"`entity` and `silo` in [private] must be other columns than `label`. Got {private.label!r} for both."
    if private.classes is not None:
        yield from problems_of_classes(private.classes)
    if not all(isinstance(name, str) for name in private.ignore):
        yield "`ignore` in [private] must be a list of column names."


def _problems_of_columns(config: RunConfig) -> Iterator[str]:
    private, columns = config.private, config.columns
    if not isinstance(columns, dict):
        yield f"[columns] must be a table of columns and their kinds. Got {columns!r}."
        return
    if columns and private is None:
        yield "`dataset` has its own columns. Leave out [columns]."
    purposes = {"`label` in [public]": config.public.label}
    if private is not None:
        purposes |= {f"`{name}` in [private]": getattr(private, name) for name in ("label", "entity", "silo")}
    for name, kind in columns.items():
        is_list = isinstance(kind, list) and kind and all(type(value) in (str, int) for value in kind)
        if not (kind in _KINDS if isinstance(kind, str) else is_list and len(set(map(str, kind))) == len(kind)):
            yield (
                f"`{name}` in [columns] must be one of {', '.join(_KINDS)}, or the list of its categories, each once. "
                f"Got {kind!r}."
            )
        for purpose in (purpose for purpose, column in purposes.items() if column == name and kind != "ignore"):
            yield f"`{name}` in [columns] is no feature: it is {purpose}. Leave it out."


def problems_of_classes(classes: list | dict) -> Iterator[str]:
    """Yield problems of class values, and of merged labels that are not in exactly one class."""
    if len(classes) < 2:
        yield "`classes` in [private] must list at least two class values; they count as public."
    if len(set(map(repr, classes))) < len(classes):
        yield "`classes` in [private] must list each class value once."
    if {type(value) for value in classes} not in ({str}, {int}):
        yield "`classes` in [private] must be all text or all whole numbers."
    for value in classes:
        if is_formula(value):
            yield (
                f"`classes` in [private] must not begin like a formula: spreadsheets would compute {value!r} in "
                "labels.csv. Rename the class in the data and here."
            )
    of_classes = classes.values() if isinstance(classes, dict) else ()
    lists = [labels if isinstance(labels, list) else [] for labels in of_classes]
    merged = [label for labels in lists for label in labels]
    if not all(lists) or not all(type(label) in (str, int) for label in merged):
        yield (
            "`classes` in [private], as a table, must give each class the list of its labels, text or whole numbers: "
            'classes = { yes = ["<30", ">30"], no = ["NO"] }.'
        )
    if len(set(map(str, merged))) < len(merged):
        yield "`classes` in [private] must list each label once."


def _problems_of_features(config: RunConfig) -> Iterator[str]:
    given = [name for name in ("components", "image_shape") if getattr(config.features, name) is not None]
    if given and config.features.map is None:
        yield f"`{given[0]}` in [features] is of a map. Name the map in `map`."


def _problems_of_training(config: RunConfig) -> Iterator[str]:
    jobs = config.training.jobs
    if jobs == 0 or abs(jobs) > _MOST_JOBS:
        yield f"`jobs` in [training] must be 1 to {_MOST_JOBS}, or -1 for all cores. Got {jobs}."


def _problems_of_method(config: RunConfig) -> Iterator[str]:
    method, privacy, private = config.chosen, config.privacy, config.private
    noise_follows = method.always_calibrated or privacy.epsilon is not None or privacy.budget is not None
    if method.mechanism is None and not noise_follows:
        yield "The amount of noise is missing. Set `epsilon` in [privacy], or `mechanism` in [method]."
    if privacy.proposal is not None and not method.testable:
        yield (
            "`proposal` in [privacy] needs a [method] with votes in one round, and in it a `mechanism` other than "
            "`interactive` and `capped`. Leave it out."
        )
    if private is not None and private.batches and not private.file.lower().endswith(".parquet"):
        yield "`batches` in [private] is for a Parquet file. Leave it out, or write the rows to a Parquet file."


def _problems_of_classifier(config: RunConfig) -> Iterator[str]:
    for problem in problems_in(config.classifier().resolved_settings):
        yield problem.replace(" of PATEClassifier", "")


_STAND_INS = {
    "public": PublicSection(), "features": FeaturesSection(), "training": TrainingSection(),
    "privacy": PrivacySection(), "output": OutputSection(folder="."),
}  # fmt: skip  # of sections with problems; no check looks at them
_OPTIONAL = {"private": PrivateSection, "tuning": TuningSection}
_METHOD = ("method", "private", "privacy")
# Each check, after the sections that it looks at: it is left out if one of them has problems of its own.
_CHECKS: tuple[tuple[tuple[str, ...], Callable[[RunConfig], Iterable[str]]], ...] = (
    (("private", "public"), _problems_of_sources),
    (("private",), _problems_of_private),
    (("private", "public"), _problems_of_columns),
    (("features",), _problems_of_features),
    (("training",), _problems_of_training),
    (_METHOD, _problems_of_method),
    ((*_METHOD, "features", "training", "tuning"), _problems_of_classifier),
)
