"""The common type of two values, and the result type of arithmetic: Spark's ANSI rules, on Arrow types.

Deliberate differences. Integer arithmetic is always 64 bits wide (Spark: as wide as the wider operand), so it overflows
later than in Spark and never earlier. Decimals are compared exactly, with up to 76 digits (Spark rounds to 38 digits:
0.4 = 0 if one side has 38 whole digits). Text is never silently parsed as a number. An interval of days is a multiple
of 24 hours (Spark adds days in the session's calendar, which differs where clocks change). Tuples are compared part by
part, so null never matches (Spark compares them as structs, where null equals null). Parts of structs and lists are
widened like other values (Spark refuses decimals of different scales, and fields of different names).
"""

from __future__ import annotations

import pyarrow as pa

from dovetail.condition.expression import quote_name

MOST_DIGITS = 38  # digits of a decimal in Spark
WIDEST = 76  # digits of a decimal in Arrow
UNITS = ("s", "ms", "us", "ns")
INTEGER_DIGITS = {8: 3, 16: 5, 32: 10, 64: 20}

t = pa.types

BOOLEAN = pa.bool_()
INT64 = pa.int64()
DOUBLE = pa.float64()
STRING = pa.string()
DATE = pa.date32()
DAY = pa.duration("s")
"""The type of a difference of dates, and of whole days that are added to a date."""

SORT_KEY = pa.large_binary()
"""The type of the byte strings that represent structs and lists in comparisons."""

SPARK_MARKS = frozenset({b"variant", b"geometry", b"geography"})
"""How Spark marks, in Arrow, a struct that represents a special type."""

SESSION_TIMESTAMP = pa.timestamp("us", "session")
"""The type of CAST(… AS TIMESTAMP) until binding decides which zone it has."""


def is_text(type_: pa.DataType) -> bool:
    return bool(t.is_string(type_) or t.is_large_string(type_) or t.is_string_view(type_))


def is_bytes(type_: pa.DataType) -> bool:
    return bool(
        t.is_binary(type_) or t.is_large_binary(type_) or t.is_binary_view(type_) or t.is_fixed_size_binary(type_)
    )


def is_list(type_: pa.DataType) -> bool:
    return bool(
        t.is_list(type_)
        or t.is_large_list(type_)
        or t.is_fixed_size_list(type_)
        or t.is_list_view(type_)
        or t.is_large_list_view(type_)
    )


def is_number(type_: pa.DataType) -> bool:
    return bool(t.is_integer(type_) or t.is_floating(type_) or t.is_decimal(type_))


def is_exact(type_: pa.DataType) -> bool:
    """Whether sums and differences of this type are exact (or fail loudly)."""
    return bool(t.is_integer(type_) or t.is_decimal(type_) or is_instant(type_) or t.is_duration(type_))


def is_instant(type_: pa.DataType) -> bool:
    return bool(t.is_date(type_) or t.is_timestamp(type_))


def is_period(type_: pa.DataType | None) -> bool:
    """Whether values are pandas' periods: numbers that are only meaningful together with a frequency."""
    return isinstance(type_, pa.BaseExtensionType) and type_.extension_name == "pandas.period"


def has_spark_mark(type_: pa.DataType) -> bool:
    """Whether a struct represents a VARIANT or a geographic value, whose bytes do not show equality."""
    return bool(t.is_struct(type_) and any(SPARK_MARKS & set(field.metadata or ()) for field in type_))


def plain(type_: pa.DataType) -> pa.DataType:
    """The type that values of this one are compared in: encodings and rare widths are removed."""
    if isinstance(type_, pa.BaseExtensionType):
        return plain(type_.storage_type)
    if t.is_dictionary(type_) or t.is_run_end_encoded(type_):
        return plain(type_.value_type)
    if t.is_string_view(type_):
        return STRING
    if t.is_binary_view(type_) or t.is_fixed_size_binary(type_):
        return pa.binary()
    if t.is_float16(type_):
        return pa.float32()
    if t.is_date64(type_):
        return DATE
    if t.is_decimal32(type_) or t.is_decimal64(type_):
        return pa.decimal128(type_.precision, type_.scale)
    return type_


def common(left: pa.DataType, right: pa.DataType, zone: str | None = None) -> pa.DataType | None:
    """The common type in which two plain types are compared; None if they cannot be.

    The caller handles time zones; inside structs and lists, timestamps without one are in `zone`.
    """
    if t.is_null(left) or t.is_null(right):
        left = right = right if t.is_null(left) else left
    if t.is_nested(left) or t.is_nested(right):
        return _common_nested(left, right, zone)
    if left == right:
        return left
    if is_number(left) and is_number(right):
        return _common_number(left, right)
    if is_instant(left) and is_instant(right):
        return _common_instant(left, right)
    if t.is_duration(left) and t.is_duration(right):
        return pa.duration(finest(left.unit, right.unit))
    if t.is_time(left) and t.is_time(right):
        unit = finest(left.unit, right.unit)
        return pa.time32(unit) if unit in ("s", "ms") else pa.time64(unit)
    if is_text(left) and is_text(right):
        return pa.large_string()
    if is_bytes(left) and is_bytes(right):
        return pa.large_binary()
    return None


def paired_parts(left: pa.DataType, right: pa.DataType) -> list[tuple[pa.DataType, pa.DataType]] | None:
    """The elements of two lists, or the fields of two structs by position, as plain types; None for other types.

    Names of fields do not matter, as in Spark.
    """
    if is_list(left) and is_list(right):
        return [(plain(left.value_type), plain(right.value_type))]
    if t.is_struct(left) and t.is_struct(right) and left.num_fields == right.num_fields:
        return [(plain(a.type), plain(b.type)) for a, b in zip(left, right, strict=True)]
    return None


def _common_nested(left: pa.DataType, right: pa.DataType, zone: str | None) -> pa.DataType | None:
    pairs = paired_parts(left, right)
    if pairs is None or has_spark_mark(left) or has_spark_mark(right):
        return None
    parts = [common_part(*pair, zone) for pair in pairs]
    if any(part is None for part in parts):
        return None
    if is_list(left):
        return pa.large_list(parts[0])
    return pa.struct([pa.field(f"col{i}", part) for i, part in enumerate(parts, 1)])  # Spark's names for unnamed fields


def common_part(left: pa.DataType, right: pa.DataType, zone: str | None) -> pa.DataType | None:
    """The common type for plain parts of structs and lists; None if they cannot be compared."""
    if mixes_clocks(left, right):
        units = [type_.unit for type_ in (left, right) if t.is_timestamp(type_)]
        return None if zone is None else pa.timestamp(finest(units[0], units[-1]), zone)
    type_ = common(left, right, zone)
    return None if type_ is not None and t.is_interval(type_) else type_


def mixes_clocks(left: pa.DataType, right: pa.DataType) -> bool:
    """Whether exactly one of two instants has a time zone."""
    if not is_instant(left) or not is_instant(right):
        return False
    zones = [None if t.is_date(type_) else type_.tz for type_ in (left, right)]
    return (zones[0] is None) != (zones[1] is None)


def finest(left: str, right: str) -> str:
    return max(left, right, key=UNITS.index)


def _common_number(left: pa.DataType, right: pa.DataType) -> pa.DataType:
    if t.is_floating(left) or t.is_floating(right):
        return DOUBLE  # two floats of one width were equal types already
    if t.is_integer(left) and t.is_integer(right):
        return _common_integer(left, right)
    return _common_decimal(as_decimal(left), as_decimal(right))


def _common_integer(left: pa.DataType, right: pa.DataType) -> pa.DataType:
    if t.is_signed_integer(left) == t.is_signed_integer(right):
        return left if left.bit_width > right.bit_width else right
    signed, unsigned = (left, right) if t.is_signed_integer(left) else (right, left)
    if unsigned.bit_width == 64:
        return pa.decimal128(20, 0)
    return {8: pa.int8(), 16: pa.int16(), 32: pa.int32(), 64: INT64}[max(signed.bit_width, 2 * unsigned.bit_width)]


def as_decimal(type_: pa.DataType) -> pa.DataType:
    """The narrowest decimal that holds every value of an integer type; a decimal type unchanged."""
    return type_ if t.is_decimal(type_) else pa.decimal128(INTEGER_DIGITS[type_.bit_width], 0)


def decimal(precision: int, scale: int, most: int = MOST_DIGITS) -> pa.DataType:
    return pa.decimal128(precision, scale) if most <= MOST_DIGITS else pa.decimal256(precision, scale)


def _most_digits(left: pa.DataType, right: pa.DataType) -> int:
    return MOST_DIGITS if max(left.precision, right.precision) <= MOST_DIGITS else WIDEST


def _common_decimal(left: pa.DataType, right: pa.DataType) -> pa.DataType:
    scale = max(left.scale, right.scale)
    whole = max(left.precision - left.scale, right.precision - right.scale)
    is_wide = t.is_decimal256(left) or t.is_decimal256(right)
    precision = min(whole + scale, WIDEST)
    return decimal(precision, scale, WIDEST if is_wide else precision)


def _common_instant(left: pa.DataType, right: pa.DataType) -> pa.DataType:
    if t.is_date(left):
        return right
    if t.is_date(right):
        return left
    zone = left.tz if left.tz == right.tz else "UTC"
    return pa.timestamp(finest(left.unit, right.unit), zone)


def decimal_arithmetic(function: str, left: pa.DataType, right: pa.DataType) -> pa.DataType:
    """Spark's precision and scale for decimal arithmetic."""
    p1, s1, p2, s2 = left.precision, left.scale, right.precision, right.scale
    match function:
        case "+" | "-":
            scale = max(s1, s2)
            precision = max(p1 - s1, p2 - s2) + scale + 1
        case "*":
            scale, precision = s1 + s2, p1 + p2 + 1
        case "/":
            scale = max(6, s1 + p2 + 1)
            precision = p1 - s1 + s2 + scale
        case _:  # remainder
            scale = max(s1, s2)
            precision = min(p1 - s1, p2 - s2) + scale
    most = _most_digits(left, right)
    if precision > most:  # keep the whole digits, drop fraction digits, but keep at least six
        whole = precision - scale
        precision, scale = most, max(most - whole, min(scale, 6))
    return decimal(max(precision, 1), scale, most)


def is_lossless(source: pa.DataType, target: pa.DataType) -> bool:
    """Whether a cast keeps every value, its order and its sums: such a cast can be ignored.

    A cast that removes the encoding of a number or an instant does not count: arithmetic and kernels compute with the
    plain type, and a date64 may have a time of day that the date lacks.
    """
    if source == target:
        return True
    if t.is_integer(source) and t.is_integer(target):
        return bool(common(source, target) == target)
    if t.is_integer(source) and t.is_decimal(target):
        return bool(target.precision - target.scale >= INTEGER_DIGITS[source.bit_width])
    if t.is_decimal(source) and t.is_decimal(target):
        return bool(target.scale >= source.scale and target.precision - target.scale >= source.precision - source.scale)
    if t.is_timestamp(source) and t.is_timestamp(target):
        return bool(source.tz == target.tz and finest(source.unit, target.unit) == target.unit)
    if t.is_duration(source) and t.is_duration(target):
        return bool(finest(source.unit, target.unit) == target.unit)
    pairs = paired_parts(source, target)
    if pairs is not None:
        return all(is_lossless(*pair) for pair in pairs)
    return bool(plain(source) == plain(target) and not (is_number(plain(target)) or is_exact(target)))


SPARK_NAMES = {
    pa.bool_(): "BOOLEAN",
    pa.int8(): "TINYINT",
    pa.int16(): "SMALLINT",
    pa.int32(): "INT",
    pa.int64(): "BIGINT",
    pa.uint8(): "SMALLINT",
    pa.uint16(): "INT",
    pa.uint32(): "BIGINT",
    pa.uint64(): "DECIMAL(20,0)",
    pa.float32(): "FLOAT",
    pa.float64(): "DOUBLE",
    pa.date32(): "DATE",
}


def spark_name(type_: pa.DataType) -> str:
    """The type as Spark SQL spells it."""
    type_ = plain(type_)
    if type_ in SPARK_NAMES:
        return SPARK_NAMES[type_]
    if t.is_decimal(type_):
        return f"DECIMAL({min(type_.precision, MOST_DIGITS)},{type_.scale})"
    if is_text(type_):
        return "STRING"
    if is_bytes(type_):
        return "BINARY"
    if t.is_timestamp(type_):
        return "TIMESTAMP" if type_.tz else "TIMESTAMP_NTZ"
    if t.is_duration(type_):
        return "INTERVAL DAY TO SECOND"
    if t.is_null(type_):
        return "VOID"
    if is_list(type_):
        return f"ARRAY<{spark_name(type_.value_type)}>"
    if t.is_struct(type_):
        return f"STRUCT<{', '.join(f'{quote_name(field.name)}: {spark_name(field.type)}' for field in type_)}>"
    return str(type_).upper()
