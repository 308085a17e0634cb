"""The result of planning: options, a frontier and a plan, as plain values, a table and a configuration."""

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, final

import numpy as np

from tutelage.mechanisms import ConfidentGNMax, GNMax, Mechanism
from tutelage.mechanisms.registry import CENTRAL, Entry
from tutelage.planning.calibration import Planned
from tutelage.privacy import PublicEpsilon, round_up
from tutelage.reporting.lints import Finding

if TYPE_CHECKING:
    from rich.table import Table

_SHOWN = 11


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class VotesOption:
    """One number of teachers with the noise that keeps the target; all of it is public.

    Parameters
    ----------
    teachers : int
        Number of teachers.
    rows_per_teacher : float
        Private rows over their number.
    mechanism : Mechanism
        How votes are released, its noise in votes.
    queries : int
        Public rows to ask about.
    answers : float
        Expected number of labels.
    teacher_accuracy, right_without_noise, right : float
        Expected accuracy of one teacher, and shares of right labels, if there were no noise and as released.
    """

    teachers: int
    rows_per_teacher: float
    mechanism: Planned
    queries: int
    answers: float
    teacher_accuracy: float
    right_without_noise: float
    right: float

    @property
    def entry(self) -> Entry[Mechanism]:
        """What users call the mechanism and its settings."""
        return next(entry for entry in CENTRAL.values() if entry.kind is type(self.mechanism))

    def in_short(self) -> str:
        """Return the mechanism in one short line: threshold T, noise σ (of the check first) or b, all in votes."""
        match self.mechanism:
            case GNMax(sigma=sigma):
                return f"gnmax σ {sigma:.4g}"
            case ConfidentGNMax(threshold=threshold, sigma_threshold=check, sigma_vote=vote):
                return f"confident T {threshold:g} σ {check:.4g}/{vote:.4g}"
        return f"{self.entry.name} b {self.mechanism.scale:.4g}"

    def as_dict(self) -> dict[str, Any]:
        """Return the option as plain values, for JSON."""
        values = asdict(self)
        settings = values.pop("mechanism")
        return {**values, "mechanism": {"name": self.entry.name, **settings}}


@final
@dataclass(frozen=True, slots=True)
class VotesPoint:
    """Expected share of right labels for a number of teachers, at an ε that is estimated to a few percent."""

    teachers: int
    epsilon: float
    right: float


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class VotesPlan:
    """A recommendation for a target (ε, δ), with alternatives and the expected accuracy of the labels.

    Parameters
    ----------
    target_epsilon, label_accuracy : float
        Target ε and share of right labels.
    recommended : VotesOption
        The option to take.
    options : tuple of VotesOption
        Other numbers of teachers, and the mechanisms that were compared, at the same ε and number of answers.
    epsilon : PublicEpsilon
        Proved ε of the recommended option, whatever the votes turn out to be.
    private_epsilon : float
        What the exact ε by the votes would be if the votes were as expected. It is computed from public assumptions;
        the same number of real votes must not be published.
    frontier : tuple of VotesPoint
        Accuracy against ε for several numbers of teachers.
    assumptions : tuple of str
        What the expectations rest on.
    obstacle : str or None
        Why the targets cannot both be met and what would work, in one sentence; None if they can.
    findings : tuple of Finding
        What a privacy officer would object to.
    """

    target_epsilon: float
    label_accuracy: float
    recommended: VotesOption
    options: tuple[VotesOption, ...]
    epsilon: PublicEpsilon
    private_epsilon: float
    frontier: tuple[VotesPoint, ...]
    assumptions: tuple[str, ...]
    obstacle: str | None
    findings: tuple[Finding, ...]

    @property
    def possible(self) -> bool:
        """Whether the recommended option is expected to reach the target share of right labels."""
        return self.obstacle is None

    def as_dict(self) -> dict[str, Any]:
        """Return the plan as plain values, for JSON."""
        return {
            "possible": self.possible,
            "obstacle": self.obstacle,
            "target_epsilon": self.target_epsilon,
            "epsilon": self.epsilon.epsilon,
            "delta": self.epsilon.delta,
            "epsilon_method": self.epsilon.method,
            "private_epsilon_if_votes_are_as_expected": self.private_epsilon,
            "label_accuracy": self.label_accuracy,
            "recommended": self.recommended.as_dict(),
            "options": [option.as_dict() for option in self.options],
            "frontier": [asdict(point) for point in self.frontier],
            "assumptions": list(self.assumptions),
            "findings": [asdict(finding) for finding in self.findings],
        }

    def as_table(self) -> "Table":
        """Return the options as a rich table, the recommended one in bold."""
        from rich.box import SIMPLE_HEAD
        from rich.table import Table

        title = f"ε = {round_up(self.target_epsilon):g} at δ = {self.epsilon.delta:g}, worst case"
        caption = (
            "Expected share of right labels: of one teacher, of all teachers without noise, and as released. T is the "
            "threshold; σ and b are the noise in votes, of the check and then of the label."
        )
        table = Table(title=title, title_justify="left", caption=caption, caption_justify="left", box=SIMPLE_HEAD)
        table.padding, table.pad_edge = (0, 1, 0, 0), False
        for heading in ("teachers", "rows", "mechanism", "asked", "one", "all", "labels"):
            table.add_column(heading, justify="left" if heading == "mechanism" else "right", no_wrap=True)
        for option in _shown(self.options, self.recommended):
            sizes = f"{option.teachers:,}", f"{option.rows_per_teacher:,.4g}", option.in_short(), f"{option.queries:,}"
            shares = (option.teacher_accuracy, option.right_without_noise, option.right)
            style = "bold" if option == self.recommended else None
            table.add_row(*sizes, *(f"{share:.1%}" for share in shares), style=style)
        return table

    def as_config(self) -> str:
        """Return the sections of a configuration of ``tutelage run`` that this plan settles, as TOML."""
        entry = self.recommended.entry
        settings = entry.settings_of(self.recommended.mechanism)
        lines = [f'name = "{entry.name}"', *(f"{name} = {value}" for name, value in settings.items())]
        return (
            f"[teachers]\nnumber = {self.recommended.teachers}\n\n[mechanism]\n" + "\n".join(lines) + "\n\n"
            f"[public]\nqueries = {self.recommended.queries}\n\n[privacy]\ndelta = {self.epsilon.delta}\n"
        )


def _shown(options: tuple[VotesOption, ...], recommended: VotesOption) -> list[VotesOption]:
    """Return the options of plain Gaussian noise whose teachers are about as many as recommended, and all others."""
    near = sorted(options, key=lambda option: abs(np.log(option.teachers / recommended.teachers)))[:_SHOWN]
    return [option for option in options if option in near or not isinstance(option.mechanism, GNMax)]
