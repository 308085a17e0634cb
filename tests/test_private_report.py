"""The report for the data's owner: right, unmistakably private, and for nobody else's eyes."""

import re
from xml.etree import ElementTree as ET

import numpy as np
import pytest

from tutelage import VoteHistogram
from tutelage.exceptions import InvalidDataError
from tutelage.private_report import MARK, gaps_figure, noise_figure, teachers_figure, write_private_report
from tutelage.teachers import PrivateStatistics
from tutelage.votes import tally

RANDOM = np.random.default_rng(0)
BALLOTS = np.where(RANDOM.random((50, 40)) < 0.7, np.arange(40) % 3, RANDOM.integers(0, 3, (50, 40)))
LABELS = np.arange(40) % 3
VOTES = tally(BALLOTS, 3)


def test_the_file_is_marked_everywhere_and_for_its_owner_only(tmp_path):
    path = tmp_path / "private-report.html"
    write_private_report(path, VOTES)
    path.chmod(0o644)
    write_private_report(path, VOTES, labels=LABELS, ballots=BALLOTS)
    assert path.stat().st_mode & 0o777 == 0o600
    page = path.read_text(encoding="utf-8")
    assert f"<title>{MARK}</title>" in page
    assert f"<h1>{MARK}</h1>" in page
    assert page.count('class="alarm"') == 2
    drawings = re.findall("<svg.*?</svg>", page)
    assert len(drawings) == 3
    for drawn in drawings:
        (stamp,) = marks(drawn, "stamp-text")
        assert stamp.text == MARK
    assert ".private .stamp { position: fixed;" in page  # on every printed page
    assert "<script" not in page


def test_without_labels_there_is_no_accuracy_of_teachers(tmp_path):
    write_private_report(str(tmp_path / "a.html"), VOTES)
    page = (tmp_path / "a.html").read_text(encoding="utf-8")
    assert len(re.findall("<svg", page)) == 2
    assert "like the plurality" in page


def marks(drawn: str, kind: str) -> list[ET.Element]:
    """Return the marks of one kind in a drawing."""
    return [mark for mark in ET.fromstring(drawn) if mark.get("class") == kind]  # noqa: S314  our own drawing


def heights(drawn: str) -> list[float]:
    (line,) = marks(drawn, "curve-accent")
    return [float(pair.split(",")[1]) for pair in str(line.get("points")).split()]


def test_figure_2_rises_to_the_accuracy_without_noise():
    drawn = noise_figure(VOTES, LABELS)
    places = heights(drawn.svg)
    assert places[0] > places[-1]  # downward on paper is less often right
    assert drawn.caption.startswith("At γ = 0.048, ")
    said = float(re.findall(r"([\d.]+)%", drawn.caption)[0]) / 100
    assert said == pytest.approx(exact_share(VOTES, LABELS, 1 / 0.0482), abs=0.02)


def exact_share(votes: VoteHistogram, labels: np.ndarray, scale: float) -> float:
    """Return the chance that the noisy plurality is right, mean over queries, by summing over all noise."""
    steps = np.arange(-1200, 1201)
    weights = np.exp(-np.abs(steps) / scale)
    weights /= weights.sum()
    below = np.concatenate([[0.0], np.cumsum(weights)])
    found = []
    for counts, label in zip(votes.counts, labels, strict=True):
        chance = weights.copy()
        for other, count in enumerate(counts):
            if other != label:  # the lowest class wins ties
                nearer = steps + counts[label] - count + 1200 + (1 if label < other else 0)
                chance *= below[np.clip(nearer, 0, len(below) - 1)]
        found.append(chance.sum())
    return float(np.mean(found))


def test_figure_3_counts_every_query_once():
    drawn = gaps_figure(VOTES)
    ordered = np.sort(VOTES.counts, axis=1)
    gaps = (ordered[:, -1] - ordered[:, -2]) / 50
    bars = [float(mark.attrib["height"]) for mark in marks(drawn.svg, "fill-accent")]
    expected = np.histogram(gaps, bins=20, range=(0, 1))[0]
    assert np.allclose(np.array(bars) / max(bars), expected / expected.max(), atol=0.01)
    assert f"{np.median(gaps):.2f} of all teachers" in drawn.caption


def test_teachers_that_never_voted_are_left_out():
    ballots = BALLOTS.copy()
    ballots[0] = -1
    assert "From" in teachers_figure(PrivateStatistics(ballots, LABELS, 3)).caption
    with pytest.raises(InvalidDataError, match="every teacher abstained"):
        teachers_figure(PrivateStatistics(np.full((5, 40), -1), LABELS, 3))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"labels": LABELS[:-1]}, r"shape \(40,\), one per query"),
        ({"labels": LABELS.astype(float)}, "class indices"),
        ({"labels": LABELS + 1}, "from 0 to 2"),
        ({"labels": LABELS - 1}, "from 0 to 2"),
        ({"ballots": BALLOTS}, "Pass both"),
        ({"labels": LABELS, "ballots": BALLOTS[:, 1:]}, "Ballots must be of shape"),
    ],
)
def test_what_does_not_fit_is_refused_and_nothing_is_written(given, message, tmp_path):
    with pytest.raises(InvalidDataError, match=message):
        write_private_report(tmp_path / "a.html", VOTES, **given)
    assert list(tmp_path.iterdir()) == []


def test_no_votes_no_report(tmp_path):
    with pytest.raises(InvalidDataError, match="at least one query"):
        write_private_report(tmp_path / "a.html", VoteHistogram(np.zeros((0, 3), int), 50))
