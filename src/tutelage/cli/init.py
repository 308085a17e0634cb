"""``tutelage init``: a wizard that writes a configuration for `tutelage run`; of private rows it shows no cell."""

import csv
import os
import re
import sys
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from typer import Abort, prompt

from tutelage._internal.gate import user_path
from tutelage._internal.records import Entries
from tutelage.cli.config import RunConfig, config_of, problems_of_names, read_schema
from tutelage.cli.prepare import prepare_release
from tutelage.cli.schema import column_entry, toml_key, toml_value
from tutelage.cli.sources import load_sources
from tutelage.cli.text import (
    interruption_says,
    is_confirmed,
    remark,
    require_printable,
    say,
    write_new,
)
from tutelage.cli.words import on_command_line
from tutelage.exceptions import ConfigError, InvalidParameterError, TutelageError
from tutelage.ledger.ledger import DEFAULT_DELTA
from tutelage.preflight import like_ids, named_like_id
from tutelage.reporting.meaning import guesses
from tutelage.tables import TABLE_FILES, Table, is_number, read_table, require_same_types
from tutelage.targets import Classes, Goal

_EACH_ROW = "each row"
_NONE = "none"
_ADVISE = "advise"
_UNSTATED = "private"
_ONCE = "once"
_IGNORE = "ignore"
_KEEP = "keep"
_NEEDED = {"private", "person", "label", "public", "goal", "epsilon"}
_GOALS = "accuracy, balanced accuracy, average precision, or recall at 5 %"
_MOST_CLASSES = 100  # different public labels
_ENOUGH_TO_SCORE = 50  # public rows
_ONE_IN = 5  # of them, which scores
_NO_ROWS = (
    "Without public rows, --public must be a schema file. Write it from a form, a data dictionary or a law, never from "
    'the private rows: below a line [schema], a line such as age = [18, 95] or size = ["small", "large"] for each '
    "column to learn from. `tutelage schema OLD.csv --ranges > schema.toml` proposes one from other public rows."
)
_COMMENTS = {
    "private.file": "the rows to protect",
    "target.column": "the column to predict",
    "target.classes": 'its values, which are public; to merge labels: {{ yes = ["<30", ">30"], no = ["NO"] }}',
    "private.entity": "rows with the same id belong to one person",
    "private.unit": "each row is another person",
    "private.ignore": "ids, and public columns that the private file does not have",
    "private.people": "about how many, which is public; a plan says what a run gains beyond public labels",
    "public.file": "rows that anyone may see",
    "public.schema": "ranges and categories of the columns, in place of public rows",
    "public.label": "public labels, where the student starts",
    "public.evaluate_last": "the last rows score the student, and are used for nothing else",
    "target.goal": "measure of the student; average_precision and recall are those of the second class",
    "method.name": "without it, a plan decides, which judges by accuracy or balanced_accuracy",
    "privacy.epsilon": "an attacker who knows all other records guesses right in at most {right} of 100 cases\n"
    f"{'# budget = 3':36}# ε of all runs on these people, fixed by the first run; default: its ε",
    "privacy.budget": "ε of a person in all releases together, by which an attacker who knows all other records "
    "guesses right in at most {right} of 100 cases",
    "privacy.releases": "number of releases in which a person may take part; name each: `tutelage run FILE --as NAME`",
    "privacy.delta": "must be below 1 / the number of people",
    "output.folder": "the results, all of which may be published",
}
_MOST_WRONG = 10  # answers that do not come from a terminal
_Read = TypeVar("_Read")
Sections = dict[str, Entries]


class _Questions:
    """Takes the answers that are given, and asks for the others at the terminal or reads them from a pipe."""

    def __init__(self, given: Entries, *, asks: bool = True) -> None:
        self.given = {name: value for name, value in given.items() if value is not None}
        # Questions that have a safe answer are not asked.
        self.quiet = not asks or self.given.keys() >= _NEEDED
        self._asks = asks
        self._number = 0
        self._wrong = 0  # answers

    def __call__(
        self, name: str, text: str, why: str, read: Callable[[Any], _Read], default: str | None = None, *,
        safe: bool = False,
    ) -> _Read:  # fmt: skip
        """Return the answer as `read` returns it; without a terminal, a default is taken only if it is `safe`."""
        if name in self.given or (safe and self.quiet):
            return read(self.given.pop(name, default))
        if why:
            self._number += 1
            why = f"\n{self._number}. {why}"
        answer = self._next_answer(text, why, default)
        while answer is not None:
            try:
                return read(require_printable(answer, "An answer"))
            except TutelageError as error:
                say(" ".join(error.sentences(on_command_line)), err=True)
                self._wrong += 1
                if self._wrong >= _MOST_WRONG and not sys.stdin.isatty():
                    raise
            answer = self._next_answer(text, why, default)
        if safe:
            return read(default)
        flag = f"--{name.replace('_', '-')}" if self._asks else f"`{name}`"
        raise ConfigError(f"{flag} is missing, and there is no terminal to ask for it: {text}.")

    def _next_answer(self, text: str, why: str, default: str | None) -> str | None:
        """Return the answer from the terminal, or the next line of a pipe; None at its end."""
        if not self._asks or sys.stdin is None:
            return None
        if sys.stdin.isatty():
            say(why, err=True, nl=bool(why))
            try:
                return str(prompt(text, default=default, err=True))
            except Abort:
                raise KeyboardInterrupt from None
        line = sys.stdin.readline()
        if not line:
            return None
        answer = line.strip() or default or ""
        if why:
            say(why, err=True)
        say(f"{text}: {answer}", err=True)
        return answer


def init(
    *,
    private: Path | None = None,
    person: str | None = None,
    ids: str | None = None,
    label: str | None = None,
    classes: str | None = None,
    public: Path | None = None,
    public_label: str | None = None,
    goal: str | None = None,
    epsilon: str | None = None,
    releases: str | None = None,
    people: str | None = None,
    delta: float | None = None,
    output: Path | None = None,
) -> None:
    """Ask a few questions, and write a configuration for `tutelage run`.

    Pass an option to skip its question. Only column names and the row count of the private file are shown.
    Existing files are never overwritten.

    Parameters
    ----------
    private
        Table of the private rows (csv or Parquet).
    person
        Column with the id of the person, or 'each row'.
    ids
        Columns like ids: 'ignore', or 'keep' as features.
    label
        Column to predict.
    classes
        Its values, from public knowledge: 'no, yes'.
    public
        Table of public rows, or a public schema (.toml).
    public_label
        Column of labels in the public rows, or 'none'.
    goal
        Measure of the student: accuracy, balanced accuracy, average precision, or recall at 5 %.
    epsilon
        ε of the run, or 'advise'.
    releases
        Releases that each person may be in, or 'once'.
    people
        About how many people there are, if that may be public.
    delta
        Default: 1e-5, or less if there are many people.
    output
        File to write. Default: named like the private file.
    """
    given = {name: value for name, value in locals().items() if name != "output"}
    with interruption_says("nothing was written."):
        questions = _Questions(given)
        _require_new(output)
        private, rows = _private(questions)
        target = output or Path(f"{private.name.partition('.')[0]}.toml")
        _require_new(target)
        sections = _settings(questions, private, rows, target.parent, f"{target.stem}-results")
        write_new(target, _text(sections, target.parent))
    say(f"Wrote {target}, with comments.")
    run = f"tutelage run {target}"
    if "releases" in sections["privacy"]:
        run += " --as NAME"
    if not _can_plan(sections):
        say(f"Next: {run}")
        return
    say(f"Next: tutelage plan --for {target}\nThen: {run}")
    if not questions.quiet and is_confirmed("Plan it now, which spends nothing?", default=True):
        from tutelage.cli.plan import plan  # not every wizard needs it

        plan(configuration=target)


def configuration(
    private: str | Path, person: str, label: str, public: str | Path, *, epsilon: float, goal: str = "accuracy",
    classes: Iterable[str] | None = None, public_label: str | None = None, people: int | None = None,
    delta: float | None = None, ids: str | None = None, releases: int | None = None, folder: str = "results",
) -> str:  # fmt: skip
    """Return the text that `tutelage init` would write for these answers; paths are relative to the current folder."""
    answers = {name: value for name, value in locals().items() if name != "folder"}
    questions = _Questions(answers, asks=False)
    sections = _settings(questions, *_private(questions), Path(), folder)
    return _text(sections, Path())


def _require_new(path: Path | None) -> None:
    if path is not None and os.path.lexists(path):
        raise ConfigError(f"{path} already exists. Name another file with --output.")


def _private(ask: _Questions) -> tuple[Path, Table]:
    return ask(
        "private",
        "Private file",
        "The rows to protect are in a csv file with a header or a Parquet file.",
        _table,
    )


def _settings(ask: _Questions, private: Path, rows: Table, base: Path, folder: str) -> Sections:
    """Return the sections of a configuration by the answers, each of which is checked by the files."""
    person = ask(
        "person", f"Column with the id of the person, or '{_EACH_ROW}'",
        f"{private.name} has {rows.n_rows:,} rows. Rows with the same id are protected together, as one person. If "
        f"each row is another person, answer '{_EACH_ROW}'.", partial(_person, rows), named_like_id(rows.columns),
    )  # fmt: skip
    alike = _ids_to_ignore(ask, rows) if person == _EACH_ROW else []
    label = ask(
        "label", "Column to predict", "The student, which is the model to publish, predicts a column of a few values.",
        partial(_label, rows, person),
    )  # fmt: skip
    features = [name for name in rows.columns if name not in (person, label, *alike)]
    path, public = ask(
        "public", f"Public file, or '{_NONE}'",
        "Public rows are rows of other people that anyone may see, with the same columns; without them, a schema "
        "(.toml) describes the columns.", partial(_public, private, rows, features),
    )  # fmt: skip
    classes, of_public = _labels(ask, label, path, public)
    examples = " or ".join(classes[:5])
    if len(classes) > 5:
        examples += " …"
    goal = ask(
        "goal", _GOALS, f"The student, which predicts {examples}, is judged "
        "by a goal. Accuracy overlooks rare values.", partial(_goal, classes), "accuracy",
    )  # fmt: skip
    of_private: Entries = {"file": _relative(private, base)}
    n_people = None
    if person == _EACH_ROW:
        of_private["unit"] = "row"
        n_people = rows.n_rows  # with one row for each person, their number is public
    else:
        of_private["entity"] = person
    of_public = {"schema" if public is None else "file": _relative(path, base), **of_public}
    target = {"column": label, "classes": classes, "goal": goal.name}
    sections: Sections = {"private": of_private, "target": target, "public": of_public}
    if goal.ranks and "label" in of_public:
        sections["method"] = {"name": "noisy-moments"}
    if public is not None:
        unknown = {*public.columns} - {*rows.columns, of_public.get("label")}
        of_private["ignore"] = [name for name in public.columns if name in {*alike, *unknown}]
        sections["columns"] = {
            name: "ignore"
            for name in features
            if name in public.columns and column_entry(public, name)["kind"] == "ignore"
        }
    of_private["people"], sections["privacy"] = _privacy(ask, n_people)
    for name in ask.given:
        raise ConfigError(
            f"--{name.replace('_', '-')} does not go with the other answers. Leave it out."
        )
    return sections | {"output": {"folder": folder}}


def _ids_to_ignore(ask: _Questions, rows: Table) -> list[str]:
    """Return the columns like ids of people, unless they are to stay features."""
    alike = like_ids(rows.columns)
    if not alike:
        return []
    ids = ask(
        "ids", f"'{_IGNORE}' them, or '{_KEEP}' them as features",
        f"These columns look like ids of people: {', '.join(alike)}. "
        f"If a person can have several rows, start again and name that column in place of '{_EACH_ROW}': otherwise "
        "such a person is protected less.",
        _about_ids,
    )  # fmt: skip
    return [] if ids == _KEEP else alike


def _can_plan(sections: Sections) -> bool:
    """Return whether `tutelage plan` takes a configuration: it needs public rows, and a number of people."""
    goal = Goal(sections["target"]["goal"])
    private = sections["private"]
    has_number = private.get("people") is not None or "unit" in private
    return has_number and "file" in sections["public"] and not goal.ranks


def _privacy(ask: _Questions, n_rows: int | None) -> tuple[int | None, Entries]:
    """Return about how many people there are, if that is stated, and the section of ε and δ."""
    epsilon = ask(
        "epsilon", f"ε, or '{_ADVISE}'", "ε limits what the results reveal about one person: a smaller ε protects more "
        "and costs more accuracy.", lambda value: None if value == _ADVISE else _epsilon(value), _ADVISE,
    )  # fmt: skip
    if epsilon is None:
        say(_advice(), err=True)
        epsilon = ask("epsilon", "ε", "", _epsilon, "1")
    releases = None
    if n_rows is None:
        releases = ask(
            "releases", f"In how many releases each person may take part, or '{_ONCE}'",
            "Will more people come later, for example every month? Then each release has a name, new people have a "
            "budget of their own, and the ε of a person is divided among the releases in which the person takes part.",
            _releases, _ONCE, safe=True,
        )  # fmt: skip
    people = None
    delta = ask.given.pop("delta", None)
    if "people" in ask.given or n_rows is None:
        people = ask(
            "people", f"About how many people, or '{_UNSTATED}'",
            "From the number of people, a plan says whether they are enough before anything is spent, and δ must be "
            "below 1 / that number. The number becomes public, rounded: 100, 1,000, 10,000 or 100,000 is exact enough. "
            f"If you answer '{_UNSTATED}', there is no plan.", _people, safe=True,
        )  # fmt: skip
    known = max(people or 1, n_rows or 1)
    if delta is not None and 1 / known <= delta < 1:
        raise ConfigError(
            f"--delta must be below 1 / the number of people. Got {delta:g} for {known} people."
        )
    if delta is None:
        power_of_ten = float(f"1e-{len(str(known))}")  # the one below 1 / known
        delta = min(DEFAULT_DELTA, power_of_ten)
    if releases is None:
        return people, {"epsilon": epsilon, "delta": delta}
    return people, {"budget": epsilon, "releases": releases, "delta": delta}


def _relative(path: Path, base: Path) -> str:
    if path.is_absolute():
        return str(path)
    return os.path.relpath(path.resolve(), base.resolve())


def _text(sections: Sections, base: Path) -> str:
    """Return a configuration, checked, as TOML with comments."""
    stated = dict[str, Entries]()
    for name, section in sections.items():
        stated[name] = {key: value for key, value in section.items() if value not in (None, [])}
    _look(config_of(stated, base))
    lines = [
        "# Written by `tutelage init`. Paths are relative to this file; docs/configuration.md has all settings."
    ]
    privacy = stated["privacy"]
    right = guesses(privacy.get("epsilon") or privacy["budget"], privacy["delta"])
    for name, section in stated.items():
        if section:
            lines.append(f"\n[{name}]")
        for key, value in section.items():
            comment = _COMMENTS.get(f"{name}.{key}", "`tutelage schema` says why")
            comment = comment.format(right=right)
            lines.append(f"{toml_key(key)} = {toml_value(value)}".ljust(34) + f"  # {comment}")
    return "\n".join([*lines, ""])


def _look(config: RunConfig) -> None:
    """Tell the owner what `tutelage run` would warn of or refuse before it spends anything."""
    try:
        data = load_sources(config)
        prepare_release(config, data)
    except TutelageError as error:
        for problem in error.sentences(on_command_line):
            remark(f"warning: `tutelage run` would refuse this: {problem}")


def _table(value: str | Path) -> tuple[Path, Table]:
    path = user_path(value)
    if not path.name.lower().endswith(TABLE_FILES):
        raise ConfigError(f"A table must end in {', '.join(TABLE_FILES)}. Got {str(path)!r}.")
    require_printable(str(path), "The name of a table")
    return path, read_table(path)


def _person(rows: Table, name: str) -> str:
    if name != _EACH_ROW:
        rows.column(name)  # refuses a name that is misspelled
    return name


def _about_ids(answer: str) -> str:
    if answer not in (_IGNORE, _KEEP):
        raise ConfigError(f"--ids must be '{_IGNORE}' or '{_KEEP}'. Got {answer!r}.")
    return answer


def _label(rows: Table, person: str, name: str) -> str:
    if name == person:
        raise ConfigError(f"--label must be another column than --person. Got {name!r} for both.")
    rows.column(name)
    return name


def _public(
    private: Path, rows: Table, features: list[str], value: str | Path
) -> tuple[Path, Table | None]:
    """Return public rows, or the path of a schema."""
    path = user_path(value)
    if str(path) == _NONE:
        raise ConfigError(_NO_ROWS)
    if path.suffix.lower() == ".toml":
        schema = read_schema(path)
        for name in schema.names:
            if name not in features:
                raise ConfigError(
                    f"{path} must describe features of {private} only. Remove {name!r}."
                )
        schema.table(rows)
        return path, None
    path, table = _table(path)
    if path.samefile(private):
        raise ConfigError(
            "--public must be another file than --private, because public rows are not protected."
        )
    if not table.columns.keys() & {*features}:
        raise ConfigError(
            f"{path} must have the same columns as {private}, and has none of them. Name another file."
        )
    require_same_types(rows, table, features, dates=features)  # `tutelage run` asks to declare them
    return path, table


def _labels(
    ask: _Questions, label: str, path: Path, public: Table | None
) -> tuple[list[str], Entries]:
    """Return the class values, of public labels or as stated, and the settings of public labels, if they are used."""
    of_public = Entries()
    values = list[str]()
    required = list[str]()
    if public is not None:
        likely = label if label in public.columns else _NONE
        used = _NONE
        if likely != _NONE or "public_label" in ask.given:
            used = ask(
                "public_label", f"Column of public labels, or '{_NONE}'",
                f"{path.name} has a column '{likely}': public labels start the student at no cost in privacy, and some "
                "of them score it.", partial(_public_label, public), likely, safe=True,
            )  # fmt: skip
        values = sorted(_values(public, likely if used == _NONE else used) - {""})
        if used != _NONE:
            required = values
            of_public["label"] = used
            if public.n_rows >= _ENOUGH_TO_SCORE:
                of_public["evaluate_last"] = public.n_rows // _ONE_IN
    has_values = 1 < len(values) <= _MOST_CLASSES and not [*problems_of_names(values)]
    if has_values and "classes" not in ask.given:
        return values, of_public
    classes = ask(
        "classes", "Values, separated by commas",
        f"The values of '{label}' become public, so they are stated by you, and not read from the private rows.",
        partial(_classes, required),
    )  # fmt: skip
    return classes, of_public


def _values(public: Table, name: str) -> set[str]:
    return set() if name == _NONE else set(public.texts(name))


def _public_label(public: Table, name: str) -> str:
    values = _values(public, name)
    if "" in values:
        raise ConfigError(
            f"--public-label must have no empty cells. Fill '{name}' of {public.source}, or name {_NONE}."
        )
    if len(values) > _MOST_CLASSES:
        raise ConfigError(
            f"--public-label must have at most {_MOST_CLASSES} different values. '{name}' has {len(values):,}; if they "
            "are numbers, write a configuration with `range` in [target], as docs/howto/numbers.md says."
        )
    return name


def _classes(required: list[str], value: str | Iterable[str]) -> list[str]:
    parts = value
    if isinstance(value, str):
        parts = next(csv.reader([value], skipinitialspace=True), list[str]())
    classes = [str(part).strip() for part in parts]
    problems = [*Classes(values=classes).problems()]
    if problems:
        raise InvalidParameterError.of(problems)
    problems_in_files = [*problems_of_names(classes)]
    if problems_in_files:
        raise ConfigError(*problems_in_files)
    for label in required:
        if label not in classes:
            raise ConfigError(f"--classes must list all public labels. {label!r} is missing.")
    return classes


def _goal(classes: list[str], text: str) -> Goal:
    name = " ".join(text.replace("%", " %").split())
    goal = Goal(name if name.startswith("recall") else name.replace(" ", "_"))
    if goal.ranks and len(classes) != 2:
        raise ConfigError(
            f"--goal {goal.title} needs exactly two classes. Got {len(classes)}. Name another goal."
        )
    return goal


def _epsilon(value: str | float) -> float:
    if not is_number(str(value)) or "_" in str(value) or not 0 < float(value) < float("inf"):
        raise ConfigError(f"--epsilon must be a number above 0. Got {value!r}.")
    return float(value)


def _people(value: str | int | None) -> int | None:
    """Return about how many people there are: rounded, because it becomes public."""
    if value in (None, _UNSTATED):
        return None
    number = str(value)
    if not re.fullmatch("[1-9][0-9]*|[1-9][0-9]{0,2}(,[0-9]{3})+", number) or number == "1":
        raise ConfigError(f"--people must be a whole number of at least 2. Got {value!r}.")
    return int(float(f"{int(number.replace(',', '')):.0e}"))


def _releases(value: str | int) -> int | None:
    if value == _ONCE:
        return None
    if not re.fullmatch("[1-9][0-9]{0,3}", str(value)):
        raise ConfigError(
            f"--releases must be a whole number from 1 to 9,999, or '{_ONCE}'. Got {value!r}."
        )
    return int(value)


def _advice() -> str:
    cases = ", ".join(
        f"{guesses(epsilon, DEFAULT_DELTA)} at ε = {epsilon:g}" for epsilon in (0.1, 0.5, 1, 2, 3)
    )
    return (
        "Suppose an attacker knows all other records, and guesses which of two equally likely versions of one record "
        f"is true. Of 100 guesses, 50 are right without a release, and with it at most {cases}. Start from the harm of "
        "a right guess. Choose an ε below 1 if you can; up to 2.9 is common in practice, but state your reason. The "
        "fewer people there are, the more accuracy a small ε costs. Without a reason for another ε, take 1."
    )
