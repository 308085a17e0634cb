"""``tutelage audit``: attack the pipeline of a configuration before anything is released."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from rich.table import Table
from rich.text import Text
from typer import Argument, Exit, Option

from tutelage._internal.validation import integer_at_least
from tutelage.accounting.calibration import noise_within
from tutelage.audit.checklist import PrivateRows, check_cells, check_mechanism, check_rows, check_sensitivity
from tutelage.audit.mechanism import check_draws
from tutelage.audit.sums import check_ballots, check_claim_of_sum, check_noise_of_sum, check_votes, tried_on_few
from tutelage.cli.config import RunConfig, load_config
from tutelage.cli.sources import RunData, build_classifier, check_public_rows, load_sources, pool_of
from tutelage.cli.text import plain_console, print_json, say
from tutelage.events import Repeated
from tutelage.exceptions import ConfigError
from tutelage.ledger import Ledger
from tutelage.mechanisms import GNMax
from tutelage.noise import SimulationNoise
from tutelage.privacy import ONE_TEACHER
from tutelage.tables import read_table

_FAILED = 3  # exit code; 1 is a file or data that cannot be used, 2 a wrong call
_COLORS = {"pass": "green", "note": "yellow", "fail": "bold red"}
_FOR_THE_OWNER = (
    "Checks marked 'owner' used the private rows. Their results are for the data set owner, not for a card. No "
    "budget was spent: the mechanisms were run on synthetic votes, and no label about private rows was released. A "
    "passed check shows that this attack failed. It does not show that no attack exists."
)


def audit(
    config: Annotated[Path, Argument(help="TOML file for `tutelage run`.", show_default=False)],
    draws: Annotated[int, Option(help="Number of noisy labels to draw from each synthetic histogram.")] = 40_000,
    entities: Annotated[int, Option(help="Number of people, or rows, to change, one at a time.")] = 4,
    as_json: Annotated[bool, Option("--json", help="Print the results as JSON.")] = False,
) -> None:
    """Test the noise, the sensitivity and the public rows of a pipeline.

    The exit code is 3 if a check fails.
    """
    check_draws(integer_at_least(draws, 1_000, "--draws", "audit"), "--draws", "audit")
    integer_at_least(entities, 1, "--entities", "audit")
    settings = load_config(config)
    if settings.private is not None and settings.private.batches:
        raise ConfigError(
            "`batches` in [private] must be left out for `tutelage audit`, which reads all rows into memory. If they "
            "do not fit, name a smaller `file`."
        )
    data = load_sources(settings)
    check_public_rows(settings, data)
    private = PrivateRows(data.X_private, data.y_private, data.entity_ids, data.silos)
    pool = pool_of(settings, data)
    existing = None
    if settings.mechanism is None and settings.ledger.exists():  # an unspent copy, which determines the noise of a run
        state = Ledger.open(settings.ledger, read_only=True).state()
        kept: Any = {"order": state.order, "accounting": state.accounting}
        existing = Ledger.in_memory(epsilon=state.budget, delta=state.delta, unit=state.unit, **kept)
    epsilon = settings.privacy.epsilon or (settings.privacy.budget if settings.mechanism is None else None)
    # No ledger, because nothing is released.
    model = build_classifier(settings, data, noise=SimulationNoise(0), epsilon=epsilon)
    if settings.mechanism is None and not settings.by_people:
        model.set_params(mechanism=_by_budget(settings, data, pool, existing), epsilon=None)
    elif existing is not None and not settings.by_vectors:  # every check below has the noise of that ledger
        few: Any = tried_on_few(model, private, pool, ledger=existing)
        model.set_params(mechanism=few.mechanism_, epsilon=None)
    n_classes, found = len(data.classes), check_rows(private, pool)
    if settings.by_vectors:
        found = [check_noise_of_sum(draws=draws), check_claim_of_sum(draws=draws), *found]
        found.append(check_ballots(model, private, pool, entities=entities))
    elif settings.by_people:
        ids = np.arange(len(private.X)) if private.entity_ids is None else private.entity_ids
        mechanism: Any = tried_on_few(model, private, pool).mechanism_
        found = [*check_mechanism(mechanism, len(np.unique(ids)), n_classes, draws=draws), *found]
        found.append(check_votes(model, private, pool, entities=entities))
    else:
        teachers = settings.teachers.number if private.silos is None else len(np.unique(private.silos))
        mechanism = model.resolved().mechanism_for(teachers)
        found = [*check_mechanism(mechanism, teachers, n_classes, draws=draws), *found]
        found.append(check_sensitivity(model, private, pool, entities=entities, progress=not as_json))
    if data.whole_rows is not None and data.columns is not None:
        public = read_table(settings.input_file("public"))
        found.append(check_cells(data.whole_rows, public, data.columns))
    passed = all(one.verdict != "fail" for one in found)
    if as_json:
        shown = {"passed": passed, "checks": [asdict(one) for one in found], "note": _FOR_THE_OWNER}
        print_json(shown, ascii_only=False)
    else:
        table = Table("check", "verdict", "for", "result", title="Audit", title_justify="left")
        for one in found:
            verdict = Text(one.verdict, _COLORS[one.verdict])
            table.add_row(one.check, verdict, "owner" if one.private else "anyone", one.reason)
        console = plain_console()
        console.print(table)
        console.print(_FOR_THE_OWNER, highlight=False)
    if not passed:
        raise Exit(_FAILED)
    if not as_json:
        say(f"Next: tutelage run {config}")


def _by_budget(settings: RunConfig, data: RunData, pool: Any, existing: Ledger | None) -> GNMax:
    """Return how teachers' votes are released with the least noise."""
    privacy = settings.privacy
    new: Any = {"epsilon": privacy.budget or privacy.epsilon, "delta": privacy.delta, "unit": ONE_TEACHER}
    ledger = existing or Ledger.in_memory(**new)

    def event_of(sigma: float) -> Repeated:
        one = GNMax(sigma).event_of_one(len(data.classes), ledger.unit, simulated=False)
        return Repeated(one, settings.public.queries or len(pool))

    return GNMax(noise_within(ledger.limit, event_of, privacy.epsilon))
