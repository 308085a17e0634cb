"""``tutelage plan-votes``: recommend teachers, noise and queries for a target (ε, δ)."""

import json
import re
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from tutelage._internal.results import ResultsFolder
from tutelage._internal.validation import integer_at_least, positive
from tutelage.cli.outputs import require_writable
from tutelage.cli.text import AsJson, plain_console
from tutelage.exceptions import ConfigError, InvalidParameterError
from tutelage.planning import ProxyVotes, TeacherModel, VotesPlan
from tutelage.planning import plan_votes as make_plan
from tutelage.privacy import round_up
from tutelage.reporting.figures import Figure, Series

_FILES = ("plan.json", "plan.png", "plan.svg")


def plan_votes(
    epsilon: Annotated[float, typer.Option(help="Target epsilon of all labels together.", show_default=False)],
    rows: Annotated[int, typer.Option(help="Approximate number of private rows, or of people.", show_default=False)],
    classes: Annotated[int, typer.Option(help="Number of classes.", show_default=False)],
    delta: Annotated[float, typer.Option(help="Target delta. Keep it below 1 / the number of people.")] = 1e-5,
    queries: Annotated[
        int | None, typer.Option(help="Number of queries.  [default: as many as --label-accuracy allows]")
    ] = None,
    public_rows: Annotated[int | None, typer.Option(help="Number of public rows that you have.")] = None,
    teachers: Annotated[
        int | None, typer.Option(help="Number of teachers, if it is fixed, such as one per hospital.")
    ] = None,
    teacher_accuracy: Annotated[
        list[str] | None,
        typer.Option(
            help="ROWS=SHARE: a teacher trained on ROWS rows labels SHARE of public rows correctly. Can be repeated."
        ),
    ] = None,
    proxy_votes: Annotated[
        list[Path] | None,
        typer.Option(help="npz file with votes of teachers trained on PUBLIC data. Can be repeated for other sizes."),
    ] = None,
    proxy_rows: Annotated[
        list[float] | None, typer.Option(help="Rows per teacher of each --proxy-votes, if the file does not state it.")
    ] = None,
    label_accuracy: Annotated[
        float | None,
        typer.Option(help="Share of labels that must be right.  [default: 2 points below the share without noise]"),
    ] = None,
    output: Annotated[
        Path | None, typer.Option(help="Folder for the plan (plan.json) and its figure (plan.png, plan.svg).")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Recommend teachers, noise and queries for a target epsilon. No private row or vote is read."""
    try:
        model = _model(classes, teacher_accuracy or [], proxy_votes or [], proxy_rows or [])
        results = None if output is None else _results_folder(output, proxy_votes or [])
        found = make_plan(
            epsilon,
            delta,
            rows=rows,
            classes=classes,
            model=model,
            queries=queries,
            public_rows=public_rows,
            teachers=teachers,
            label_accuracy=label_accuracy,
            progress=not as_json,
        )
    except InvalidParameterError as error:
        raise ConfigError(_by_option(str(error))) from None
    as_text = json.dumps(found.as_dict(), indent=2, ensure_ascii=False)
    if as_json:
        typer.echo(as_text)
    else:
        _print(found)
    if results is not None:
        with results.replacing() as folder:
            (folder / _FILES[0]).write_text(as_text + "\n", encoding="utf-8")
            drawn = figure_of(found).save(folder, "plan") if _can_draw() else []
        for name in (_FILES[0], *(path.name for path in drawn)):
            typer.echo(f"Wrote {results.path / name}", err=True)


def figure_of(found: VotesPlan) -> Figure:
    """Return the expected share of right labels against ε, one curve per number of teachers, and the target."""
    numbers = sorted({point.teachers for point in found.frontier})
    series = []
    for number in numbers:
        x, y = zip(*((p.epsilon, 100 * p.right) for p in found.frontier if p.teachers == number), strict=True)
        series.append(Series(name=f"{number:,} teachers", x=x, y=y))
    best = found.recommended
    label = f"{best.teachers:,} teachers, {best.in_short()}"
    series.append(
        Series(name="recommended", x=(found.epsilon.epsilon,), y=(100 * best.right,), labels=(label,), color=6)
    )
    return Figure(
        title=f"{round(best.answers):,} labels: expected to be right, by ε at δ = {found.epsilon.delta:g}",
        x_label="worst-case ε",
        y_label="labels right (curves: gnmax), %",
        series=tuple(series),
        logarithmic=True,
        y_range=(0, 105),
    )


def _results_folder(output: Path, inputs: list[Path]) -> ResultsFolder:
    """Make the folder, and say before the planning if there will be no figure in it."""
    if output.exists() and not output.is_dir():
        raise ConfigError(f"--output must be a folder. Got {output}, which is a file.")
    results = ResultsFolder(output, "name another folder with --output")
    results.check(_FILES, inputs)
    output.mkdir(parents=True, exist_ok=True)
    require_writable(output)
    if not _can_draw():
        typer.echo("No figure will be drawn: matplotlib is missing. Run pip install 'tutelage[report]'.", err=True)
    return results


def _can_draw() -> bool:
    return find_spec("matplotlib") is not None


def _by_option(sentence: str) -> str:
    """Return a refusal of the library with its parameters called as on the command line."""
    sentence = sentence.replace("`points` of TeacherModel.from_accuracies", "--teacher-accuracy")
    return re.sub(r"`(\w+)` of plan_votes\b", lambda found: "--" + found[1].replace("_", "-"), sentence)


def _model(
    classes: int, accuracies: list[str], files: list[Path], rows_per_teacher: list[float]
) -> TeacherModel | None:
    integer_at_least(classes, 2, "--classes", "plan")
    if accuracies and files:
        raise ConfigError("--teacher-accuracy and --proxy-votes say the same. Give one of them.")
    if rows_per_teacher and len(rows_per_teacher) != len(files):
        raise ConfigError(
            f"--proxy-rows must be given once per --proxy-votes. Got {len(rows_per_teacher)} and {len(files)}."
        )
    if files:
        sizes = [positive(size, "--proxy-rows", "plan") for size in rows_per_teacher] or [None] * len(files)
        proxies = [ProxyVotes.load(path, rows_per_teacher=size) for path, size in zip(files, sizes, strict=True)]
        for path, proxy in zip(files, proxies, strict=True):
            if proxy.votes.n_classes != classes:
                raise ConfigError(f"--proxy-votes must be on {classes} classes. Got {proxy.votes.n_classes} in {path}.")
        return TeacherModel.from_votes(proxies)
    if accuracies:
        return TeacherModel.from_accuracies(dict(map(_point, accuracies)), classes)
    return None


def _point(text: str) -> tuple[float, float]:
    rows, _, accuracy = text.partition("=")
    try:
        return float(rows), float(accuracy)
    except ValueError:
        raise ConfigError(f"--teacher-accuracy must be ROWS=SHARE, such as 240=0.83. Got {text!r}.") from None


def _print(found: VotesPlan) -> None:
    console = plain_console()
    console.print(found.as_table())
    if found.obstacle is not None:
        console.print(f"Infeasible: {found.obstacle}", style="bold red", highlight=False)
    best, head = found.recommended, "Recommended" if found.possible else "Closest option"
    console.print(
        f"{head}: {best.teachers:,} teachers, {best.in_short()}, {best.queries:,} queries. The proved "
        f"worst-case ε is {round_up(found.epsilon.epsilon)} and may be published. Expected: {best.answers:,.0f} "
        f"labels, {best.right:.1%} of them right. If the votes are as expected, the vote-dependent ε is "
        f"{round_up(found.private_epsilon)}, for the data set owner only.",
        highlight=False,
    )
    for finding in found.findings:
        console.print(f"{finding.severity.capitalize()}: {finding.reason}", style="red", highlight=False)
    console.print("Assumptions, which are not part of the guarantee:", highlight=False)
    for sentence in found.assumptions:
        console.print(f"  {sentence}", highlight=False)
    console.print("For the configuration of tutelage run:", highlight=False)
    typer.echo("\n" + found.as_config())
