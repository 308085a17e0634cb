"""A plan as the choice of a method, for a release that is prepared."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import final

from tutelage.exceptions import InvalidParameterError
from tutelage.methods import Method, Sizes, proposals
from tutelage.methods.choice import Known
from tutelage.planning.planner import plan
from tutelage.planning.recommendation import Plan
from tutelage.privacy import ONE_TEACHER
from tutelage.targets import Goal


def require_judged(goal: str, *, weighted: bool) -> None:
    """Refuse a goal, or class weights of their own, by which no plan judges."""
    if weighted or Goal(goal).ranks:
        raise InvalidParameterError(
            "PATEClassifier.goal",
            "be accuracy or balanced_accuracy, without $class_weight, because a plan judges by these",
            fix="Change it, or set a $method, such as NoisyMoments.",
        )


@final
@dataclass(slots=True)
class Planned:
    """Choose the method of a release by a plan: ``model.prepare(X, y, X_public=P, y_public=z, choose=Planned())``.

    The plan tries methods on the labeled public rows; no private label or cell enters it.

    Parameters
    ----------
    people : int, optional
        About how many people there are, which becomes public. Default: the number of rows, where each is a person.
    despite_plan : bool
        Take the best method even if the plan expects no gain, or cannot tell.
    progress : bool
        Show a progress bar. Trial runs take up to a minute.
    decide : function, optional
        Gets the plan, and returns whether to release although it recommends nothing. Default: what `despite_plan` says.

    Attributes
    ----------
    found : Plan or None
        The plan, or None if there was none: a release that was begun goes on with its method.

    Raises
    ------
    InvalidParameterError
        If the plan recommends no release, or there is nothing to plan by. Nothing was spent then.
    """

    people: int | None = None
    despite_plan: bool = False
    progress: bool = False
    decide: Callable[[Plan], bool] | None = None
    found: Plan | None = field(default=None, init=False)

    def candidates(self, known: Known) -> Sequence[Method]:
        """Return the methods that a plan chooses from."""
        people = self.people or known.people
        if people is None:
            return ()
        sizes = Sizes(n_classes=known.n_classes, n_public=len(known.rows), unit=ONE_TEACHER)
        return proposals(people, sizes, named=known.named)

    def __call__(self, known: Known) -> Method:
        """Return the method that a plan recommends."""
        self.found = self._plan(known)
        anyway = self.despite_plan if self.decide is None else self.decide(self.found)
        return self.found.parameters(despite_plan=anyway)["method"]

    def _plan(self, known: Known) -> Plan:
        people = self.people or known.people
        if people is None or known.epsilon is None:
            name = "people" if people is None else "epsilon"
            raise InvalidParameterError(
                f"Planned.{name}", "be known, because a plan follows from it"
            )
        if known.labels is None:
            raise InvalidParameterError(
                "PATEClassifier.fit.y_public",
                "be passed, because a plan tries methods on labeled public rows",
            )
        require_judged(known.goal, weighted=known.weighted)
        labeled = known.labels >= 0
        return plan(
            known.epsilon,
            people=people,
            X_public=known.rows[labeled],
            y_public=known.labels[labeled],
            features=known.features,
            goal=known.goal,
            delta=known.delta,
            unit=known.unit.name if known.people is None else None,
            named=known.named,
            progress=self.progress,
        )
