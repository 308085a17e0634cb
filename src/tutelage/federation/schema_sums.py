"""Sums that a method asks for over a public schema, one after another: each depends on those that were opened before.

A batch holds the sums that were opened, as whole numbers and nothing else. Each member lets the method ask again by
these, as after a crash of a fit (`tutelage.methods`), and so comes to the ballot that is asked next by itself.
"""

from collections.abc import Collection
from functools import cached_property
from typing import Any, final

import numpy as np
import numpy.typing as npt
from sklearn.pipeline import Pipeline

from tutelage._internal.records import made, parse
from tutelage._internal.typing import IntArray
from tutelage.events import SummedNoise
from tutelage.exceptions import ForgedMessageError, InvalidParameterError
from tutelage.federation.batches import Batch
from tutelage.federation.schemes import Draft
from tutelage.federation.sums import OpenedSum, SchemaRound, SharedSums, noise_of
from tutelage.ledger import Ledger
from tutelage.mechanisms import NoisySum
from tutelage.methods import Additive, Public
from tutelage.methods.requests import Answer, Request, driven

_MOST = 2.0**50  # of a number of a sum: far beyond honest ones, and scores by it are finite


@final
class SchemaSums(SharedSums):
    """The sums of `Additive`: ballots follow from a schema of the terms, and no row is public."""

    def check_ballots(self) -> None:
        """Refuse terms that say of ballots what follows from the schema, or do not say how many people there are."""
        if self.terms.teacher is not None or type(self.mechanism) is not NoisySum:
            raise InvalidParameterError("With `schema`, Consortium needs a plain NoisySum. Leave out `teacher`.")
        super().check_ballots()

    @cached_property
    def public(self) -> Public:
        """All that the method may look at: the schema and what the members agreed on."""
        schema: Any = self.terms.schema
        nobody, classes = np.empty((0, len(schema.names))), np.arange(self.terms.n_classes)
        return Public(
            rows=nobody, teacher_rows=nobody, student_rows=nobody, classes=classes, question="", unit=self.terms.unit,
            simulated=False, n_teachers=sum(self.terms.people), seed=0, schema=schema,
        )  # fmt: skip

    @property
    def events(self) -> tuple[SummedNoise, ...]:
        """The most that opening each sum is."""
        whole = Additive(self.mechanism).event_of_sums(self.public.sizes)
        return tuple(self._shared(one.event) for one in whole.flatten())

    def event_asked(self, asked: Any) -> SummedNoise:
        """Return the event of opening the sum of one round."""
        return self._shared(asked.request.mechanism.most(asked.request.form, simulated=False))

    def _shared(self, event: Any) -> SummedNoise:
        return SummedNoise(event, self.terms.honest)

    def round_of(self, batch: Batch) -> SchemaRound:
        """Return the round that a batch asks, after checking that it is one under these terms."""
        row = batch.rows.tobytes() if batch.rows.dtype == np.uint8 and batch.rows.ndim == 2 else b""
        opened = made(parse(row, "opened sums", _damaged()), dict[str, tuple[OpenedSum, ...]], _damaged())
        if opened.keys() != {"sums"} or len(opened["sums"]) >= len(self.events):
            raise _damaged()
        return self._after(opened["sums"])

    def round_after(self, asked: Any, total: IntArray, entities: Collection[str]) -> SchemaRound:
        """Return the next round; after the last sum the last round again, with the final student."""
        return self._after((*asked.earlier, OpenedSum(tuple(entities), tuple(total.ravel().tolist()))))

    def _after(self, opened: tuple[OpenedSum, ...]) -> SchemaRound:
        """Let the method ask by what was opened; sums that were not count as zeros, of which it learns nothing."""
        asked, left = list[Request](), [*opened]

        def answer_to(request: Request) -> Answer:
            asked.append(request)
            event = self._shared(request.mechanism.most(request.form, simulated=False))
            if left:
                return self._answer(left.pop(0), event)
            return Answer(np.zeros((1, event.variables), dtype=np.int64), event, 0.0)

        try:
            outcome = driven(Additive(self.mechanism).steps(self.public), answer_to, lambda one: one.make())
        except (ValueError, ArithmeticError):
            raise _damaged() from None
        classifier = Pipeline([("schema", self.public.schema), ("classifier", outcome.student)])
        return SchemaRound(opened, asked[min(len(opened), len(asked) - 1)], classifier)

    def _answer(self, opened: OpenedSum, event: SummedNoise) -> Answer:
        """Return a sum as if all people had cast ballots: those of the hospitals that did stand for all."""
        known = [entity.name for entity in self.terms.entities if entity.name in opened.entities]
        if not known or len(opened.entities) != len(known) or len(opened.values) != event.variables:
            raise _damaged()
        scale = sum(self.terms.people) / self.people_of(known)
        values = np.rint(np.array(opened.values, dtype=np.float64) * scale)
        if not np.abs(values).max() <= _MOST:
            raise _damaged()
        return Answer(values.astype(np.int64)[np.newaxis], event, 0.0, noise_of(event, known) * scale)

    def drafts(self, rows: Any, ledger: Ledger | None) -> list[Draft]:  # noqa: ARG002
        """Return all rounds; there are no rows to ask about."""

        def row_after(last: SchemaRound | None) -> npt.NDArray[np.uint8]:
            return (last or self._after(())).to_row()

        return self._drafts(self.terms.fingerprint, row_after)


def _damaged() -> ForgedMessageError:
    return ForgedMessageError("A batch holds no sums that could have been opened under these terms.")
