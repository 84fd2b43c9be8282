"""The smallest pipeline: what is written to the topic `words` appears in capitals in the topic `loud-words`, each record once.

    ottla topic create words && ottla topic create loud-words
    ottla pipeline run examples/words.py
"""

from __future__ import annotations

from typing import Any

from ottla.spark import Pipeline


def transform(rows: Any) -> Any:
    return rows.selectExpr("key", "upper(cast(value AS string)) AS value")


pipeline = Pipeline(group="loud-words", source="words", sink="loud-words", transform=transform)
