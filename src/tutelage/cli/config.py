"""The run configuration: TOML, checked whole before anything private is read."""

import difflib
import tomllib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, final

from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import all_estimators

from tutelage._internal.gate import LARGEST, require_input, user_path
from tutelage._internal.validation import probability, problems_in
from tutelage.cli.settings import (
    SUM,
    OneOf,
    Whole,
    read_mechanism,
    read_section,
    read_settings,
    read_sum,
    unknown_entries,
)
from tutelage.datasets import DATASETS
from tutelage.exceptions import ConfigError, InvalidParameterError
from tutelage.features.named import FEATURE_MAPS, TABLE_MAP_OF_PEOPLE
from tutelage.labeling.tuning import DEFAULT_SHARE, MOST_SETTINGS
from tutelage.mechanisms import Mechanism, NoisySum
from tutelage.mechanisms.registry import CENTRAL
from tutelage.planning.methods import Method
from tutelage.privacy import ROW
from tutelage.published import is_formula
from tutelage.reporting.lints import TUNED_ON
from tutelage.students import student_named
from tutelage.students.selection import selector_named
from tutelage.teachers import TEACHERS, NearestQueries, VectorBallots

_TEACHERS, _MOST_TEACHERS, _MOST_JOBS = 250, 10**7, 1024
_FOREST = "sklearn.ensemble.RandomForestClassifier"
_VECTORS, _NEAREST = (f"tutelage.teachers.{kind.__name__}" for kind in (VectorBallots, NearestQueries))
_KINDS = ("number", "date", "category", "text", "ignore")  # of columns
_CAPPED = "capped"  # the mechanism of the latter, and of no other teachers here
_CLOSED_FORM = "closed-form"
_FIRST = "first"


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
    """``[public]``: the rows to ask about, and labels to score the student with, if there are any."""

    file: str | None = None
    label: str | None = None
    queries: Annotated[int | None, Whole(1)] = None
    selection: str = _FIRST
    rounds: Annotated[int, Whole(1)] = 1
    evaluate_last: Annotated[int | None, Whole(1)] = None


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class FeaturesSection:
    """``[features]``: what teachers and student see instead of the rows, learned from the public rows."""

    map: Annotated[str, OneOf(FEATURE_MAPS)]
    image_shape: list | None = None
    components: Annotated[int | None, Whole(1)] = None


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class TeachersSection:
    """``[teachers]``: which scikit-learn classifier, closed form or ballots of people, and how many."""

    number: Annotated[int, Whole(1, _MOST_TEACHERS)] = 0  # by default `_TEACHERS`
    estimator: str = ""  # by default ballots of people, or a forest where votes on single rows are meant
    parameters: dict = field(default_factory=dict)
    seed: Annotated[int, Whole(0)] = 0
    jobs: int = -1


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class StudentSection:
    """``[student]``: what learns from the released labels: a name of `STUDENTS`, or a scikit-learn classifier."""

    estimator: str | None = None
    parameters: dict = field(default_factory=dict)
    sees: Annotated[str, OneOf(["features", "rows"])] = "features"


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class TuningSection:
    """``[tuning]``: settings of ballots of vectors, one of which is chosen, and the budget share of the choice."""

    settings: list
    share: float = DEFAULT_SHARE


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class TriedSection:
    """One of ``settings`` in ``[tuning]``: what it changes of the other sections."""

    quantile: float | None = None
    landmarks: Annotated[int | None, Whole(1)] = None
    rounds: Annotated[int | None, Whole(1)] = None
    map: Annotated[str | None, OneOf(FEATURE_MAPS)] = None
    components: Annotated[int | None, Whole(1)] = None
    student: str | None = None
    parameters: dict = field(default_factory=dict)  # of the student

    def of(self, config: "RunConfig") -> "RunConfig":
        """Return the configuration with what this setting changes."""
        changed = {"quantile": self.quantile, "n_landmarks": self.landmarks, "rounds": self.rounds}
        changed = {name: value for name, value in changed.items() if value is not None}
        teachers = replace(config.teachers, parameters={**config.teachers.parameters, **changed})
        features, student = config.features_section, config.student
        if self.map is not None:
            shape = features.image_shape if features is not None and self.map == "images" else None
            features = FeaturesSection(map=self.map, image_shape=shape, components=self.components)
        elif features is not None and self.components is not None:
            features = replace(features, components=self.components)
        if self.student is not None:
            student = replace(student, estimator=self.student, parameters=self.parameters)
        return replace(config, teachers=teachers, features=features, student=student, tuning=None)


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
    private: PrivateSection | None
    public: PublicSection
    columns: dict[str, Any]
    features: FeaturesSection | None
    teachers: TeachersSection
    mechanism: Mechanism | NoisySum | None
    student: StudentSection
    privacy: PrivacySection
    output: OutputSection
    published: tuple[PublishedSection, ...]
    tuning: TuningSection | None = None
    method_is_open: bool = False  # nothing is named about teachers, mechanism or student, so that a plan may choose

    @property
    def tried(self) -> "list[RunConfig]":
        """The configuration of each setting in ``[tuning]``."""
        settings = [] if self.tuning is None else self.tuning.settings
        return [read_section(TriedSection, setting, "tuning.settings").of(self) for setting in settings]

    @property
    def votes(self) -> Mechanism | None:
        """How votes are released, where that is named; otherwise with the least noise that the budget allows."""
        return self.mechanism if isinstance(self.mechanism, Mechanism) else None

    @property
    def by_vectors(self) -> bool:
        """Whether people cast a ballot of vectors, and only its sum is released."""
        return self.teachers.estimator == _VECTORS

    @property
    def by_people(self) -> bool:
        """Whether every person is a teacher."""
        return self.teachers.estimator in (_VECTORS, _NEAREST)

    @property
    def features_section(self) -> FeaturesSection | None:
        """The section ``[features]``; if every person is a teacher, by default steps and 0/1 columns."""
        return self.features or (FeaturesSection(map=TABLE_MAP_OF_PEOPLE) if self.by_people else None)

    @property
    def student_name(self) -> str:
        """The student, as reports name it."""
        return self.student.estimator or (_CLOSED_FORM if self.by_vectors else _FOREST)

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


def load_config(path: Path) -> RunConfig:
    """Read and check the configuration at `path`; an error names all problems."""
    table = read_settings(path)
    known = ["dataset", "columns", "mechanism", "published", *_STAND_INS, *_OPTIONAL]
    problems = unknown_entries(table, known, "the configuration")
    broken = set[str]()

    def checked(name: str, read: Callable[[], Any], instead: Any = None) -> Any:
        try:
            return read()
        except (ConfigError, InvalidParameterError) as error:
            problems.extend(error.problems)
            broken.add(name)
            return instead

    def section(kind: type, name: str, given: Any, instead: Any = None) -> Any:
        return checked(name, lambda: read_section(kind, given, name), instead)

    read = {name: section(type(instead), name, table.get(name, {}), instead) for name, instead in _STAND_INS.items()}
    read |= {name: section(kind, name, table[name]) if name in table else None for name, kind in _OPTIONAL.items()}
    published = table.get("published", [])
    published = published if isinstance(published, list) else [published]
    read["published"] = tuple(section(PublishedSection, "published", entry) for entry in published)
    mechanism, privacy, teachers = table.get("mechanism", {}), read["privacy"], read["teachers"]
    named = read["tuning"], teachers.estimator, teachers.parameters, read["student"].estimator, mechanism
    about_votes = _is_about_votes(read, mechanism)
    read["method_is_open"] = not (any(named) or about_votes)
    estimator = teachers.estimator or (_FOREST if about_votes else _VECTORS)
    read["teachers"] = replace(teachers, estimator=estimator, number=teachers.number or _TEACHERS)
    by_budget, read["mechanism"] = privacy.epsilon is not None or privacy.budget is not None, None
    if not broken & {"teachers", "public", "private", "privacy"}:
        read["mechanism"] = checked("mechanism", lambda: _mechanism_of(estimator, mechanism, by_budget=by_budget))
    config = RunConfig(base=path.parent, dataset=table.get("dataset"), columns=table.get("columns", {}), **read)
    for names, check in _CHECKS:
        if not broken & set(names):
            problems.extend(problems_in(lambda one=check: one(config)))
    if problems:
        raise ConfigError(*dict.fromkeys(problems))
    return config


def _is_about_votes(read: dict[str, Any], mechanism: Any) -> bool:
    """Return whether a setting is given that is about votes on single rows; `PATEClassifier` has the same rule."""
    teachers, public, private = read["teachers"], read["public"], read["private"]
    chosen = teachers.number or public.queries or public.selection != _FIRST or public.rounds > 1
    others = (private is not None and private.silo) or read["privacy"].proposal
    return bool(chosen or others or (isinstance(mechanism, dict) and mechanism.get("name", SUM) != SUM))


def with_method(config: RunConfig, method: Method) -> RunConfig:
    """Return the configuration with the teachers, queries and student of a method."""
    sections = tomllib.loads("\n".join(method.as_config()))
    chosen = {name: replace(getattr(config, name), **settings) for name, settings in sections.items()}
    return replace(config, **chosen)


def _mechanism_of(teacher: str, table: Any, *, by_budget: bool) -> Mechanism | NoisySum | None:
    """Return the mechanism that is named, of those that the teachers can use; None for the least noise."""
    if teacher == _VECTORS:
        return read_sum(table)
    if teacher == _NEAREST:
        return read_mechanism(table, {_CAPPED: CENTRAL[_CAPPED]}) if table else None
    if isinstance(table, dict) and table.get("name") == _CAPPED:
        raise ConfigError(
            f"`name` in [mechanism] must not be {_CAPPED}: these teachers vote on every query. Choose another, or "
            f"{_NEAREST} as `estimator` in [teachers]."
        )
    if table:
        return read_mechanism(table, CENTRAL)
    if not by_budget:
        raise ConfigError("The amount of noise is missing. Set `epsilon` in [privacy], or `name` in [mechanism].")
    return None


def build_teacher(section: TeachersSection) -> Any:
    """Return the teacher that `section` describes: a closed form of `tutelage.teachers`, or a scikit-learn one."""
    module, _, name = section.estimator.rpartition(".")
    if module != "tutelage.teachers":
        return build_estimator(section, "teachers")
    if name not in TEACHERS:
        known = ", ".join(sorted(TEACHERS))
        raise ConfigError(f"`estimator` in [teachers] must be one of {known} there. Got {section.estimator!r}.")
    return _made(TEACHERS[name], section, "teachers")


def build_student(config: RunConfig) -> Any:
    """Return the student that is described; None is the one in closed form, which a sum of ballots brings along."""
    if config.student_name == _CLOSED_FORM:
        if not config.by_vectors or config.student.parameters:
            raise ConfigError(
                f"`estimator` in [student] can be {_CLOSED_FORM!r}, without parameters, where the teachers are "
                f"{_VECTORS}. Choose another, or leave out the parameters."
            )
        return None
    section = replace(config.student, estimator=config.student_name)
    if "." in config.student_name:
        return build_estimator(section, "student")
    # TOML has lists where the students take tuples, such as the shape of an image.
    settings = {name: tuple(value) if isinstance(value, list) else value for name, value in section.parameters.items()}
    return _made(partial(student_named, config.student_name), replace(section, parameters=settings), "student")


def build_estimator(section: TeachersSection | StudentSection, name: str) -> Any:
    """Return the scikit-learn classifier that `section` describes."""
    where = f"`estimator` in [{name}]"
    module, _, kind = str(section.estimator).rpartition(".")
    hidden = any(part.startswith(("_", "test", "conftest")) for part in module.split("."))
    # A configuration must not be able to import, and so run, just anything.
    if not module.startswith("sklearn.") or hidden:
        got = f"Got {section.estimator!r}.{_meant(str(section.estimator))}"
        raise ConfigError(f"{where} must be a dotted scikit-learn name such as {_FOREST}. {got}")
    try:
        factory = getattr(import_module(module), kind)
    except (ImportError, AttributeError):
        got = f"Got {section.estimator!r}.{_meant(str(section.estimator))}"
        raise ConfigError(f"{where} names nothing in scikit-learn. {got}") from None
    if not (isinstance(factory, type) and issubclass(factory, ClassifierMixin) and issubclass(factory, BaseEstimator)):
        raise ConfigError(f"{where} must be a classifier. Got {section.estimator!r}.")
    return _made(factory, section, name)


def _meant(estimator: str) -> str:
    """Return advice on a name that is no scikit-learn classifier's: the nearest one, or where others can be used."""
    library, dot, _ = estimator.partition(".")
    if dot and library not in ("sklearn", "tutelage"):
        return " Classifiers of other libraries can be used in Python: pass one to PATEClassifier."
    places = {name: kind.__module__.partition("._")[0] for name, kind in all_estimators(type_filter="classifier")}
    places |= dict.fromkeys(TEACHERS, "tutelage.teachers")
    short = {name.removesuffix("Classifier").lower(): name for name in places}  # the suffix makes all of them alike
    near = difflib.get_close_matches(estimator.rpartition(".")[2].removesuffix("Classifier").lower(), short, 1)
    return f" Did you mean '{places[short[near[0]]]}.{short[near[0]]}'?" if near else ""


def _made(factory: Callable[..., Any], section: TeachersSection | StudentSection, name: str) -> Any:
    try:
        return factory(**section.parameters)
    except TypeError as error:
        raise ConfigError(f"[{name}.parameters] does not fit {section.estimator}: {error}.") from None
    except ModuleNotFoundError as error:  # an extra that is not installed
        raise ConfigError(f"`estimator` in [{name}], {section.estimator!r}: {error}") from None


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


def _problems_of_files(config: RunConfig) -> Iterator[str]:
    for name, section in (("private", config.private), ("public", config.public)):
        if section is not None and section.file is not None:
            path = config.input_file(name)
            try:
                require_input(path, LARGEST)
            except FileNotFoundError:
                continue  # which is refused where it is read
            except OSError as error:
                yield f"`file` in [{name}]: {path} cannot be read: {error.strerror}."


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


def _problems_of_privacy(config: RunConfig) -> Iterator[str]:
    for name, epsilon in (("epsilon", config.privacy.epsilon), ("budget", config.privacy.budget)):
        if epsilon is not None and not epsilon > 0:
            yield f"`{name}` in [privacy] must be above 0. Got {epsilon!r}."
    if config.mechanism is not None and config.privacy.epsilon is not None:
        yield (
            "`epsilon` in [privacy] and the noise in [mechanism] both determine what this run spends. Set only one of "
            "them. The limit for all runs together is `budget` in [privacy]."
        )
    probability(config.privacy.delta, "delta", "[privacy]")


def _problems_of_jobs(config: RunConfig) -> Iterator[str]:
    jobs = config.teachers.jobs
    if jobs == 0:
        yield "`jobs` in [teachers] must be at least 1, or -1 for all cores. Got 0."
    if abs(jobs) > _MOST_JOBS:
        yield f"`jobs` in [teachers] must be at most {_MOST_JOBS}. Got {jobs}."


def _problems_of_models(config: RunConfig) -> Iterator[str]:
    for each in (config, *config.tried):
        yield from problems_in(lambda one=each: build_teacher(one.teachers))
        yield from problems_in(lambda one=each: build_student(one))


def _problems_of_rounds(config: RunConfig) -> Iterator[str]:
    if config.public.rounds > 1:
        return
    if config.votes is not None and config.votes.takes_predictions:
        yield (
            "`interactive` checks the predictions of a student, which does not exist in the first round. Set `rounds` "
            "in [public] to at least 2, or use `confident`."
        )
    if selector_named(config.public.selection).needs_answers:
        yield f"{config.public.selection!r} in [public] needs earlier labels. Set `rounds` to at least 2."


def _problems_of_tuning(config: RunConfig) -> Iterator[str]:
    tuning = config.tuning
    if tuning is None:
        return
    if not config.by_vectors or config.mechanism is not None or (config.private is not None and config.private.batches):
        yield (
            f"[tuning] is only for ballots of {_VECTORS}, and finds the noise by `epsilon` in [privacy] for rows in "
            "memory. Leave it out, or leave out other teachers, [mechanism] and `batches`."
        )
    if not 2 <= len(tuning.settings) <= MOST_SETTINGS:
        yield f"`settings` in [tuning] must list 2 to {MOST_SETTINGS} settings. Got {len(tuning.settings)}."
    if not 0 < tuning.share < 1:
        yield f"`share` in [tuning] must be between 0 and 1. Got {tuning.share!r}."
    for setting in tuning.settings:
        yield from problems_in(lambda one=setting: read_section(TriedSection, one, "tuning.settings"))
        if isinstance(setting, dict) and setting.get("parameters") and setting.get("student") is None:
            yield "`parameters` in [tuning.settings] are those of `student`. Name the student in the same setting."


def _problems_of_people(config: RunConfig) -> Iterator[str]:
    public, private, teacher = config.public, config.private, config.teachers.estimator
    in_parts = private is not None and private.batches
    if private is not None and in_parts and not (config.by_vectors and private.file.lower().endswith(".parquet")):
        yield (
            f"`batches` in [private] is for a Parquet file and ballots of {_VECTORS}, which can be added up a part of "
            "the rows at a time. Leave it out, or write the rows to a Parquet file and leave out what is about votes."
        )
    if not config.by_people:
        return
    given = [name for name, value in (("queries", public.queries), ("rounds", public.rounds - 1)) if value]
    given += ["selection"] if public.selection != _FIRST else []
    if given and config.by_vectors:
        yield (
            f"`{given[0]}` in [public] is about votes on single rows, and {_VECTORS} label all public rows at once, at "
            "no further cost. Leave it out."
        )
    if private is not None and private.silo is not None:
        yield f"`silo` in [private] makes one teacher of each owner, and with {teacher} every person is one."
    if config.privacy.proposal is not None:
        yield (
            f"`proposal` in [privacy] is about a cost that depends on votes, and none is known for {teacher}. Leave it "
            "out."
        )


_STAND_INS = {
    "public": PublicSection(), "teachers": TeachersSection(), "student": StudentSection(),
    "privacy": PrivacySection(), "output": OutputSection(folder="."),
}  # fmt: skip  # of sections with problems; no check looks at them
_OPTIONAL = {"private": PrivateSection, "features": FeaturesSection, "tuning": TuningSection}
_METHOD = ("teachers", "public", "private", "privacy", "mechanism")
# Each check, after the sections that it looks at: it is left out if one of them has problems of its own.
_CHECKS: tuple[tuple[tuple[str, ...], Callable[[RunConfig], Iterable[str]]], ...] = (
    (("private", "public"), _problems_of_sources),
    (("private", "public"), _problems_of_files),
    (("private",), _problems_of_private),
    (("private", "public"), _problems_of_columns),
    (("privacy",), _problems_of_privacy),
    (_METHOD, _problems_of_people),
    ((*_METHOD, "tuning"), _problems_of_tuning),
    (("public",), _problems_of_rounds),
    (("teachers",), _problems_of_jobs),
    (("teachers", "public", "private", "privacy", "student", "features", "tuning"), _problems_of_models),
)
