"""The schemas of the two inputs in table-driven tests."""

from __future__ import annotations

import pyarrow as pa

LEFT = pa.schema(
    {
        "id": pa.int64(),
        "x": pa.int32(),
        "y": pa.float64(),
        "f": pa.float32(),
        "tiny": pa.int8(),
        "u": pa.uint64(),
        "price": pa.decimal128(10, 2),
        "s": pa.string(),
        "flag": pa.bool_(),
        "d": pa.date32(),
        "t": pa.timestamp("us"),
        "sec": pa.timestamp("s"),
        "tz": pa.timestamp("us", "UTC"),
        "dur": pa.duration("ms"),
        "start": pa.int64(),
        "end": pa.int64(),
        "xmin": pa.float64(),
        "xmax": pa.float64(),
        "ymin": pa.float64(),
        "ymax": pa.float64(),
        "v": pa.list_(pa.float32()),
        "point": pa.struct({"a": pa.int32(), "B": pa.struct({"c": pa.string()})}),
        "a b": pa.int64(),
        "p.q": pa.int64(),
        "tick`": pa.int64(),
        "only_left": pa.int16(),
    }
)
RIGHT = LEFT.remove(LEFT.get_field_index("only_left")).append(pa.field("only_right", pa.string()))
