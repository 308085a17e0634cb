"""The verdict on each experiment, as its page prints it; numbers in braces come from the record."""

import re
from typing import NamedTuple

from tutelage_reproductions.record import Record


class Verdict(NamedTuple):
    """The text of a section.

    In `verdict` and `more`, ``{row}`` is replaced by our number in the row of that name, and ``{row|published}`` by the
    number in the paper.
    """

    title: str
    verdict: str
    more: str = ""
    figure: str = ""  # what the figure shows, for readers who cannot see it
    across: str = ""  # pattern of the part of a row's name that becomes a column; a named group names the columns
    shown: str = ""  # pattern of the other rows that are on the page; the csv has all

    def numbers(self) -> list[str]:
        """Return the names of all numbers in the text."""
        return re.findall(r"\{([^}]+)\}", self.verdict + self.more)

    def fits(self, record: Record) -> bool:
        """Return whether the record has all rows that the text names; a quick record may lack some."""
        rows = {row.name for row in record.rows}
        return not record.quick and all(name.removesuffix("|published") in rows for name in self.numbers())


_ADULT, _BEST = "540 ridge, GNMax 295, 4,000 queries", "250 forests, LNMax 20, 500 queries"
_GRID, _MNIST = "500 labels, scale", "2017 MNIST, 100 queries, δ = 1e-05"
_RIVAL = "DP gradient descent, %"

VERDICTS = {
    "mnist-baseline": Verdict(
        "MNIST without privacy: as accurate as the paper's network",
        "A network with a quarter of the paper's channels is {two convolutions: accuracy, %} % accurate; the paper's "
        "reaches {two convolutions: accuracy, %|published} %.",
        "Class means over public features, which need no training, reach {class means: accuracy, %} %.",
    ),
    "svhn-baseline": Verdict(
        "SVHN without privacy: too little data to compare",
        "A sample of SVHN gives {two convolutions, 10,083 training images, test[9000:10000]: accuracy, %} %; the paper "
        "reaches {two convolutions, 10,083 training images, test[9000:10000]: accuracy, %|published} % with 60 times "
        "as many images.",
    ),
    "mnist-teachers": Verdict(
        "Teachers on MNIST: better than the paper's",
        "The noisy plurality of 250 networks is {250 networks: noisy plurality, %} % accurate, against "
        "{250 networks: noisy plurality, %|published} % in the paper.",
        "A mean teacher reaches {250 networks: mean teacher, %} %, against {250 networks: mean teacher, %|published} "
        "%. With public features, 1,000 teachers (class means) fit and vote in "
        "{1,000 class means: fit and vote, s} s, and their plurality reaches {1,000 class means: plurality, %} %.",
    ),
    "fig2": Verdict(
        "Noise: more teachers tolerate more of it",
        "At γ = 0.05, noisy labels of the published MNIST teachers are "
        "{MNIST, 250 published teachers, γ = 0.05: accuracy, %} % accurate and those of our networks "
        "{MNIST, 250 networks, γ = 0.05: accuracy, %} %, against "
        "{MNIST, 250 networks, γ = 0.05: accuracy, %|published} % in the paper.",
        "Up to γ = 0.05, more teachers are more accurate at every γ. With almost no noise (γ = 1), 10 teachers are the "
        "most accurate.",
        "Accuracy of noisy labels against γ, in one panel for networks trained here and one for the published votes. "
        "All curves rise with γ. 250 teachers reach their best accuracy near γ = 0.05, 100 teachers near 0.1, and 10 "
        "teachers only near 1. The two numbers of the paper lie on the curves of its published votes.",
        r", (γ = (?:0\.01|0\.05|0\.2|1))(?=: accuracy)",
    ),
    "fig3": Verdict(
        "Agreement: the gap between the first two classes stays large",
        "From 10 to 250 teachers, the first class leads by at least "
        "{250 published teachers on MNIST: gap, % of the teachers} % of the teachers; the paper reports more than "
        "60 %.",
        "",
        "Mean gap against the number of teachers. For networks on MNIST it falls slowly from 98 % to 90 % of the "
        "teachers. The published teachers are at 81 % (SVHN) and 62 % (MNIST). All are above the paper's line at 60 %.",
    ),
    "table4": Verdict(
        "Students on MNIST and SVHN: as accurate as published",
        "With the paper's numbers of queries, students reach {MNIST, 100 queries: student, %} % on MNIST and "
        "{SVHN, 500 queries: student, %} % on SVHN, against {MNIST, 100 queries: student, %|published} % and "
        "{SVHN, 500 queries: student, %|published} % in the paper.",
        "For 100 queries on MNIST the paper prints ε = "
        "{MNIST, 100 queries: ε by the paper's method, first images|published}, which depends on the votes and on the "
        "queries: its method gives up to "
        "{MNIST, 100 queries: ε by the paper's method, largest of 200 random choices} for other images. The exact ε is "
        "{MNIST, 100 queries: exact ε (private)}, and the worst-case ε is "
        "{MNIST, 100 queries: worst-case ε (publishable)}. SVHN's students see other images than the paper's.",
        across=r": (ε by the paper's method, first images|exact ε \(private\)|worst-case ε \(publishable\)"
        r"|correct labels, %|student, %)$",
        shown="$^",
    ),
    "fig5": Verdict(
        "Distillation: probabilities help only where labels are few",
        "Compared with plurality labels, the teachers' mean probabilities gain {250 samples, T = 1: gain} points with "
        "250 samples and {4,000 samples, T = 1: gain} points with 4,000.",
        "The interval of the second gain includes zero. A release of probabilities would also reveal more than a "
        "release of labels.",
        across=r"^([\d,]+ samples), ",
    ),
    "active-learning": Verdict(
        "Choosing queries: the gain depends on the student",
        "Taking the least confident images first changes accuracy by {network, 500 least confident first: gain} points "
        "for a network (500 queries) and by {logistic, 300 least confident first: gain} points for a logistic "
        "regression (300 queries).",
        "The paper reports a gain of 4 to 10 points. Medoids, TypiClust, binary experts and siamese networks show no "
        "gain whose interval excludes zero.",
        across=r"(?<=, )(?P<queries>100|300|500|1,000) (?=random|medoids|TypiClust|least)",
    ),
    "adult": Verdict(
        "Adult: more accurate than the paper, at worst-case ε < 1",
        f"Our setting reaches {{{_ADULT}: student, %}} % at a worst-case ε of {{{_ADULT}: worst-case ε}}; the paper "
        f"reports {{{_BEST}: forest, %|published}} % at a vote-dependent ε of "
        f"{{{_BEST}: vote-dependent ε, bound of 2017|published}}.",
        f"The paper's setting gives {{{_BEST}: forest, %}} % here, at a worst-case ε of {{{_BEST}: worst-case ε}}. "
        "Our setting still reaches {1100 ridge, GNMax 630, 2,000 queries: student, %} % at ε = "
        "{1100 ridge, GNMax 630, 2,000 queries: worst-case ε}.",
    ),
    "adult-sweep": Verdict(
        "Adult: more noise costs little accuracy",
        f"With 500 labels, forests reach {{{_GRID} 80, ε = 1.3615: forest, %}} % at a worst-case ε of 1.3615 and "
        f"{{{_GRID} 20, ε = 6.3369: forest, %}} % at 6.3369, the noise of the paper.",
        "Four times as many labels add less than half a point.",
        "Accuracy of the student against the worst-case ε, one panel for each number of labels from 50 to 2,000. In "
        "every panel accuracy rises up to an ε of about 2 to 4 and is then flat, at 82.4 to 84 %. The paper's point, "
        "83 % at a vote-dependent ε of 2.66, is in the panel of 500 labels.",
        shown=r"scale (20|80),",
    ),
    "diabetes": Verdict(
        "Diabetes: the published accuracy does not fit readmission",
        "No forest here predicts readmission with more than "
        "{readmission, patients apart: forest without privacy, %} % accuracy; the published "
        "{readmission, by row: student, %|published} % fits the label diabetesMed, where a student reaches "
        "{diabetesMed, 17 columns, by row: student, %} %.",
        "The paper's sizes need {stays with readmitted within 30 days|published} stays of the smaller class, but only "
        "{stays with readmitted within 30 days} stays end in readmission within 30 days. For diabetesMed our "
        "vote-dependent ε is {diabetesMed, 17 columns, by row: vote-dependent ε, bound of 2017}, the paper's "
        "{diabetesMed, 17 columns, by row: vote-dependent ε, bound of 2017|published}.",
        across=r": (student, %|forest without privacy, %|vote-dependent ε, bound of 2017|vote-dependent ε, exact)$",
    ),
    "mnist-students": Verdict(
        "MNIST students: 99 % accuracy from 100 noisy labels",
        "From 100 noisy labels, label propagation reaches {random queries, label propagation: test[9000:], %} % with "
        "random queries and {medoids queries, label propagation: test[9000:], %} % with medoids, against "
        "{random queries, label propagation: test[9000:], %|published} % in the paper.",
        "The worst-case ε is {worst-case ε}. Networks on pixels stay just below this project's goal of 98.5 %.",
    ),
    "mnist-frontier": Verdict(
        "MNIST: 99 % accuracy at ε = 0.02",
        "With 4,000 teachers and 200 queries, the student reaches "
        "{4,000 teachers, 200 queries, ε = 0.0213: mean over folds, %} % at a worst-case ε of 0.0213; the best "
        "published point is 98.8 % at ε = 0.47.",
        "A small ε needs many teachers: with 250 teachers the same ε gives "
        "{250 teachers, 200 queries, ε = 0.0213: mean over folds, %} %. Most of the gain comes from public features: "
        "noisy class means over them, without teachers, come within half a point ([rivals](rivals.md)).",
        "Accuracy against ε, with intervals. PATE, with its best settings at four values of ε, stays near 99.1 % from "
        "ε = 0.02 to 0.28. DP class means with label propagation reach 98.7 to 98.8 % from ε = 0.0025 to 0.02. Vector "
        "ballots and DP gradient descent reach 99.1 to 99.3 % from ε = 0.1 to 3. Published points lie lower, between "
        "98 and 98.8 %, at ε from 0.47 to 8.",
        shown=r"σ = |, 200 queries, ε",
    ),
    "svhn-student": Verdict(
        "SVHN: the published accuracy with half the labels",
        "From {queries labeled} labels, the student is {student, consistency training: held-out, %} % accurate at an "
        "exact ε of {exact ε (private)}, against {student, consistency training: held-out, %|published} % at "
        "{exact ε (private)|published} in the paper.",
        "Both ε are private. The worst-case ε is {worst-case ε}.",
    ),
    "zhao": Verdict(
        "Local noise: k-ary randomized response is the best",
        "At ε = 1 per label, k-ary randomized response gives {k-RR, plurality, ε = 1: accuracy, %} % correct labels; "
        "the paper's truncated geometric mechanism gives {truncated geometric, likelihood, ε = 1: accuracy, %} % with "
        "the best decoder.",
        "As printed in the paper, with plurality, it gives {as printed, plurality, ε = 1: accuracy, %} %, which is "
        "chance for 10 classes. A trusted curator gives {central: GNMax, ε = 1: accuracy, %} %.",
        "Correct labels against the ε of one label, in two panels. Left, mechanisms: a trusted curator (GNMax) is at "
        "100 % throughout; k-ary randomized response rises from 74 % at ε = 0.5 to nearly 100 % at 1, the local "
        "Gaussian from 42 % to 99 % at 2, the truncated geometric mechanism from 29 % to 95 % at 4. Right, decoders of "
        "the truncated geometric mechanism: likelihood is the best at every ε, and plurality gives 56 % at ε = 4.",
        r", (ε = (?:0\.5|1|2|4))(?=: accuracy)",
    ),
    "tutorial": Verdict(
        "A tutorial's ε: far too small for its labels",
        "The tutorial prints ε = {ε printed by the tutorial, labels used as indices|published} for 9,000 noisy labels; "
        "their worst-case ε is {worst-case ε of 9,000 queries}.",
        "It passes labels where row numbers are expected, so only ten rows are counted. With ε = 2 fixed first, "
        "{queries within ε = 2, GNMax(sigma=25.0)} queries fit, and a student of 100 labels reaches "
        "{100 queries by GNMax(sigma=25.0), student of these and 9,000 images: accuracy, %} %; the tutorial's student "
        "of 9,000 labels reaches {the tutorial's student, 9,000 labels: accuracy, %} %.",
    ),
    "epsilons": Verdict(
        "Published ε: recomputed, and compared with the exact ε",
        f"For 100 queries on MNIST, PATE 2017 prints ε = {{{_MNIST}: paper's own method|published}}; the exact ε is "
        f"{{{_MNIST}: exact (private)}} and the worst-case ε, which may be published, is "
        f"{{{_MNIST}: worst case (publishable)}}.",
        f"A tested ε of {{{_MNIST}: tested (publishable)}} may be published too, if a private test passes. The "
        "paper's own methods return the published numbers where the votes are those of the paper.",
        "For nine published results, the exact ε, the tested ε, the published ε and the worst-case ε of the same "
        "labels, on a logarithmic axis. The exact ε is always the smallest. The published ε lies between the exact "
        "and the worst-case ε, except for PySyft's test, where it is above both.",
        r": (paper's own method|exact \(private\)|tested \(publishable\)|worst case \(publishable\))$",
        r"composition|moments|T·ε",
    ),
    "exact-costs": Verdict(
        "Exact costs: well below the published bounds",
        "The exact ε is {MNIST, LNMax 20, 1,000 queries, δ = 1e-05: exact (private)} for 1,000 queries on MNIST, where "
        "the paper prints {MNIST, LNMax 20, 1,000 queries, δ = 1e-05: exact (private)|published}, and "
        "{SVHN, Confident 300/200/40, 8,500 queries, δ = 1e-06: exact (private)} for 8,500 on SVHN, where it prints "
        "{SVHN, Confident 300/200/40, 8,500 queries, δ = 1e-06: exact (private)|published}.",
        "The two-sided bound, which needs no exact computation, lies in between.",
        across=r": (exact \(private\)|two-sided bound \(private\)|bound of 2018 \(private\)|bound of 2017 \(private\)"
        r"|worst case)$",
        shown="$^",
    ),
    "publishable": Verdict(
        "A tested ε may be published and is far below the worst case",
        "For 100 queries on MNIST, a tested ε of {MNIST, LNMax 20, 100 queries: tested ε (publishable)} may be "
        "published; the worst-case ε is {MNIST, LNMax 20, 100 queries: worst-case ε}, and the paper's "
        "{MNIST, LNMax 20, 100 queries: tested ε (publishable)|published} may not be published.",
        "The private test passes with probability "
        "{MNIST, LNMax 20, 100 queries: chance that the test passes, %} %. Where it fails, only the worst-case ε with "
        "test ({MNIST, LNMax 20, 100 queries: worst-case ε with test}) may be published.",
        across=r": (tested ε \(publishable\)|chance that the test passes, %|worst-case ε|worst-case ε with test"
        r"|exact ε \(private\))$",
        shown="batches",
    ),
    "repeat-attack": Verdict(
        "Repeated queries: the ledger stops averaging attacks",
        "After 10,000 repetitions of a query, an attacker's estimate is off by "
        "{query repeated 10,000 times without memory: error in votes} votes without the ledger and by "
        "{query repeated 10,000 times with the ledger: error in votes} with it.",
        "The ledger returns the first label again, so repetition adds no information.",
    ),
    "plan-check": Verdict(
        "Plans: nine of ten predictions are at most 3 points off",
        "{predictions within 3 points, %} % of predictions are within 3 points of the measured accuracy. The largest "
        "error is {largest error of a prediction, points} points.",
        "{recommendations within 1.5 points of the best of the grid, %} % of the recommended settings are within 1.5 "
        "points of the best of 50. *Published* numbers, in parentheses, are the predicted accuracy, or the accuracy of "
        "the best setting of the grid.",
        across=r", ε = (?P<ε>[\d.]+)(?=: )",
        shown="^predictions|^largest|^recommendations|^furthest|stand-in|no labels",
    ),
    "rivals": Verdict(
        "Other private methods: vector ballots are near the best",
        f"At ε = 1, vector ballots reach {{Fashion-MNIST, ε = 1: vector ballots, %}} % on Fashion-MNIST, where the "
        f"best other method reaches {{Fashion-MNIST, ε = 1: {_RIVAL}}} %; on the other five data sets the difference "
        "is below 0.4 points.",
        "The best other method differs between data sets; it is the best of DP ridge regression, class means, gradient "
        "descent, Opacus and diffprivlib. Votes of trained teachers are less accurate on every data set. At very small "
        "ε, class means are better: at ε = 0.0025 on MNIST they reach {MNIST, ε = 0.0025: DP class means, %} %, vector "
        "ballots {MNIST, ε = 0.0025: vector ballots, %} %.",
        across=r", (ε = (?:0\.1|0\.5|1|3))(?=:)",
        shown="majority|without privacy|true classes|0025",
    ),
    "membership": Verdict(
        "Membership inference: the attack fails on students",
        "The attack finds members of a forest trained without privacy (AUC {Adult, forest on all rows: AUC} on Adult, "
        "{MNIST, forest on all rows: AUC} on MNIST) and does no better than guessing on students at ε = 1.05 and 1.09 "
        "(AUC {Adult, student, ε = 1.05: AUC} and {MNIST, student, ε = 1.09: AUC}).",
        "A single teacher is attacked more easily than a forest on all rows, so teachers must stay private.",
        "True positive rate against false positive rate of the attack, on logarithmic axes, for Adult and MNIST. "
        "Curves of forests lie far above the diagonal. Curves of students stay on or below the diagonal and below the "
        "limit that their ε allows.",
        r": (AUC|true positive rate at 1\.0% false positives, %|lower bound on ε)$",
        "accuracy",
    ),
    "mechanism-audits": Verdict(
        "Audits: no claimed ε is refuted",
        "In 50 random configurations, {claims refuted, of 50} claims are refuted.",
        "On worst-case neighbors, the lower bounds reach 83 % or more of the claimed ε, so the audits are sharp enough "
        "to detect an error of that size. The csv has all 50 configurations.",
        shown="claims refuted|lower bound as %",
    ),
    "planted-faults": Verdict(
        "Planted faults: every one is caught",
        "The checks catch {caught of 27} of 27 planted faults and flag {correct implementations flagged} correct "
        "implementations.",
    ),
}
