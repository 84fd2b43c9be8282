"""Which subscriptions to clients' metrics are refused, with the codes of Apache Kafka."""

from __future__ import annotations

import pytest

from ottla.base.errors import ApiError, ErrorCode
from ottla.base.settings.client_metrics import check_client_metrics

MATCH_ALL_PARTS = (
    "client_instance_id=x,client_id=a.*,client_software_name=j,client_software_version=1,client_source_address=1.*,client_source_port=1"
)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("interval.ms", "100"),
        ("interval.ms", "3600000"),
        ("interval.ms", " 500 "),
        ("metrics", ""),
        ("metrics", "*"),
        ("metrics", "org.apache.kafka.producer., org.apache.kafka.consumer."),
        ("match", ""),
        ("match", " client_id = a "),
        ("match", MATCH_ALL_PARTS),
    ],
)
def test_taken(name: str, text: str) -> None:
    check_client_metrics({name: text})


@pytest.mark.parametrize(
    ("name", "text", "code"),
    [
        ("made.up", "1", ErrorCode.INVALID_REQUEST),
        ("interval.ms", "99", ErrorCode.INVALID_REQUEST),
        ("interval.ms", "3600001", ErrorCode.INVALID_REQUEST),
        ("interval.ms", "x", ErrorCode.INVALID_CONFIG),
        ("interval.ms", "", ErrorCode.INVALID_CONFIG),
        ("metrics", ",", ErrorCode.INVALID_CONFIG),
        ("metrics", "a,,b", ErrorCode.INVALID_CONFIG),
        ("match", "client_id", ErrorCode.INVALID_CONFIG),
        ("match", "client_id=", ErrorCode.INVALID_CONFIG),
        ("match", "=x", ErrorCode.INVALID_CONFIG),
        ("match", "client_id=a=b", ErrorCode.INVALID_CONFIG),
        ("match", "color=blue", ErrorCode.INVALID_CONFIG),
        ("match", "client_id=(", ErrorCode.INVALID_CONFIG),
    ],
)
def test_refused(name: str, text: str, code: ErrorCode) -> None:
    with pytest.raises(ApiError) as refusal:
        check_client_metrics({name: text})
    assert refusal.value.code is code
