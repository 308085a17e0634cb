"""``tutelage card``: the privacy card, from the results of a run, a ledger, or both."""

import os
from collections.abc import Callable
from contextlib import suppress
from datetime import date, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

from typer import Option

from tutelage._internal.gate import read_input, read_text
from tutelage._internal.outputs import Claim, form, path_of
from tutelage._internal.records import Entries, sha256_of
from tutelage._internal.releases import (
    CARD,
    MANIFEST,
    SIGNATURE,
    STUDENT_FILE,
    Manifest,
    claimed_folder,
    publish_folder,
    signed_manifest,
    today,
)
from tutelage.cli.ledger import open_to_read
from tutelage.cli.policy import Policy, require_allowed
from tutelage.cli.settings import read_entries, read_settings
from tutelage.cli.text import (
    interruption_says,
    plain_console,
    print_json,
    remark,
    require_printable,
    say,
)
from tutelage.cli.verify import (
    check_release,
    history_of,
    require_evidence,
    write_entry,
)
from tutelage.cli.words import on_command_line
from tutelage.exceptions import ConfigError, TutelageError
from tutelage.ledger.history import History
from tutelage.privacy import NeighboringRelation
from tutelage.published import card_of, card_of_ledger, up_to_date
from tutelage.publishing.proof import prove, read_claim
from tutelage.reporting import PrivacyCard, read_card
from tutelage.reporting.evidence import evidence_of
from tutelage.reporting.record import STATEMENTS, check_statements
from tutelage.reporting.signature import signature_of
from tutelage.students.store import with_evidence

if TYPE_CHECKING:
    from tutelage.signing import SigningKey

_TOPICS = ", ".join(STATEMENTS)
_SIGNATURE = form("a signature", lambda path: signed_manifest(path) is not None)


def card(
    results: Path | None = None,
    *,
    ledger: Path | None = None,
    state: Annotated[
        list[str] | None,
        Option(
            help=f"TOPIC=TEXT: your statement for the card. Can be repeated. Topics: {_TOPICS}."
        ),
    ] = None,
    statements: Path | None = None,
    ask: bool = False,
    effects: bool = False,
    claim: Path | None = None,
    output: Path | None = None,
    sign: Path | None = None,
    verify: Path | None = None,
    check: bool = False,
    onnx: Path | None = None,
    policy: Path | None = None,
    recipient: str | None = None,
    registry: Path | None = None,
    as_json: bool = False,
) -> None:
    """Write the privacy card as card.json, card.md and card.html.

    Parameters
    ----------
    results
        Results folder, or a card.json.
    ledger
        Ledger of the private data, for the current budget, and to change its release.
    statements
        TOML file with statements, one entry per topic.
    ask
        Ask for each missing statement, in the terminal.
    effects
        Draw the effects of columns, if the student has them.
    claim
        Claim of `tutelage publish test`, to add. Needs --ledger.
    output
        Folder to write to.  [default: the results folder]
    sign
        NAME.private.json to sign with. Writes manifest.signature.json.
    verify
        NAME.public.json of the signer, to check a signed folder.
    check
        Check an unsigned folder: hashes, numbers, pages, and what the student's file states.
    onnx
        ONNX file, to check that it is of this release.
    policy
        TOML file with the limits of the data set owner, to check the card against.
    recipient
        Who is to get the release. Needs --policy.
    registry
        File to write: an entry for the registry of deployments that NIST and OpenDP keep.
    as_json : --json
        Print the card as JSON instead of its location.
    """
    if check or any(option is not None for option in (verify, onnx, policy, recipient, registry)):
        if any((state, statements, ask, effects, claim, output, sign, as_json)):
            raise ConfigError(
                "--verify, --check, --onnx, --policy and --registry change no card. Leave out the options that do, and "
                "--json."
            )
        _check(results, verify, ledger, onnx, policy, recipient, registry)
        return
    _require_terminal(ask=ask, effects=effects, as_json=as_json)
    signer = None
    if sign is not None:
        from tutelage.signing import SigningKey

        signer = SigningKey.load(sign)
    if results is None and ledger is None:
        raise ConfigError("Name the results folder of a run, a --ledger, or both.")
    file, source = _source(results)
    folder = output or (file and file.parent)
    if folder is None:
        raise ConfigError("Name the folder to write to with --output.")
    earlier = None  # the release in the folder to write to
    if file is not None and path_of(folder) == path_of(file.parent):
        earlier = source
    names = CARD if earlier is None else {*CARD, *earlier.sha256}
    with claimed_folder(folder, names, "name another folder with --output", ledger=ledger) as cards:
        history = ledger and history_of(ledger)
        if source is not None and source.recorded and history is not None and file is not None:
            source.require_named(history.manifests, file.parent, str(ledger))
        made = _proved_card(file, history, claimed=claim is not None)
        stating = _stating(made, history, claim)
        texts = made.statements | _statements(state or [], statements)
        made = stating(texts)
        if ask and made.missing:
            _require_ledger(earlier, ledger, folder)
            made = stating(texts | _ask_for_statements(made))
        if not _is_shown(made, folder, earlier):
            _publish(cards, made, earlier, ledger)
        if signer is not None:
            signature = signature_of(folder, signer.name, signer.sign)
            with cards.add_file(SIGNATURE, _SIGNATURE) as part:
                part.write_text(signature, encoding="utf-8")
    if as_json:
        print_json(made.as_dict(), ascii_only=False)
        return
    if effects:
        bars = [curve.bars for curve in made.student.curves]
        plain_console().print(*(bars or ["The student has no effects of columns to draw."]))
    _say_next_step(made, folder, signer)


def _check(
    results: Path | None,
    key: Path | None,
    ledger: Path | None,
    onnx: Path | None,
    policy: Path | None,
    recipient: str | None,
    registry: Path | None,
) -> None:
    """Check a release, and against a policy if there is one; write an entry for the registry if it is asked for."""
    if results is None:
        raise ConfigError("Name the results folder to check.")
    limits = Policy.read(policy, recipient)
    checked = check_release(results, key=key, ledger=ledger, onnx=onnx)
    if limits is not None:
        require_allowed(limits, checked, recipient)
    if registry is not None:
        write_entry(checked, registry)


def _require_terminal(*, ask: bool, effects: bool, as_json: bool) -> None:
    """Refuse questions where there is no terminal, and a drawing beside JSON."""
    if effects and as_json:
        raise ConfigError(
            "--effects draws in the terminal; --json has the same numbers as `curves`. Leave one out."
        )
    if ask and not (os.isatty(0) and os.isatty(2)):
        raise ConfigError(
            "--ask needs a terminal. Without one, use --state TOPIC=TEXT or --statements FILE."
        )


def _source(results: Path | None) -> tuple[Path | None, Manifest | None]:
    """Return the file of an earlier card, which is read once, and the release that it is of, if it is in its folder."""
    if results is None:
        return None, None
    file = results / "card.json" if results.is_dir() else results
    read_card(file)  # a wrong name is refused as such
    if file.name != "card.json" or not (file.parent / MANIFEST).exists():
        return file, None
    return file, Manifest.read_whole(file.parent)


def _stating(
    made: PrivacyCard, history: History | None, claim: Path | None
) -> Callable[[dict[str, str]], PrivacyCard]:
    """Return what makes a card, with a claim if there is one, by its statements."""
    guarantee = made.guarantee
    if claim is not None:
        if history is None:
            raise ConfigError(
                "--claim needs the ledger that recorded the test. Name that ledger with --ledger."
            )
        guarantee = read_claim(
            claim,
            history,
            alone=guarantee.alone,
            if_added_or_removed=guarantee.if_added_or_removed,
        )
    return lambda texts: card_of(
        guarantee,
        made.release,
        made.student,
        made.budget,
        texts,
        made.findings,
        history,
    )


def _say_next_step(made: PrivacyCard, folder: Path, signer: "SigningKey | None") -> None:
    """Print where a card is, and what to do with it: add statements, sign it, or send it."""
    names = CARD if signer is None else (*CARD, SIGNATURE)
    say("Card: " + ", ".join(str(folder / name) for name in names))
    if made.missing:
        say(
            f"{len(made.missing)} of {len(STATEMENTS)} statements are missing: {', '.join(made.missing)}. Add them "
            "with --ask, or with --state TOPIC=TEXT."
        )
    elif signer is None:
        say(
            f"Next: tutelage card {folder} --sign NAME.private.json. `tutelage key NAME` makes the key."
        )
    if signer is not None:
        say(f"Next: send the whole folder and {signer.name}.public.json. Tell the recipient, by")
        say(f"another channel, the fingerprint of the key:\n{signer.public.fingerprint}")


def _is_shown(made: PrivacyCard, folder: Path, earlier: Manifest | None) -> bool:
    """Return whether a folder has this card already, in all its renderings."""
    return (
        earlier is not None
        and read_text(folder / "card.md") == made.as_markdown()
        and read_text(folder / "card.html") == made.as_html()
        and read_card(folder / "card.json") == made
    )


def _proved_card(file: Path | None, history: History | None, *, claimed: bool) -> PrivacyCard:
    """Return the card of a run, proved again, with the current budget if there is a ledger; or that of the ledger."""
    if file is None:
        return card_of_ledger(cast("History", history).before_releases)
    made = read_card(file)
    # An earlier claim on the card is replaced.
    prove(made, str(file), history, with_proposal=not claimed)
    if history is None:
        return made
    then = history.until_head(made.budget.head, str(file))
    raised = made.covers_ledger and then.limit != history.limit
    later = raised or len(history.charges) > len(then.charges)
    return up_to_date(made, history, later=later)


def _publish(
    cards: Claim, made: PrivacyCard, earlier: Manifest | None, ledger: Path | None
) -> None:
    """Write a card, with the other files of the release before it in the same folder."""
    _require_ledger(earlier, ledger, cards.path)
    record = ledger and open_to_read(ledger).register.publish
    with publish_folder(cards, made.budget.head, record) as staging:
        made.write(staging)
        if earlier is None:
            return
        for name in set(earlier.sha256) - set(CARD):
            content = earlier.content(cards.path, name)
            if name == STUDENT_FILE:
                require_evidence(cards.path, earlier)
                evidence = evidence_of(made, sha256_of(read_input(staging / "card.json")))
                content = with_evidence(content, evidence)
            (staging / name).write_bytes(content)


def _require_ledger(earlier: Manifest | None, ledger: Path | None, folder: Path) -> None:
    if earlier is not None and earlier.recorded and ledger is None:
        raise ConfigError(
            f"--ledger must name the ledger of {folder}, which records every version of a release."
        )


def _ask_for_statements(made: PrivacyCard) -> dict[str, str]:
    """Return statements from the terminal, after a question for each topic that is missing on a card."""
    answers = dict[str, str]()
    suggestions = _suggestions(made)
    say("Enter leaves a topic out. Ctrl-D ends the questions. Ctrl-C keeps no answer.", err=True)
    with interruption_says("no answer was kept, and the card was not changed."), suppress(EOFError):
        for number, topic in enumerate(made.missing, 1):
            say(
                f"\n{number} of {len(made.missing)} ({topic}): State {STATEMENTS[topic]}.", err=True
            )
            if topic in suggestions:
                say(f"Suggestion: {suggestions[topic]} Type yes to use it.", err=True)
            text = _answer(topic, suggestions.get(topic))
            if text:
                answers[topic] = text
    say(err=True)
    return answers


def _answer(topic: str, suggestion: str | None) -> str:
    """Return the line that is typed in, or the suggestion; one that the card refuses is asked for again."""
    while True:
        say("> ", nl=False, err=True)
        try:
            text = require_printable(input(), "An answer").strip()
            if text.lower() in ("y", "yes"):
                if suggestion is None:
                    raise ConfigError(f"The statement {topic!r} must say more than {text!r}.")
                return suggestion
            if text:
                check_statements({topic: text})
        except TutelageError as error:
            remark(" ".join((*error.sentences(on_command_line), "Type it again.")))
        else:
            return text


def _suggestions(made: PrivacyCard) -> dict[str, str]:
    """Return statements that follow from a card itself."""
    statements = {
        "review_date": str(date.fromisoformat(today()) + timedelta(365)),
        "evidence": "No independent evidence yet.",
    }
    if made.epsilon.unit.neighboring is not NeighboringRelation.CHANGE_ONE_ROW:
        statements["withdrawal"] = (
            "A person who withdraws is left out of later releases. This release cannot be withdrawn."
        )
    elif made.releases_sums and made.release.teachers is not None:
        statements["people"] = f"{made.release.teachers:,} rows, a number that is public."
    if made.model == "central":
        statements["leaves_site"] = "Only the files of this release."
    if made.student.judged.by_class:
        statements["fairness"] = "Groups other than classes were not measured."
    return statements


def _statements(options: list[str], file: Path | None) -> dict[str, str]:
    settings = Entries()
    if file is not None:
        settings = read_settings(file)
    statements = read_entries(settings, dict.fromkeys(settings, str), "the statements")
    for entry in options:
        topic, equals, text = entry.partition("=")
        if not equals:
            raise ConfigError(f"--state must be TOPIC=TEXT. Got {entry!r}.")
        statements[topic.strip().replace("-", "_")] = text
    return statements
