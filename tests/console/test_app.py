"""Every page and action of the console against a broker process: what they show, what they refuse, and that hostile text stays text."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator
from html import unescape
from html.parser import HTMLParser
from urllib.parse import quote

import pytest

from ottla.base.types import TopicPartition
from ottla.client.blocking.cluster import Cluster
from ottla.client.blocking.consumer import Consumer
from ottla.client.blocking.producer import Producer
from ottla.client.core import admin, group_admin
from ottla.client.errors import FencedError
from ottla.console.model import Done
from ottla.console.pages.overview import SNIPPETS
from ottla.console.visit import ACTIONS, PAGES, ActionHandler
from ottla.spark.option_tables import SOURCE_TABLE
from ottla.testing.broker import Broker
from tests.console.world import SCRIPT, Visitor, commit, console_of, write

PLACES = {"topic": "orders", "broker": "0"}
QUERIES = {
    "/group": "?name=shop",
    "/group/lag": "?name=shop",
    "/group/reset": "?name=shop&scenario=to_latest",
    "/delete-topics": "?names=orders",
    "/transaction": "?id=writer",
    "/topics/{topic}/record": "?partition=0&offset=0",
    "/search": "?q=o",
    "/why": "?topic=orders",
    "/topics/{topic}/log/batch": "?partition=0&offset=0",
    "/topics/{topic}/log/index": "?partition=0&segment=0",
    "/pipeline": "?name=copier",
    "/pipeline/verify": "?name=copier&sinks=quiet",
    "/cluster/plan": "?way=rebalance",
    "/config/change": "?kind=topics&name=orders&setting=retention.ms&value=1000",
    "/share-group": f"?name={quote(SCRIPT)}",
    "/share-group/reset": f"?name={quote(SCRIPT)}&scenario=to_latest",
    "/streams-group": "?name=streamers",
    "/user": f"?name={quote(SCRIPT)}",
    "/acls/rule": f"?type=TOPIC&name={quote(SCRIPT)}&pattern=LITERAL&principal=User:reader&host=*&operation=READ&permission=ALLOW",
    "/acls/wizard": "?role=producer&principal=User:writer&topic=orders",
    "/acls/check": "?principal=User:reader&topic=orders",
}


class Tags(HTMLParser):
    """The tags of a page with their attributes."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[tuple[str, dict[str, str]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, {name: value or "" for name, value in attrs}))


@pytest.fixture
def open_transaction(cluster: Cluster) -> Iterator[None]:
    producer = Producer(cluster, transactional_id="writer")
    producer.begin()
    producer.produce("quiet", b"not committed yet", partition=0)
    producer.flush()
    yield
    producer.abort()
    producer.close()


def every_page(visitor: Visitor) -> list[str]:
    while not (frames := visitor.json("/wire.json")["frames"]):
        write(visitor.console.desk.cluster, "quiet", b"seen on the wire")  # type: ignore[union-attr]
    queries = {**QUERIES, "/wire/frame": f"?number={frames[0]['number']}"}
    return [re.sub(r"{(\w+)}", lambda found: PLACES[found.group(1)], page.path) + queries.get(page.path, "") for page in PAGES]


@pytest.mark.usefixtures("open_transaction")
def test_every_page_is_served_as_html_and_as_json(visitor: Visitor) -> None:
    for path in every_page(visitor):
        text = visitor.get(path)
        assert SCRIPT not in text and 'role="alert"' not in text, path
        assert not re.search(r"<th[^>]*>(<a[^>]*>)?(</a>)?</th>", text), f"{path} has a column without a title"
        bare, _, query = path.partition("?")
        table = visitor.json(f"{bare.rstrip('/') or '/overview'}.json?{query}")
        assert table.keys() == visitor.json(f"/api/v1{bare.rstrip('/') or '/overview'}?{query}").keys(), path


@pytest.mark.usefixtures("open_transaction")
def test_every_table_has_a_link_to_its_json(visitor: Visitor) -> None:
    links = set()
    for path in every_page(visitor):
        page = visitor.get(path)
        found = {unescape(link) for link in re.findall(r'class="json" href="([^"]+)"', page)}
        assert found or '<section class="table">' not in page, path
        links |= found
    assert len(links) > 30
    for link in sorted(links):
        visitor.json(link)


@pytest.mark.usefixtures("open_transaction")
def test_every_element_with_an_id_has_its_own(visitor: Visitor) -> None:
    """A label belongs to the first element with its id, so a second one would have no label."""
    for path in every_page(visitor):
        ids = re.findall(r'\sid="([^"]+)"', visitor.get(path))
        assert (path, sorted(ids)) == (path, sorted(set(ids)))


def test_the_openapi_document_has_every_page(visitor: Visitor) -> None:
    paths = visitor.json("/api/v1/openapi.json")["paths"]
    files = {f"/topics/{{topic}}/{name}" for name in ("download", "tail", "value")} | {"/metrics/dashboards/{name}", "/wire/capture"}
    assert set(paths) == {page.path.rstrip("/") or "/overview" for page in PAGES} | files
    assert set(paths["/topics/{topic}/download"]["get"]["responses"]["200"]["content"]) == {"application/jsonl", "text/csv"}
    topic = paths["/topics/{topic}/messages"]["get"]["parameters"]
    assert {(one["name"], one["in"]) for one in topic} >= {("topic", "path"), ("from", "query"), ("text", "query")}


def test_every_route_of_the_interface_is_in_the_document(visitor: Visitor) -> None:
    routes = visitor.console.app()._app.routes  # type: ignore[attr-defined]
    served = {route.path.removeprefix("/api/v1") for route in routes if route.path.startswith("/api/v1/")}
    assert served == {*visitor.json("/api/v1/openapi.json")["paths"], "/openapi.json"}


def test_files_of_the_interface_are_refused_as_json(visitor: Visitor) -> None:
    at = "/api/v1/topics/orders"
    assert visitor.get(f"{at}/value?partition=0&offset=3") == "plain 0"
    assert visitor.json(f"{at}/download?from=from_offset&at=3&partition=0&count=1")["value"] == "plain 0"
    for path, sentence in (("value?partition=0&offset=999", "has no record at offset 999"), ("download?from=x", "is no position")):
        answer = visitor.http.get(f"{at}/{path}")
        assert answer.status_code in (400, 404) and sentence in answer.json()["error"]


def test_every_answer_forbids_scripts_of_others(visitor: Visitor) -> None:
    for path in ("/", "/topics.json", "/static/console.js", "/nowhere", "/topics/orders/value?partition=0&offset=0"):
        headers = visitor.http.get(path).headers
        assert "default-src 'none'; script-src 'self'; style-src 'self';" in headers["content-security-policy"], path
        assert headers["x-content-type-options"] == "nosniff"
    tags = Tags()
    tags.feed(visitor.get("/"))
    assert len(tags.seen) > 100
    for tag, attributes in tags.seen:
        assert tag != "style" and not any(name == "style" or name.startswith("on") for name in attributes), (tag, attributes)
        assert tag != "script" or attributes["src"].startswith("/static/")
        assert not any(attributes.get(name, "").startswith(("http:", "https:", "//")) for name in ("src", "href", "action")), attributes


def test_a_foreign_host_name_is_refused(visitor: Visitor) -> None:
    answer = visitor.http.get("/", headers={"host": "attacker.example:8080"})
    assert answer.status_code == 421 and "orders" not in answer.text


def test_hostile_records_and_names_are_text(visitor: Visitor) -> None:
    escaped = "&lt;script&gt;alert(1)&lt;/script&gt;"
    messages = visitor.get("/topics/orders/messages?from=earliest")
    assert escaped in messages and SCRIPT not in messages and "ff fe 20 62" in messages
    group = visitor.get(f"/group?name={quote(f'group {SCRIPT}')}")
    assert escaped in group and SCRIPT not in group
    assert SCRIPT not in visitor.get(f"/search?q={quote(SCRIPT)}") and SCRIPT not in visitor.get(f"/topics?q={quote(SCRIPT)}")
    value = visitor.http.get("/topics/orders/value?partition=0&offset=0")
    assert value.headers["content-disposition"].startswith("attachment") and value.headers["content-type"] == "application/octet-stream"


def test_each_byte_of_the_log_has_a_meaning(visitor: Visitor, cluster: Cluster) -> None:
    with Producer(cluster, transactional_id="log-writer") as producer:
        producer.begin()
        producer.produce("quiet", b"committed", partition=0)
        producer.commit()
    at = visitor.json("/api/v1/topics/quiet/messages?text=committed&field=value")["records"][0]["offset"]
    data, marker = visitor.json(f"/api/v1/topics/quiet/log?offset={at}")["batches"][:2]
    assert "transactional" in data["attributes"] and "control" in marker["attributes"] and data["crc"] == "right"
    spans = visitor.json(f"/api/v1/topics/quiet/log/batch?partition=0&offset={at}")["spans"]
    assert {"field": "base_offset", "bytes": f"{at:016x}", "value": str(at)}.items() <= {
        key: value.replace(" ", "") for key, value in spans[1].items() if value
    }.items()
    assert any(span["value"] == '"committed"' for span in spans)
    assert "<code>  base_offset</code>" in visitor.get(f"/topics/quiet/log/batch?partition=0&offset={at}")
    assert "OFFSET_OUT_OF_RANGE" in visitor.get("/topics/quiet/log/batch?partition=0&offset=999", 404)
    assert "has no partition 5" in visitor.get("/topics/quiet/log?partition=5", 404)
    assert visitor.json("/api/v1/topics/odd.json/log?offset=99")["batches"] == []


def test_a_topic_with_the_name_of_a_json_page_has_its_own_page(visitor: Visitor) -> None:
    assert "/topics/odd.json/" in visitor.get("/topics")
    assert "<h1>odd.json</h1>" in visitor.get("/topics/odd.json/")


def test_messages_are_found_by_position_and_text(visitor: Visitor, cluster: Cluster) -> None:
    admin.create_topic(cluster, "positions", partitions=3)
    write(cluster, "positions", *3 * [b"with a key"], key=SCRIPT.encode())
    write(cluster, "positions", *(b"plain %d" % number for number in range(20)))

    def offsets(query: str) -> list[int]:
        return [one["offset"] for one in visitor.json(f"/api/v1/topics/positions/messages?{query}")["records"]]

    assert offsets("from=earliest&count=3") == [0, 1, 2]
    assert offsets("from=latest&count=2") == [22, 21]
    assert offsets("from=from_offset&at=20&partition=0") == [20, 21, 22]
    assert offsets("from=to_offset&at=2&partition=0") == [1, 0]
    assert offsets("from=earliest&text=PLAIN+7") == [10]
    assert offsets("from=earliest&text=script&field=key") == [0, 1, 2]
    assert offsets("from=from_time&at=2000-01-01T00:00&count=1") == [0]
    assert offsets("from=to_time&at=2000-01-01T00:00") == []
    assert "is no position" in visitor.get("/topics/orders/messages?from=nowhere", 400)
    assert "is not a time" in visitor.get("/topics/orders/messages?from=from_time&at=soon", 400)
    assert "has no partition 9" in visitor.get("/topics/orders/messages?partition=9", 404)


def test_the_newest_records_of_several_partitions_are_shown(visitor: Visitor, cluster: Cluster) -> None:
    admin.create_topic(cluster, "spread", partitions=3)
    with Producer(cluster) as producer:
        for number in range(30):
            producer.produce("spread", b"number %d" % number, partition=number % 3, timestamp=1_700_000_000_000 + number)
        producer.flush()

    def numbers(query: str) -> list[int]:
        found = visitor.json(f"/api/v1/topics/spread/messages?{query}")
        assert found["scanned"] <= 30
        return [int(one["value"].split()[1]) for one in found["records"]]

    assert numbers("from=latest&count=4") == [29, 28, 27, 26]
    assert numbers("from=latest&count=2&text=number+1") == [19, 18]
    assert numbers("from=earliest&count=4") == [0, 1, 2, 3]
    assert numbers("from=to_offset&at=2&count=3") == [5, 4, 3]


def test_aborted_records_and_markers_are_shown_on_request(visitor: Visitor, cluster: Cluster) -> None:
    admin.create_topic(cluster, "ended", partitions=1)
    with Producer(cluster, transactional_id="ends") as producer:
        for value, end in ((b'{"amount": 5}', producer.commit), (b'{"amount": 20}', producer.abort)):
            producer.begin()
            producer.produce("ended", value, partition=0)
            producer.flush()
            end()

    def found(query: str) -> list[tuple[int, str]]:
        records = visitor.json(f"/topics/ended/messages.json?from=earliest{query}")["records"]
        return [(one["offset"], one["kind"]) for one in records]

    assert found("") == [(0, "json"), (2, "json")]
    assert found("&committed=yes") == [(0, "json")]
    assert found("&markers=yes") == [(0, "json"), (1, "marker"), (2, "json"), (3, "marker")]
    assert found("&where=value.amount > 10") == [(2, "json")]
    text = visitor.get("/topics/ended/messages?from=earliest&markers=yes")
    assert re.search(r"<pre[^>]*>commit of producer \d+, epoch \d+, coordinator epoch \d+</pre>", text) and ">abort of producer" in text


def test_a_filter_says_how_far_back_it_has_looked(visitor: Visitor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ottla.console.pages.messages.FILTERED_OFFSETS", 5)
    assert "The search looked at 5 offsets of each partition" in visitor.get("/topics/orders/messages?text=plain+7")
    assert "The search looked" not in visitor.get("/topics/orders/messages?from=earliest&text=plain+7")
    assert "The search looked" not in visitor.get("/topics/orders/messages")


def test_a_record_before_the_start_of_the_log_is_not_waited_for(visitor: Visitor, cluster: Cluster) -> None:
    admin.create_topic(cluster, "trimmed", partitions=1)
    write(cluster, "trimmed", b"one", b"two")
    assert not any(isinstance(one, Exception) for one in admin.delete_records(cluster, {TopicPartition("trimmed", 0): 1}).values())
    assert "its log begins at offset 1" in visitor.get("/topics/trimmed/record?partition=0&offset=0", 404)
    assert "<pre" in visitor.get("/topics/trimmed/record?partition=0&offset=1")


@pytest.mark.parametrize("name", ["ottla.json", "pipelines.json"])
def test_the_grafana_boards_are_downloaded(visitor: Visitor, name: str) -> None:
    assert f"/metrics/dashboards/{name}" in visitor.get("/metrics")
    board = visitor.http.get(f"/metrics/dashboards/{name}")
    assert board.headers["content-disposition"] == f'attachment; filename="{name}"' and "panels" in board.json()
    assert "There is no file" in visitor.get("/metrics/dashboards/app.py", 404)


def test_the_line_for_spark_has_an_option_that_the_source_knows(visitor: Visitor) -> None:
    (text,) = [text for name, text in SNIPPETS if name == "Spark"]
    assert set(re.findall(r'option\("([^"]+)"', text)) <= {option.name for option in SOURCE_TABLE}
    assert "kafka.bootstrap.servers" in visitor.get("/")


def test_a_record_is_written_again_as_it_was(visitor: Visitor, cluster: Cluster) -> None:
    admin.create_topic(cluster, "again", partitions=1)
    key, value = b'{"id":1,"name":"' + b"n" * 300 + b'"}', b'{"a":1,\n"b":[2]}'
    with Producer(cluster) as producer:
        producer.produce("again", value, key=key, partition=0, headers=(("trace", b"1 = 2"), ("kind", b"x")))
        producer.produce("again", b"binary key", key=b"\xff", partition=0)
        producer.produce("again", b"two\r\nlines", partition=0)
        producer.flush()
    page = visitor.get("/topics/again/record?partition=0&offset=0")
    fields = {name: re.findall(rf'name="{name}"[^>]* value="([^"]*)"', page)[0] for name in ("token", "key")}
    fields |= {name: re.findall(rf'<textarea [^>]*name="{name}"[^>]*>\n([^<]*)</textarea>', page)[0] for name in ("value", "headers")}
    visitor.post("/do/topics/again/produce", {name: unescape(text) for name, text in fields.items()})
    with Consumer(cluster) as consumer:
        consumer.assign({TopicPartition("again", 0): 0})
        found = [one for fetched in consumer.poll(10) for one in fetched.records()]
    assert [bytes(one.key or b"") for one in (found[0], found[-1])] == [key, key] and len(found) == 4
    assert bytes(found[-1].value or b"") == value and found[-1].headers == found[0].headers
    assert all("/do/topics/again/produce" not in visitor.get(f"/topics/again/record?partition=0&offset={one}") for one in (1, 2))


def test_records_are_downloaded_without_formulas(visitor: Visitor, cluster: Cluster) -> None:
    write(cluster, "odd.json", b"=1+1")
    text = visitor.get("/topics/odd.json/download?form=csv&from=earliest")
    first, *rows = text.splitlines()
    assert first == "partition,offset,timestamp,key,value" and any(row.endswith(",,'=1+1") for row in rows)
    assert '"value": "=1+1"' in visitor.get("/topics/odd.json/download?form=jsonl&from=earliest")


def test_numbers_that_no_request_can_have_are_refused(visitor: Visitor) -> None:
    for path in ("record?partition=0&offset=", "log/batch?partition=0&offset=", "log/index?partition=0&segment="):
        assert "is too large." in visitor.get(f"/topics/orders/{path}{1 << 63}", 400)
    assert "total is too large." in visitor.act("/topics/orders", "/do/topics/orders/grow", 400, total=str(1 << 31))
    for name in ("partitions", "replication"):
        assert f"{name} is too large." in visitor.act("/topics", "/do/topics/create", 400, **{"name": "large", name: str(1 << 31)})


# Actions


def test_a_form_of_another_site_does_nothing(visitor: Visitor, broker: Broker, cluster: Cluster) -> None:
    with console_of(broker.bootstrap_server) as other:
        foreign = other.form("/topics", "/do/topics/create")["token"]
    for token in ("", "x", foreign, f"{foreign}0"):
        assert "not made by this console" in visitor.post("/do/topics/create", {"token": token, "name": "forged"}, 403)
    assert "forged" not in cluster.topic_names()


def test_every_action_needs_a_token(visitor: Visitor) -> None:
    assert ACTIONS
    for each in ACTIONS:
        path = re.sub(r"{(\w+)}", lambda found: PLACES[found.group(1)], each.path)
        assert "not made by this console" in visitor.post(f"/do{path}", {"name": "orders", "typed": "orders"}, 403)


def test_a_form_that_is_sent_twice_acts_once(visitor: Visitor, cluster: Cluster) -> None:
    form = {**visitor.form("/topics/odd.json/messages", "/do/topics/odd.json/produce"), "value": "once"}
    first = visitor.post("/do/topics/odd.json/produce", form)
    again = visitor.post("/do/topics/odd.json/produce", form)
    assert "The record was written" in first and "The record was written" in again
    assert len(visitor.json("/api/v1/topics/odd.json/messages?from=earliest&text=once")["records"]) == 1


def test_a_form_whose_action_has_failed_says_so_when_it_is_sent_again(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_visit: object) -> Done:
        raise ZeroDivisionError

    monkeypatch.setattr("ottla.console.app.ACTIONS", [ActionHandler("/fail", fail)])
    with console_of(broker.bootstrap_server) as visitor:
        form = visitor.form("/topics", "/do/topics/create")
        assert "its log has the reason" in visitor.post("/do/fail", form, 500)
        assert "was sent before, and its action failed" in visitor.post("/do/fail", form)


def test_a_topic_is_created_changed_and_deleted(visitor: Visitor, cluster: Cluster) -> None:
    assert "Topic made was created with 2 partitions." in visitor.act("/topics", "/do/topics/create", name="made", partitions="2")
    assert [row["topic"] for row in visitor.json("/topics.json")["topics"]].count("made") == 1
    assert "made has 4 partitions now" in visitor.act("/topics/made", "/do/topics/made/grow", total="4")
    assert "cannot be removed" in visitor.act("/topics/made", "/do/topics/made/grow", 400, total="3")
    assert "must be a whole number" in visitor.act("/topics/made", "/do/topics/made/grow", 400, total="many")
    write(cluster, "made", b"one")
    assert "were deleted" in visitor.act("/topics/made", "/do/topics/made/clear", typed="made")
    assert visitor.json("/api/v1/topics/made/messages")["records"] == []
    form = visitor.form("/topics/made", "/do/topics/made/delete")
    assert "Type &#39;made&#39; to confirm" in visitor.post("/do/topics/made/delete", {**form, "typed": "mad"}, 400)
    assert "Topic made was deleted." in visitor.act("/topics/made", "/do/topics/made/delete", typed="made")
    assert "There is no topic &#39;made&#39;" in visitor.get("/topics/made", 404)


def test_a_topic_that_is_deleted_under_an_open_page_is_a_sentence(visitor: Visitor, cluster: Cluster) -> None:
    admin.create_topic(cluster, "brief", partitions=1)
    form = visitor.form("/topics/brief", "/do/topics/brief/clear")
    assert admin.delete_topics(cluster, ["brief"]) == {"brief": None}
    assert "There is no topic" in visitor.post("/do/topics/brief/clear", {**form, "typed": "brief"}, 404)
    for tab in ("", "/messages", "/live", "/groups", "/producers", "/settings"):
        assert "There is no topic" in visitor.get(f"/topics/brief{tab}", 404)


def test_the_wizard_shows_the_plan_and_then_commits_it(visitor: Visitor, cluster: Cluster) -> None:
    place = TopicPartition("orders", 0)
    commit(cluster, "wizard", "orders", 3)
    query = "/group/reset?name=wizard&scenario=shift_by&value=2"
    assert visitor.json(f"/api/v1{query}")["plan"] == {"name": "wizard", "scope": "", "scenario": "shift_by", "value": "2"}
    assert "Nothing was changed yet" in visitor.get(query)
    assert group_admin.committed_offsets(cluster, "wizard")[place].offset == 3
    assert "were reset" in visitor.act(query, "/do/group/reset", typed="wizard")
    assert group_admin.committed_offsets(cluster, "wizard")[place].offset == 5
    assert "is set to" in visitor.get("/group/reset?name=wizard&scenario=to_offset&value=999999")
    assert "not a whole number" in visitor.get("/group/reset?name=wizard&scenario=to_offset&value=x", 400)
    assert "no partition 9" in visitor.get("/group/reset?name=wizard&scenario=to_latest&scope=orders:9", 404)
    for scope in ("orders:", "orders:0,x"):
        page = visitor.get(f"/group/reset?name=wizard&scenario=to_latest&scope={scope}", 400)
        assert f"&#39;{scope}&#39; does not name partitions; write TOPIC or TOPIC:0,1." in page
    assert "&#39;nothing&#39; has committed no offsets" in visitor.get("/group/reset?name=wizard&scenario=to_group&value=nothing", 404)
    assert "There is no group" in visitor.get("/group/reset?name=nothing&scenario=to_latest", 404)
    assert "were deleted" in visitor.act("/group?name=wizard", "/do/group/delete-offsets", topic="orders", typed="wizard")
    assert group_admin.committed_offsets(cluster, "wizard") == {}


def test_the_page_explains_why_a_group_is_behind(visitor: Visitor) -> None:
    page = visitor.get("/why?group=shop")
    assert "No member of the group runs" in page and "Why is shop behind?" in page
    assert visitor.json("/why.json?group=shop")["reasons"][0]["cause"] == "no member"
    assert "There is no topic" in visitor.get("/why?sync=nothing") and "is no number" in visitor.get("/why?sync=orders&partition=x", 400)
    assert "GROUP_ID_NOT_FOUND" in visitor.get("/why?group=nothing", 404)


def test_a_group_is_deleted(visitor: Visitor, cluster: Cluster) -> None:
    commit(cluster, "old", "orders", 1)
    assert "Group old was deleted." in visitor.act("/group?name=old", "/do/group/delete", typed="old")
    assert "There is no group" in visitor.get("/group?name=old", 404)


def test_a_transaction_is_aborted(visitor: Visitor, cluster: Cluster) -> None:
    producer = Producer(cluster, transactional_id="stuck")
    producer.begin()
    producer.produce("quiet", b"open", partition=0)
    producer.flush()
    page = visitor.get("/transaction?id=stuck")
    assert '<li aria-current="step">Ongoing <time ' in page and "ottla txn abort --transactional-id stuck" in page
    assert "is aborted" in visitor.act("/transaction?id=stuck", "/do/transaction/fence", typed="stuck")
    ended = visitor.json("/api/v1/transaction?id=stuck")
    assert ended["state"] in ("CompleteAbort", "Empty") and ended["open_for"] == "-" and "end_it" not in ended
    with pytest.raises(FencedError), producer:
        producer.commit()
    assert "TRANSACTIONAL_ID_NOT_FOUND" in visitor.get("/transaction?id=unknown", 404)


# Safety and failures


def test_a_console_that_only_reads_acts_on_nothing(broker: Broker, cluster: Cluster) -> None:
    with console_of(broker.bootstrap_server, is_read_only=True) as reader:
        page = reader.get("/topics")
        assert "/do/topics/create" not in page and "its actions are hidden" in page
        assert "only reads" in reader.post("/do/topics/create", {"name": "forbidden"}, 403)
    assert "forbidden" not in cluster.topic_names()


def test_a_cluster_that_goes_away_and_one_that_never_was() -> None:
    with Broker(topics=["here:1"]) as broker:
        address = broker.bootstrap_server
        with console_of(address, timeout_s=1.0) as visitor:
            assert "here" in visitor.get("/topics")
            assert "has no authorizer" in visitor.get("/acls") and "has no authorizer" in visitor.get("/acls/check?principal=User:a")
            broker.stop()
            visitor.console.desk.snapshot.renew()  # type: ignore[union-attr]
            page = visitor.get("/topics")
            assert "The cluster does not answer: " in page and "/topics/here" in page
            assert "cannot reach" in visitor.get("/topics/here", 503)
    with console_of(address, timeout_s=1.0) as visitor:
        assert "cannot reach" in visitor.get("/", 503)
        assert "cannot reach" in visitor.get("/api/v1/topics", 503)


def test_a_cluster_that_is_silent_has_not_answered_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ottla.console.snapshot.FIRST_VIEW_S", 0.05)
    with socket.create_server(("127.0.0.1", 0)) as silent, console_of(f"127.0.0.1:{silent.getsockname()[1]}") as visitor:
        assert "The cluster has not answered yet." in visitor.get("/", 503)


def test_users_log_in_and_act_under_their_own_rights() -> None:
    settings = {"authorizer.class.name": "acl", "super.users": "User:admin"}
    with Broker(users={"admin": "admin-secret", "guest": "guest-secret"}, settings=settings, topics=["treasure:1"]) as broker:
        properties = {"security.protocol": broker.protocol, "sasl.mechanism": broker.config()["sasl.mechanism"]}
        with console_of(broker.bootstrap_server, needs_login=True, properties=properties) as visitor:
            assert "Log in to the cluster" in visitor.get("/")
            assert visitor.http.get("/api/v1/topics").status_code == 401
            assert "Log in" in visitor.log_in("admin", "wrong", 403)
            before = visitor.http.cookies["ottla_console"]
            assert "Overview" in visitor.log_in("admin", "admin-secret")
            assert visitor.http.cookies["ottla_console"] != before
            assert "treasure" in visitor.get("/topics")
            visitor.post("/logout", visitor.form("/", "/logout"))
            assert "Log in to the cluster" in visitor.get("/topics")
            visitor.log_in("guest", "guest-secret")
            assert "treasure" not in visitor.get("/topics")
            assert "may not be seen without Describe" in visitor.get("/acls")
            assert visitor.json("/acls/check.json?topic=treasure&operation=WRITE")["principal"] == "User:guest"
