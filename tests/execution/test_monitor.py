from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest
from tests.monitoring.runs import Clock

from dovetail.core.metrics import Estimate, Moment
from dovetail.core.rows import Arrival, End, Event, Phase, Side, Stall
from dovetail.execution.in_process import Step
from dovetail.execution.monitor import JoinMonitor
from dovetail.operators.protocol import Usage

BATCH = pa.RecordBatch.from_pydict({"k": [1, 2, 3]})
LEFT, RIGHT = Arrival(Side.LEFT, BATCH), Arrival(Side.RIGHT, BATCH)


class Scene:
    """A join in which a test controls the times of events and the duration of work."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.told: list[Moment] = []
        self.witness = JoinMonitor(self.told.append, ("l", "r"), self.clock)
        self.clock.now = 100.0  # a join may start long after it was created
        self.witness.meet(lambda: Usage(7, 0, 8, 0), lambda: Estimate(9.0, 8.0, 10.0, 0.95))

    def play(self, *script: tuple[float, Event, float]) -> Moment:
        """Each entry: the wait before an event, the event, and the time to handle it."""

        def events() -> Iterator[Event]:
            for waited, event, _ in script:
                self.clock.now += waited
                yield event

        for (_, _, worked), _ in zip(script, self.witness.events(events()), strict=True):
            self.clock.now += worked
        self.witness.tell()
        return self.told[-1]

    @property
    def states(self) -> list[str]:
        return [source.state for source in self.told[-1].sources]


def test_time_is_accounted_for() -> None:
    scene = Scene()
    last = scene.play((0.2, LEFT, 1.0), (0.1, RIGHT, 2.0), (0.03, Stall(), 4.0), (8.0, LEFT, 0.5), (0.1, RIGHT, 0.5))
    assert last.seconds == pytest.approx(
        {"preparing": 0.2, "arriving": 1.0 + 0.1 + 2.0 + 0.03 + 0.5 + 0.1 + 0.5, "reactive": 4.0, "waiting": 8.0}
    )
    assert [(source.name, source.rows) for source in last.sources] == [("l", 6), ("r", 6)]
    assert (last.resident_rows, last.spilled_rows, last.estimate) == (7, 8, Estimate(9.0, 8.0, 10.0, 0.95))


def test_gaps_between_batches_are_accounted_for_and_not_told() -> None:
    scene = Scene()
    gap = (0.0, Stall(is_short=True), 0.004)
    last = scene.play((0.0, LEFT, 0.001), *[gap, (0.002, RIGHT, 0.001), gap, (0.002, LEFT, 0.001)] * 50)
    assert last.seconds == pytest.approx({"preparing": 0.0, "arriving": 0.101, "reactive": 0.4, "waiting": 0.2})
    assert len(scene.told) <= 20
    assert scene.states == ["arriving", "arriving"]


def test_it_is_told_before_it_may_take_long() -> None:
    """A snapshot taken while the join waits for an event, or handles one, shows the current phase."""
    scene = Scene()
    seen = []

    def events() -> Iterator[Event]:
        for event in (LEFT, Stall(), LEFT, End(Side.LEFT), End(Side.RIGHT)):
            seen.append((scene.told[-1].phase, scene.states) if scene.told else None)
            yield event

    handled = [(scene.told[-1].phase, scene.states) for _ in scene.witness.events(events())]
    assert seen[:3] == [None, ("arriving", ["arriving", "arriving"]), ("waiting", ["stalled", "stalled"])]
    assert handled == [
        ("arriving", ["arriving", "arriving"]),
        ("reactive", ["stalled", "stalled"]),
        ("arriving", ["arriving", "stalled"]),
        ("arriving", ["arriving", "stalled"]),
        ("cleanup", ["ended", "ended"]),
    ]


def test_a_source_is_stalled_if_only_the_other_gives_rows() -> None:
    scene = Scene()
    scene.play((0.0, RIGHT, 0.0), *[(0.2, LEFT, 0.0)] * 4)
    assert scene.states == ["arriving", "stalled"]
    scene.play((0.1, RIGHT, 0.0))
    assert scene.states == ["arriving", "arriving"]
    scene.play((0.0, End(Side.RIGHT), 0.0), *[(0.2, LEFT, 0.0)] * 9, (0.1, Stall(), 0.0))
    assert scene.states == ["stalled", "ended"]


def test_a_join_that_is_busy_says_nothing_of_its_sources() -> None:
    scene = Scene()
    scene.play((0.0, LEFT, 60.0), (0.0, LEFT, 60.0), (0.0, RIGHT, 0.0))
    assert scene.states == ["arriving", "arriving"]


def test_not_more_often_than_anybody_can_see() -> None:
    scene = Scene()
    for _ in range(1000):
        scene.clock.now += 0.001
        scene.witness.record_results(Phase.ARRIVING, 2)
    assert 15 <= len(scene.told) <= 25
    scene.witness.record_results(Phase.CLEANUP, 5)
    scene.witness.tell()
    assert scene.told[-1].found == {"arriving": 2000, "cleanup": 5}


def test_steps_of_which_nothing_else_is_known() -> None:
    told: list[Moment] = []
    estimate = Estimate(9.0, 8.0, 10.0, 0.95)
    steps = [Step(BATCH, Phase.CLEANUP, 3 * n, estimate) for n in (1, 2)]
    assert list(JoinMonitor(told.append).steps(steps)) == steps
    assert (told[-1].results, told[-1].estimate, told[-1].resident_rows) == (6, estimate, None)
