"""``tutelage plan``: recommend a method for a target (ε, δ), with the expected accuracy of the student."""

import json
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from typer import Exit

from tutelage._internal.files import rows_in
from tutelage._internal.records import Entries
from tutelage._internal.releases import claimed_folder, publish_folder
from tutelage._internal.typing import Array
from tutelage.cli.config import RunConfig, load_config
from tutelage.cli.prepare import prepare_release
from tutelage.cli.sources import Sources, load_sources
from tutelage.cli.text import AsJson, is_confirmed, plain_console, remark, say
from tutelage.exceptions import ConfigError
from tutelage.tables import TABLE_FILES, Batches, Table, is_missing, read_table
from tutelage.targets import Classes

if TYPE_CHECKING:
    from tutelage.planning import Plan, Planned

_FILES = ("plan.json", "plan.html")
_KIND = "plan"
_INFEASIBLE = 3  # exit code: the target is not expected to be reached
_UNDECIDED = 4  # exit code: the gain is small or unknown
_BY_SCHEMA = (
    "A plan tries methods on labeled public rows, and a schema has none. With a schema there is one method and nothing "
    "to plan: start `tutelage run` straight away, without [method]."
)
_OF_NUMBERS = (
    "A plan is for classes. For a number (`range` in [target]) there is one method and nothing to plan: start "
    "`tutelage run` straight away."
)


def plan(
    *,
    epsilon: float | None = None,
    people: int | None = None,
    public: Path | None = None,
    label: str | None = None,
    stand_in: Path | None = None,
    accuracy: float | None = None,
    goal: str | None = None,
    reach: float | None = None,
    liars: int | None = None,
    classes: int | None = None,
    public_rows: int | None = None,
    unit: str | None = None,
    delta: float | None = None,
    configuration: Path | None = None,
    output: Path | None = None,
    as_json: AsJson = False,
) -> None:
    """Recommend a method for a target epsilon, with the accuracy to expect. No private label or cell enters the plan.

    The exit code is 3 if the target is not expected to be reached, and 4 if the gain is small or unknown: you decide.

    Parameters
    ----------
    epsilon
        Target epsilon of the whole release.
    people
        Approximate number of private people, or rows.
    public
        Table or npz file with the public rows.
    label
        Column of --public (or --stand-in) that holds labels.
    stand_in
        Labeled table or npz file of rows like the private ones.
    accuracy
        Accuracy of a model without privacy, such as 0.9, if there are no labels.
    goal
        accuracy, or balanced_accuracy to judge by all classes alike.
    reach
        How much of the goal the student should reach, such as 0.9.
    liars
        Also say what stays right whatever so many people cast, such as 10.
    classes
        Number of classes, if there are no labels.
    public_rows
        Number of public rows, without --public.
    unit
        Privacy unit, if a person can have several rows: patient.
    delta
        Target delta, below 1 / number of people.  [default: 1e-5]
    configuration : --for
        Configuration of tutelage run to check.
    output
        Folder for the plan: plan.json and plan.html.
    """
    target: Entries = {
        "epsilon": epsilon,
        "people": people,
        "delta": delta,
        "unit": unit,
        "goal": goal,
        "reach": reach,
        "liars": liars,
    }
    if configuration is not None:
        of_data = {
            "public": public, "stand-in": stand_in, "label": label, "classes": classes, "unit": unit,
            "accuracy": accuracy, "public-rows": public_rows,
        }  # fmt: skip
        for name in _without_none(of_data):
            raise ConfigError(
                f"--{name} cannot be combined with --for: the configuration describes the data."
            )
        target = _target_of_configuration(configuration) | _without_none(target)
    else:
        target |= {"accuracy": accuracy, "classes": classes, "public_rows": public_rows}
        target |= _rows(public, stand_in, label)
    claiming = nullcontext()
    if output is not None:
        claiming = claimed_folder(output, _FILES, "name another folder with --output", kind=_KIND)
    with claiming as results:
        # It loads scikit-learn, which help and refusals do not need.
        from tutelage.planning import plan as make_plan

        recommended = make_plan(**_complete(target), progress=not as_json)
        as_text = json.dumps(recommended.as_dict(), indent=2, ensure_ascii=False)
        if as_json:
            say(as_text)
        else:
            _print(recommended)
        if results is not None:
            with publish_folder(results, kind=_KIND) as folder:
                (folder / _FILES[0]).write_text(as_text + "\n", encoding="utf-8")
                (folder / _FILES[1]).write_text(recommended.as_html(), encoding="utf-8")
            for name in _FILES:
                say(f"Wrote {results.path / name}", err=True)
    if not recommended.possible:
        raise Exit(_UNDECIDED if recommended.undecided else _INFEASIBLE)


def choice_for(
    settings: RunConfig, data: Sources, *, despite_plan: bool, progress: bool
) -> "Planned | None":
    """Return how the method is chosen that a configuration leaves open; None if nothing can be tried, or planned by."""
    can_be_tried = (
        settings.schema is None
        and data.labels is not None
        and not settings.public.only_score
        and not isinstance(data.private["X"], Batches)
    )
    if settings.method is not None or not can_be_tried:
        return None
    people = _people(settings, data)
    if people is None or (settings.privacy.epsilon is None and settings.privacy.budget is None):
        remark(
            "warning: no plan was made, so this run may gain nothing beyond the public labels. A plan needs `people`, "
            "about how many people there are, in [private], and `epsilon` or `budget` in [privacy]."
        )
        return None
    from tutelage.planning import Planned

    return Planned(people, progress=progress, decide=partial(_is_accepted, despite_plan))


def _is_accepted(despite_plan: bool, plan: "Plan") -> bool:
    """Return True if the release may be made; if the gain is small or unknown, the user at the terminal decides."""
    remark(f"plan: {plan.sentences()[0]}")
    if plan.undecided and not despite_plan:
        despite_plan = is_confirmed(
            f"Spend ε = {plan.target.epsilon:.10g} on this release?", default=False
        )
    if plan.recommended is None and not despite_plan:
        raise ConfigError(
            "Nothing was released, and nothing was spent. To release anyway, pass --despite-plan."
        )
    return True


def _people(settings: RunConfig, data: Sources) -> int | None:
    """Return about how many people there are, if that is public."""
    if settings.private is not None and settings.private.people is not None:
        return settings.private.people
    private = data.private
    rows = private["X"]
    if (
        private["entity_ids"] is not None
        or private["silos"] is not None
        or isinstance(rows, Batches)
    ):
        return None
    return rows.n_rows if isinstance(rows, Table) else len(rows)  # of which each is a person


def _target_of_configuration(file: Path) -> Entries:
    """Return the target of a configuration; of private rows only their number, if that is public."""
    settings = load_config(file)
    if settings.schema is not None:
        raise ConfigError(_OF_NUMBERS if settings.of_numbers else _BY_SCHEMA)
    if settings.privacy.proposal is not None:
        raise ConfigError(
            "A plan does not count the test of a `proposal`. Remove it from [privacy] to plan."
        )
    from tutelage.planning.planned import require_judged

    require_judged(settings.target.goal, weighted=settings.target.class_weight is not None)
    if settings.private is not None and settings.private.silo is not None:
        raise ConfigError("A plan cannot try one teacher per silo. Remove `silo` from [private].")
    data = load_sources(settings)
    release = prepare_release(settings, data)
    labels = data.labels
    pool = np.arange(len(release.public.rows))
    if labels is not None:
        pool = pool[[not is_missing(cell) for cell in labels[: len(pool)].tolist()]]
    elif settings.method is not None:
        say(
            "The settings of the configuration cannot be tried: [public] names no `label`.",
            err=True,
        )
    classes = release.public.classes
    target: Entries = {
        "epsilon": release.budget.asked.each,
        "delta": release.budget.asked.delta,
        "goal": settings.target.goal,
        "people": _people(settings, data),
        "unit": settings.private and settings.private.entity,
        "classes": len(classes),
        "X_public": data.public_rows(pool),
        "columns": data.kinds,
        "features": settings.learned_map,
    }
    if labels is None:
        return target
    declared = classes if data.classes is None else data.classes
    truth = Classes(values=declared).read(labels).truth(labels[pool], len(pool))
    return target | {"y_public": truth, "method": settings.method}


def _rows(public: Path | None, stand_in: Path | None, label: str | None) -> Entries:
    """Return the rows that files hold, and their labels."""
    if stand_in is not None:
        if label is None or public is not None:
            raise ConfigError(
                "--stand-in needs --label, the column of its labels, and replaces --public, so leave --public out."
            )
        return {"stand_in": _read(stand_in, label)}
    if public is None:
        if label is not None:
            raise ConfigError(
                "--label names a column of --public or --stand-in. Name one of these files."
            )
        return {}
    rows, labels = _read(public, label)
    return {"X_public": rows, "y_public": labels}


def _read(path: Path, label: str | None) -> tuple[Table | Array, Array | None]:
    """Return the rows of a file without its labels, and the labels, if a column is named."""
    if path.suffix.lower() == ".toml":
        raise ConfigError(_BY_SCHEMA)
    if path.name.lower().endswith(TABLE_FILES):
        table = read_table(path)
        if label is None:
            return table, None
        return table.without([label]), table.column(label)
    arrays = rows_in(path, label)
    return arrays["X"], None if label is None else arrays[label]


def _complete(target: Entries) -> Entries:
    """Return the parameters of `plan` that are known; refuse a target without ε or people."""
    if target["epsilon"] is None:
        raise ConfigError("--epsilon is missing. It is the budget of the whole release.")
    if target["people"] is None:
        raise ConfigError("--people is missing. Give the approximate number of people.")
    return _without_none(target)


def _without_none(entries: Entries) -> Entries:
    return {name: value for name, value in entries.items() if value is not None}


def _print(plan: "Plan") -> None:
    console = plain_console()
    console.print(plan.as_table(), plan.bars)
    heading = ""
    style = None
    if plan.undecided:
        heading = "Undecided: "
        style = "bold yellow"
    elif not plan.possible:
        heading = "Infeasible: "
        style = "bold red"
    first, *later = plan.sentences()
    console.print(heading + first, style=style, highlight=False)
    for sentence in later:
        console.print(sentence, highlight=False)
    for finding in plan.findings:
        console.print(
            f"{finding.severity.capitalize()}: {finding.reason}", style="red", highlight=False
        )
    config = plan.as_config()
    if config:
        advice = "To fix this choice, set in the configuration of tutelage run:"
        if plan.undecided:
            advice = "To spend it, pass --despite-plan to tutelage run, or name the method:"
        say(f"{advice}\n\n{config}")
