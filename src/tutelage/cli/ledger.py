"""``tutelage ledger``: create, show, verify and export the budget of a data set, and list a folder of them."""

import json
import os
import re
from collections import Counter, defaultdict
from enum import StrEnum
from math import fsum
from pathlib import Path
from typing import Annotated

import numpy as np
from typer import Argument

from tutelage._internal.drawing import Bar, Bars
from tutelage._internal.outputs import form
from tutelage._internal.records import Entries
from tutelage._internal.releases import Manifest
from tutelage.accounting.filter import Accounting
from tutelage.cli.text import (
    AsJson,
    Html,
    new_table,
    plain_console,
    print_json,
    refuse_others,
    require_printable,
    say,
    verb_group,
    write_new,
    write_page,
)
from tutelage.exceptions import ConfigError, InvalidDataError, LedgerError
from tutelage.ledger import Ledger, LedgerState
from tutelage.ledger.entries import EntryKind
from tutelage.ledger.history import History
from tutelage.ledger.search import ledgers_in
from tutelage.partition import canonical_ids
from tutelage.privacy import ONE_ENTITY, ONE_TEACHER, NeighboringRelation, PrivacyUnit, round_up
from tutelage.reporting.signature import checked_head, read_head, signed_head

_COLUMNS = ("budget", "delta", "spent", "unit", "neighboring", "simulated")


class _NeighborRule(StrEnum):
    """Names of the neighboring relations on the command line."""

    ENTITY = "entity"
    ROW = "row"
    SILO = "silo"
    BALLOT = "ballot"
    OWNER = "owner"


_UNITS = {
    _NeighborRule.ENTITY: PrivacyUnit(
        "entity", NeighboringRelation.ADD_REMOVE_OR_CHANGE_ONE_ENTITY
    ),
    _NeighborRule.ROW: PrivacyUnit("row", NeighboringRelation.CHANGE_ONE_ROW),
    _NeighborRule.SILO: PrivacyUnit("entity", NeighboringRelation.ADD_REMOVE_OR_CHANGE_WITHIN_SILO),
    _NeighborRule.BALLOT: ONE_TEACHER,
    _NeighborRule.OWNER: ONE_ENTITY,
}

File = Annotated[Path, Argument(help="File of the ledger.")]

ledger = verb_group("Create, show, verify and export the privacy budget of a data set.")


def _unit_of(neighbors: _NeighborRule, name: str | None) -> PrivacyUnit:
    """Return the privacy unit of a relation, called `name` or, by default, as the relation calls it."""
    if name is not None:
        require_printable(name, "The name of the unit")
    if neighbors is _NeighborRule.OWNER and name not in (None, ONE_ENTITY.name):
        raise ConfigError(
            f"With neighbors = owner the unit is always called '{ONE_ENTITY.name}'. Leave the name out."
        )
    return PrivacyUnit(name or _UNITS[neighbors].name, _UNITS[neighbors].neighboring)


@ledger.command()
def init(
    file: File,
    *,
    epsilon: float,
    delta: float,
    neighbors: _NeighborRule | None = None,
    unit: str | None = None,
    accounting: Accounting = Accounting.RENYI,
    as_json: AsJson = False,
) -> None:
    """Create the ledger of a data set. Its budget can be raised later, but never lowered.

    Parameters
    ----------
    epsilon
        Epsilon of all releases together.
    delta
        Delta of all releases together. Keep it below 1 / the number of people.
    neighbors
        Privacy unit. entity: all rows of one person.  [required]
    unit
        Name of the unit in reports, such as patient_id.  [default: from --neighbors]
    accounting
        gaussian: only noisy sums, capped votes and GNMax. About a fifth more sums fit.
    """
    if neighbors is None:
        raise ConfigError(
            "--neighbors must name what the budget protects: entity (all rows of one person), row, silo, owner, or "
            "ballot (vote counts from elsewhere). It cannot be changed later."
        )
    created = Ledger.create(
        file,
        epsilon=epsilon,
        delta=delta,
        unit=_unit_of(neighbors, unit),
        accounting=accounting,
    )
    _print(created.state(), file, as_json=as_json)
    if not as_json:
        say(f"Next: tutelage label PUBLIC --votes VOTES --ledger {file}")


@ledger.command()
def show(file: File, html: Html = None, as_json: AsJson = False) -> None:
    """Print the spent and the remaining budget. All printed values are public."""
    state = open_to_read(file).state()
    if html is not None:
        write_page(html, f"Budget in {file.name}", state)
    _print(state, file, as_json=as_json)


@ledger.command()
def verify(
    file: File,
    *,
    head: str | None = None,
    signer: Path | None = None,
    release: Path | None = None,
    as_json: AsJson = False,
) -> None:
    """Check every entry, label and sum of a ledger. With --head, also detect a rollback.

    Parameters
    ----------
    head
        A head that you noted, or a file of `tutelage ledger head --sign`.
    signer
        NAME.public.json of the signer, if --head is a file.
    release
        Results folder, whose files the ledger must name.
    """
    checked = open_to_read(file)
    stated = None
    if signer is not None:
        from tutelage.signing import VerifyKey

        key = VerifyKey.load(signer)
        stated = checked_head(Path(head or ""), key.name, key.has_signed)
        if stated.get("ledger") != checked.history().entries[0].content["key"]:
            raise InvalidDataError(
                f"{head} is of another ledger than {file}. Name the head of this one."
            )
        head = str(stated.get("head"))
    if head is not None and not re.fullmatch("[0-9a-fA-F]{64}", head):
        raise ConfigError(
            f"--head must be the 64 hexadecimal digits that `tutelage ledger show` prints. Got {head!r}."
        )
    state = checked.verify(head)
    manifest = None
    if release is not None:
        manifest = Manifest.read_whole(release)
        manifest.require_named(checked.history().manifests, release, str(file))
        refuse_others(manifest, release)
    if as_json:
        print_json({"verified": True, **state.as_dict()})
        return
    say(f"{file} is intact: {state.entries:,} entries, {state.answers:,} remembered labels.")
    if head is not None:
        signed = ""
        if stated is not None:
            signed = f" {stated['signer']} signed it on {stated.get('day')}."
        say(f"It contains the given head, so it was not rolled back.{signed}")
    if manifest is not None:
        say(f"It names the release in {release}, of {manifest.day}, whose files are unchanged.")
    say(
        f"head {state.head}\nStore this head elsewhere. To detect a rollback later, pass it as --head."
    )


@ledger.command("raise")
def raise_budget(
    file: File,
    *,
    epsilon: float,
    by: str,
    why: str,
    as_json: AsJson = False,
) -> None:
    """Raise the budget of a ledger for good. Waits for a release that is running.

    Parameters
    ----------
    epsilon
        Epsilon of all releases together, earlier ones included.
    by
        Name of the person who decided it. Will be public.
    why
        Reason, such as an approval. Will be public.
    """
    require_printable(by, "--by")
    require_printable(why, "--why")
    kept = Ledger.open(file)
    before = kept.state()
    after = kept.raise_budget(epsilon, by=by, why=why)
    if as_json:
        print_json(after.as_dict())
        return
    say(
        f"{file}: the budget is now ε = {after.budget:g} at δ = {after.delta:g}, instead of ε = {before.budget:g}."
    )
    if after.delta > before.delta:
        say(f"δ was {before.delta:g} before: the first raise of a Gaussian budget doubles it.")
    say(
        "Everything released until now keeps the earlier guarantee. Later releases have the new one."
    )
    say("Where a configuration states them, [privacy] must now have:")
    say(f"budget = {after.budget!r}\ndelta = {after.delta!r}")


@ledger.command()
def withdraw(file: File, *, person: list[str], yes: bool = False) -> None:
    """Leave the rows of people out of all later releases. Waits for a release that is running.

    Parameters
    ----------
    person : --id
        Id of a person who withdraws. Can be repeated.
    yes
        Also take ids that were in no release, of people who may come.
    """
    for name in person:
        require_printable(name, "--id")
    kept = Ledger.open(file)
    known = kept.register.knows(np.unique(canonical_ids(person)).tolist())
    for day in kept.withdraw(person, unknown=yes):
        say(f"Withdrawn since {day}.", err=True)
    if known is None:
        say(
            "This ledger cannot tell who was in its releases. Check the ids: a wrong one has no effect.",
            err=True,
        )
    else:
        say(f"Of {len(known):,} ids, {_least(kept)}{known.sum():,} were in its releases.", err=True)
    say(
        f"{file}: these people are left out from now on. Earlier releases stay spent. Back up the ledger now."
    )


@ledger.command()
def backup(file: File, copy: Path) -> None:
    """Copy a ledger, which may be in use, and check the copy. Use the copy only if the ledger is lost.

    Parameters
    ----------
    copy
        File of the copy, which does not exist yet.
    """
    head = open_to_read(file).backup(copy)
    say(f"Wrote {copy}, which contains the secret key of {file} and is intact.")
    say(f"head {head}\nStore this head elsewhere. The copy does not contain later spending.")


@ledger.command()
def head(file: File, *, sign: Path | None = None, output: Path | None = None) -> None:
    """Print the head. Signed, it proves to others how far the ledger was; see `verify --head`.

    Parameters
    ----------
    sign
        NAME.private.json to sign with.
    output
        File to write the signed head to.  [default: standard output]
    """
    if sign is None:
        if output is not None:
            raise ConfigError("--output is for a signed head. Name a key with --sign.")
        say(open_to_read(file).state().head)
        return
    from tutelage.signing import SigningKey

    signer = SigningKey.load(sign)
    history = open_to_read(file).history()
    content = {
        "ledger": history.entries[0].content["key"],
        "head": history.state.head,
        "entries": history.state.entries,
        "spent": history.state.spent,
    }
    text = signed_head(content, signer.name, signer.sign)
    if output is None:
        say(text, nl=False)
        return
    write_new(output, text, over=form("a signed head", lambda path: bool(read_head(path))))
    say(f"Wrote {output}. Keep it where the ledger is not, with {signer.name}.public.json.")


@ledger.command("list")
def _list(
    folder: Path,
    *,
    data: Path | None = None,
    column: str | None = None,
    as_json: AsJson = False,
) -> None:
    """List the ledgers of a folder, copies among them. With --data and --id, count the people whose epsilons add up.

    The numbers of people are private, and printed on standard error.

    Parameters
    ----------
    folder
        Folder of ledgers, or of homes of hospitals.
    data
        Private table, to find the ledgers that know its people.
    column : --id
        Column of the ids in --data.
    """
    if (data is None) != (column is None):
        raise ConfigError(
            "--data and --id belong together: a table, and its column of ids. Give both, or none."
        )
    ledgers = dict[str, Ledger]()
    refused = dict[str, str]()
    for path in ledgers_in(folder):
        name = os.path.relpath(path, folder.resolve())
        try:
            ledger = open_to_read(path)
            ledger.history()
            ledgers[name] = ledger
        except LedgerError as error:
            refused[name] = str(error)
    if not ledgers and not refused:
        raise ConfigError(f"{folder} has no ledger. Name the folder of the ledgers.")
    copies, apart = _copies(ledgers)
    if data is not None and column is not None:
        originals = {name: ledgers[name] for name in ledgers if name not in copies}
        _tell_people(originals, data, column)
    rows = [_row_of(name, ledger.history()) for name, ledger in ledgers.items()]
    if as_json:
        print_json({"ledgers": rows, "refused": refused, "copies": copies, "used_apart": apart})
        return
    table = new_table(
        "ledger", "budget", "spent", "unit", "releases", "newest entry", title=str(folder)
    )
    for row in rows:
        budget = f"ε = {row['budget']:g} at δ = {row['delta']:g}"
        if row["simulated"]:
            budget = "none: simulated noise"
        spent = f"{round_up(row['spent']):.4f}"
        table.add_row(
            row["file"], budget, spent, row["unit"], f"{row['releases']:,}", row["newest"]
        )
    plain_console().print(table)
    for name, reason in refused.items():
        say(f"{name} cannot be listed: {reason}")
    for name, whole in copies.items():
        say(f"{name} is a copy of {whole}, so it spent nothing that {whole} did not.")
    for family in apart:
        used = [ledgers[name] for name in family]
        spent = round_up(fsum(ledger.history().state.spent for ledger in used))
        say(
            f"{' and '.join(family)} are copies of one ledger that were used apart: together they spent at most "
            f"{spent:.4f}, and guarantee at most {_claim(used)}. Release nothing more through them."
        )
    if data is None:
        say(
            "If ledgers have people in common, their ε and δ add up. To count these people, add --data and --id."
        )


def _copies(ledgers: dict[str, Ledger]) -> tuple[dict[str, str], list[list[str]]]:
    """Return which ledger holds all that is in each copy of it, and the copies of one that were used apart."""

    def longest_first(name: str) -> tuple[int, bool]:
        # Of ledgers of equal length, that with the usual name is the original.
        return -len(ledgers[name].history().entries), not name.endswith(".ledger")

    copies = dict[str, str]()
    families = defaultdict[str, list[str]](list)
    for name in sorted(ledgers, key=longest_first):
        history = ledgers[name].history()
        family = families[history.entries[0].text]
        last = history.entries[-1]
        for longer in family:
            if ledgers[longer].history().entries[last.number] == last:
                copies[name] = longer
                break
        else:
            family.append(name)
    return copies, [family for family in families.values() if len(family) > 1]


def _claim(ledgers: list[Ledger]) -> str:
    """Return what ledgers guarantee together."""
    if any(ledger.history().state.simulated for ledger in ledgers):
        return "no ε"
    epsilon = fsum(ledger.limit.epsilon for ledger in ledgers)
    delta = fsum(ledger.limit.delta for ledger in ledgers)
    return f"ε = {epsilon:g} at δ = {delta:g}"


def _least(ledger: Ledger) -> str:
    return "" if ledger.register.names_all() else "at least "


def _tell_people(ledgers: dict[str, Ledger], data: Path, column: str) -> None:
    """Print how many people of a table ledgers know and have in common; private."""
    from tutelage.partition import ids_in
    from tutelage.tables import read_table

    ids = ids_in(read_table(data), column)
    people = np.unique(ids).tolist()
    holders = [list[str]() for _ in people]  # the ledgers that know each
    say("The numbers of people are private: do not publish these lines.", err=True)
    for name, ledger in ledgers.items():
        known = ledger.register.knows(people)  # (people,)
        if known is None:
            say(
                f"Not known: who is in {name}. Its releases had no names, or other people than this table.",
                err=True,
            )
            continue
        say(f"{_least(ledger)}{known.sum():,} people of {data} are in {name}.", err=True)
        for place in np.flatnonzero(known):
            holders[place].append(name)
    together = Counter(tuple(names) for names in holders if len(names) > 1)
    for names, number in sorted(together.items()):
        claim = _claim([ledgers[name] for name in names])
        say(f"{number:,} people are in {' and '.join(names)}: together at most {claim}.", err=True)
    if not together:
        say(f"As far as these ledgers can tell, no person of {data} is in two of them.", err=True)


def _row_of(name: str, history: History) -> Entries:
    """Return the row of a ledger."""
    state = history.state.as_dict().items()
    intended = sum(entry.kind is EntryKind.INTENDED for entry in history.entries)
    return {
        "file": name,
        **{key: value for key, value in state if key in _COLUMNS},
        "releases": intended or len(history.batches),
        "newest": history.entries[-1].content["written"],
    }


@ledger.command()
def exposure(file: File, as_json: AsJson = False) -> None:
    """Print the budget spent since each release began.

    This is the exposure of people whose data came with that release. Each number is a share of the budget, not an
    epsilon of its own.
    """
    kept = open_to_read(file)
    budget = kept.limit.epsilon
    rows = list[Entries]()
    bars = list[Bar]()
    for release in kept.history().exposures:
        share = round_up(release.share)
        rows.append({**release._asdict(), "share": share})
        name = f"{release.release} · {release.since}"
        bars.append(Bar(name, share, f"{share:.4f} · {release.queries:,} queries"))
    if as_json:
        print_json(rows)
        return
    title = f"{file}: shares of the budget ε = {budget:g} spent since each release began; none is an ε of its own"
    plain_console().print(Bars(title, "Release", "Spent", bars, whole=budget))


@ledger.command()
def export(file: File, *, output: Path | None = None) -> None:
    """Print every entry with its hash, one JSON object per line. The output contains no secrets.

    Parameters
    ----------
    output
        File to write to.  [default: standard output]
    """
    lines = "".join(f"{json.dumps(entry)}\n" for entry in open_to_read(file).export())
    if output is None:
        say(lines, nl=False)
        return

    def is_export(path: Path) -> bool:
        entries = [json.loads(line) for line in path.read_bytes().splitlines()]
        keys = {"number", "kind", "spent", "hash"}
        return bool(entries) and all(keys <= set(entry) for entry in entries)

    write_new(output, lines, over=form("an export of a ledger", is_export))
    say(f"Wrote {lines.count(chr(10)):,} entries to {output}.")


def open_to_read(file: Path) -> Ledger:
    """Open a ledger for reading; if it is writable, a write that a crash interrupted is undone first."""
    is_writable = os.access(file, os.W_OK) and os.access(file.parent, os.W_OK)
    return Ledger.open(file, read_only=not is_writable)


def _print(state: LedgerState, file: Path, *, as_json: bool) -> None:
    if as_json:
        print_json(state.as_dict())
        return
    table = new_table("", "", title=str(file), title_justify="left", show_header=False)
    row = table.add_row
    row("budget", f"ε = {state.budget:g} at δ = {state.delta:g}")
    for raised in state.raised:
        row(
            f"raised on {raised.written}",
            f"from ε = {raised.before:g} to {raised.epsilon:g} by {raised.by}: {raised.why}",
        )
    row("spent", f"{round_up(state.spent):.4f}")
    row("remaining", f"{max(0.0, state.budget - round_up(state.spent)):.4f}")
    if state.so_far is not None:
        so_far = "not less than the budget"
        if state.so_far < state.budget:
            so_far = f"ε = {round_up(state.so_far):.4f} at the same δ"
        row("released so far", so_far)
    row("privacy unit", state.unit.name)
    row("neighboring data", state.unit.neighboring.sentence)
    accounting = "renyi"
    if state.accounting is Accounting.GAUSSIAN:
        accounting = "gaussian: noisy sums, capped votes and GNMax only"
    row("accounting", accounting)
    if state.order is not None:
        row("Rényi order", f"{state.order:.4g}")
    row("entries", f"{state.entries:,}")
    row("labels remembered", f"{state.answers:,}")
    if state.unsettled:
        row(
            "batches without labels",
            f"{state.unsettled:,} (running or interrupted; their budget is spent)",
        )
    row("created", state.opened)
    console = plain_console()
    console.print(table, state.bars)
    say(f"head {state.head}")
    if state.simulated:
        warning = " the labels were drawn with simulated noise, which gives no privacy."
        from rich.text import Text

        console.print(Text.assemble(("NOT PRIVATE:", "bold red"), warning))
