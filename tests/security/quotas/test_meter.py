"""The meter of one quota: the usage that it allows in the long run, whatever the size of the requests, and the throttle time that it
gives."""

from __future__ import annotations

import pytest

from ottla.security.quotas.meter import PARTS, Meter
from ottla.security.quotas.rates import Windows

LIMIT = 100_000.0
KAFKA_WINDOWS, SPAN_S = Windows(11, 1000), 10
SETTLED_S, MEASURED_S = 33, 220
SECONDS_WORTH = (0.05, 0.7, 1.5, 3.0, 7.0)


def meter_of(windows: Windows = KAFKA_WINDOWS) -> Meter:
    meter = Meter(windows, 0, has_bucket=True)
    meter.set_limit(LIMIT)
    return meter


class Reader:
    """A consumer that fetches as soon as it may, from a log of equal batches. Each answer has as many batches as the quota allows, and at
    least one."""

    def __init__(self, batch: float, bytes_max: float, windows: Windows = KAFKA_WINDOWS) -> None:
        self.meter = meter_of(windows)
        self.batch, self.bytes_max = batch, bytes_max
        self.answers: list[tuple[int, float]] = []
        self.request_count = 0

    def run(self, until_ms: int, turn_ms: int = 1) -> Reader:
        now_ms = 0
        while now_ms < until_ms:
            self.request_count += 1
            count = max(int(min(self.bytes_max, self.meter.most(now_ms)) // self.batch), 1)
            throttle_ms = self.meter.admit(count * self.batch, now_ms)
            if not throttle_ms:
                self.answers.append((now_ms, count * self.batch))
            now_ms += throttle_ms + turn_ms
        return self

    def share(self, from_s: int, to_s: int) -> float:
        """Returns the amount that was read within this time, divided by the amount that the limit allows."""
        used = sum(size for at_ms, size in self.answers if 1000 * from_s <= at_ms < 1000 * to_s)
        return used / (LIMIT * (to_s - from_s))


@pytest.mark.parametrize("seconds", SECONDS_WORTH)
def test_a_consumer_of_large_batches_gets_its_limit_in_the_long_run(seconds: float) -> None:
    reader = Reader(seconds * LIMIT, seconds * LIMIT).run(1000 * (SETTLED_S + MEASURED_S))
    assert reader.share(SETTLED_S, SETTLED_S + MEASURED_S) == pytest.approx(1, abs=0.05)


@pytest.mark.parametrize("seconds", SECONDS_WORTH)
@pytest.mark.parametrize("windows", [Windows(2, 1000), KAFKA_WINDOWS, Windows(4, 500)], ids=lambda windows: f"{windows.span_ms} ms")
def test_large_answers_of_small_batches_are_cut_to_what_there_is_room_for(seconds: float, windows: Windows) -> None:
    reader = Reader(0.04 * LIMIT, seconds * LIMIT, windows).run(1000 * (SETTLED_S + MEASURED_S), turn_ms=5)
    assert reader.share(SETTLED_S, SETTLED_S + MEASURED_S) == pytest.approx(1, abs=0.05)


def test_a_consumer_at_its_limit_makes_few_requests() -> None:
    reader = Reader(0.04 * LIMIT, 10 * LIMIT).run(1000 * MEASURED_S)
    assert reader.request_count < 2 * PARTS / SPAN_S * MEASURED_S


@pytest.mark.parametrize("seconds", [0.1, 1.0, 3.0])
def test_windows_are_never_used_for_more_than_their_span_and_one_answer(seconds: float) -> None:
    reader = Reader(seconds * LIMIT, 10 * LIMIT).run(1000 * MEASURED_S)
    for first in range(MEASURED_S - SPAN_S):
        assert reader.share(first, first + SPAN_S) <= 2.2 + seconds / SPAN_S, "windows that were idle, and those after them"
    assert reader.share(0, SPAN_S) <= 1.1 + seconds / SPAN_S


@pytest.mark.parametrize("seconds", SECONDS_WORTH)
def test_a_producer_of_large_requests_is_held_to_its_limit_in_the_long_run(seconds: float) -> None:
    meter, sent, now_ms = meter_of(), 0.0, 0
    while now_ms < 1000 * (SETTLED_S + MEASURED_S):
        throttle_ms = meter.use(seconds * LIMIT, now_ms)
        sent += seconds * LIMIT if now_ms >= 1000 * SETTLED_S else 0
        now_ms += max(throttle_ms, 1)
    assert sent / (LIMIT * MEASURED_S) == pytest.approx(1, abs=0.05)


def test_one_window_lets_a_consumer_begin() -> None:
    assert meter_of(Windows(1, 1000)).admit(LIMIT / PARTS, 0) == 0


def test_another_limit_forgives_bytes_that_are_owed_and_not_changes_of_the_cluster() -> None:
    for keeps_debts, throttle_ms in ((False, 0), (True, 1000)):
        meter = Meter(KAFKA_WINDOWS, 0, has_bucket=True, keeps_debts=keeps_debts)
        meter.set_limit(1000)
        meter.use(21_000, 0)
        meter.set_limit(10_000)
        assert meter.use(0, 0) == throttle_ms


def test_the_average_is_that_of_the_requests_that_were_throttled_lately() -> None:
    meter = Meter(Windows(2, 1000), 0)
    assert meter.throttle_time_ms(0) == 0
    meter.note_throttle(100, 0)
    meter.note_throttle(300, 0)
    assert meter.throttle_time_ms(500) == 200
    assert meter.throttle_time_ms(2000) == 0
