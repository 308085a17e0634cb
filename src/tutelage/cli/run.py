"""``tutelage run``: from a configuration to a student, its released labels and a privacy card."""

import re
import shutil
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import numpy as np
from msgspec import structs
from typer import Option

from tutelage._internal.files import VOTES
from tutelage._internal.gate import user_path
from tutelage._internal.outputs import Claim
from tutelage._internal.records import Entries
from tutelage._internal.releases import RESULTS, SIGNATURE, claimed_folder, publish_folder
from tutelage._internal.typing import Array
from tutelage.cli.config import PublishedSection, RunConfig, load_config
from tutelage.cli.plan import choice_for
from tutelage.cli.prepare import prepare_release
from tutelage.cli.sources import Sources, load_sources
from tutelage.cli.text import (
    interruption_says,
    is_confirmed,
    new_table,
    plain_console,
    print_json,
    remark,
)
from tutelage.exceptions import BudgetContinuedWarning, ConfigError, PreflightError, TutelageError
from tutelage.privacy import printed_up, round_up
from tutelage.reporting import PrivacyCard, read_card
from tutelage.reporting.record import Judged
from tutelage.reporting.render import as_number, as_share
from tutelage.tables import Table, is_missing

if TYPE_CHECKING:
    from rich.table import Table as RichTable

    from tutelage.estimator import PATEClassifier, PATERegressor
    from tutelage.release import PreparedRelease

_CHECKPOINTS = "checkpoints"
_VOTES_FILE = "private-votes.npz"
_CARD = "card.json"
_FILED = "private-votes-{}.npz"  # by the ledger's entry under which they were released
_GROUPS = 5  # of cohorts that are named one by one

Model: TypeAlias = "PATEClassifier | PATERegressor"
Row = Callable[[str, str], None]  # adds a row to the summary


def run(
    config: Path,
    *,
    overwrite: bool = False,
    data_changed: bool = False,
    release: Annotated[
        str | None,
        Option(
            "--as",
            metavar="NAME",
            help="Name of this release, and of its folder in `folder`: people who are new have "
            "a budget of their own, and the student also learns from earlier releases.",
        ),
    ] = None,
    insist: bool = False,
    despite_plan: bool = False,
    as_json: bool = False,
) -> None:
    """Release private data through noise, train a student on the release, and write the privacy card.

    By default, each person casts one ballot, and the noisy sum of the ballots is released. [method] in the
    configuration names another method.

    Parameters
    ----------
    config
        TOML file with the configuration.
    overwrite
        Replace the results. The budget that they used is not refunded.
    data_changed
        Confirm that the private rows changed. The budget stays the same.
    insist
        Run although the rows are refused. The card calls the guarantee weak.
    despite_plan
        Release even if the plan expects no gain, or cannot tell.
    as_json : --json
        Print the card as JSON instead of the summary.
    """
    settings = load_config(config)
    if release is not None:
        settings = _in_folder_of(settings, release)
    else:
        for card in settings.folder.glob(f"*/{_CARD}"):
            raise ConfigError(
                f"{settings.folder} holds releases with names, such as {card.parent.name}. Name this one, too, with "
                "--as, or name another folder."
            )
    way_out = "name another `folder` in [output]"
    with claimed_folder(settings.folder, RESULTS, way_out, ledger=settings.ledger) as results:
        if not overwrite and settings.folder.exists() and any(settings.folder.iterdir()):
            raise ConfigError(
                f"{settings.folder} holds the results of an earlier release. A new release of the "
                "same private data spends more of their budget. Name another folder, or pass --overwrite."
            )
        settings = structs.replace(settings, statements=_statements(settings) | settings.statements)
        once: Entries = {"data_changed": data_changed, "release": release, "insist": insist}
        model, card = _fit_and_write(
            settings, results, once, despite_plan=despite_plan, progress=not as_json
        )
    if as_json:
        print_json(card.as_dict(), ascii_only=False)
        return
    console = plain_console()
    if settings.published:
        console.print(_comparison(settings.published, card))
    console.print(_summary(settings, model, card))
    _print_notes(settings, model, card)


def _statements(settings: RunConfig) -> dict[str, str]:
    """Return what is stated on the card that is replaced, and say if it was signed."""
    if (settings.folder / SIGNATURE).exists():
        remark(
            "warning: the card that is replaced was signed. Sign the new one with `tutelage card --sign`."
        )
    earlier = settings.folder / _CARD
    return read_card(earlier).statements if earlier.exists() else {}


def _in_folder_of(settings: RunConfig, release: str) -> RunConfig:
    """Return the settings with the folder of a release that has a name."""
    if not re.fullmatch(r"\w[\w. -]*", release):
        raise ConfigError(
            f"--as must be a name of letters, digits, blanks, dots and hyphens, such as 2026-02. Got {release!r}."
        )
    folder = str(Path(settings.output.folder) / release)
    return structs.replace(settings, output=structs.replace(settings.output, folder=folder))


def _fit_and_write(
    settings: RunConfig, results: Claim, once: Entries, *, despite_plan: bool, progress: bool
) -> tuple[Model, PrivacyCard]:
    """Fit the model of a configuration, and write it with its labels and its card; `once` is of this run alone."""
    data = load_sources(settings)
    checkpoints = results.private / _CHECKPOINTS

    def write_votes(name: str, votes: Any) -> None:
        with results.add_file(name, VOTES, private=True) as path:
            votes.write(path)

    def file_votes(number: int, votes: Any) -> None:
        write_votes(_FILED.format(number), votes)

    settings.ledger.parent.mkdir(parents=True, exist_ok=True)
    choice = choice_for(settings, data, despite_plan=despite_plan, progress=progress)
    if settings.privacy.proposal is not None:
        from tutelage.publishing.proposal import Proposal

        once["proposal"] = Proposal.read(settings.base / user_path(settings.privacy.proposal))
    release = prepare_release(
        settings, data, choice, progress=progress, checkpoints=checkpoints, **once
    )
    is_doubted = bool(release.doubts) and not once["insist"]
    if is_doubted and not is_confirmed("Spend the budget in spite of this?", default=False):
        raise PreflightError(
            "Nothing was spent. Shuffle the public rows; if the last rows are meant to differ, set `later = true` in "
            "[public]; or pass --insist, and then the card calls the guarantee weak."
        )
    if choice is not None and choice.found is None:
        remark(f"plan: {release.method.title}, as in an earlier release of this question.")
    if once["release"] is not None:
        remark(_schedule(release, once["release"]))
    trains = release.method.needs.shards
    if_interrupted = (
        "no results were written. Run the same command again: what was released already is remembered, and no budget "
        "is spent on it again."
    )
    if trains:
        if_interrupted += f" The teachers trained so far are kept in {_relative(checkpoints)}."
    with interruption_says(if_interrupted), warnings.catch_warnings():
        warnings.simplefilter("ignore", BudgetContinuedWarning)  # the summary says it
        model = release.release(file=file_votes if settings.output.votes else None)
    if once["data_changed"] and model.remembered_:
        _warn_of_unused_rows(settings, model)
    if model.drawn_ and model.release_.cost == 0:
        from tutelage.release import FEW_VOTES_LEFT

        remark(f"warning: {FEW_VOTES_LEFT}")
    card = _card(settings, data, model)
    if settings.output.votes:
        if trains:  # whose teachers vote again on what is remembered
            write_votes(_VOTES_FILE, model.votes_)
        elif not any(results.private.glob(_FILED.format("*"))):
            remark(
                "warning: no votes are stored, because all was released by earlier runs without `votes = true`."
            )
    from tutelage.published import write_results

    with publish_folder(results, record=model.open_ledger_.register.publish) as folder:
        write_results(folder, model, card, model.whole_student())
    if not settings.output.votes:
        for path in results.private.glob("*.npz"):
            if VOTES.fault(path) is None:
                path.unlink()  # of releases that were replaced
    return model, card


def _warn_of_unused_rows(settings: RunConfig, model: Model) -> None:
    """Warn that rows that changed had no part in answers that were remembered."""
    which = f" for {model.remembered_:,} of the queries" if model.drawn_ else ""
    remedy = "ask about other public rows"
    if settings.schema is not None:
        remedy = "change the schema"
    remark(
        f"warning: Rows that changed or are new were not used{which}: an earlier run made the same release, which is "
        f"returned again at no cost. To use these rows, {remedy} or choose another label column. Both spend from the "
        "budget. If every release has a name (--as), people who come later have a budget of their own."
    )


def _card(settings: RunConfig, data: Sources, model: Model) -> PrivacyCard:
    return model.card(
        *_scoring(settings, data, model),
        statements=settings.statements,
        feature_map=_feature_map(settings),
        people=settings.private and settings.private.people,
    )


def _feature_map(settings: RunConfig) -> str | None:
    """Return what a card says about the feature map; None where there is a schema, which says it."""
    if settings.schema is not None:
        return None
    name = settings.features.map
    if name is None and settings.method_meant.needs.shards:
        return "none"
    from tutelage.features.columns import TABLE_MAP_OF_PEOPLE

    name = name or TABLE_MAP_OF_PEOPLE
    return f"{name}, learned from {settings.public_source}, published with the student"


def _scoring(
    settings: RunConfig, data: Sources, model: Model
) -> tuple[Table | Array | None, Array | None]:
    """Return public labeled rows, of those not asked about, and their labels, if there are any."""
    if data.labels is None:
        return None, None
    scored = np.array([not is_missing(label) for label in data.labels.tolist()], bool)  # (rows,)
    if settings.public.evaluate_last is None:
        scored[model.queries_] = False
    else:
        scored[: -settings.public.evaluate_last] = False
    if not scored.any():
        return None, None
    return data.public_rows(np.flatnonzero(scored)), data.labels[scored]


def _summary(settings: RunConfig, model: Model, card: PrivacyCard) -> "RichTable":
    """Return the table of what was reached and spent."""
    table = new_table("", "", title="Private student", title_justify="left", show_header=False)
    row = table.add_row
    if not settings.published:
        _add_accuracy(row, settings, model, card)
    for reached in card.student.judged.goals:
        row(f"goal: {reached.goal}", f"{reached.student:.2%}")
        row("goal by one class for all rows", f"{reached.no_model:.2%}")
        if reached.public_labels is not None:
            row("goal by public labels alone (ε = 0)", f"{reached.public_labels:.2%}")
    of = "this release" if card.epsilon != model.ledger_.guarantee() else "whole budget"
    row(f"ε to publish ({of})", f"{round_up(card.epsilon.epsilon):.4f}")
    for tier in card.budget.tiers:
        row(f"ε of people of the tier {tier.name}", f"{round_up(tier.epsilon.epsilon):.4f}")
    if card.guarantee.tested is not None:
        row(
            "tested ε to publish beside it (these labels)",
            f"{round_up(card.guarantee.tested.epsilon):.4f}",
        )
    elif settings.privacy.proposal is not None:
        row("tested ε", "none: the test failed, or the proposal is not smaller")
    row("δ", printed_up(card.epsilon.delta))
    spent = card.budget.spent
    by_this_run = model.release_.cost + _cost_of_tests(model)
    of_budget = f"{round_up(spent):.4f} of ε = {round_up(card.budget.budget):.4f}"
    row("budget spent: this run / total", f"{round_up(by_this_run):.4f} / {of_budget}")
    if model.name_ is not None:
        _add_release(row, model)
    row("mechanism", card.release.mechanism)
    if settings.schema is None:
        heading = "public rows labeled" if card.releases_sums else "queries"
        row(heading, f"{card.release.queries:,}")
    row(model.facts_.voters, _number_of_voters(model, card.release.teachers))
    row("privacy unit", card.epsilon.unit.name)
    if card.guarantee.if_added_or_removed is not None:
        weaker = round_up(card.guarantee.if_added_or_removed)
        row("ε for adding or removing one unit", f"{weaker:.4f}: not the published guarantee")
    return table


def _cost_of_tests(model: Model) -> float:
    """Return the share of the budget that tests of this release spent.

    A test of a proposal came after the labels. So may releases of other processes have, which are not of this run.
    """
    cost = sum(
        charge.cost
        for charge in model.open_ledger_.history().charges
        if charge.reserved.is_publication and charge.number >= model.ledger_.entries
    )
    return model.open_ledger_.limit.share(cost)


def _add_accuracy(row: Row, settings: RunConfig, model: Model, card: PrivacyCard) -> None:
    """Add to the summary how accurate the student is, and what it is compared with."""
    judged = card.student.judged
    heading = "student accuracy" if card.release.classes else "R² of the student"
    on_people = _on_people(judged)
    if _score(judged) is not None or on_people is None:
        row(heading, _score(judged) or "not measured")
    if on_people is not None:
        row(f"{heading} on the people", f"{on_people}, by a noisy sum")
    for name in model.earlier_[-1:]:
        with suppress(TutelageError, OSError):  # its folder may be elsewhere
            earlier = read_card(settings.folder.parent / name / _CARD)
            earlier_score = _score(earlier.student.judged)
            if earlier_score is not None:
                row(f"{heading} of {name}", earlier_score)
    if judged.majority is not None:
        row("accuracy of the majority class", f"{judged.majority:.2%}")
    if judged.public_labels is not None:
        row("accuracy of public labels alone (ε = 0)", f"{judged.public_labels:.2%}")
    if judged.survived is not None:
        row("predictions safe from 10 liars", f"{judged.survived.ten:.2%}")
        row("predictions safe from 50 liars", f"{judged.survived.fifty:.2%}")


def _score(judged: Judged) -> str | None:
    """Return how good a student is on public rows as the summary says it, or None where it was not measured."""
    if judged.errors:
        return f"{judged.errors[0].r_squared:.4f}"
    return None if judged.accuracy is None else f"{judged.accuracy:.2%}"


def _on_people(judged: Judged) -> str | None:
    """Return the accuracy of a student in the test report, or None if there is no report."""
    if judged.on_people is not None:
        return as_share(judged.on_people.groups[0].accuracy)
    if judged.errors_on_people is not None:
        return as_number(judged.errors_on_people.groups[0].r_squared)
    return None


def _print_notes(settings: RunConfig, model: Model, card: PrivacyCard) -> None:
    """Print what the owner should know beside the summary, and what to do next."""
    console = plain_console()
    if card.usage:
        console.print(card.usage, highlight=False)
    if model.remembered_ and not card.release.queries:
        console.print(
            "The sums were released before. They are the same, and nothing was spent on them."
        )
    elif model.remembered_:
        which = f"{model.remembered_:,} queries were" if model.drawn_ else "Every query was"
        console.print(
            f"{which} labeled before. The labels are the same, and nothing was spent on them."
        )
    judged = card.student.judged
    if settings.schema is not None and card.release.classes and judged.on_people is None:
        console.print(
            "The accuracy was not measured, because no public rows have labels. With such rows, measure it in Python: "
            f'tutelage.students.load_student("{_relative(settings.folder)}").score(rows, labels)',
            soft_wrap=True,
        )
    console.print(f"Ledger: {_relative(settings.ledger)}", soft_wrap=True)
    for finding in card.findings:
        console.print(f"Objection on the card: {finding}", highlight=False)
    names = ("card.html", "card.md", _CARD)
    console.print("Card: " + ", ".join(str(_relative(settings.folder / name)) for name in names))
    if card.missing and settings.dataset is None:
        ask = f"tutelage card {_relative(settings.folder)} --ledger {_relative(settings.ledger)} --ask"
        console.print(f"Statements are missing on the card. Add them: {ask}", soft_wrap=True)
    if settings.dataset is not None:
        console.print(
            f"Next: open {_relative(settings.folder / names[0])} in a browser. Then use your own table:"
        )
        program = Path(sys.argv[0])
        is_found = program.name != "tutelage" or shutil.which("tutelage")
        console.print(f"  {'tutelage' if is_found else _relative(program)} init")


def _schedule(release: "PreparedRelease", name: str) -> str:
    """Return how much a release spends of the budget of each person, and how many releases like it fit; public."""
    budget = release.budget
    fitting = budget.fitting_by_cohort(release.most)
    if not fitting:
        return (
            f"{name} was begun before. It is the same release, "
            "and labels or sums that it has are not spent on again."
        )
    groups = [f"with {names}: {number:,}" for number, names in _groups(fitting)]
    limit = budget.limit_for(release.most).epsilon
    return (
        f"{name} spends {round_up(release.cost):.4f} of the ε = {limit:g} of each person who takes part. "
        f"Number of such releases that still fit, with this one, for people who came {'; '.join(groups)}."
    )


def _groups(values: Mapping[str, float]) -> list[tuple[float, str]]:
    """Return each value, the smallest first, with the cohorts that have it, as text; of many values the outer ones."""
    cohorts = dict[float, list[str]]()
    for name in sorted(values, key=values.__getitem__):
        cohorts.setdefault(values[name], []).append(name)
    groups = [(value, _list_of(names)) for value, names in cohorts.items()]
    if len(groups) <= _GROUPS:
        return groups
    between = [*cohorts][2:-2]
    names = [name for value in between for name in cohorts[value]]
    return [*groups[:2], (between[0], f"{_list_of(names)}, at least"), *groups[-2:]]


def _list_of(names: Sequence[str]) -> str:
    """Return names of releases as text; of many the first and the last."""
    if len(names) > _GROUPS:
        return f"{len(names)} releases, {names[0]} to {names[-1]}"
    return ", ".join(names) or "none"


def _add_release(row: Row, model: Model) -> None:
    """Add to the summary who took part in a release, what it learned from, and what the one before reached; public."""
    ledger = model.ledger_
    # Another release may have begun since.
    history = model.open_ledger_.history().until(ledger.entries - 1)
    entries = [entry.content for entry in history.entries]
    names = [entry["release"] for entry in entries if "cohorts" in entry]
    taking_part = next(entry["cohorts"] for entry in entries if entry.get("release") == model.name_)
    row("took part: people who came with", _list_of(taking_part))
    earlier = names[: names.index(model.name_)]
    absent = [name for name in earlier if name not in taking_part]
    if absent:
        row("took no part: their budget is spent", _list_of(absent))
    for share, cohorts in _groups({name: round_up(ledger.cohorts[name]) for name in names}):
        row(f"spent of people who came with {cohorts}", f"{share:.4f}")
    if model.facts_.of_sums:
        asked = sum(
            batch.queries
            for batch in history.batches
            if batch.reserved.content.get("release") == model.name_
        )
        row("sums: of this release / earlier ones", f"{asked:,} / {model.n_earlier_:,}")


def _number_of_voters(model: Model, number: int | None) -> str:
    """Return how many cast ballots; where that is a private number of people, it is a noisy one."""
    if number is None:
        return "not stated"
    is_noisy = model.facts_.teachers is None and model.n_private_rows_ is None
    if model.tiers_:
        return f"about {number:,} (noisy, weighted by tier)"
    return f"about {number:,} (noisy)" if is_noisy else f"{number:,}"


def _comparison(published: Sequence[PublishedSection], card: PrivacyCard) -> "RichTable":
    """Return the student's accuracy among the majority class and what others published, the least accurate first."""
    judged = card.student.judged
    ours = PublishedSection(
        source="this student",
        student_accuracy=judged.accuracy,
        epsilon=round_up(card.epsilon.epsilon),
        delta=card.epsilon.delta,
        note="worst case, publishable",
    )
    results = [PublishedSection(source="majority class", student_accuracy=judged.majority)]
    if judged.public_labels is not None:
        results.append(
            PublishedSection(
                source="public labels alone",
                student_accuracy=judged.public_labels,
                epsilon=0.0,
                delta=0.0,
            )
        )
    results += [*published, ours]
    results.sort(key=lambda result: result.student_accuracy or 0)
    table = new_table("", "accuracy", "ε", "δ", "", title="Comparison", title_justify="left")
    for result in results:
        table.add_row(
            result.source,
            _figure(result.student_accuracy, ".2%"),
            _figure(result.epsilon, "g"),
            _figure(result.delta, "g"),
            result.note,
            style="bold" if result is ours else None,
        )
    return table


def _figure(value: float | None, form: str) -> str:
    return "" if value is None else format(value, form)


def _relative(path: Path) -> Path:
    """Return a path as the user would type it."""
    path = path.resolve()
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path
