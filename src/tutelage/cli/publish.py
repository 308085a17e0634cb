"""``tutelage publish``: a publishable ε below the worst case, proposed on public votes and tested on private ones."""

import json
from contextlib import nullcontext
from pathlib import Path

from tutelage._internal.files import read_arrays
from tutelage._internal.outputs import claim_output
from tutelage._internal.records import Entries
from tutelage._internal.validation import probability
from tutelage.accounting import Accountant
from tutelage.ballots import VoteHistogram
from tutelage.cli.label import read_rows
from tutelage.cli.settings import Chosen, choosing_mechanism
from tutelage.cli.text import ANOTHER_FILE, Array, AsJson, Teachers, print_json, say, verb_group
from tutelage.exceptions import InvalidDataError
from tutelage.ledger import Ledger
from tutelage.noise import SimulationNoise
from tutelage.privacy import PublicEpsilon, round_up
from tutelage.publishing.proof import CLAIM, write_claim
from tutelage.publishing.proposal import PROPOSAL, Proposal
from tutelage.publishing.proposal import propose as smallest_proposal
from tutelage.publishing.recording import check_unit, record

publish = verb_group(
    "Publish an epsilon below the worst case: propose it on public votes, then test it once."
)


@publish.command()
@choosing_mechanism()
def propose(
    proxy: Path,
    released_by: Chosen,
    *,
    delta: float,
    output: Path,
    ledger: Path,
    queries: int | None = None,
    margin: float = 2.0,
    refusal: float = 0.05,
    array: Array = None,
    teachers: Teachers = None,
    as_json: AsJson = False,
) -> None:
    """Propose the smallest epsilon that public proxy votes support.

    Run this before any label is released. The ledger records the proposal.

    Parameters
    ----------
    proxy
        npz file with PUBLIC votes like the private ones (queries x classes).
    delta
        Delta of the whole claim, between 0 and 1.
    output
        File to write the proposal to.
    ledger
        Ledger of the private data, without labels yet. It records the proposal.
    queries
        Number of planned queries.  [default: the number of public votes]
    margin
        Factor by which private votes may cost more than public ones.
    refusal
        Probability that the test fails although votes are within it.
    """
    probability(delta, "--delta", "publish propose")
    with claim_output(output, PROPOSAL, way_out=ANOTHER_FILE) as claim:
        paying = Ledger.open(ledger)
        if "format" in read_arrays(proxy):
            raise InvalidDataError(
                f"{proxy} must not contain private votes, and it has the format of `VoteHistogram.save`. Store public "
                "votes as a plain array. A proposal from private votes would be a release that the budget does not "
                "count."
            )
        votes = VoteHistogram.load(proxy, array=array, n_teachers=teachers)
        paying.history().check_share(delta)
        votes = VoteHistogram(votes.counts, votes.n_teachers, paying.unit)
        mechanism = released_by.mechanism
        event = mechanism.event_of_one(votes.n_classes, votes.unit, simulated=False)
        answered = None
        if released_by.name == "confident":
            answered = mechanism.release(votes, SimulationNoise(0)).answered
        planned = Accountant()
        planned.add_release(event, votes, answered)
        proposal = smallest_proposal(
            planned, delta, queries=queries, margin=margin, refusal=refusal
        )
        record(proposal, paying)
        with claim.write() as part:
            part.write_text(json.dumps(proposal.as_dict(), indent=1) + "\n", encoding="utf-8")
    if as_json:
        print_json(
            {**proposal.as_dict(), "refusal": proposal.refusal, "file": str(output)}, indent=None
        )
        return
    say(
        f"Proposed ε = {round_up(proposal.epsilon):.4f} at δ = {delta:g}. It is recorded in {ledger}.\nWrote {output}."
    )
    say(
        f"The test fails with probability {refusal:g} if the private votes cost at most\n{margin:g} times as much as "
        "the public ones."
    )
    state = paying.state()
    cost = paying.account.share_of(proposal.event())
    say(f"The test will spend {round_up(cost):.4f} of the budget.\n{state}")
    say(
        f"Next, after `tutelage label`: tutelage publish test {output} PUBLIC --votes VOTES --ledger {ledger} "
        f"{released_by.as_options()}"
    )


@publish.command("test")
@choosing_mechanism()
def _test(
    proposal: Path,
    public: Path,
    *,
    votes: Path,
    released_by: Chosen,
    ledger: Path,
    question: str = "",
    array: Array = None,
    teachers: Teachers = None,
    output: Path | None = None,
    as_json: AsJson = False,
) -> None:
    """Test a proposal on the private votes and print its epsilon.

    Each proposal can be tested once.

    Parameters
    ----------
    proposal
        File that `tutelage publish propose` wrote.
    public
        Public rows that were labeled (csv, Parquet, npz).
    votes
        npz file with the private votes behind the labels.
    ledger
        Ledger that the labels were spent from. The test is spent from it too.
    question
        Name of what was voted on, as given to `tutelage label`.
    output
        File to write the claim to, for `tutelage card --claim`.
    """
    claiming = nullcontext()
    if output is not None:
        claiming = claim_output(output, CLAIM, way_out=ANOTHER_FILE)
    with claiming as claim:
        wanted = Proposal.read(proposal)
        paying = Ledger.open(ledger)
        check_unit(wanted, paying)
        rows, name_of_question = read_rows(public, question)
        histogram = VoteHistogram.load(votes, array=array, n_teachers=teachers, n_queries=len(rows))
        # They load scikit-learn, which help does not need.
        from tutelage.labeling import LabelingSession
        from tutelage.publishing.publication import publish_epsilon

        session = LabelingSession(
            histogram, released_by.mechanism, paying, question=name_of_question
        )
        released = session.released(rows)
        publication = publish_epsilon(released, paying, wanted, rows, question=name_of_question)
        if claim is not None:
            with claim.write() as part:
                write_claim(part, publication, released, wanted, paying)
    tested = publication.epsilon
    independent = publication.data_independent
    if as_json:
        print_json(
            {
                "proposed": wanted.epsilon,
                "passed": publication.passed,
                "unit": tested.unit.name,
                "published": _entries_of(tested),
                "data_independent": _entries_of(independent),
                "ledger": paying.state().as_dict(),
            }
        )
        return
    result = "passed" if publication.passed else "failed"
    say(f"The test {result}. Publish: {tested}\nProof: {tested.method}.")
    say(f"Publish the worst-case ε with it, test included: {independent}\n{paying.state()}")
    if output is not None:
        say(f"Next: tutelage card --ledger {ledger} --claim {output} --output FOLDER")


def _entries_of(claim: PublicEpsilon) -> Entries:
    return {name: getattr(claim, name) for name in ("epsilon", "delta", "order", "method")}
