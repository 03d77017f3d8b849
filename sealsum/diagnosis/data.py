"""What is asked of data before training, and what answers say: skew of labels, columns and sizes, and gaps.

The same statistics of silos, whether they come noisy from a federation's charged query or exact from tables
that lie here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from privacy.errors import ConfigurationError
from privacy.ids import SiloId
from privacy.query_blocks import blocks_of
from privacy.query_terms import (
    MAX_ASKED,
    SKEWS,
    ColumnSkewStatistic,
    LabelSkewStatistic,
    SizeSkewStatistic,
    Statistic,
    StatisticsTerms,
)
from privacy.schema import DataSchema
from sealsum.queries.skews import read_skew
from silo_agent.data.records import Records
from silo_agent.queries.statistics import statistics_sums

Answer = Mapping[str, Any]
_EXACT_LEAST: Final = 2
"""Of a label skew without noise: the smallest there is, so that no silo is filled up."""
_LARGEST_SHARE: Final = 1000.0


def statistics_for(schema: DataSchema, least: int, most: int, columns: Sequence[str] = ()) -> StatisticsTerms:
    """One query for everything: half of the squared norm goes to the labels.

    Args:
        least, most: public bounds on the patients of any one silo. columns: of all, if left out.

    Raises:
        ConfigurationError: more columns than one query may ask for.
    """
    named = list(columns) or [feature.column for feature in schema.features]
    if len(named) > MAX_ASKED - 2:
        raise ConfigurationError(
            f"columns: expected at most {MAX_ASKED - 2} at once, got {len(named)}; name some by --column"
        )
    asked: list[Statistic] = [
        LabelSkewStatistic(least=least, share=min(_LARGEST_SHARE, 1.0 + len(named))),
        SizeSkewStatistic(most=most),
        *(ColumnSkewStatistic(column=column) for column in named),
    ]
    return StatisticsTerms(statistics=tuple(asked))


def exact_answers(schema: DataSchema, silos: Mapping[SiloId, Records]) -> list[Answer]:
    """The same statistics of tables that lie here, without noise: nothing is charged.

    Args:
        silos: read under ``statistics_schema``.

    Raises:
        ConfigurationError: as ``statistics_for``.
    """
    most = max(records.unit_count for records in silos.values())
    query = statistics_for(schema, _EXACT_LEAST, max(1, most))
    sums = [statistics_sums(query, schema, records) for records in silos.values()]
    answers: list[Answer] = []
    for place, block in enumerate(blocks_of(query, schema)):
        total = np.sum([one[place] for one in sums], axis=0).reshape(block.spec.shape)
        if isinstance(block.asked, SKEWS):
            answers.append(read_skew(block.asked, schema, total, 0.0, len(silos)))
    return answers


def data_report(answers: Sequence[Answer]) -> dict[str, Any]:
    """The answers by what they say.

    Raises:
        ConfigurationError: the query was no diagnosis.
    """
    of_kind = {kind: [one for one in answers if one["kind"] == kind] for kind in ("label_skew", "size_skew")}
    if any(len(found) != 1 for found in of_kind.values()):
        raise ConfigurationError(
            "diagnose: expected the answer to a query with label_skew and size_skew; ask one by "
            "sealsum diagnose ask"
        )
    return {
        "label_skew": of_kind["label_skew"][0],
        "size_skew": of_kind["size_skew"][0],
        "columns": [one for one in answers if one["kind"] == "column_skew"],
    }
