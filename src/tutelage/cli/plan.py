"""``tutelage plan``: recommend a method for a target (ε, δ), with the expected accuracy of the student."""

import json
from collections.abc import Mapping
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from typer import Exit, Option

from tutelage._internal.files import rows_in
from tutelage._internal.releases import claimed_folder, publish_folder
from tutelage.cli.config import RunConfig, load_config
from tutelage.cli.prepare import prepared
from tutelage.cli.sources import Sources, load_sources
from tutelage.cli.text import AsJson, confirmed, plain_console, remark, say
from tutelage.exceptions import ConfigError
from tutelage.planning import Plan, Planned
from tutelage.planning import plan as make_plan
from tutelage.planning.planned import require_judged
from tutelage.release import PreparedRelease
from tutelage.tables import TABLE_FILES, Batches, Table, is_missing, read_table
from tutelage.targets import Classes

_FILES = ("plan.json", "plan.html")
_KIND, _ANOTHER = "plan", "name another folder with --output"
# Exit codes: the target is not expected to be reached, or trials cannot tell.
_INFEASIBLE, _UNDECIDED = 3, 4
_BY_SCHEMA = (
    "A plan tries methods on labeled public rows, and a schema has none. With a schema there is one method and nothing "
    "to plan: start `tutelage run` straight away, without [method]."
)
_OF_NUMBERS = (
    "A plan is for classes. For a number (`range` in [target]) there is one method and nothing to plan: start "
    "`tutelage run` straight away."
)


def plan(
    epsilon: Annotated[float | None, Option(help="Target epsilon of the whole release.")] = None,
    people: Annotated[
        int | None, Option(help="Approximate number of private people, or rows.")
    ] = None,
    public: Annotated[Path | None, Option(help="Table or npz file with the public rows.")] = None,
    label: Annotated[
        str | None, Option(help="Column of --public (or --stand-in) that holds labels.")
    ] = None,
    stand_in: Annotated[
        Path | None, Option(help="Labeled table or npz file of rows like the private ones.")
    ] = None,
    accuracy: Annotated[
        float | None,
        Option(help="Accuracy of a model without privacy, such as 0.9, if there are no labels."),
    ] = None,
    goal: Annotated[
        str | None, Option(help="accuracy, or balanced_accuracy to judge by all classes alike.")
    ] = None,
    reach: Annotated[
        float | None, Option(help="How much of the goal the student should reach, such as 0.9.")
    ] = None,
    classes: Annotated[
        int | None, Option(help="Number of classes, if there are no labels.")
    ] = None,
    public_rows: Annotated[
        int | None, Option(help="Number of public rows, without --public.")
    ] = None,
    unit: Annotated[
        str | None, Option(help="Privacy unit, if a person can have several rows: patient.")
    ] = None,
    delta: Annotated[
        float | None, Option(help="Target delta, below 1 / number of people.  [default: 1e-5]")
    ] = None,
    configuration: Annotated[
        Path | None, Option("--for", help="Configuration of tutelage run to check.")
    ] = None,
    output: Annotated[
        Path | None, Option(help="Folder for the plan: plan.json and plan.html.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Recommend a method for a target epsilon, with the accuracy to expect. No private label or cell enters the plan.

    The exit code is 3 if the target is not expected to be reached, and 4 if trials cannot tell, so that you decide.
    """
    target = {
        "epsilon": epsilon,
        "people": people,
        "delta": delta,
        "unit": unit,
        "goal": goal,
        "reach": reach,
    }
    if configuration is not None:
        described = {
            "public": public, "stand-in": stand_in, "label": label, "classes": classes, "unit": unit,
            "accuracy": accuracy, "public-rows": public_rows,
        }  # fmt: skip
        for name, value in described.items():
            if value is not None:
                raise ConfigError(
                    f"--{name} cannot be combined with --for: the configuration describes the data."
                )
        settings = load_config(configuration)
        if settings.schema is not None:
            raise ConfigError(_OF_NUMBERS if settings.of_numbers else _BY_SCHEMA)
        if settings.privacy.proposal is not None:
            raise ConfigError(
                "A plan does not count the test of a `proposal`. Remove it from [privacy] to plan."
            )
        require_judged(settings.target.goal, weighted=settings.target.class_weight is not None)
        if settings.private is not None and settings.private.silo is not None:
            raise ConfigError(
                "A plan cannot try one teacher per silo. Remove `silo` from [private]."
            )
        data = load_sources(settings)
        found = _of_configuration(settings, data, prepared(settings, data))
        target = found | {name: value for name, value in target.items() if value is not None}
        if settings.method is not None and data.labels is None:
            say(
                "The settings of the configuration cannot be tried: [public] names no `label`.",
                err=True,
            )
    else:
        target |= {"accuracy": accuracy, "classes": classes, "public_rows": public_rows}
        target |= _rows(public, stand_in, label)
    claiming = (
        nullcontext() if output is None else claimed_folder(output, _FILES, _ANOTHER, kind=_KIND)
    )
    with claiming as results:
        found = make_plan(**_complete(target), progress=not as_json)
        as_text = json.dumps(found.as_dict(), indent=2, ensure_ascii=False)
        if as_json:
            say(as_text)
        else:
            _print(found)
        if results is not None:
            with publish_folder(results, kind=_KIND) as folder:
                (folder / _FILES[0]).write_text(as_text + "\n", encoding="utf-8")
                (folder / _FILES[1]).write_text(found.as_html(), encoding="utf-8")
            for name in _FILES:
                say(f"Wrote {results.path / name}", err=True)
    if not found.possible:
        raise Exit(_UNDECIDED if found.undecided else _INFEASIBLE)


def choice_for(
    settings: RunConfig, data: Sources, *, despite_plan: bool, progress: bool
) -> Planned | None:
    """Return how the method is chosen that a configuration leaves open; None if nothing can be tried, or planned by."""
    can_be_tried = (
        settings.schema is None
        and data.labels is not None
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
    return Planned(people, progress=progress, decide=partial(_decided, despite_plan))


def _decided(despite_plan: bool, found: Plan) -> bool:
    """Return whether to release whatever the plan says; if trials cannot tell, the user at the terminal decides."""
    remark(f"plan: {found.sentences()[0]}")
    if found.undecided and not despite_plan:
        despite_plan = confirmed(
            f"Spend ε = {found.target.epsilon:.10g} on this release?", default=False
        )
    if found.recommended is None and not despite_plan:
        raise ConfigError(
            "Nothing was released, and nothing was spent. To release anyway, pass --despite-plan."
        )
    return True


def _people(settings: RunConfig, data: Sources) -> int | None:
    """Return about how many people there are, if that is public."""
    if settings.private is not None and settings.private.people is not None:
        return settings.private.people
    private = data.private
    X = private["X"]
    if private["entity_ids"] is not None or private["silos"] is not None or isinstance(X, Batches):
        return None
    return X.n_rows if isinstance(X, Table) else len(X)  # of which each is a person


def _of_configuration(
    settings: RunConfig, data: Sources, release: PreparedRelease
) -> dict[str, Any]:
    """Return the target of a configuration; of private rows only their number, if that is public."""
    pool = np.arange(len(release.public.rows))
    labels = data.labels
    if labels is not None:
        pool = pool[[not is_missing(cell) for cell in labels[: len(pool)].tolist()]]
    classes = release.public.classes
    target = {
        "epsilon": release.budget.asked.each,
        "delta": release.budget.asked.delta,
        "goal": settings.target.goal,
        "people": _people(settings, data),
        "unit": None if settings.private is None else settings.private.entity,
        "classes": len(classes),
        "X_public": data.public_rows(pool),
        "columns": data.kinds,
        "features": settings.learned_map,
    }
    if labels is None:
        return target
    known = Classes(values=classes if data.classes is None else data.classes).read(labels)
    return target | {"y_public": known.truth(labels[pool], len(pool)), "method": settings.method}


def _rows(public: Path | None, stand_in: Path | None, label: str | None) -> dict[str, Any]:
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
    return {"X_public": rows} if labels is None else {"X_public": rows, "y_public": labels}


def _read(path: Path, label: str | None) -> tuple[Any, Any]:
    """Return the rows of a file without its labels, and the labels, if a column is named."""
    if path.suffix.lower() == ".toml":
        raise ConfigError(_BY_SCHEMA)
    if path.name.lower().endswith(TABLE_FILES):
        table = read_table(path)
        return (table, None) if label is None else (table.without([label]), table.column(label))
    arrays = rows_in(path, label)
    return arrays["X"], None if label is None else arrays[label]


def _complete(target: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters of `plan` that are known; refuse a target without ε or people."""
    for name, why in (
        ("epsilon", "It is the budget of the whole release."),
        ("people", "Give the approximate number of people."),
    ):
        if target.get(name) is None:
            raise ConfigError(f"--{name} is missing. {why}")
    return {name: value for name, value in target.items() if value is not None}


def _print(found: Plan) -> None:
    console = plain_console()
    console.print(found.as_table(), found.bars)
    heading, style = "", None
    if found.undecided:
        heading, style = "Undecided: ", "bold yellow"
    elif not found.possible:
        heading, style = "Infeasible: ", "bold red"
    first, *others = found.sentences()
    console.print(heading + first, style=style, highlight=False)
    for sentence in others:
        console.print(sentence, highlight=False)
    for finding in found.findings:
        console.print(
            f"{finding.severity.capitalize()}: {finding.reason}", style="red", highlight=False
        )
    config = found.as_config()
    if config:
        advice = "To fix this choice, set in the configuration of tutelage run:"
        if found.undecided:
            advice = "To spend it, pass --despite-plan to tutelage run, or name the method:"
        say(f"{advice}\n\n{config}")
