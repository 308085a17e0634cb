"""``tutelage federate``: teachers at different owners, over files that may travel by any means."""

import hashlib
import json
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console
from rich.table import Table

from tutelage._files import array_in, read_arrays
from tutelage._typing import ABSTAIN
from tutelage.cli.consortia import describe, read_terms
from tutelage.cli.outputs import check_output, spent_and_remaining
from tutelage.exceptions import ConfigError
from tutelage.federation import Aggregator, Batch, ComputingParty, Consortium, Entity, Home, Identity, Mailbox, Role
from tutelage.federation.messages.standing import standing
from tutelage.ledger import Ledger
from tutelage.mechanisms.local import Decoder

HomeOption = Annotated[Path, typer.Option("--home", help="This member's own folder, with its private key.")]
MailboxOption = Annotated[Path, typer.Option("--mailbox", help="The folder that all members reach or send around.")]
BatchOption = Annotated[
    str | None, typer.Option("--batch", help="Which batch, by the start of its identifier.  [default: the only one]")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]

federate = typer.Typer(
    help="Teachers at different owners: nobody sees a vote. See docs/federation.md for who does what.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


@federate.command()
def keygen(
    name: Annotated[str, typer.Argument(help="What the member is called.", show_default=False)],
    role: Annotated[Role, typer.Option(help="What it does.")],
    home: HomeOption,
    address: Annotated[
        str | None, typer.Option(help="computing: host:port where the two other parties reach it.")
    ] = None,
) -> None:
    """Make a member's keys: NAME.private.json for nobody else, NAME.public.json for whoever writes the terms."""
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    identity = Identity.generate(name, role, address)
    private, public = identity.save(home)
    typer.echo(f"{private} is the private key of {name}: it stays in this folder.")
    typer.echo(f"{public} goes to whoever writes the terms. Its fingerprint is\n{identity.member.fingerprint}")


@federate.command()
def init(
    terms: Annotated[Path, typer.Argument(help="TOML file with the terms.", show_default=False)],
    mailbox: MailboxOption,
    as_json: AsJson = False,
) -> None:
    """Write the terms of a consortium, for all members to read and to join."""
    consortium = read_terms(terms)
    Mailbox(mailbox).put_consortium(consortium)
    if as_json:
        typer.echo(json.dumps({"fingerprint": consortium.fingerprint, **consortium.as_dict()}, indent=2))
        return
    describe(consortium)
    typer.echo("Read the fingerprint to every member; each joins with `tutelage federate join`.")


@federate.command()
def join(
    home: HomeOption,
    mailbox: MailboxOption,
    fingerprint: Annotated[
        str | None, typer.Option(help="The terms' fingerprint, as the others read it to you.")
    ] = None,
) -> None:
    """Take part under the terms in the mailbox, once their fingerprint is the one that the members agreed on."""
    consortium = Mailbox(mailbox).consortium()
    if fingerprint is None:
        describe(consortium)
        typer.echo(
            "Not joined yet. Compare this fingerprint with the other members by another way than this mailbox, then "
            "run the same again with --fingerprint."
        )
        raise typer.Exit(1)
    member = Home(home)
    member.join(consortium, fingerprint)
    typer.echo(f"{member.identity.member.name} takes part in {consortium.name!r}.")


@federate.command()
def ask(
    rows: Annotated[Path, typer.Argument(help="Public rows to ask about: npy, or npz.", show_default=False)],
    home: HomeOption,
    mailbox: MailboxOption,
    ledger: Annotated[
        Path | None, typer.Option(help="The consortium's ledger, which pays; not in the local model.")
    ] = None,
    array: Annotated[str | None, typer.Option(help="Array of an npz file, if it holds several.")] = None,
    as_json: AsJson = False,
) -> None:
    """Announce, as the aggregator, a signed batch of public rows. Rows that were answered before are left out."""
    budget = None if ledger is None else Ledger.open(ledger)
    asked = Aggregator(Home(home), budget).ask(_array(rows, array, "X"), Mailbox(mailbox))
    found = {"batch": None if asked.batch is None else asked.batch.identifier, "queries": asked.new}
    if as_json:
        typer.echo(json.dumps({**found, "ledger": None if budget is None else budget.state().as_dict()}, indent=2))
    elif asked.batch is None:
        typer.echo("Every row was answered before; nothing new is asked, and nothing spent.")
    else:
        typer.echo(f"Batch {asked.batch.identifier} asks {asked.new:,} queries.")
        if budget is not None:
            typer.echo(spent_and_remaining(budget.state()))


@federate.command()
def vote(
    ballots: Annotated[
        Path, typer.Argument(help="Private ballots: npy or npz, teachers x queries of the batch.", show_default=False)
    ],
    home: HomeOption,
    mailbox: MailboxOption,
    ledger: Annotated[Path, typer.Option(help="The ledger of this entity's own data.")],
    batch: BatchOption = None,
    array: Annotated[str | None, typer.Option(help="Array of an npz file, if it holds several.")] = None,
    data: Annotated[
        Path | None, typer.Option(help="File of the private rows, to tie the ledger to; only a keyed hash is kept.")
    ] = None,
    data_changed: Annotated[
        bool, typer.Option("--data-changed", help="The file has changed and is still this ledger's data.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Send, as an entity, sealed, noised votes on a batch. The same ones, if they were made before."""
    member, budget, box = Home(home), Ledger.open(ledger), Mailbox(mailbox)
    entity = Entity(member, budget)
    asked = _batch(box, entity.consortium, batch)
    if data is not None:
        with data.open("rb") as file:
            entity.bind(hashlib.file_digest(file, "sha256").digest(), changed=data_changed)
    cast = entity.vote(asked, _array(ballots, array, "ballots"), box)
    if as_json:
        found = {"batch": asked.identifier, "queries": cast.queries, "recipients": sorted(cast.envelopes)}
        found["repeated"] = cast.repeated
        typer.echo(json.dumps({**found, "ledger": budget.state().as_dict()}, indent=2))
        return
    typer.echo(f"Sealed votes on {cast.queries:,} of {asked.n_queries:,} queries went to {', '.join(cast.envelopes)}.")
    typer.echo(spent_and_remaining(budget.state()))


@federate.command()
def compute(
    home: HomeOption,
    mailbox: MailboxOption,
    batch: BatchOption = None,
    timeout: Annotated[
        float, typer.Option(help="Seconds to wait for the others to connect, and then for any message of theirs.")
    ] = 600.0,
    transcript: Annotated[
        Path | None, typer.Option(help="Also write everything received from the others to this file.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Compute, as one of three computing parties, the labels of a batch; all three run this at the same time."""
    party, box = ComputingParty(Home(home)), Mailbox(mailbox)
    if transcript is not None:
        check_output(transcript)
    asked = _batch(box, party.consortium, batch)
    done = party.compute(asked, box, timeout=timeout, transcript=transcript)
    if as_json:
        found = {"batch": asked.identifier, "queries": done.queries, "entities": done.entities}
        typer.echo(json.dumps({**found, "left_out": done.left_out, "bytes_sent": done.bytes_sent}, indent=2))
        return
    for name, reason in sorted(done.left_out.items()):
        typer.secho(f"{name} was left out: {reason}", err=True, fg=typer.colors.YELLOW)
    typer.echo(
        f"Labels of {done.queries:,} queries by {len(done.entities)} entities went, in shares, to the aggregator."
    )


@federate.command()
def collect(
    home: HomeOption,
    mailbox: MailboxOption,
    output: Annotated[Path, typer.Option(help="npz file for the labels and the rows they are of.")],
    ledger: Annotated[
        Path | None, typer.Option(help="The consortium's ledger that the batch was asked with; not in the local model.")
    ] = None,
    batch: BatchOption = None,
    decoder: Annotated[
        Decoder | None, typer.Option(help="local model: how ballots become labels.  [default: by the mechanism]")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Write, as the aggregator, the labels of a batch. Doing it again gives the same labels and costs nothing."""
    check_output(output, *([] if ledger is None else [ledger]))
    budget = None if ledger is None else Ledger.open(ledger)
    aggregator, box = Aggregator(Home(home), budget), Mailbox(mailbox)
    asked = _batch(box, aggregator.consortium, batch)
    found = aggregator.collect(asked, box, decoder=decoder)
    np.savez_compressed(output, rows=asked.rows, labels=found.labels)
    answered = int(np.sum(found.labels != ABSTAIN))
    if as_json:
        counts = {"batch": asked.identifier, "asked": asked.n_queries, "answered": answered}
        state = None if budget is None else budget.state().as_dict()
        typer.echo(json.dumps({**counts, "entities": found.entities, "labels": str(output), "ledger": state}, indent=2))
        return
    typer.echo(f"{answered:,} of {asked.n_queries:,} labels, by {len(found.entities)} entities, are in {output}.")
    if budget is not None:
        typer.echo(spent_and_remaining(budget.state()))


@federate.command()
def status(
    mailbox: MailboxOption,
    home: Annotated[
        Path | None, typer.Option(help="Read the terms that this member joined, not the mailbox's.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Print who takes part, and who has answered which batch; public values only."""
    box = Mailbox(mailbox)
    consortium = box.consortium() if home is None else Home(home).consortium()
    batches = standing(consortium, box)
    if as_json:
        typer.echo(
            json.dumps(
                {"fingerprint": consortium.fingerprint, "batches": [each._asdict() for each in batches]}, indent=2
            )
        )
        return
    describe(consortium)
    table = Table("batch", "queries", "entities answered", "computing parties done")
    for each in batches:
        answered = f"{len(each.answered)} of {len(consortium.entities)}; {consortium.quorum} needed"
        table.add_row(each.batch[:8], f"{each.queries:,}", answered, ", ".join(each.computed) or "none")
    Console().print(table)


def _array(path: Path, array: str | None, usual: str) -> Any:
    """Return the array of a npy or npz file, never unpickling."""
    if path.suffix.lower() != ".npy":
        return array_in(read_arrays(path), path, array, usual)
    try:
        return np.load(path, allow_pickle=False)
    except FileNotFoundError:
        raise ConfigError(f"{path} does not exist. Name a npy or npz file.") from None
    except (OSError, ValueError, EOFError):
        raise ConfigError(f"{path} is not a readable npy file of plain numbers. Write it with numpy.save.") from None


def _batch(mailbox: Mailbox, consortium: Consortium, start: str | None) -> Batch:
    """Return the batch that was named, or the only one."""
    known = mailbox.batch_identifiers()
    found = known if start is None else [name for name in known if name.startswith(start.lower())]
    if len(found) != 1:
        what = "is none" if not found else f"are {len(found)}"
        which = "" if start is None else f" that begins with {start!r}"
        raise ConfigError(f"--batch must name one batch; there {what}{which} in {mailbox.folder}.")
    return mailbox.batch(found[0], consortium)
