"""``tutelage consortium``: one student for several hospitals, which share no rows, votes or ballots."""

import re
import secrets
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import partial
from math import fsum
from pathlib import Path
from typing import Annotated, Any, cast

import numpy as np
from rich.table import Table
from rich.text import Text
from sklearn.metrics import accuracy_score, balanced_accuracy_score
from sklearn.pipeline import Pipeline
from typer import Abort, Argument, Exit, Option, colors, confirm

from tutelage._internal.drawing import Bar, Bars
from tutelage._internal.records import Entries, plain
from tutelage.cli.settings import read_settings
from tutelage.cli.text import (
    AsJson,
    Html,
    interruption_says,
    plain_console,
    print_json,
    say,
    verb_group,
    write_page,
)
from tutelage.events import TIER_STEPS
from tutelage.exceptions import ConfigError, InvalidDataError
from tutelage.features.schema import code_by_value, type_wanted
from tutelage.ledger import Ledger
from tutelage.ledger.beginning import Whom
from tutelage.partition import canonical_ids, ids_in
from tutelage.privacy import NeighboringRelation
from tutelage.reporting.lints import is_worth
from tutelage.reporting.measured import Measured
from tutelage.reporting.render import as_share, number_of
from tutelage.students.store import write_student
from tutelage.tables import by_value, read_table, require_type
from tutelage_consortium import Aggregator, Consortium, Home, Identity, Mailbox, Role
from tutelage_consortium.earlier import earlier_budgets
from tutelage_consortium.entity import sight_of
from tutelage_consortium.files import join_names
from tutelage_consortium.invites import Invite, Place
from tutelage_consortium.keys import host_and_port, names_of
from tutelage_consortium.mailbox import batch_status, consortium_status, sizes_of_answers
from tutelage_consortium.serving import Rows, Serving, changes_of, made_up_ledger, taken_from
from tutelage_consortium.sums import REHEARSAL, Round
from tutelage_consortium.terms_file import TermsFile

_LEDGER = "ledger"
_MAIL = "mail"
_INVITES = "invites"
_KIT = "kit"
_KITS = "kits"
_RELEASES = "releases"
# Seconds between two looks into the mailbox, and before it is carried again.
_OFTEN, _AFTER_FAULT = 0.3, 2.0
_MOST_ODD = 0.5  # share of rows that fit no class, beyond which a table is refused
_STOPPED = "the files say what is left to do. Run the same command again."
_HomeArgument = Annotated[Path, Argument(metavar="HOME", help="Folder of this member.")]
_Patience = Annotated[
    float, Option(help="Seconds to wait for hospitals that do not answer.", min=0)
]

consortium = verb_group(
    "Train one student for several hospitals that share no rows, votes or ballots."
)


@consortium.command()
def new(
    terms: Path,
    *,
    home: Path,
    server: str | None = None,
    mailbox: Path | None = None,
) -> None:
    """Found a consortium, or amend who is in it: write an invite for each member (coordinator).

    Parameters
    ----------
    terms
        TOML file with the terms.
    home
        Folder of the coordinator. The members of an existing one are amended.
    server
        host:port at which members reach the coordinator.
    mailbox
        Instead of a server: a folder that all members reach.
    """
    _in_use(home)
    file = TermsFile.of(read_settings(terms))
    before = Place.load(home) if home.exists() else None
    if before is None:
        if (server is None) == (mailbox is None):
            raise ConfigError(
                "Name one of --server and --mailbox: members exchange their messages there."
            )
        if server is not None:
            host_and_port(server, "--server")
        file = file.with_identifier()
        draft = file.draft()
        identity = Identity.generate(file.coordinator, Role.AGGREGATOR)
        home.mkdir(mode=0o700, parents=True)
        identity.save(home)
        _make_ledger(home, file, draft, file.coordinator)
    else:
        server = before.server
        mailbox = None if before.server else Path(before.mailbox)
        agreed = TermsFile.of(before.terms)
        file = file.with_identifier(agreed.identifier)
        if file.draft().fingerprint != agreed.draft().fingerprint:
            raise ConfigError(
                f"{terms} may differ from the terms in {home} only in [hospitals], [epsilons], [parties] and "
                "`coordinator`. For other terms, found another consortium in another folder."
            )
        if not [*home.glob("*.private.json")]:
            Home.retire_keys(home)
            Identity.generate(file.coordinator, Role.AGGREGATOR).save(home)
            say(
                f"{file.coordinator} has new keys in {home}, so that all members compare new words."
            )
    shared = mailbox and str(mailbox.resolve())
    members = [name for name in file.seats if name != file.coordinator]
    kits = {} if server is None else _kits(home, file.identifier, server, members)
    for name in members:
        path = home / _INVITES / f"{name}.invite"
        sent = TermsFile.of(Invite.load(path).terms) if path.exists() else None
        if (
            sent is None
            or sent.seats.get(name) != file.seats[name]
            or sent.epsilon_of(name) != file.epsilon_of(name)
        ):
            path.unlink(missing_ok=True)
            Invite(name, file.as_dict(), server, shared, kits.get(name, {})).save(path)
            say(f"{path}: send it to {name} by a channel that no other can read.")
    Place(
        terms=file.as_dict(), mailbox=shared or str((home / _MAIL).resolve()), server=server
    ).save(home)
    say(f"Next, each member: tutelage consortium join {members[0]}.invite")
    say(f"Next, here: tutelage consortium run {home}")


@consortium.command()
def join(
    invite: Path,
    *,
    home: Path | None = None,
    data: Path | None = None,
    person: str | None = None,
    label: str | None = None,
    once: bool = False,
    insist: bool = False,
    new_keys: bool = False,
) -> None:
    """Check the table of a hospital, and make its keys and its budget (hospitals and computing parties).

    Parameters
    ----------
    invite
        Invite of this member.
    home
        Folder for keys and budget.  [default: the name of the member]
    data
        Hospital: private table (csv or Parquet).
    person : --id
        Hospital: column that says whose row it is.
    label
        Hospital: column with the label.
    once : --each-person-once
        Confirm that no person has two rows.
    insist
        Give people who have a budget already a second one.
    new_keys
        Replace lost or stolen keys; the budget stays.
    """
    found = Invite.load(invite)
    file = TermsFile.of(found.terms)
    folder = home or Path(found.name)
    if found.name not in file.seats:
        raise InvalidDataError(
            f"{invite} is for {found.name!r}, but its terms name no such member. Ask for another invite."
        )
    role, address = file.seats[found.name]
    draft = file.draft()
    _require_home(folder, new_keys=new_keys)
    identity = Identity.generate(found.name, role, address)
    people = list[str]()
    if new_keys:
        Home.retire_keys(folder)
        identity.save(folder)
    else:
        if role is Role.ENTITY:
            needs_ids = draft.unit.neighboring is not NeighboringRelation.CHANGE_ONE_ROW
            if data is None or label is None or (person is None and needs_ids):
                raise ConfigError("Name the private table: --data FILE --id COLUMN --label COLUMN.")
            said, people = _checked_table(
                draft, data, person, label, once=once, most=file.hospitals[found.name]
            )
            data = data.resolve()
            earlier = earlier_budgets(data, people, folder.resolve().parent, found)
            if earlier:
                own = file.epsilon_of(found.name)
                said += f"\n{_second_budget(data, earlier, file, own, insist=insist)}"
            # This is of private rows: it goes to the owner, and into no output that others may see.
            say(said, err=True)
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        identity.save(folder)
        if role is Role.ENTITY:
            budget = _make_ledger(folder, file, draft, found.name)
            with budget.begin(None, Whom.by_ids(people)) as scope:
                scope.write()
            _describe(draft, folder)
        found.unpack(folder / _KIT)
        mail = found.mailbox or str((folder / _MAIL).resolve())
        table = data and str(data)
        Place(
            terms=found.terms, mailbox=mail, server=found.server, data=table, id=person, label=label
        ).save(folder)
    say(
        f"{found.name} has keys{' and a budget' * (role is Role.ENTITY)} in {folder}. Back this folder up."
    )
    say(f"Next: tutelage consortium serve {folder}")


@consortium.command()
def serve(
    home: _HomeArgument,
    *,
    yes: bool = False,
    words: str | None = None,
    patience: _Patience = 600.0,
    listen: str | None = None,
    server: str | None = None,
    once: bool = False,
) -> None:
    """Take part: answer what the coordinator asks, after a question (hospitals and computing parties).

    Parameters
    ----------
    yes
        Approve of every release that the budget holds, without a question.
    words
        Six words of the roster, as the members read them to you.
    listen
        host:port to listen at, if it is not the one in the terms.
    server
        host:port of the server, after it moved.
    once
        Do what can be done now, and end.
    """
    place = Place.load(home)
    if once and place.server is not None:
        raise ConfigError("--once is for a mailbox that is a folder. Leave it out.")
    if server is not None:
        from tutelage_consortium import kits

        host_and_port(server, "--server")
        kits.move(home / _KIT, server)
    with interruption_says(_STOPPED), _mailbox_in_step(home, place) as wait:
        called = None if listen is None else host_and_port(listen, "--listen")
        serving = _serving(
            home, place, words, asks=False, yes=yes, patience=patience, listen=called
        )
        say(
            f"{serving.home.member.name} takes part. Its mailbox is {place.mailbox}. Ctrl-C ends this."
        )
        while serving.step() or not once:
            wait()


@consortium.command()
def run(
    home: _HomeArgument,
    *,
    name: str = "1",
    rehearse: bool = False,
    test: Path | None = None,
    label: str = "label",
    words: str | None = None,
    without: list[str] | None = None,
    as_json: AsJson = False,
) -> None:
    """Ask the hospitals for a release, and write its student (coordinator).

    Parameters
    ----------
    name : --as
        Name of the release.
    rehearse
        Try everything with made-up rows; nothing is spent.
    test
        Public table with labels, to score the student.
    label
        Label column of --test.
    words
        Six words of the roster, as the members read them to you.
    without
        Begin without this member, which has not joined.
    """
    place = Place.load(home)
    file = TermsFile.of(place.terms)
    release = f"{REHEARSAL}-{secrets.token_hex(4)}" if rehearse else name
    if name.startswith(REHEARSAL) or not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}", name):
        raise ConfigError(
            f"--as must be 1 to 100 letters, digits, '.', '-' or '_', and must not begin with {REHEARSAL!r}. For a "
            "rehearsal, add --rehearse."
        )
    with interruption_says(_STOPPED), _mailbox_in_step(home, place) as wait:
        serving = _serving(home, place, words, asks=True)
        terms = _assemble(serving, file, without or [], wait)
        last = _release(serving, terms, release, wait)
    student = home / _RELEASES / release / "student.skops"
    hospitals = last.opened.sums[-1].entities
    part = student.with_suffix(".part")
    with serving.budget().begin():  # another process may be at the same release
        part.parent.mkdir(parents=True, exist_ok=True)
        write_student(last.classifier, part)
        part.replace(student)
    about: Entries = {"release": release, "hospitals": hospitals, "student": str(student)}
    about |= {} if test is None else _scores(last.classifier, terms, test, label)
    measured = None
    if last.report is not None:
        measured = last.report.quality()
        about["report"] = plain(measured)
        about["report_weighted"] = bool(last.opened.steps)
    state = Ledger.open(home / _LEDGER).state()
    if as_json:
        print_json({**about, "ledger": state.as_dict()})
        return
    say(
        f"Release {release} has the ballots of {len(hospitals)} hospitals: {join_names(hospitals)}."
    )
    for key, value in about.items():
        if isinstance(value, float):
            say(f"{key.replace('_', ' ')}: {100 * value:.1f} %")
    if isinstance(measured, Measured):
        within = as_share(measured.groups[0].accuracy)
        who = "the people of these hospitals"
        if last.opened.steps:
            who += ", weighted by their ballots"
        say(f"accuracy on {who}, by a noisy sum: {within}")
    if not is_worth(about.get("accuracy", 1.0), about.get("most_frequent_class", 0.0)):
        say(
            "The student is hardly better than the most frequent class. Do not use it.",
            color=colors.YELLOW,
        )
    say(f"{state}\nThe student is {student}.")


@consortium.command()
def status(home: _HomeArgument, html: Html = None, as_json: AsJson = False) -> None:
    """Print who has joined and answered, and whom the others wait for. All printed values are public."""
    place = Place.load(home)
    file = TermsFile.of(place.terms)
    terms = Home(home).latest_roster()
    box = Mailbox(place.mailbox)
    hospitals = [*file.hospitals] if terms is None else names_of(terms.entities)
    own = Home(home).member.name
    # The server brings a hospital no answers of others.
    if place.server is not None and own in hospitals:
        hospitals = [own]
    sent = {name: sizes_of_answers(box, name) for name in hospitals}
    if html is not None:
        write_page(html, f"Messages of {file.name}", _bars_of(sent))
    if terms is None:
        names = sorted({*names_of(box.members())})
        if as_json:
            print_json({"members": names, "sent": sent})
            return
        say(
            f"No roster is accepted yet. Members with keys in the mailbox: {join_names(names) or 'none'}."
        )
        plain_console().print(_bars_of(sent))
        return
    batches, refused = consortium_status(terms, box)
    if as_json:
        print_json(
            {
                "fingerprint": terms.fingerprint,
                "roster": terms.roster,
                "words": terms.words,
                "sent": sent,
                "batches": [each._asdict() for each in batches],
                "refused": refused,
            }
        )
        return
    _describe(terms, home)
    accepted = box.names_of_accepting(terms)
    waiting = [name for name in names_of(terms.members) if name not in accepted]
    told = ""
    if waiting:
        told = (
            f"Roster {terms.roster} ({terms.words}) is not accepted yet by {join_names(waiting)}."
        )
    say(told)
    table = Table("batch", "hospitals answered", "not yet", "computed by")
    for each in batches:
        answered = f"{len(each.answered)} of {len(terms.entities)} ({terms.quorum} needed)"
        table.add_row(
            each.batch[:8], answered, join_names(each.missing), join_names(each.computed) or "none"
        )
    plain_console().print(table, _bars_of(sent))
    for identifier, reason in refused.items():
        say(f"{identifier[:8]} is refused: {reason}", color=colors.YELLOW)


def _describe(terms: Consortium, home: Path) -> None:
    """Print the terms, and what a release takes from the budget of a member that has one."""
    # As Text, a name in square brackets is printed as it is, not read as markup.
    table = Table("", "", title=Text(terms.name), title_justify="left", show_header=False)
    row = table.add_row
    schema = terms.sums().schema
    row("classes", Text(join_names(terms.classes)))
    row("protects", Text(f"{terms.unit.name}: {terms.unit.neighboring.sentence}"))
    row("quorum", f"{terms.quorum} of {len(terms.entities)}; {terms.colluding} may collude")
    people = list[str]()
    for name, number in terms.people_at.items():
        steps = terms.steps_at.get(name, TIER_STEPS)
        told = f"{name} about {number:,}"
        if steps < TIER_STEPS:
            told += f", who count {steps / TIER_STEPS:.3f} each"
        people.append(told)
    row("people", Text(join_names(people)))
    kinds = zip(schema.columns.items(), schema.ordered, strict=True)
    columns = [
        f"{name}: {(' to ' if ordered else ', ').join(map(str, one))}"
        for (name, one), ordered in kinds
    ]
    row("columns", Text("\n".join(columns)))
    row("noise", Text(repr(terms.mechanism)))
    if (home / _LEDGER).exists():
        most = terms.scheme.event_of(None, Home(home).member.name)
        row("a release takes", taken_from(Ledger.open(home / _LEDGER), most))
    plain_console().print(table)


def _bars_of(sent: dict[str, dict[str, list[float]]]) -> Bars:
    """Return the sizes of sealed shares, by the hospital that they name and by batch."""
    bars = list[Bar]()
    for name, batches in sent.items():
        sizes = [size for sealed in batches.values() for size in sealed]
        told = f"{number_of(len(batches), 'batch', 'batches')}, {number_of(len(sizes), 'share', 'shares')}"
        bars.append(Bar(name, sum(sizes), f"{sum(sizes) / 1000:,.1f} kB: {told}"))
    return Bars(
        "Sealed shares in this mailbox, by the hospital that they name", "Hospital", "Sent", bars
    )


def _in_use(home: Path) -> bool:
    """Return whether a folder has files; refuse one in which a killed command left keys or a ledger for nothing."""
    used = home.exists() and any(home.iterdir())
    if used and not Place.is_in(home):
        raise ConfigError(
            f"--home must be a new folder, or a member's folder. {home} holds other files: name another."
        )
    return used


def _require_home(folder: Path, *, new_keys: bool) -> None:
    """Refuse a folder in use for a new member, and any other for new keys."""
    in_use = _in_use(folder)
    if in_use and not new_keys:
        raise ConfigError(
            f"--home must be a new folder. {folder} is in use. To replace lost keys in it, add --new-keys."
        )
    if new_keys and not in_use:
        raise ConfigError(f"--home must be the folder of a member for --new-keys. Got {folder}.")


def _make_ledger(home: Path, file: TermsFile, draft: Consortium, member: str) -> Ledger:
    return Ledger.create(
        home / _LEDGER,
        epsilon=file.epsilon_of(member),
        delta=file.privacy.delta,
        unit=draft.unit,
        owner=member,
        suited_to=draft.scheme.event_of(None, member),
    )


def _second_budget(
    data: Path, earlier: list[Ledger], file: TermsFile, own: float, *, insist: bool
) -> str:
    """Return the sum of the budgets that people in a table would have, as a sentence; refuse it without `insist`."""
    epsilon = fsum([*(ledger.limit.epsilon for ledger in earlier), own])
    delta = fsum([*(ledger.limit.delta for ledger in earlier), file.privacy.delta])
    second = (
        f"People of {data.name} have a budget in {join_names([str(one.path) for one in earlier])}. With this one, they "
        f"would have ε = {epsilon:g} at δ = {delta:g}."
    )
    if not insist:
        raise ConfigError(
            f"{second} Use the earlier home, or, to give these people both, add --insist."
        )
    return second


def _kits(
    home: Path, identifier: str, server: str, members: list[str]
) -> dict[str, dict[str, bytes]]:
    """Return the keys of each member for the server, by path."""
    from tutelage_consortium import kits

    kits.provision(home / _KITS, identifier, server, members)
    keys = dict[str, dict[str, bytes]]()
    for name in members:
        folder = home / _KITS / "members" / name
        keys[name] = {path.name: path.read_bytes() for path in folder.iterdir()}
    return keys


def _checked_table(
    terms: Consortium, data: Path, person: str | None, label: str, *, once: bool, most: int
) -> tuple[str, list[str]]:
    """Refuse, at the hospital alone, a table that cannot be what the terms are about; return what will be cast.

    The second result is the canonical id of each person; without ids, the path of the table stands for all.
    """
    table = read_table(data)
    schema = terms.sums().schema
    for name in filter(None, (*schema.names, label, person)):
        table.column(name)  # refuses a missing one
    rows, labels, ids = rows_of(terms, data, person, label)
    schema.table(rows, ids)
    beyond = schema.beyond({name: table.column(name) for name in schema.names})
    if beyond:
        differences = join_names([f"'{name}' {how}" for name, how in beyond.items()])
        raise InvalidDataError(
            f"{data.name} has columns in other units or codes than the terms: {differences}."
        )
    left_out = 1 - len(labels) / table.n_rows
    if left_out > _MOST_ODD or len(np.unique(labels)) < 2:
        raise InvalidDataError(
            f"--label must name a column with the classes {join_names(terms.classes)}. Most cells of '{label}' are "
            "others, or all are the same."
        )
    people = [str(data.resolve())] if ids is None else np.unique(canonical_ids(ids)).tolist()
    number = len(labels) if ids is None else len(people)
    if ids is not None and number == len(ids) and not once:
        raise InvalidDataError(
            f"--id must name the column of the {terms.unit.name}. Every row has another '{person}': if these are "
            "visits, people with several are not protected. If no person has two rows, add --each-person-once."
        )
    if number > most:
        raise InvalidDataError(
            f"{data.name} has more people than the {most:,} that the terms state, so that the test of sizes could "
            "leave this hospital out. Ask the coordinator to state more."
        )
    odd = (
        f" {100 * left_out:.1f} % of the rows have no id, or a label outside the classes, and are left out."
        * (left_out > 0)
    )
    told = [
        f"{len(labels):,} rows of {number:,} people with {len(schema.names)} columns cast a ballot each.{odd}"
    ]
    return " ".join([*told, *sight_of(terms.sums(), rows, labels, ids).read_off()]), people


def rows_of(terms: Consortium, data: Path, person: str | None, label: str) -> Rows:
    """Return the private rows, class indices and ids of a hospital; a row without class or id is left out."""
    table = read_table(data)
    places = code_by_value(terms.classes)
    wanted, stated, _ = type_wanted(terms.classes)
    require_type(table, label, wanted, f"{stated} in `classes` of the terms", "")
    found = np.array([places.get(by_value(cell), -1) for cell in table.column(label).tolist()])
    stay = found >= 0
    if person is not None:
        stay &= np.array([text.strip("\0").strip() != "" for text in table.texts(person)])
    there = table.take(np.flatnonzero(stay))
    return there, found[stay], None if person is None else ids_in(there, person)


@contextmanager
def _mailbox_in_step(home: Path, place: Place) -> Generator[Callable[[], None]]:
    """Keep the mailbox in step with the server; what it yields waits a little, and starts what has ended again."""
    Path(place.mailbox).mkdir(parents=True, exist_ok=True)
    if place.server is None:
        yield lambda: time.sleep(_OFTEN)
        return
    from tutelage_consortium import kits

    server = home / _KITS / kits.SERVER
    start = partial(kits.start, server if server.exists() else home / _KIT, Path(place.mailbox))
    carrier = start()

    def wait() -> None:
        nonlocal carrier
        time.sleep(_OFTEN)
        if not carrier.alive():
            carrier.stop()
            say(
                f"The connection to {place.server} ended, and is made again. {carrier.log} says more.",
                err=True,
            )
            time.sleep(_AFTER_FAULT)
            carrier = start()

    try:
        yield wait
    finally:
        carrier.stop()


def _serving(
    home: Path, place: Place, words: str | None, *, asks: bool, yes: bool = False, **options: Any
) -> Serving:
    """Return a member at work, which asks its operator at the terminal."""
    member = Home(home)
    ledger = home / _LEDGER
    if (member.member.role is Role.AGGREGATOR) != asks:
        which, verb = "the coordinator", "run"
        if asks:
            which, verb = "another member", "serve"
        raise ConfigError(f"{home} is the home of {which}. Type: tutelage consortium {verb} {home}")

    def accepts(question: str, proposed: str) -> bool:
        if words is None:
            return _answer(question)
        is_same = " ".join(words.lower().split()) == proposed
        compared = "the same" if is_same else "others"
        say(f"The words of the roster are {proposed}: {compared} as those of --words.")
        return is_same

    return Serving(
        home=member,
        mailbox=Mailbox(place.mailbox),
        invited=TermsFile.of(place.terms).draft(),
        ledger=Ledger.open(ledger) if ledger.exists() else None,
        rows=lambda terms: rows_of(terms, Path(str(place.data)), place.id, str(place.label)),
        accepts=accepts,
        approves=lambda question: yes or _answer(question),
        says=partial(say, err=True),
        **options,
    )


def _answer(question: str) -> bool:
    try:
        return confirm(question, err=True)
    except Abort:  # there is no terminal
        say(
            "Not answered. Answer at a terminal, or give --words or --yes.",
            err=True,
            color=colors.YELLOW,
        )
        return False


def _assemble(
    serving: Serving, file: TermsFile, without: list[str], wait: Callable[[], None]
) -> Consortium:
    """Wait until all members have keys, propose a roster where one has changed, and wait until it is accepted."""
    needed = {*file.seats}.difference(without)
    serving.step()
    present = file.present(serving.mailbox.members())
    while needed - present.keys():
        missing = needed - present.keys()
        serving.step()
        serving.say(
            f"Waiting for {join_names(sorted(missing))} to run `tutelage consortium serve`."
        )
        wait()
        present = file.present(serving.mailbox.members())
    before = serving.home.latest_roster()
    number = 0 if before is None else before.roster + 1
    wanted = file.consortium([present[name] for name in needed], number)
    if before is None or changes_of(before, wanted):
        serving.mailbox.put_roster(wanted)
        serving.step()
        now = serving.home.latest_roster()
        if now is None or now.roster_hash != wanted.roster_hash:
            raise Exit(1)
    terms = serving.home.consortium()
    while True:
        accepted = {*serving.mailbox.names_of_accepting(terms)}
        hospitals = accepted.intersection(names_of(terms.entities))
        if (
            accepted.issuperset(names_of(terms.computing_parties))
            and len(hospitals) >= terms.quorum
        ):
            return terms
        waiting = [name for name in names_of(terms.members) if name not in accepted]
        serving.say(f"Waiting for {join_names(waiting)} to accept the roster.")
        wait()


def _release(serving: Serving, terms: Consortium, release: str, wait: Callable[[], None]) -> Round:
    """Ask for all sums of a release, one after another, and return what follows the last one."""
    ledger = made_up_ledger(terms) if release.startswith(REHEARSAL) else serving.budget()
    aggregator = Aggregator(serving.home, ledger)
    begun = time.monotonic()
    while True:
        batch = aggregator.ask_sum(release, serving.mailbox)
        if batch is None:
            return aggregator.final_round(release)
        number = terms.sums().round_of(batch).number + 1
        say(f"Release {release}: asked for sum {number} of {len(terms.sums().events)}.", err=True)
        told = 0
        status = batch_status(terms, serving.mailbox, batch)
        while not status.complete:
            if len(status.answered) != told:
                told = len(status.answered)
                say(f"  {told} of {len(terms.entities)} hospitals answered.", err=True)
            wait()
            status = batch_status(terms, serving.mailbox, batch)
        aggregator.collect_sum(batch, serving.mailbox)
        say(f"  opened after {time.monotonic() - begun:.1f} s.", err=True)


def _scores(student: Pipeline, terms: Consortium, test: Path, label: str) -> Entries:
    """Return how the student does on public rows with labels."""
    table = read_table(test)
    if label not in table.columns:
        raise ConfigError(f"--label must name a column of {test.name}. Got '{label}'.")
    labels = [str(text) for text in table.texts(label)]
    predicted = [str(text) for text in cast("Any", student).predict(table)]
    scores = {
        "accuracy": float(accuracy_score(labels, predicted)),
        "balanced_accuracy": float(balanced_accuracy_score(labels, predicted)),
        "most_frequent_class": max(map(labels.count, terms.classes)) / len(labels),
    }
    for text in terms.classes:
        scores[f"share_of_{text}"] = predicted.count(text) / len(predicted)
    return scores
