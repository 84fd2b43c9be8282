"""The Arrow types that Spark uses for columns of strings or bytes."""

from __future__ import annotations

import pyarrow as pa

TEXT_KINDS = [
    pa.string(),
    pa.binary(),
    pa.large_string(),
    pa.large_binary(),
    pa.string_view(),
    pa.binary_view(),
    pa.dictionary(pa.int8(), pa.string()),
]
