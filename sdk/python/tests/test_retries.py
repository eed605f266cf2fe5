"""What is sent again, what is not, and after how long."""

from __future__ import annotations

import io
import sys
import threading
from datetime import datetime, timedelta, timezone
from email.utils import format_datetime
from typing import Any

import pytest
from conftest import Answer, Driver, Server, Waits, settle

from pandastack import (
    APITimeoutError,
    CapacityError,
    ConnectionError,
    CreateCancelled,
    CreateRetryEvent,
    NotFoundError,
    Progress,
    RateLimitError,
    ServerError,
)
from pandastack._retry import CreateWait, create_delay, parse_retry_after
from pandastack.exceptions import error_from_answer

BOX = Answer(201, {"id": "box", "status": "running"})
NO_ROOM = Answer(503, {"error": "no compute capacity available", "code": "unavailable"}, {"Retry-After": "5"})


def create(client: Any) -> Any:
    return client.sandboxes.create(template="minimal")


@pytest.mark.parametrize(
    ("refusal", "least"),
    [
        (NO_ROOM, 5.0),
        (Answer(429, {"error": "too often"}, {"Retry-After": "1"}), 1.0),
        (Answer(507, {"error": "no storage"}), 0.5),
        (Answer(507, b"not even JSON"), 0.5),
    ],
)
def test_refused_creations_are_sent_again(driver: Driver, waits: list[float], refusal: Answer, least: float) -> None:
    driver.server.answers = [refusal, refusal, BOX]
    seen: list[CreateRetryEvent] = []
    assert driver.run(create, on_create_retry=seen.append).id == "box"
    assert len(driver.server.requests) == 3
    assert least <= waits[0] <= least + 1 and least <= waits[1] <= least + 2
    assert [event.attempt for event in seen] == [1, 2]
    assert seen[0].status_code == refusal.status and seen[0].delay_seconds == waits[0]


@pytest.mark.parametrize(
    "refusal",
    [
        Answer(503, {"error": "no"}),
        Answer(503, b"a proxy's own", {"Retry-After": "5", "Content-Type": "text/plain"}),
        Answer(503, {"error": {"nested": "object"}}, {"Retry-After": "5"}),
        Answer(429, {"error": "quota: 10 sandboxes"}),
        Answer(500, {"error": "broken"}, {"Retry-After": "1"}),
        Answer(502, {"error": "gone"}),
        Answer(504, {"error": "slow"}),
        Answer(503, {"error": "much later"}, {"Retry-After": "61"}),
    ],
)
def test_what_may_have_made_a_sandbox_is_not(driver: Driver, waits: list[float], refusal: Answer) -> None:
    driver.server.answers = [refusal]
    with pytest.raises((ServerError, RateLimitError)) as raised:
        driver.run(create)
    assert raised.value.status == refusal.status
    assert len(driver.server.requests) == 1 and waits == []


def test_forks_are_creations(driver: Driver, waits: list[float]) -> None:
    driver.server.answers = [NO_ROOM, Answer(201, {"children": [{"id": "a"}, {"id": "b"}]})]
    assert [one.id for one in driver.sandbox(lambda box: box.fork_tree(2))] == ["a", "b"]
    assert [one.json for one in driver.server.requests] == [{"count": 2}, {"count": 2}]
    driver.server.answers = [NO_ROOM, Answer(201, {"sandbox": {"id": "a"}})]
    assert driver.sandbox(lambda box: box.fork()).id == "a"
    assert [one.body for one in driver.server.requests] == [b"", b""]


def test_other_requests_are_not_sent_again_for_lack_of_room(driver: Driver, waits: list[float]) -> None:
    driver.server.answers = [NO_ROOM]
    with pytest.raises(CapacityError):
        driver.run(lambda client: client.volumes.create("data"))
    assert len(driver.server.requests) == 1


def test_the_budget_ends(driver: Driver, waits: list[float]) -> None:
    driver.server.answers = [NO_ROOM]
    with pytest.raises(CapacityError) as raised:
        driver.run(create, max_create_retry_seconds=30)
    assert raised.value.retry_after == 5
    assert 2 <= len(waits) <= 6 and sum(waits) <= 30
    driver.server.requests.clear()
    with pytest.raises(CapacityError):
        driver.run(create, max_create_retry_seconds=0)
    assert len(driver.server.requests) == 1


def test_the_budget_comes_from_the_environment(driver: Driver, waits: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    driver.server.answers = [NO_ROOM]
    monkeypatch.setenv("PANDASTACK_MAX_CREATE_RETRY_SECONDS", "0")
    with pytest.raises(CapacityError):
        driver.run(create)
    assert waits == []
    monkeypatch.setenv("PANDASTACK_MAX_CREATE_RETRY_SECONDS", "soon")
    driver.server.answers = [NO_ROOM, BOX]
    assert driver.run(create).id == "box"
    with pytest.raises(ValueError, match="max_create_retry_seconds"):
        driver.run(create, max_create_retry_seconds=-1)


def test_cancelling(driver: Driver, waits: list[float]) -> None:
    driver.server.answers = [NO_ROOM]
    # An asyncio.Event would need its loop; both have `is_set`, which is what is looked at between attempts.
    cancel = threading.Event()
    with pytest.raises(CreateCancelled) as raised:
        driver.run(
            lambda client: client.sandboxes.create(template="minimal", cancel=cancel),
            on_create_retry=lambda event: cancel.set(),
        )
    assert isinstance(raised.value.__cause__, CapacityError)
    assert len(driver.server.requests) == 1
    with pytest.raises(CreateCancelled):
        driver.run(lambda client: client.sandboxes.create(template="minimal", cancel=cancel))
    assert len(driver.server.requests) == 1


def test_a_404_is_asked_for_once_more(driver: Driver, waits: list[float]) -> None:
    gone = Answer(404, {"error": "no such sandbox", "code": "not_found"})
    driver.server.answers = [gone, Answer(200, {"id": "box"})]
    assert driver.run(lambda client: client.sandboxes.get("box")).id == "box"
    assert waits == [0.2]
    driver.server.answers = [gone]
    driver.server.requests.clear()
    with pytest.raises(NotFoundError):
        driver.run(lambda client: client.sandboxes.delete("box"))
    assert [one.method for one in driver.server.requests] == ["DELETE", "DELETE"]
    driver.server.requests.clear()
    with pytest.raises(NotFoundError):
        driver.sandbox(lambda box: box.hibernate())
    assert [one.method for one in driver.server.requests] == ["POST"]


@pytest.mark.parametrize("words", ["dial: connect: connection refused", "no route to host", "read: i/o timeout"])
def test_a_guest_that_wakes_up_is_waited_for(driver: Driver, waits: list[float], words: str) -> None:
    asleep = Answer(502, {"error": words})
    driver.server.answers = [asleep, asleep, asleep, Answer(200, {"stdout": "hi\n", "exit_code": 0})]
    # The first answer of `sandbox` goes to getting it.
    assert driver.sandbox(lambda box: box.exec("echo hi")).stdout == "hi\n"
    assert waits == [0.5, 0.75, 1.125]
    driver.server.answers = [asleep, Answer(200, b"content")]
    assert driver.sandbox(lambda box: box.files.read("/x")) == b"content"
    driver.server.answers = [asleep, Answer(201, {"id": "c"})]
    assert driver.sandbox(lambda box: box.create_code_context()).id == "c"
    driver.server.answers = [asleep]
    with pytest.raises(ServerError):
        driver.sandbox(lambda box: box.exec("echo hi"))
    assert 20 <= sum(waits[5:]) < 23
    # Running it again might do it twice, so streams are not.
    with pytest.raises(ServerError):
        driver.sandbox(lambda box: box.stream("echo hi"))
    assert len(driver.server.requests) == 1


def test_what_is_written_from_an_iterator_is_sent_once(driver: Driver, waits: list[float]) -> None:
    driver.server.answers = [Answer(502, {"error": "no route to host"})]
    with pytest.raises(ServerError):
        driver.sandbox(lambda box: box.files.write("/x", iter([b"a", b"b"])))
    assert [one.body for one in driver.server.requests] == [b"ab"]


def test_a_lost_connection_is_not_tried_again(driver: Driver, waits: list[float], server: Server) -> None:
    url = server.url
    driver.server.answers = [Answer(200, b"{", {"Content-Length": "100"})]
    for work in (create, lambda client: client.me()):
        with pytest.raises(ConnectionError):
            driver.run(work, timeout=0.5)
    assert len(server.requests) == 2
    with pytest.raises(ConnectionError):
        driver.run(create, base_url="http://127.0.0.1:1")
    assert waits == [] and url == server.url


#: The connection ends with it, so that the next request needs one of its own.
LAST = {"Connection": "close"}


@pytest.mark.parametrize(
    ("work", "method"),
    [
        (lambda client, box: box.delete(), "DELETE"),
        (lambda client, box: client.sandboxes.delete("box"), "DELETE"),
        (lambda client, box: box.refresh(), "GET"),
    ],
)
def test_a_server_that_restarts_is_waited_for(driver: Driver, server: Server, waits: Waits, work: Any, method: str) -> None:
    server.answers = [Answer(200, {"id": "box"}, LAST)]
    again: list[Server] = []

    def start_again() -> None:
        if len(waits) == 4:
            again.append(Server(server.port))
            again[0].answers = [Answer(200, {"id": "box"})]

    async def restarted(client: Any) -> None:
        box = await settle(client.sandboxes.get("box"))
        server.close()
        waits.then = start_again
        await settle(work(client, box))

    try:
        driver.run(restarted)
        assert [one.method for one in again[0].requests] == [method]
    finally:
        for one in again:
            one.close()
    assert waits == [0.25, 0.375, 0.5625, 0.84375]


def test_a_server_that_does_not_come_back_is_given_up(driver: Driver, server: Server, waits: Waits) -> None:
    server.answers = [Answer(200, {"id": "box"}, LAST)]

    async def gone(client: Any) -> None:
        box = await settle(client.sandboxes.get("box"))
        server.close()
        # What may do something twice, or has something to send, is not sent again.
        with pytest.raises(ConnectionError) as raised:
            await settle(box.hibernate())
        assert raised.value.refused and waits == []
        with pytest.raises(ConnectionError):
            await settle(box.delete())
        await settle(box.delete())

    with pytest.raises(ConnectionError, match="cannot be reached") as raised:
        driver.run(gone)
    # The second deletion is not waited for as long again.
    assert raised.value.refused and 44 <= sum(waits) <= 46 and max(waits) == 2


@pytest.mark.parametrize("gone", [False, True])
def test_the_error_of_a_block_is_not_replaced(
    driver: Driver, server: Server, waits: Waits, caplog: pytest.LogCaptureFixture, gone: bool
) -> None:
    server.answers = [Answer(200, {"id": "box"}, LAST), Answer(500, {"error": "broken"})]

    async def fails(client: Any) -> None:
        box = await settle(client.sandboxes.get("box"))
        if gone:
            server.close()
        if driver.flavour == "sync":
            with box:
                raise KeyError("mine")
        async with box:
            raise KeyError("mine")

    with pytest.raises(KeyError, match="mine") as raised:
        driver.run(fails)
    said = "ConnectionError: the server cannot be reached" if gone else "ServerError: broken"
    assert f"sandbox box was not deleted: {said}" in caplog.text
    # Without notes, in Python before 3.11, the log tells.
    if sys.version_info >= (3, 11):
        (note,) = raised.value.__notes__
        assert note.startswith(f"sandbox box was not deleted: {said}")
    assert (sum(waits) > 40) == gone


def test_whatever_fails_in_the_end_the_error_is_that_of_the_block(
    driver: Driver, server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    server.answers = [Answer(200, {"id": "box"})]

    async def close_fails(thing: Any) -> None:
        def closed() -> Any:
            raise OSError("the wire broke")

        thing.close = closed
        if driver.flavour == "sync":
            with thing:
                raise KeyError("mine")
        thing.open = lambda: settle(thing)
        async with thing:
            raise KeyError("mine")

    async def all_fail(client: Any) -> None:
        box = await settle(client.sandboxes.get("box"))
        server.answers = [Answer(200, {"id": "c"})]
        context = await settle(box.create_code_context())
        for thing in (context, box.stream("true"), box.files.watch("/"), box.terminal(), box.tunnel(80)):
            if driver.flavour == "sync":
                thing.open = lambda thing=thing: thing
            with pytest.raises(KeyError, match="mine"):
                await close_fails(thing)

    driver.run(all_fail)
    assert caplog.text.count("OSError: the wire broke") == 5


def test_a_failed_deletion_at_the_end_of_a_block_is_raised(driver: Driver, server: Server) -> None:
    server.answers = [Answer(200, {"id": "box"}), Answer(500, {"error": "broken"})]

    async def works(client: Any) -> None:
        box = await settle(client.sandboxes.get("box"))
        if driver.flavour == "sync":
            with box:
                return
        async with box:
            return

    with pytest.raises(ServerError, match="broken"):
        driver.run(works)


def test_an_answer_that_takes_too_long(driver: Driver, server: Server) -> None:
    done = threading.Event()

    def late(request: Any) -> Answer:
        done.wait(10)
        return Answer(200, {})

    server.answer_with = late
    with pytest.raises(APITimeoutError):
        driver.run(lambda client: client.me(), timeout=0.2)
    done.set()


def test_retry_after() -> None:
    assert parse_retry_after("5") == 5 and parse_retry_after("0.25") == 0.25 and parse_retry_after("-3") == 0
    assert parse_retry_after(None) is None and parse_retry_after(" ") is None and parse_retry_after("soon") is None
    assert parse_retry_after("inf") is None
    later = parse_retry_after(format_datetime(datetime.now(timezone.utc) + timedelta(seconds=30)))
    assert later is not None and 28 <= later <= 30
    assert parse_retry_after("Wed, 21 Oct 2015 07:28:00 GMT") == 0


def test_delays_grow_to_a_bound_and_fit_the_budget() -> None:
    refusal = error_from_answer(503, {"error": "full"}, retry_after=2.0)

    def most(low: float, high: float) -> float:
        return high

    delays = [create_delay(refusal, attempt=n, elapsed=0, budget=60, uniform=most) for n in range(6)]
    assert delays == [3, 4, 6, 10, 17, 17]
    # What would go beyond the budget is shortened to it, unless that leaves less than the server asked for.
    assert create_delay(refusal, attempt=5, elapsed=55, budget=60, uniform=most) == 5
    assert create_delay(refusal, attempt=0, elapsed=58.5, budget=60, uniform=most) is None
    assert create_delay(refusal, attempt=0, elapsed=61, budget=60, uniform=most) is None
    nothing = error_from_answer(507, {"error": "full"})
    assert create_delay(nothing, attempt=0, elapsed=59.2, budget=60, uniform=most) is None


def preparing(step: str, changed_at: str) -> Answer:
    progress = {"step": step, "started_at": "2026-01-01T00:00:00Z", "changed_at": changed_at}
    body = {"error": f'template "base" is being prepared: {step}', "code": "template_preparing", "progress": progress}
    return Answer(503, body, {"Retry-After": "2"})


def test_a_template_is_waited_for_while_its_preparation_moves(driver: Driver, waits: list[float]) -> None:
    # Far longer than there is budget for lack of room, which begins anew afterwards.
    steps = [preparing(f"installing packages: {n} of 130", f"t{n // 5}") for n in range(45)]
    driver.server.answers = [*steps, NO_ROOM, NO_ROOM, BOX]
    seen: list[Progress] = []
    events: list[CreateRetryEvent] = []
    assert driver.run(create, on_progress=seen.append, on_create_retry=events.append).id == "box"
    assert waits[:45] == [2.0] * 45 and len(waits) == 47
    assert len(seen) == 45 and seen[41].step == "installing packages: 41 of 130"
    assert events[41].progress == seen[41] and events[-1].progress is None


def test_a_preparation_that_stands_still_is_given_up(driver: Driver, waits: list[float]) -> None:
    driver.server.answers = [preparing("unpacking", "t0"), preparing("installing", "t1")]
    with pytest.raises(CapacityError, match="no progress for 10 s") as raised:
        driver.run(create, template_stall_seconds=10)
    assert raised.value.code == "template_preparing" and 8 <= sum(waits) <= 12


def test_the_limit_of_the_caller_ends_all_waiting(driver: Driver, waits: list[float]) -> None:
    driver.server.answers = [preparing("unpacking", f"t{n}") for n in range(20)]
    with pytest.raises(CapacityError, match="max_create_wait_seconds"):
        driver.run(create, max_create_wait_seconds=9)
    assert 7 <= sum(waits) <= 9
    waits.clear()
    with pytest.raises(CapacityError):
        driver.sandbox(lambda box: box.fork(max_create_wait_seconds=0))
    assert waits == []
    with pytest.raises(ValueError, match="max_create_wait_seconds"):
        driver.run(create, max_create_wait_seconds=-1)


def test_how_long_a_creation_waits() -> None:
    def refused(changed_at: str) -> Any:
        body = preparing("unpacking", changed_at).body
        return error_from_answer(503, body, retry_after=2.0)

    wait = CreateWait(budget=60, stall=600, most=None, now=0)
    # However long, as long as it moves.
    assert all(wait.delay(refused(f"t{n}"), n * 599.0) == 2 for n in range(1000))
    last = 999 * 599.0
    assert wait.delay(refused("t999"), last + 599.9) == 2 and wait.delay(refused("t999"), last + 600) is None
    full = error_from_answer(503, {"error": "full"}, retry_after=2.0)
    assert wait.delay(full, last + 601) is not None and wait.delay(full, last + 601 + 60) is None
    limited = CreateWait(budget=60, stall=600, most=5, now=0)
    assert limited.delay(refused("a"), 4) == 1 and limited.delay(refused("b"), 5) is None
    assert CreateWait(budget=60, stall=600, most=5, now=0).delay(full, 5) is None


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_progress_is_a_line_on_a_terminal_and_nothing_elsewhere(
    driver: Driver, waits: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "60")
    answers = [preparing("installing packages: 41 of 130", "t0"), preparing("x" * 100, "t1"), BOX]

    def shown(out: io.StringIO, **options: Any) -> str:
        driver.server.answers = list(answers)
        monkeypatch.setattr(sys, "stderr", out)
        driver.run(create, **options)
        return out.getvalue()

    first, second, last = shown(Terminal()).split("\r\x1b[K")[1:]
    assert first == "preparing minimal: installing packages: 41 of 130 (0 s)"
    assert len(second) == 59 and second.endswith("x… (2 s)") and last == ""
    assert shown(Terminal(), on_progress=lambda progress: None) == ""
    assert shown(io.StringIO()) == ""
    monkeypatch.setenv("TERM", "dumb")
    assert shown(Terminal()) == ""
