"""The console in headless Chromium: every page and form, hostile content, failures under an open page, and a whole session of a user."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

import pytest

from ottla.base.types import TopicPartition
from ottla.client.blocking.cluster import Cluster
from ottla.client.blocking.consumer import Consumer
from ottla.client.blocking.producer import Producer
from ottla.client.core import admin
from ottla.client.errors import FencedError
from ottla.testing.broker import Broker
from ottla.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from tests.console.test_app import every_page
from tests.console.window import NARROW, Window, console_process
from tests.console.world import Visitor, commit, write
from tools.site.browser import Browser

SCRIPT = "<script>window.ran = 1</script><img src=x onerror='window.ran = 1'>\"' onload='window.ran = 1"
"""A text that sets a variable if a page has it as HTML or as an attribute."""
MEGABYTE = 1 << 20
KEYS = {"Tab": 9, "Enter": 13}
"""Key codes of the browser."""


@pytest.fixture(scope="module")
def browser(need_program: Callable[[str], str]) -> Iterator[Browser]:
    need_program("chromium")
    with Browser() as browser:
        yield browser


@pytest.fixture(scope="module")
def window(broker: Broker, cluster: Cluster, browser: Browser) -> Iterator[Window]:
    """A console in a browser, with more hostile content in its cluster than the other tests have."""
    with Cluster(broker.bootstrap_server, client_id=SCRIPT) as hostile:
        admin.create_topic(hostile, "hostile", partitions=1)
        with Producer(hostile) as producer:
            large = (SCRIPT * 20_000).encode()[: MEGABYTE - 2000]
            headers = ((SCRIPT, SCRIPT.encode()), ("\u202e", b"\xff"))
            for value in (SCRIPT.encode(), b"\xff\xfe\xc3\x28", large, None, b'{"<script>": 1}'):
                producer.produce("hostile", value, key=SCRIPT.encode(), headers=headers, partition=0)
            producer.flush()
        commit(hostile, SCRIPT, "hostile", 1)
        writers = [Producer(hostile, transactional_id=name, transaction_timeout_ms=900_000) for name in (SCRIPT, "writer")]
        with writers[0], writers[1]:
            for each in writers:
                each.begin()
                each.produce("quiet", b"not committed yet", partition=0)
                each.flush()
            with console_process(broker.bootstrap_server) as url:
                yield Window(browser, url)
            for each in writers:
                each.abort()


class Walk(NamedTuple):
    faults: dict[str, list[str]]
    """By page."""
    forms: dict[str, str]
    """The first page with a form of each action."""


@pytest.fixture(scope="module")
def walk(window: Window, visitor: Visitor) -> Walk:
    """Opens every page in a narrow window."""
    seen = Walk({}, {})
    for path in every_page(visitor):
        window.open(path, NARROW)
        for action in window.forms():
            seen.forms.setdefault(action, path)
        seen.faults[path] = window.faults() + window.accessibility_faults()
    return seen


def test_every_page_is_sound_in_a_narrow_window(walk: Walk) -> None:
    assert len(walk.faults) > 20 and {path: faults for path, faults in walk.faults.items() if faults} == {}


def test_planted_faults_are_found(window: Window) -> None:
    window.open("/about", NARROW)
    window.page.evaluate("""
        document.querySelector('main').insertAdjacentHTML('beforeend', '<img src="/static/icon.svg"><div class="planted">wide</div>');
        document.querySelector('.planted').style.width = '900px';
        document.querySelector('.planted').setAttribute('onclick', 'planted()');
        document.querySelector('main').append(Object.assign(document.createElement('script'), {textContent: 'window.ran = 1'}));
        console.error('planted error');
    """)
    faults = window.faults()
    for part in ("div.planted", "planted error", "Content Security Policy"):
        assert any(part in fault for fault in faults), (part, faults)
    assert any("image-alt" in fault for fault in window.accessibility_faults())
    window.page.evaluate("window.ran = 1")
    assert "content of the cluster was executed" in window.faults()


def test_hostile_content_is_text(window: Window) -> None:
    at = "/topics/hostile"
    hostile_pages = [
        f"{at}/messages?from=earliest", f"{at}/messages?from=earliest&text=%3Cscript%3E", f"{at}/groups", f"{at}/producers", f"{at}/log",
        *(f"{at}/record?partition=0&offset={offset}" for offset in range(5)), f"{at}/log/batch?partition=0&offset=0",
    ]  # fmt: skip
    for path in hostile_pages:
        window.open(path)
        assert (path, window.faults()) == (path, [])
    window.open(f"{at}/messages?from=earliest")
    assert SCRIPT[:30] in window.text() and "ff fe c3 28" in window.text()
    for path in ("/groups", "/transactions", "/"):
        window.open(path)
        assert (path, window.faults()) == (path, [])
    window.open("/transactions")
    window.click(SCRIPT)
    assert SCRIPT[:30] in window.text() and window.faults() == []
    window.open("/group?name=" + "%3Cscript%3Ewindow.ran%3D1%3C%2Fscript%3E")
    assert "There is no group" in window.text() and window.faults() == []


def test_new_records_appear_as_text_on_the_live_page(window: Window, cluster: Cluster) -> None:
    window.open("/topics/quiet/live")
    window.page.wait_until("document.getElementById('tail-state').textContent !== 'Asking for the end of the topic.'")
    write(cluster, "quiet", SCRIPT.encode(), key=SCRIPT.encode())
    window.page.wait_until("document.querySelector('#tail pre') !== null")
    assert SCRIPT[:30] in window.text() and window.faults() == []


def test_the_live_page_shows_the_records_that_a_filter_matches(window: Window, cluster: Cluster) -> None:
    window.open("/topics/quiet/live")
    window.send("/topics/quiet/live", text="price", where="value.price > 10")
    window.page.wait_until("document.getElementById('tail-state').textContent !== 'Asking for the end of the topic.'")
    write(cluster, "quiet", b'{"price": 5}', b'{"price": 20}', b"price", b'{"price": 30}')
    window.shows('"price": 30')
    assert '"price": 20' in window.text() and "2 records since the start" in window.text()
    assert "5}" not in window.page.evaluate("document.getElementById('tail').innerText") and window.faults() == []
    window.open("/topics/quiet/live?where=__import__('os')")
    assert "The filter takes comparisons" in window.text() and window.faults() == []


def test_a_slash_goes_to_the_search(window: Window) -> None:
    window.open("/about")
    for key in ("/", *"orders"):
        window.browser.send("Input.dispatchKeyEvent", type="keyDown", key=key, text=key)
    assert window.page.evaluate("document.activeElement.id + document.activeElement.value") == "searchorders"
    window.page.follow("document.activeElement.form.requestSubmit()")
    window.click("orders")
    assert window.page.evaluate("location.pathname") == "/topics/orders" and window.faults() == []


def test_a_value_that_does_not_fit_its_schema_is_corrected_in_the_form(window: Window, cluster: Cluster) -> None:
    admin.create_topic(cluster, "typed", partitions=1)
    action, schema = "/do/topics/typed/produce", '{"type": "object", "properties": {"amount": {"type": "integer"}}}'
    window.open("/topics/typed/messages")
    window.send(action, key="k", value=f'{{"amount": "{SCRIPT[:20]}"}}', way="json", schema=schema)
    assert "The value does not fit the schema: $.amount: " in window.text() and "nothing was written." in window.text()
    assert window.faults() + window.accessibility_faults() == []
    window.send(action, value='{"amount": 5}')
    window.shows("The record was written to typed.")
    with Consumer(cluster) as consumer:
        consumer.assign({TopicPartition("typed", 0): 0})
        assert [(one.key, one.value) for fetched in consumer.poll(10) for one in fetched.records()] == [(b"k", b'{"amount": 5}')]


def test_a_filter_of_the_metrics_stays_when_the_page_is_renewed(window: Window) -> None:
    names = "[...document.querySelectorAll('tbody td:first-child')].map(one => one.textContent)"
    window.open("/metrics?q=Metadata")
    before = window.page.evaluate(names)
    assert before and all("Metadata" in name for name in before)
    window.page.evaluate("document.addEventListener('htmx:after:swap', () => window.renewed = true)")
    window.page.wait_until("window.renewed")
    assert window.page.evaluate(names) == before and window.faults() == []


def test_a_form_that_is_sent_twice_acts_once(window: Window, cluster: Cluster) -> None:
    """The user presses the button twice, goes back, and presses it again."""
    admin.create_topic(cluster, "twice", partitions=1)
    window.open("/topics/twice/messages")
    window.fill("/do/topics/twice/produce", value="only once")
    button = "document.querySelector('form[action=\"/do/topics/twice/produce\"] button')"
    window.page.evaluate(f"window.form = new URLSearchParams(new FormData({button}.form))")
    window.page.evaluate("fetch('/do/topics/twice/produce', {method: 'POST', body: window.form}).then(answer => answer.text())")
    window.page.follow(f"{button}.click(); {button}.click()")
    window.shows("The record was written to twice.")
    with Consumer(cluster) as consumer:
        consumer.assign({TopicPartition("twice", 0): 0})
        found = [record.value for fetched in consumer.poll(10) for record in fetched.records()]
        assert found == [b"only once"] and consumer.poll(0.1) == []


def test_a_topic_that_is_deleted_under_an_open_page(window: Window, cluster: Cluster) -> None:
    admin.create_topic(cluster, "brief", partitions=1)
    window.open("/topics/brief")
    assert admin.delete_topics(cluster, ["brief"]) == {"brief": None}
    window.send("/do/topics/brief/clear", typed="brief")
    assert "There is no topic 'brief'" in window.text() and window.faults() == []


def test_a_broker_that_goes_away_under_an_open_page(browser: Browser) -> None:
    with Broker(topics=["here:1"]) as broker, console_process(broker.bootstrap_server) as url:
        window = Window(browser, url)
        window.open("/topics")
        window.shows("here")
        broker.stop()
        window.shows("The cluster does not answer")
        assert "here" in window.text() and window.faults() == []
        window.open("/topics/here")
        assert "cannot reach" in window.text() and window.faults() == []


def test_two_thousand_topics_and_five_hundred_groups(browser: Browser) -> None:
    with Broker() as broker, Cluster(broker.bootstrap_server) as cluster:
        made = [CreatableTopic(name=f"topic-{number:04}", num_partitions=1, replication_factor=1) for number in range(2_000)]
        answer = admin.ask_controller(cluster, CreateTopicsRequest(topics=made, timeout_ms=120_000))
        assert {topic.error_code for topic in answer.topics} == {0}
        for number in range(500):
            commit(cluster, f"group-{number:03}", f"topic-{number:04}", 0)
        with console_process(broker.bootstrap_server) as url:
            window = Window(browser, url)
            window.open("/topics")
            window.shows("Page 1 of 20")
            assert window.rows() == 100
            window.click("Next")
            assert "topic-0100" in window.text() and "topic-0099" not in window.text()
            window.open("/topics?q=topic-19&sort=-topic")
            assert window.rows() == 100 and window.page.evaluate("document.querySelector('tbody a').textContent") == "topic-1999"
            window.open("/groups?q=group-4")
            assert window.rows() == 100
            window.open("/search?q=99")
            assert "topic-1999" in window.text() and "group-499" in window.text() and window.faults() == []


def test_times_of_tables_are_local_on_request(window: Window) -> None:
    window.open("/topics/orders/statistics")
    first = "document.querySelector('tbody time').textContent"
    assert str(window.page.evaluate(first)).endswith("Z")
    window.page.evaluate("document.getElementById('zone').click()")
    assert not str(window.page.evaluate(first)).endswith("Z") and "Local" in window.text()
    window.open("/topics/orders/statistics")
    assert not str(window.page.evaluate(first)).endswith("Z"), "the browser keeps the choice"
    window.page.evaluate("document.getElementById('zone').click()")
    assert str(window.page.evaluate(first)).endswith("Z") and window.faults() == []


def test_pages_are_accessible_in_dark_and_the_choice_is_kept(window: Window) -> None:
    back = "getComputedStyle(document.body).backgroundColor"
    window.open("/")
    light = window.page.evaluate(back)
    try:
        window.page.evaluate("document.getElementById('theme').click()")
        dark = window.page.evaluate(back)
        assert dark != light
        for path in ("/", "/topics", "/group?name=shop", "/transaction?id=writer", "/topics/orders/messages", "/why?group=shop", "/wire"):
            window.open(path, NARROW)
            assert window.page.evaluate(back) == dark and (path, window.faults() + window.accessibility_faults()) == (path, [])
    finally:
        window.page.evaluate("document.getElementById('theme').click()")
    window.open("/")
    assert window.page.evaluate(back) == light


def test_the_keyboard_reaches_the_page_and_opens_a_form(window: Window) -> None:
    def press(key: str) -> None:
        text = {"text": "\r"} if key == "Enter" else {}
        for kind in ("keyDown", "keyUp"):
            window.browser.send("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=KEYS[key], **text)

    window.open("/topics")
    press("Tab")
    assert window.page.evaluate("document.activeElement.textContent") == "Skip to the page"
    press("Enter")
    window.page.wait_until("location.hash === '#main'")
    focused = "document.activeElement.tagName + ' ' + document.activeElement.textContent.trim()"
    seen = []
    while not (seen and seen[-1].startswith("SUMMARY Create a topic")):
        assert len(seen) < 500, seen[-10:]
        press("Tab")
        seen.append(window.page.evaluate(focused))
    assert not any(one.startswith("A Overview") for one in seen), "the menu was skipped"
    press("Enter")
    window.page.wait_until("document.activeElement.parentElement.open")
    press("Tab")
    assert window.page.evaluate("document.activeElement.name") == "name" and window.faults() == []


def test_a_page_is_not_renewed_while_a_user_types(window: Window) -> None:
    window.open("/wire")
    window.page.wait_until("document.querySelector('#part .filter input') !== null")
    window.page.evaluate("""
        window.asked = 0;
        document.addEventListener('htmx:before:request', () => window.asked += 1);
        document.querySelector('#part .filter input').focus();
    """)
    window.browser.send("Input.insertText", text="half a wo")
    window.page.wait_until("window.asked >= 2")
    assert window.page.evaluate("document.querySelector('#part .filter input').value") == "half a wo"
    window.page.evaluate("document.activeElement.blur()")
    window.page.wait_until("document.querySelector('#part .filter input')?.value === ''")
    assert window.faults() == []


def test_a_reader_that_stands_still_is_found_and_set_going(window: Window, cluster: Cluster, broker: Broker) -> None:
    admin.create_topic(cluster, "ledger", partitions=1)
    write(cluster, "ledger", *(b"paid %d" % number for number in range(5)))
    stuck = Producer(cluster, transactional_id="payments")
    stuck.begin()
    stuck.produce("ledger", b"never ended", partition=0)
    stuck.flush()
    write(cluster, "ledger", *(b"later %d" % number for number in range(3)))
    commit(cluster, "audit", "ledger", 5)

    window.open("/groups")
    window.shows("audit")
    window.click("audit")
    window.click("look for the reason")
    assert "open transaction" in window.text() and "transactional id payments" in window.text()
    window.open("/transactions")
    window.click("payments")
    window.send("/do/transaction/fence", typed="payments")
    window.shows("The producer of payments is fenced")
    window.open("/why?group=audit")
    assert "open transaction" not in window.text() and "no member" in window.text()

    window.open("/group?name=audit")
    window.send("/group/reset", scenario="to_offset", value="2")
    assert "Nothing was changed yet" in window.text()
    window.send("/do/group/reset", typed="audit")
    window.shows("The offsets of audit were reset.")
    with Consumer(cluster, group_id="audit", isolation_level=1) as reader:
        reader.subscribe(["ledger"])
        seen: list[bytes | None] = []
        deadline = time.monotonic() + 60
        while len(seen) < 6 and time.monotonic() < deadline:
            seen += [record.value for fetched in reader.poll(1) for record in fetched.records()]
        reader.commit()
        window.open("/group?name=audit")
        assert "Stable" in str(window.page.evaluate("document.querySelector('.facts').innerText"))
    with pytest.raises(FencedError), stuck:
        stuck.commit()
    assert [bytes(value or b"") for value in seen] == [b"paid 2", b"paid 3", b"paid 4", b"later 0", b"later 1", b"later 2"]
    assert window.faults() == []


def test_every_form_that_is_sent_unfilled_is_a_sentence(window: Window, walk: Walk) -> None:
    """Some of these forms need no field, and act."""
    forms = {action: path for action, path in walk.forms.items() if action != "/logout"}
    for action, path in forms.items():
        window.open(path)
        window.send_unfilled(action)
        assert (path, action, window.faults()) == (path, action, [])
    assert len(forms) >= 10
