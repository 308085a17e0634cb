"""Membership inference: who was trained on, told from the model by the likelihood-ratio attack, and the ε it disproves.

A target is anything that trains on some of the rows: one teacher, the votes of all without noise, or the whole of PATE
with its student. All are attacked by the same code. The result is about private rows and is for the data set owner.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import ceil, exp, sqrt
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, final, get_args

import numpy as np
import numpy.typing as npt
from scipy import special, stats
from sklearn.metrics import roc_curve

from tutelage._internal.progress import progress_bar
from tutelage._internal.typing import Array, FloatArray
from tutelage._internal.validation import integer_at_least, number_between, positive, probability
from tutelage.audit.one_run import epsilon_lower_bound
from tutelage.exceptions import InvalidDataError, InvalidParameterError
from tutelage.privacy import round_up
from tutelage.testing.laws import at_least
from tutelage_reproductions.figures import COLORS, blank, save
from tutelage_reproductions.record import share_interval

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Members = npt.NDArray[np.bool_]  # (runs, rows) or (rows,)
Train = Callable[[Members, int], Any]
Variant = Literal["online", "offline"]

_SHARED_RUNS = 16  # as so many runs of its own counts the spread that all rows share
_LEAST = 1e-6, 1e-2  # between these lies what a probability of 0 is taken for
_FLAT = 1e-6  # log odds; a spread below it is none
_FEWEST_GUESSES, _FEWEST_ALARMS = 8, 5
_PLANS = 40
_REPORTED = (0.001, 0.01)  # false positive rates
_AXIS_FROM, _POINTS = 3e-4, 120


@final
@dataclass(frozen=True, slots=True, eq=False)
class MembershipResult:
    """How well members are told from others; for the owner of the rows.

    Parameters
    ----------
    scores : array of shape (targets, rows)
        The higher, the more like a member.
    members : boolean array of shape (targets, rows)
        Rows that each target was trained on, chosen by fair coins.
    shadows : int
        Runs that the attacker learned from.
    variant : {"online", "offline"}
        Whether the attacker also saw runs with the row in.

    Raises
    ------
    InvalidDataError
        If there are not two runs of as many finite scores as coins, with members and others among them.
    """

    scores: FloatArray = field(repr=False)
    members: Members = field(repr=False)
    shadows: int
    variant: Variant

    def __post_init__(self) -> None:
        if self.scores.ndim != 2 or len(self.scores) < 2 or self.scores.shape != self.members.shape:
            raise InvalidDataError(
                "`scores` and `members` of MembershipResult must have one shape (targets, rows), of two targets at "
                f"least. Got {self.scores.shape} and {self.members.shape}."
            )
        if self.members.dtype != bool or self.members.all() or not self.members.any():
            raise InvalidDataError(
                "`members` of MembershipResult must be a mask of members and others. Take more rows or targets."
            )
        if not np.isfinite(self.scores).all():
            raise InvalidDataError("`scores` of MembershipResult must be finite.")

    @property
    def auc(self) -> float:
        """Probability that a member scores higher than another row, ties counting half; 0.5 is guessing."""
        return float(np.mean(_placements(self.scores, self.members)[self.members]))

    @property
    def interval(self) -> tuple[float, float]:
        """95 % confidence interval of `auc`, over rows and runs.

        DeLong's variance [1]_, except that placements of one row in several runs, and of all rows in one run, may go
        together: the variance is clustered both ways [2]_, and Student's quantile is that of the runs.

        References
        ----------
        .. [1] DeLong, DeLong and Clarke-Pearson, Biometrics 44 (1988).
        .. [2] Cameron, Gelbach and Miller, "Robust inference with multiway clustering", JBES 29 (2011), eq. 2.7.
        """
        runs, rows = self.scores.shape
        placed = _placements(self.scores, self.members)
        center = self.auc
        inside = int(self.members.sum())
        peers = np.where(self.members, inside, self.members.size - inside)
        pull: FloatArray = (placed - center) / peers
        by_run = float((pull.sum(axis=1) ** 2).sum()) * runs / (runs - 1)
        by_row = float((pull.sum(axis=0) ** 2).sum()) * rows / (rows - 1)
        variance = max(by_run + by_row - float((pull**2).sum()), by_run, by_row)
        half = float(stats.t.ppf(0.975, runs - 1)) * sqrt(variance)
        return max(0.0, center - half), min(1.0, center + half)

    def roc(self) -> tuple[FloatArray, FloatArray]:
        """Return false and true positive rates at every threshold, from (0, 0) to (1, 1), over all targets at once."""
        fpr: FloatArray
        tpr: FloatArray
        fpr, tpr, _ = roc_curve(self.members.ravel(), self.scores.ravel(), drop_intermediate=False)
        return fpr, tpr

    def tpr_at(self, fpr: float) -> float:
        """Return the largest share of members found while at most the share `fpr` of others is taken for members."""
        return _tpr(self.scores, self.members, probability(fpr, "fpr", "tpr_at"))

    def tpr_interval(self, fpr: float) -> tuple[float, float]:
        """Return the 95 % confidence interval of `tpr_at`, over runs of the target, by leaving out one at a time.

        It is at least as wide as that of Clopper and Pearson, which takes members for independent.
        """
        probability(fpr, "fpr", "tpr_interval")
        runs = len(self.scores)
        without = [
            _tpr(np.delete(self.scores, run, axis=0), np.delete(self.members, run, axis=0), fpr)
            for run in range(runs)
        ]
        half = float(stats.t.ppf(0.975, runs - 1)) * sqrt((runs - 1) * float(np.var(without)))
        center = self.tpr_at(fpr)
        inside = int(self.members.sum())
        low, high = share_interval(round(center * inside), inside)
        return max(0.0, min(low, center - half)), min(1.0, max(high, center + half))

    def epsilon_lower_bound(self, delta: float = 0.0, confidence: float = 0.95) -> float:
        """Return the largest ε such that the target is not (ε, δ)-private, at this confidence; 0 if no ε is refuted.

        Half of the runs choose whom to guess, so many rows most like members or least like them, and the other half
        is guessed once. At equal odds of being in, a guess on an ε-private output is right with probability at most
        e^ε/(1 + e^ε), whatever was guessed before, so at δ = 0 the bound is that of Clopper and Pearson on the share of
        right guesses; TPR/FPR is the odds of that share. Rows of one run share a model; this bound lets them.

        Parameters
        ----------
        delta : float
            δ of the claim, at least 0 and below 1.
        confidence : float
            Probability, at least, that a true claim is not contradicted.

        References
        ----------
        Steinke, Nasr and Jagielski, "Privacy auditing with one (1) training run", NeurIPS 2023, Theorem 5.2. Several
        runs are one run on more rows: each coin has a part in one of them only.
        """
        number_between(delta, 0, 1, "delta", "epsilon_lower_bound")
        probability(confidence, "confidence", "epsilon_lower_bound")
        half = len(self.scores) // 2
        share, inside = _best_guesses(self.scores[:half], self.members[:half], confidence)
        right = _guesses(self.scores[half:], self.members[half:], inside=inside)
        chosen = share * len(right)
        # Of those sure there, fewer may be sure here.
        guesses = ceil(max(chosen / 2, chosen - 2 * sqrt(chosen)))
        return epsilon_lower_bound(
            int(right[:guesses].sum()), guesses, len(right), delta, confidence
        )

    def as_dict(self, *, delta: float = 0.0, confidence: float = 0.95) -> dict[str, Any]:
        """Return the findings, without any row's, as plain values for JSON; ε bounded as by `epsilon_lower_bound`."""
        return {
            "attack": f"LiRA, {self.variant}",
            "shadows": self.shadows,
            "targets": len(self.scores),
            "rows": self.scores.shape[1],
            "auc": self.auc,
            "auc_interval": list(self.interval),
            "tpr_at_fpr": {f"{fpr:g}": self.tpr_at(fpr) for fpr in _REPORTED},
            "tpr_at_fpr_interval": {f"{fpr:g}": list(self.tpr_interval(fpr)) for fpr in _REPORTED},
            "epsilon_lower_bound": self.epsilon_lower_bound(delta, confidence),
            "delta": delta,
            "confidence": confidence,
        }

    def figure(self, *, epsilon: float | None = None, delta: float = 0.0) -> "RocFigure":
        """Return the ROC curve over logarithmic axes, and what a claim (`epsilon`, `delta`) allows at most."""
        return RocFigure(
            (RocPanel.of("Membership inference", {"attack": self}, epsilon=epsilon, delta=delta),)
        )


@final
@dataclass(frozen=True, slots=True)
class RocPanel:
    """ROC curves of several attacks."""

    title: str
    curves: dict[str, tuple[tuple[float, ...], tuple[float, ...]]]
    epsilon: float | None = None
    delta: float = 0.0

    @classmethod
    def of(
        cls,
        title: str,
        results: Mapping[str, MembershipResult],
        *,
        epsilon: float | None = None,
        delta: float = 0.0,
    ) -> "RocPanel":
        """Return the curves of `results`, by name, from where at least five other rows are taken for members."""
        if epsilon is not None:
            positive(epsilon, "epsilon", "RocPanel.of")
        number_between(delta, 0, 1, "delta", "RocPanel.of")
        curves: dict[str, tuple[tuple[float, ...], tuple[float, ...]]] = {}
        for name, result in results.items():
            fpr, tpr = result.roc()
            lowest = _FEWEST_ALARMS / np.count_nonzero(~result.members)
            rates = np.geomspace(min(1.0, max(lowest, _AXIS_FROM)), 1, _POINTS)
            found = tpr[np.searchsorted(fpr, rates, "right") - 1]
            curves[name] = (tuple(rates.tolist()), tuple(found.tolist()))
        return cls(title, curves, epsilon, delta)

    def allowed(self, fpr: FloatArray) -> FloatArray:
        """Return the largest true positive rates that the claim allows at false positive rates `fpr`; without one, 1.

        Kairouz, Oh and Viswanath 2015, arXiv:1311.0776v4, Theorem 2.1: both kinds of error are bounded.
        """
        if self.epsilon is None:
            return np.ones_like(fpr)
        few, many = (
            exp(self.epsilon) * fpr + self.delta,
            1 - exp(-self.epsilon) * (1 - self.delta - fpr),
        )
        return np.minimum(1, np.minimum(few, many))


class RocFigure(NamedTuple):
    """ROC curves over logarithmic axes, where few false alarms show; needs the report extra to be drawn."""

    panels: tuple[RocPanel, ...]

    def save(self, folder: Path, name: str) -> list[Path]:
        """Draw the figure into `folder` as png and svg, and return their paths."""
        canvas = blank(5.2 * len(self.panels), 5.6)
        for panel, axes in zip(
            self.panels, canvas.subplots(1, len(self.panels), squeeze=False)[0], strict=True
        ):
            _draw(axes, panel)
        return save(canvas, folder, name)


def _draw(axes: "Axes", panel: RocPanel) -> None:
    for place, (label, (fpr, tpr)) in enumerate(panel.curves.items()):
        # A rate of zero has no logarithm.
        shown = [rate if rate > 0 else float("nan") for rate in tpr]
        axes.plot(fpr, shown, color=COLORS[place % len(COLORS)], label=label, linewidth=1.5)
    rates = np.geomspace(_AXIS_FROM, 1, _POINTS)
    if panel.epsilon is not None:
        label = f"most that ε = {round_up(panel.epsilon, 2)} allows"
        axes.plot(rates, panel.allowed(rates), "--", color="0.35", linewidth=1, label=label)
    axes.plot(rates, rates, ":", color="0.35", linewidth=1.2, label="guessing")
    axes.set(
        xscale="log", yscale="log", xlim=(_AXIS_FROM, 1), ylim=(_AXIS_FROM, 1.1), title=panel.title
    )
    axes.set(
        xlabel="false positive rate: others taken for members",
        ylabel="true positive rate: members found",
    )
    axes.grid(alpha=0.3)
    axes.legend(
        loc="upper center",
        bbox_to_anchor=(0.5, -0.13),
        ncols=2,
        frameon=False,
        fontsize=8,
        handlelength=1.6,
        columnspacing=1.0,
    )


def membership_attack(
    train: Train,
    X: Any,
    y: npt.ArrayLike,
    *,
    shadows: int = 64,
    targets: int = 16,
    variant: Variant = "online",
    random_state: int = 0,
    progress: bool = False,
) -> MembershipResult:
    """Attack what `train` trains by the likelihood-ratio attack.

    Each shadow run trains on half of the rows, each row being in half of the shadow runs; per row, a Gaussian is fitted
    to the log odds of its own class over runs with it in, and over runs with it out [1]_. Its spread is drawn toward
    the spread that all rows share, where the paper takes one or the other: that finds more members of forests. Each
    target run trains on rows chosen by fair coins that the attacker does not see.

    Parameters
    ----------
    train : callable
        ``train(members, seed)`` trains on the rows of the boolean mask `members`, on randomness of its own from the
        integer `seed`, and returns a model with `predict_proba`. Rows that every run uses are part of the callable.
        It is an experiment, not a release: use `SimulationNoise(seed)`, and no ledger.
    X : array of shape (rows, ...)
        The rows that may be in or out, as the model takes them.
    y : array of shape (rows,)
        Their classes, among the `classes_` of the model, or its columns where it has no `classes_`.
    shadows : int
        Runs that the attacker learns from, at least 4.
    targets : int
        Runs that are attacked, at least 2.
    variant : {"online", "offline"}
        "online" compares a row in with a row out; "offline" knows runs with the row out only.
    random_state : int
        Seed of the coins and of the seeds that `train` gets.
    progress : bool
        Show a progress bar.

    Raises
    ------
    InvalidParameterError
        If a parameter is out of range.
    InvalidDataError
        If rows and classes do not belong together, or a model does not give probabilities.

    References
    ----------
    .. [1] Carlini, Chien, Nasr, Song, Terzis and Tramèr, "Membership inference attacks from first principles", IEEE
       S&P 2022, arXiv:2112.03570, section V and Algorithm 1.
    """
    owner = "membership_attack"
    for value, least, name in (
        (shadows, 4, "shadows"),
        (targets, 2, "targets"),
        (random_state, 0, "random_state"),
    ):
        integer_at_least(value, least, name, owner)
    _known_variant(variant, owner)
    classes = np.asarray(y)
    if classes.ndim != 1 or len(classes) < 2 or len(X) != len(classes):
        raise InvalidDataError(
            f"`X` and `y` of {owner} must have one entry per row, and two rows at least. Got {len(X)} rows and classes "
            f"of shape {classes.shape}."
        )
    random = np.random.default_rng(random_state)
    halves = np.broadcast_to(np.arange(shadows)[:, np.newaxis] % 2 == 0, (shadows, len(classes)))
    coins = random.random((targets, len(classes))) < 0.5
    members = np.concatenate([random.permuted(halves, axis=0), coins])
    seeds = random.integers(2**31, size=len(members)).tolist()
    runs = progress_bar(
        zip(members, seeds, strict=True), "Runs attacked", len(members), shown=progress
    )
    odds = _log_odds(
        np.stack([_confidences(train(mask.copy(), seed), X, classes) for mask, seed in runs]),
        shadows,
    )
    scores = lira_scores(odds[:shadows], members[:shadows], odds[shadows:], variant=variant)
    return MembershipResult(scores, members[shadows:], shadows, variant)


def _log_odds(probabilities: FloatArray, shadows: int) -> FloatArray:
    """Return log odds of own classes, a probability of 0 taken for half the least one that shadow runs gave."""
    seen = probabilities[:shadows]
    least = float(np.clip(seen[seen > 0].min(initial=1.0) / 2, *_LEAST))  # of a forest, half a tree
    return -np.diff(np.log(np.maximum(probabilities, least)), axis=2)[..., 0]


def lira_scores(
    shadows: FloatArray, members: Members, observed: FloatArray, *, variant: Variant = "online"
) -> FloatArray:
    """Return how much more likely each observation is of a member than of another row: Algorithm 1 and equation 4."""
    _known_variant(variant, "lira_scores")
    if (
        shadows.ndim != 2
        or members.shape != shadows.shape
        or observed.shape[1:] != shadows.shape[1:]
    ):
        raise InvalidDataError(
            "`shadows` and `members` of lira_scores must have shape (shadows, rows), and `observed` (targets, rows). "
            f"Got {shadows.shape}, {members.shape} and {observed.shape}."
        )
    if members.dtype != bool or not (members.any(axis=0) & (~members).any(axis=0)).all():
        raise InvalidDataError(
            "`members` of lira_scores must be a mask, each row in some shadow run and out of another. Make more runs."
        )
    out = _gaussian(shadows, ~members)
    away = (observed - out[0]) / out[1]
    if variant == "offline":
        return -special.log_ndtr(-away)
    inside = _gaussian(shadows, members)
    near = (observed - inside[0]) / inside[1]
    return (away**2 - near**2) / 2 + np.log(out[1] / inside[1])


def _gaussian(values: FloatArray, chosen: Members) -> tuple[FloatArray, FloatArray]:
    """Return the mean and the spread of each column over the chosen runs."""
    freedom = chosen.sum(axis=0) - 1
    mean = (values * chosen).sum(axis=0) / (freedom + 1)
    squares = (((values - mean) * chosen) ** 2).sum(axis=0)
    shared = squares.sum() / max(1, freedom.sum())
    return mean, np.sqrt((squares + _SHARED_RUNS * shared) / (freedom + _SHARED_RUNS)) + _FLAT


def _confidences(model: Any, X: Any, y: npt.NDArray[Any]) -> FloatArray:
    """Return the model's probability of each row's own class, and of all others, shape (rows, 2)."""
    found: FloatArray = np.asarray(model.predict_proba(X), dtype=np.float64)
    classes: Array = np.asarray(getattr(model, "classes_", range(found.shape[-1])))
    if found.shape != (len(y), len(classes)) or not (np.isfinite(found) & (found >= 0)).all():
        raise InvalidDataError(
            f"`predict_proba` of the model under attack must return {len(classes)} probabilities for each of "
            f"{len(y)} rows. Got shape {found.shape}, or values that are no probabilities."
        )
    own = classes == y[:, np.newaxis]
    return np.stack([np.where(mask, found, 0).sum(axis=1) for mask in (own, ~own)], axis=1)


def _placements(scores: FloatArray, members: Members) -> FloatArray:
    """Return for each member the share of others below it, and for each other the share of members above it."""
    inside, outside = scores[members], scores[~members]
    placed = np.empty(scores.shape)
    for mask, others, sign in ((members, outside, 1), (~members, inside, -1)):
        ranked, mine = np.sort(sign * others), sign * scores[mask]
        below = np.searchsorted(ranked, mine, "left") + np.searchsorted(ranked, mine, "right")
        placed[mask] = below / (2 * len(others))
    return placed


def _tpr(scores: FloatArray, members: Members, at: float) -> float:
    fpr, tpr, _ = roc_curve(members.ravel(), scores.ravel(), drop_intermediate=False)
    return float(tpr[fpr <= at].max())


def _guesses(scores: FloatArray, members: Members, *, inside: bool) -> Members:
    """Return whether guesses are right, the surest first: that a row is in, or that it is out."""
    order = np.argsort(-scores.ravel() if inside else scores.ravel(), kind="stable")
    return members.ravel()[order] == inside


def _best_guesses(scores: FloatArray, members: Members, confidence: float) -> tuple[float, bool]:
    """Return which share of rows to guess, and whether as members, for the largest lower bound here."""
    # Of so many, few guesses are the best by luck.
    best, level = (-1.0, 1.0, True), (1 - confidence) / (2 * _PLANS)
    for inside in (True, False):
        right = np.cumsum(_guesses(scores, members, inside=inside).astype(np.int64))
        for guesses in np.unique(
            np.geomspace(min(_FEWEST_GUESSES, len(right)), len(right), _PLANS).astype(int)
        ):
            least = float(at_least(right[guesses - 1], int(guesses), level))
            best = max(best, (least, float(guesses) / len(right), inside))
    return best[1:]


def _known_variant(variant: str, owner: str) -> None:
    if variant not in get_args(Variant):
        raise InvalidParameterError(f"{owner}.variant", "be 'online' or 'offline'", f"{variant!r}")
