"""``tutelage federate``: PATE between hospitals, over files that may be sent in any way."""

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from textwrap import wrap
from typing import Annotated, Any, Literal

import numpy as np
from rich.table import Table
from rich.text import Text
from typer import Argument, Exit, Option, colors

from tutelage._internal.files import read_array, read_arrays
from tutelage._internal.gate import TABLE, open_input
from tutelage._internal.outputs import check_replaceable, claimed, npz_form
from tutelage._internal.typing import ABSTAIN
from tutelage._internal.validation import number_between
from tutelage.cli.config import read_schema
from tutelage.cli.ledger import Neighbors, unit_of
from tutelage.cli.method import read_method
from tutelage.cli.settings import read_entries, read_mechanism, read_settings
from tutelage.cli.sources import ids_in
from tutelage.cli.text import ANOTHER_FILE, Array, AsJson, plain_console, print_json, printable, say, verb_group
from tutelage.exceptions import ConfigError, FederationError, InvalidDataError
from tutelage.federation import Aggregator, Batch, ComputingParty, Consortium, Entity, Home, Identity, Mailbox, Role
from tutelage.federation.consortium import SCHEMES
from tutelage.federation.documents import listed, member_name
from tutelage.federation.keys import Member, host_and_port
from tutelage.federation.mailbox import BatchStatus, batch_status, consortium_status
from tutelage.federation.mpc.links import TRANSCRIPT
from tutelage.federation.sums import SharedSums
from tutelage.ledger import Ledger
from tutelage.mechanisms.registry import FEDERATED
from tutelage.methods import Additive, NoisyMoments
from tutelage.privacy import round_up
from tutelage.students.store import STUDENT, write_student
from tutelage.tables import TABLE_FILES, read_table
from tutelage.teachers import VectorBallots

_REQUIRED = {"name": str, "classes": int, "members": list[str], "method": dict, "unit": dict, "quorum": int}
_OPTIONAL = {"teachers_per_entity": int, "colluding": int, "people": dict, "schema": str}
_SUMS = {kind.name: kind for kind in (Additive, NoisyMoments)}
_SHOWN_DELTA = 1e-5


def read_terms(path: Path) -> Consortium:
    """Return the consortium that a settings file describes; member files are relative to it."""
    found = read_entries(read_settings(path), _REQUIRED | _OPTIONAL, "the terms file", _REQUIRED)
    mechanism, teacher = _read_method(found)
    unit = read_entries(found["unit"], {"neighbors": Neighbors, "name": str}, "[unit]", ["neighbors"])
    members = tuple(Member.load(path.parent / name) for name in found["members"])
    entities, people = [member.name for member in members if member.role is Role.ENTITY], found.get("people", {})
    if people:
        read_entries(people, dict.fromkeys(entities, int), "[people]", entities)
    return Consortium(
        name=found["name"],
        members=members,
        n_classes=found["classes"],
        mechanism=mechanism,
        teachers_per_entity=found.get("teachers_per_entity", 1),
        quorum=found["quorum"],
        colluding=found.get("colluding", SCHEMES[type(mechanism)].colluding),
        unit=unit_of(unit["neighbors"], unit.get("name")),
        teacher=teacher,
        people=tuple(people[name] for name in entities) if people else (),
        schema=read_schema(path.parent / found["schema"]) if "schema" in found else None,
    )


def _read_method(terms: Mapping[str, Any]) -> tuple[Any, VectorBallots | None]:
    """Return the mechanism of the terms, and for sums of ballots what people cast."""
    table = terms["method"]
    if table.get("name") not in [*_SUMS]:
        # Nothing else is agreed on: each hospital chooses its own teachers.
        kinds = {"name": Literal["additive", "noisy-moments", "teacher-votes"], "mechanism": dict}
        read_entries(table, kinds, "[method]", kinds)
        if "people" in terms or "schema" in terms:
            names = " or ".join(map(repr, _SUMS))
            raise ConfigError(f"[people] and `schema` are only for sums of ballots, with the name {names} in [method].")
        return read_mechanism(table["mechanism"], FEDERATED, "`mechanism` in [method]"), None
    method: Any = read_method(table)
    if method.mechanism is None or method.student is not None:
        raise ConfigError(
            "[method] must have a `mechanism` and no `student`, because the members agree on the noise, and the "
            "student follows from the sums."
        )
    if "teachers_per_entity" in terms or "people" not in terms:
        raise ConfigError(f"The terms must have [people] in place of `teachers_per_entity` for {method.name}.")
    if method.needs_schema != ("schema" in terms):
        raise ConfigError(f"`schema` must name a TOML file of columns for {Additive.name}, and be left out otherwise.")
    return method.mechanism, getattr(method, "teacher", None)


def describe(consortium: Consortium) -> None:
    """Print the terms, which a member must read before it joins."""
    # As Text, a name in square brackets is printed as it is, not read as markup.
    table = Table("", "", title=Text(consortium.name), title_justify="left", show_header=False)
    row = table.add_row
    row("mechanism", Text(repr(consortium.mechanism)))
    row("classes", f"{consortium.n_classes}")
    row("protects", Text(f"{consortium.unit.name}: {consortium.unit.neighboring.sentence}"))
    collude = f"; {consortium.colluding} may collude" * bool(consortium.computing_parties)
    row("quorum", f"{consortium.quorum} of {len(consortium.entities)}{collude}")
    scheme, queries, what = consortium.scheme, 100, "100 queries"
    if isinstance(scheme, SharedSums):
        pairs = zip(consortium.entities, consortium.people, strict=True)
        numbers = listed([f"{entity.name} {number:,}" for entity, number in pairs])
        row("people", Text(f"about {sum(consortium.people):,}: {numbers}"))
        columns = {} if consortium.schema is None else consortium.schema.columns
        said = [f"{name}: {', '.join(map(str, one))}" for name, one in columns.items()]
        row(*(("columns", Text("\n".join(said))) if said else ("ballots", Text(repr(scheme.teacher)))))
        queries, what = 1, f"{len(scheme.events)} rounds"
    epsilon = round_up(consortium.epsilon_of_queries(queries, _SHOWN_DELTA).epsilon)
    row(f"{what} spend", f"ε = {epsilon:.4f} at δ = {_SHOWN_DELTA:g}")
    plain_console().print(table)
    say("fingerprint of each member, as `keygen` printed it")
    for member in consortium.members:
        where = "" if member.address is None else f" at {member.address}"
        say(f"  {member.fingerprint}  {member.name}, {member.role}{where}")
    say(f"fingerprint of these terms\n  {' '.join(wrap(consortium.fingerprint, 4))}")


def describe_status(consortium: Consortium, batches: Sequence[BatchStatus]) -> None:
    """Print the progress of each batch, the missing members and the next step."""
    table = Table("batch", "queries", "hospitals voted", "computed by")
    for each in batches:
        answered = f"{len(each.answered)} of {len(consortium.entities)} ({consortium.quorum} needed)"
        table.add_row(each.batch[:8], f"{each.queries:,}", answered, ", ".join(each.computed) or "none")
    plain_console().print(table)
    for each in batches:
        missing = f"No votes from {listed(each.missing)}. " * bool(each.missing)
        short = consortium.quorum - len(each.answered)
        parties = ", ".join(party.name for party in consortium.computing_parties)
        step = f"{parties} must run `tutelage federate compute` at the same time."
        if short > 0 and not each.computed:
            step = f"{short} more must run `tutelage federate vote`."
        elif each.complete or not parties:
            step = f"{consortium.aggregator.name} can run `tutelage federate collect`."
        say(f"{each.batch[:8]}: {missing}Next: {step}")


_FIX = "Run `tutelage federate init`, or check --mailbox."
_AGAIN = "Ask again about rows whose batch can no longer be computed. Budget is spent again."
_BALLOTS = (
    "Private ballots (npy or npz, teachers x queries of the batch). For sums of ballots, private rows: an npz file "
    "with X, y (class indices) and ids (whose row it is); with a schema, a table with its columns, y and ids."
)
_OUTPUT = "npz file for the labels and their rows. For sums of ballots, skops file for the student."
HomeOption = Annotated[Path, Option("--home", help="Folder of this member, with its private key.")]
MailboxOption = Annotated[Path, Option("--mailbox", help="Folder that all members share or exchange.")]
BatchOption = Annotated[
    str | None, Option("--batch", help="Start of the identifier of the batch.  [default: the only unfinished batch]")
]
KeysChangedOption = Annotated[
    bool, Option("--keys-changed", help="Confirm that the ledger belongs to this member, who has new keys now.")
]
LedgerOption = Annotated[Path | None, Option(help="Ledger of the consortium. The local model needs no ledger.")]

federate = verb_group("Release noisy sums or votes of several hospitals that share no rows, votes or ballots.")


@federate.command()
def keygen(
    name: Annotated[str, Argument(help="Name of the member.", show_default=False)],
    role: Annotated[Role, Option(help="Role of the member. entity: a hospital with teachers.")],
    home: HomeOption,
    address: Annotated[str | None, Option(help="computing: host:port at which the other two parties reach it.")] = None,
) -> None:
    """Create the keys of a member.

    Keep NAME.private.json secret. Send NAME.public.json to the author of the terms.
    """
    member_name(name, "NAME", "keygen")
    if role is Role.COMPUTING and address is None:
        raise ConfigError("--address must give host:port, where the two other computing parties reach this one.")
    if role is not Role.COMPUTING and address is not None:
        raise ConfigError(f"--address is only for --role {Role.COMPUTING}. Leave it out.")
    identity = Identity.generate(name, role, address)
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    private, public = identity.save(home)
    say(f"{private} is the private key of {name}. Keep it secret.")
    say(f"Send {public} to the author of the terms. Its fingerprint is\n{identity.member.fingerprint}")
    say(f"Next, when the terms are in the mailbox: tutelage federate join --home {home} --mailbox MAILBOX")


@federate.command()
def init(
    terms: Annotated[Path, Argument(help="TOML file with the terms.", show_default=False)],
    mailbox: MailboxOption,
    as_json: AsJson = False,
) -> None:
    """Write the terms of a consortium to the mailbox. Every member reads them and then joins."""
    consortium, box = read_terms(terms), Mailbox(mailbox)
    if box.consortium_path.exists():  # even of the same terms: every consortium has an identifier of its own
        raise ConfigError(f"--mailbox must not contain another consortium. Got {mailbox}. Name an empty folder.")
    box.put_consortium(consortium)
    if as_json:
        print_json({"fingerprint": consortium.fingerprint, **consortium.as_dict()})
        return
    describe(consortium)
    say("Read the last fingerprint to every member.")
    say(f"Next, every member: tutelage federate join --home HOME --mailbox {mailbox}")


@federate.command()
def join(
    home: HomeOption,
    mailbox: MailboxOption,
    fingerprint: Annotated[str | None, Option(help="Fingerprint of the terms, as a member read it to you.")] = None,
) -> None:
    """Join the consortium whose terms are in the mailbox. All members must use the same fingerprint."""
    consortium = _terms_in(_mailbox(mailbox))
    if fingerprint is None:
        describe(consortium)
        say(
            "Not joined yet. Compare the last fingerprint with the other members by telephone.\n"
            f'Next: tutelage federate join --home {home} --mailbox {mailbox} --fingerprint "…"'
        )
        raise Exit(1)
    member = Home(home)
    member.join(consortium, fingerprint)
    say(f"{member.identity.member.name} has joined {consortium.name!r}.")
    step = "federate compute" if member.identity.member.role is Role.COMPUTING else "federate ask"
    if member.identity.member.role in consortium.scheme.spenders:
        step = f"ledger init FILE --for {home} --epsilon EPSILON --delta DELTA"
    say(f"Next: tutelage {step}")


@federate.command()
def ask(
    home: HomeOption,
    mailbox: MailboxOption,
    rows: Annotated[
        Path | None, Argument(help="Public rows to ask about (npy or npz); none with a schema.", show_default=False)
    ] = None,
    ledger: LedgerOption = None,
    array: Array = None,
    new_batch: Annotated[bool, Option("--new-batch", help=_AGAIN)] = False,
    keys_changed: KeysChangedOption = False,
    as_json: AsJson = False,
) -> None:
    """Send a signed batch of public rows to the members (aggregator).

    Rows that were labeled before are left out. For sums of ballots, this sends the next round: a public map that is
    learned from the rows, and the student so far.
    """
    aggregator, budget = _aggregator(home, ledger, keys_changed=keys_changed)
    scheme = aggregator.consortium.scheme
    public = None if rows is None else read_array(rows, array, "X")
    with _paid_once(budget):
        asked = aggregator.ask(public, _mailbox(mailbox), new_batch=new_batch)
    found = {"batch": None if asked.batch is None else asked.batch.identifier, "queries": asked.new}
    if as_json:
        print_json({**found, "ledger": budget and budget.state().as_dict()})
    elif asked.batch is None:
        done = "Every round was collected" if isinstance(scheme, SharedSums) else "Every row was labeled"
        say(f"{done} before. No query was sent, and nothing was spent.")
    else:
        what = f"batch {asked.batch.identifier} with {asked.new:,} queries"
        if isinstance(scheme, SharedSums):
            number = scheme.round_of(asked.batch).number + 1
            what = f"round {number} of {len(scheme.events)} as batch {asked.batch.identifier}"
        say(f"Sent {what}.")
        if budget is not None:
            say(budget.state())
        say(f"Next: tutelage federate status --mailbox {mailbox}")


@federate.command()
def vote(
    ballots: Annotated[Path, Argument(help=_BALLOTS, show_default=False)],
    home: HomeOption,
    mailbox: MailboxOption,
    ledger: Annotated[Path, Option(help="Ledger of this hospital's own data.")],
    batch: BatchOption = None,
    array: Array = None,
    data: Annotated[
        Path | None, Option(help="File of the private rows, to bind the ledger to. Only a keyed hash is stored.")
    ] = None,
    data_changed: Annotated[
        bool, Option("--data-changed", help="Confirm that the file changed and still contains this ledger's data.")
    ] = False,
    keys_changed: KeysChangedOption = False,
    as_json: AsJson = False,
) -> None:
    """Send the sealed, noised votes of one hospital on a batch.

    Repeating the command sends the same envelopes again and spends nothing.
    """
    member, budget, box = Home(home), Ledger.open(ledger), _mailbox(mailbox)
    entity = Entity(member, budget, keys_changed=keys_changed)
    terms, by_sum = entity.consortium, isinstance(entity.consortium.scheme, SharedSums)

    # For votes, an unfinished batch is never chosen automatically: only the mailbox states which are finished, and
    # ballots fit any batch with as many queries. The ballots of a sum are computed here, for the batch.
    def is_over(each: Batch) -> bool:
        status = batch_status(terms, box, each)
        return bool(status.computed) or member.identity.member.name in status.answered

    asked = _batch(box, terms, batch, is_over if by_sum else None)
    arrays = read_arrays(ballots) if ballots.suffix.lower() == ".npz" else {}
    if "batch" in arrays and str(arrays["batch"]) != asked.identifier:
        raise ConfigError(f"{ballots} contains ballots for another batch than {asked.identifier}. Pass its --batch.")
    if data is not None:
        with open_input(data, TABLE) as file:
            entity.bind(hashlib.file_digest(file, "sha256").digest(), changed=data_changed)
    if not by_sum:
        send = partial(entity.vote, asked, read_array(ballots, array, "ballots"), box)
    else:
        X, y, ids = _private_rows(terms, ballots, arrays)
        send = partial(entity.cast, asked, X, y, box, entity_ids=ids)
    with _paid_once(budget):
        cast = send()
    if as_json:
        found = {"batch": asked.identifier, "queries": cast.queries, "recipients": sorted(cast.envelopes)}
        print_json({**found, "repeated": cast.repeated, "ledger": budget.state().as_dict()})
        return
    if cast.repeated:
        say(f"This hospital voted before. The same envelopes were sent again, and {ballots} was not used.")
    limit = "; the budget does not allow more" * (cast.queries < asked.n_queries)
    votes = f"sealed votes on {cast.queries:,} of {asked.n_queries:,} queries"
    what, kind = ("the sealed sum of the ballots of one round", "ballots") if by_sum else (votes, "votes")
    say(f"Sent {what} to {', '.join(sorted(cast.envelopes))}{limit}.")
    say(f"The {kind} are for batch {asked.identifier}.\n{budget.state()}")
    say(f"Next: tutelage federate status --mailbox {mailbox}")


def _private_rows(terms: Consortium, path: Path, arrays: Mapping[str, Any]) -> tuple[Any, Any, Any]:
    """Return private rows, class indices and ids: arrays, or a table where the terms have a schema."""
    if terms.schema is None:
        if not {"X", "y"} <= set(arrays):
            raise ConfigError(f"{path} must contain the arrays X and y, and also ids if the terms protect people.")
        return arrays["X"], arrays["y"], arrays.get("ids")
    if not path.name.lower().endswith(TABLE_FILES):
        raise ConfigError(f"{path} must be a table (csv or Parquet) with the columns of the schema, y and ids.")
    table, places = read_table(path), {str(place): place for place in range(terms.n_classes)}
    y = np.array([places.get(text, -1) for text in table.texts("y")])
    return table, y, ids_in(table, "ids" if "ids" in table.columns else None)


@federate.command()
def compute(
    home: HomeOption,
    mailbox: MailboxOption,
    batch: BatchOption = None,
    timeout: Annotated[float, Option(help="Seconds to wait for the parties, and for each of their messages.")] = 600.0,
    listen: Annotated[str | None, Option(help="host:port to listen at, if it is not the one in the terms.")] = None,
    transcript: Annotated[Path | None, Option(help="File for all data received from the other parties.")] = None,
    again: Annotated[bool, Option("--again", help="Compute a finished batch again, with the same votes.")] = False,
    as_json: AsJson = False,
) -> None:
    """Compute the labels of a batch (computing parties).

    Run this on all three computing parties at the same time. If too few hospitals have voted, or if the batch is
    computed already, the command reports it at once and does not wait.
    """
    number_between(timeout, 0, float("inf"), "--timeout", "compute")
    here = None if listen is None else host_and_port(listen, "--listen")
    member, box = Home(home), _mailbox(mailbox)
    party = ComputingParty(member)
    if transcript is not None:
        check_replaceable(transcript, TRANSCRIPT, way_out="name another file with --transcript")
    asked = _batch(box, party.consortium, batch, lambda each: batch_status(party.consortium, box, each).complete)
    if not again and batch_status(party.consortium, box, asked).complete:
        raise FederationError(
            f"Batch {asked.identifier} is already computed, and {party.consortium.aggregator.name} can run `tutelage "
            "federate collect`. To compute it again with the same votes, add --again at all three computing parties."
        )
    said: list[tuple[str, ...]] = []

    def tell(missing: tuple[str, ...]) -> None:
        if said[-1:] != [missing]:
            said.append(missing)
            say(f"Waiting for {' and '.join(missing)} to run `tutelage federate compute`.", err=True)

    done = party.compute(asked, box, timeout=timeout, transcript=transcript, listen=here, waiting=tell)
    if as_json:
        print_json({"batch": asked.identifier, **done._asdict()})
        return
    _print_left_out(done.left_out)
    by_sum = isinstance(party.consortium.scheme, SharedSums)
    what = "sum of the ballots of" if by_sum else f"labels of {done.queries:,} queries by"
    say(f"Sent the {what} {len(done.entities)} hospitals, in shares, to the aggregator.")
    say(f"Next, at {party.consortium.aggregator.name}: tutelage federate collect")


@federate.command()
def collect(
    home: HomeOption,
    mailbox: MailboxOption,
    output: Annotated[Path, Option(help=_OUTPUT)],
    ledger: LedgerOption = None,
    batch: BatchOption = None,
    as_json: AsJson = False,
) -> None:
    """Write the labels of a batch to a file (aggregator).

    Repeating the command gives the same labels and spends nothing.
    """
    (aggregator, budget), box = _aggregator(home, ledger), _mailbox(mailbox)
    by_sum = isinstance(aggregator.consortium.scheme, SharedSums)
    key, held, suffix, form, write = _STUDENT if by_sum else _LABELS
    if output.suffix.lower() != suffix:
        raise ConfigError(f"--output must end in {suffix}, the format of the {held}. Got {output}.")
    with claimed(output, form, way_out=ANOTHER_FILE) as claim:
        asked = _batch(box, aggregator.consortium, batch, aggregator.is_collected)
        with _paid_once(budget), claim.written() as part:
            wrote, about = write(aggregator, asked, box, part)
    if as_json:
        spent = budget and budget.state().as_dict()
        print_json({"batch": asked.identifier, **about, key: str(claim.path), "ledger": spent})
        return
    _print_left_out(about.get("left_out", {}))
    say(f"Wrote {wrote}, by {len(about['entities'])} hospitals, to {output}.")
    if budget is not None:
        say(budget.state())
    if "rounds_left" in about:
        say("Next: tutelage federate ask" if about["rounds_left"] else "This was the last round.")


def _write_labels(aggregator: Aggregator, asked: Batch, box: Mailbox, part: Path) -> tuple[str, dict[str, Any]]:
    """Write the labels of a batch and its rows; return what was written, in words and as JSON."""
    found = aggregator.collect(asked, box)
    np.savez_compressed(part, rows=asked.rows, labels=found.labels)
    answered = int(np.sum(found.labels != ABSTAIN))
    about = {"asked": asked.n_queries, "answered": answered, "entities": found.entities, "left_out": found.left_out}
    return f"{answered:,} of {asked.n_queries:,} labels", about


def _write_student(aggregator: Aggregator, asked: Batch, box: Mailbox, part: Path) -> tuple[str, dict[str, Any]]:
    """Write the student after a round; return what was written, in words and as JSON."""
    opened = aggregator.collect_sum(asked, box)
    write_student(opened.round.classifier, part)
    about = {"round": opened.round.number, "rounds_left": opened.rounds_left, "entities": opened.entities}
    return f"the student of round {opened.round.number}", about


_LABELS = "labels", "labels and their rows", ".npz", npz_form("labels", "rows", "labels"), _write_labels
_STUDENT = "student", "student", ".skops", STUDENT, _write_student


@federate.command()
def status(
    mailbox: MailboxOption,
    home: Annotated[Path | None, Option(help="Folder of a member, to read the terms that it joined.")] = None,
    as_json: AsJson = False,
) -> None:
    """Print who has voted, who is missing and the next command to run.

    All printed values are public.
    """
    box = _mailbox(mailbox)
    consortium = _terms_in(box) if home is None else Home(home).consortium()
    batches, refused = consortium_status(consortium, box)
    if as_json:
        found = {"fingerprint": consortium.fingerprint, "batches": [each._asdict() for each in batches]}
        print_json({**found, "refused": refused})
        return
    describe(consortium)
    describe_status(consortium, batches)
    for identifier, reason in refused.items():
        say(f"{identifier[:8]} is refused: {printable(reason)}", color=colors.YELLOW)


def _mailbox(folder: Path) -> Mailbox:
    """Return the mailbox in an existing folder; a member may have only a part of it."""
    if not folder.is_dir():
        raise ConfigError(f"--mailbox must be a folder that exists. Got {folder}. {_FIX}")
    return Mailbox(folder)


def _terms_in(mailbox: Mailbox) -> Consortium:
    if not mailbox.consortium_path.exists():
        raise ConfigError(f"{mailbox.consortium_path} does not exist. {_FIX}")
    return mailbox.consortium()


def _aggregator(home: Path, ledger: Path | None, *, keys_changed: bool = False) -> tuple[Aggregator, Ledger | None]:
    """Return the aggregator with its ledger; the local model needs none."""
    member = Home(home)
    if Role.AGGREGATOR not in member.consortium_as(Role.AGGREGATOR).scheme.spenders:
        if ledger is not None:
            raise ConfigError("--ledger must be left out in the local model, where each hospital keeps its own budget.")
        return Aggregator(member, None), None
    if ledger is None:
        raise ConfigError(
            "--ledger must be given in the secure model, where the opened labels are spent from it. "
            f"`tutelage ledger init FILE --for {home}` creates one."
        )
    budget = Ledger.open(ledger)
    return Aggregator(member, budget, keys_changed=keys_changed), budget


@contextmanager
def _paid_once(budget: Ledger | None) -> Iterator[None]:
    """If the work fails after its budget was spent, add to the error that repeating it is free."""
    before = None if budget is None else budget.state().entries
    try:
        yield
    except (InvalidDataError, OSError) as error:
        if budget is None or budget.state().entries == before:
            raise
        said = f"{error.filename or 'A file'}: {error.strerror}." if isinstance(error, OSError) else str(error)
        raise InvalidDataError(
            f"{said} The budget was spent before this error. Fix the cause and run the same command again, which "
            "spends nothing more."
        ) from None


def _print_left_out(left_out: dict[str, str]) -> None:
    for name, reason in sorted(left_out.items()):
        say(f"{name} was left out: {printable(reason)}", err=True, color=colors.YELLOW)


def _batch(
    mailbox: Mailbox, consortium: Consortium, start: str | None, is_done: Callable[[Batch], bool] | None
) -> Batch:
    """Return the named batch, the only batch, or the only batch that this member has not finished."""
    known = mailbox.batch_identifiers()
    found = known if start is None else [name for name in known if name.startswith(start.lower())]
    if len(found) == 1:
        return mailbox.batch(found[0], consortium)
    batches = f" Batches: {', '.join(known)}." if known else ""
    if start is not None or not known:
        which = "" if start is None else f" that begins with {start!r}"
        what = "is none" if not found else f"are {len(found)}"
        raise ConfigError(f"--batch must name one batch. There {what}{which} in {mailbox.folder}.{batches}")
    if is_done is None:
        raise ConfigError(f"--batch must name the batch of the ballots. There are {len(known)}.{batches}")
    left = []
    for identifier in known:
        with suppress(FederationError, InvalidDataError):  # a batch that the aggregator did not sign blocks no other
            if not is_done(batch := mailbox.batch(identifier, consortium)):
                left.append(batch)
    if len(left) != 1:
        what = f"{len(left)} of {len(known)} are unfinished" if left else f"All {len(known)} are finished"
        batches = f" Batches: {', '.join([each.identifier for each in left] or known)}."
        raise ConfigError(f"--batch must name one batch. {what}.{batches}")
    return left[0]
