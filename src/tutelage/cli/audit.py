"""``tutelage audit``: attack the pipeline of a configuration before anything is released."""

from dataclasses import asdict
from pathlib import Path

from typer import Exit

from tutelage._internal.validation import integer_at_least
from tutelage.cli.config import load_config
from tutelage.cli.prepare import arguments, build_estimator
from tutelage.cli.sources import load_sources
from tutelage.cli.text import in_style, new_table, plain_console, print_json, say
from tutelage.exceptions import ConfigError

_FAILED = 3  # exit code; 1 is a file or data that cannot be used, 2 a wrong call
_COLORS = {"pass": "green", "note": "yellow", "fail": "bold red"}
_FOR_THE_OWNER = (
    "Checks marked 'owner' used the private rows. Their results are for the data set owner, not for a card. No "
    "budget was spent: the mechanisms were run on synthetic votes, and no label about private rows was released. A "
    "passed check shows that this attack failed. It does not show that no attack exists."
)


def audit(config: Path, *, draws: int = 40_000, entities: int = 4, as_json: bool = False) -> None:
    """Test the noise, the sensitivity and the public rows of a pipeline.

    The exit code is 3 if a check fails.

    Parameters
    ----------
    config
        TOML file for `tutelage run`.
    draws
        Number of noisy labels to draw from each synthetic histogram.
    entities
        Number of people, or rows, to change, one at a time.
    as_json : --json
        Print the results as JSON.
    """
    integer_at_least(draws, 1_000, "--draws", "audit")
    integer_at_least(entities, 1, "--entities", "audit")
    settings = load_config(config)
    if settings.private is not None and settings.private.batches:
        raise ConfigError(
            "`batches` in [private] must be left out for `tutelage audit`, which reads all rows into memory. If they "
            "do not fit, name a smaller `file`."
        )
    # They load scikit-learn, which help and refusals do not need.
    from tutelage.audit.checklist import PrivateRows, check_cells
    from tutelage.audit.fits import check_fit
    from tutelage.audit.mechanism import check_draws

    check_draws(draws, "--draws", "audit")
    data = load_sources(settings)
    given = arguments(settings, data)
    private = PrivateRows(
        given["X"], given["y"], given["entity_ids"], given["silos"], given.get("tiers")
    )
    model = build_estimator(settings, data)
    checks = check_fit(
        model,
        private,
        given.get("X_public"),
        y_public=given.get("y_public"),
        scored=given["scored"],
        draws=draws,
        entities=entities,
        progress=not as_json,
    )
    columns = settings.schema
    if columns is None and data.kinds is not None:
        from tutelage.features import PublicColumns

        columns = PublicColumns.learn(data.features, kinds=data.kinds)
    if columns is not None:
        checks.append(check_cells(private.X, data.public, columns))
    passed = all(check.verdict != "fail" for check in checks)
    if as_json:
        print_json(
            {
                "passed": passed,
                "checks": [asdict(check) for check in checks],
                "note": _FOR_THE_OWNER,
            },
            ascii_only=False,
        )
    else:
        table = new_table("check", "verdict", "for", "result", title="Audit", title_justify="left")
        for check in checks:
            verdict = in_style(check.verdict, _COLORS[check.verdict])
            reader = "owner" if check.private else "anyone"
            table.add_row(check.check, verdict, reader, check.reason)
        console = plain_console()
        console.print(table)
        console.print(_FOR_THE_OWNER, highlight=False)
    if not passed:
        raise Exit(_FAILED)
    if not as_json:
        say(f"Next: tutelage run {config}")
