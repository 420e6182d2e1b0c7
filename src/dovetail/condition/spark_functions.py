"""The allowlist of Spark functions that SQL text may call: those that only compute a value from their arguments.

Text may come from untrusted sources, and Spark has functions that call any Java method in the driver (java_method,
reflect, try_reflect), read files (the Avro, Protobuf and XML functions take a path as schema) or are not deterministic
(rand, uuid, aes_encrypt). Functions that a session or a catalogue has registered can do anything. So all text that
Spark will evaluate is checked first, in the form it is passed to Spark: a word before a parenthesis must be on the
list. Names with a dot before them are functions of a catalogue, even if Spark has one of that name.

The list has the functions of Spark 4.3, grouped as in its documentation. Aggregates, generators and window functions
are not allowed in a condition.
"""

from __future__ import annotations

import re

from sqlglot import Token, TokenType

from dovetail.condition.dialect import DIALECT
from dovetail.errors import ConditionError

FUNCTIONS = frozenset(
    """
    and equal_null ilike in isnan isnotnull isnull like not or regexp regexp_like rlike
    between coalesce if ifnull nanvl nullif nullifzero nvl nvl2 when zeroifnull
    bigint binary boolean cast date decimal double float int smallint string time timestamp tinyint
    abs acos acosh asin asinh atan atan2 atanh bin bround cbrt ceil ceiling conv cos cosh cot csc degrees div e
    exp expm1 factorial floor greatest hex hypot least ln log log10 log1p log2 mod negative pi pmod positive pow
    power radians rint round sec sign signum sin sinh sqrt tan tanh try_add try_divide try_mod try_multiply
    try_subtract unhex width_bucket
    bit_count bit_get getbit shiftleft shiftright shiftrightunsigned
    vector_avg vector_cosine_similarity vector_inner_product vector_l2_distance vector_norm vector_normalize
    vector_sum
    add_months convert_timezone curdate current_date current_time current_timestamp current_timezone date_add
    date_diff date_format date_from_unix_date date_part date_sub date_trunc dateadd datediff datepart day
    dayname dayofmonth dayofweek dayofyear extract from_unixtime from_utc_timestamp hour last_day localtime
    localtimestamp make_date make_dt_interval make_interval make_time make_timestamp make_timestamp_ltz
    make_timestamp_ntz make_ym_interval minute month monthname months_between next_day now quarter second
    time_bucket time_diff time_from_micros time_from_millis time_from_seconds time_to_micros time_to_millis
    time_to_seconds time_trunc timestamp_micros timestamp_millis timestamp_nanos timestamp_seconds to_date
    to_time to_timestamp to_timestamp_ltz to_timestamp_ntz to_unix_timestamp to_utc_timestamp trunc
    try_make_interval try_make_timestamp try_make_timestamp_ltz try_make_timestamp_ntz try_to_date try_to_time
    try_to_timestamp unix_date unix_micros unix_millis unix_nanos unix_seconds unix_timestamp weekday weekofyear
    window window_time year
    ascii base64 bit_length btrim char char_length character_length chr collate collation concat_ws contains
    decode elt encode endswith find_in_set format_number format_string from_base32 initcap instr is_valid_utf8
    jaro_winkler_similarity lcase left len length levenshtein locate lower lpad ltrim luhn_check make_valid_utf8
    mask octet_length overlay position printf quote regexp_count regexp_extract regexp_extract_all regexp_instr
    regexp_replace regexp_substr repeat replace right rpad rtrim sentences soundex space split split_part
    startswith substr substring substring_index to_base32 to_binary to_char to_number to_varchar translate trim
    try_to_binary try_to_number try_validate_utf8 ucase unbase64 upper validate_utf8
    crc32 hash md5 sha sha1 sha2 xxhash64
    parse_url try_parse_url try_url_decode url_decode url_encode
    array array_append array_compact array_contains array_distinct array_except array_insert array_intersect
    array_join array_max array_min array_position array_prepend array_remove array_repeat array_size array_union
    arrays_overlap arrays_zip flatten get sequence slice sort_array
    cardinality concat element_at reverse size try_element_at
    aggregate array_sort exists filter forall map_filter map_zip_with reduce transform transform_keys
    transform_values zip_with
    map map_concat map_contains_key map_entries map_from_arrays map_from_entries map_keys map_values str_to_map
    named_struct struct
    from_json get_json_object json_array_length json_object_keys schema_of_json to_json
    from_csv schema_of_csv to_csv
    to_xml xpath xpath_boolean xpath_double xpath_float xpath_int xpath_long xpath_number xpath_short
    xpath_string
    is_valid_variant is_variant_null parse_json schema_of_variant to_variant_object try_parse_json
    try_variant_array_append try_variant_get try_variant_insert try_variant_set variant_array_append
    variant_delete variant_get variant_insert variant_set variant_strip_nulls
    st_asbinary st_geogfromwkb st_geomfromwkb st_setsrid st_srid
    approx_top_k_estimate hll_sketch_estimate hll_union kll_sketch_get_n_bigint kll_sketch_get_n_double
    kll_sketch_get_n_float kll_sketch_get_quantile_bigint kll_sketch_get_quantile_double
    kll_sketch_get_quantile_float kll_sketch_get_rank_bigint kll_sketch_get_rank_double
    kll_sketch_get_rank_float kll_sketch_merge_bigint kll_sketch_merge_double kll_sketch_merge_float
    kll_sketch_to_string_bigint kll_sketch_to_string_double kll_sketch_to_string_float theta_difference
    theta_intersection theta_sketch_estimate theta_union tuple_difference_double tuple_difference_integer
    tuple_difference_theta_double tuple_difference_theta_integer tuple_intersection_double
    tuple_intersection_integer tuple_intersection_theta_double tuple_intersection_theta_integer
    tuple_sketch_estimate_double tuple_sketch_estimate_integer tuple_sketch_summary_double
    tuple_sketch_summary_integer tuple_sketch_theta_double tuple_sketch_theta_integer tuple_union_double
    tuple_union_integer tuple_union_theta_double tuple_union_theta_integer
    aes_decrypt assert_true bitmap_bit_position bitmap_bucket_number bitmap_count current_catalog
    current_database current_path current_schema current_user hmac raise_error session_user try_aes_decrypt
    typeof user version try_cast timestampadd timestampdiff
    """.split()  # noqa: SIM905  one name per line would be eight pages
)
KEYWORDS = frozenset(
    """
    all and any as between both by case collate dec distinct div else end escape for from ilike in interval is leading
    like not numeric or overlaps placing regexp rlike some then to trailing varchar when character
    """.split()  # noqa: SIM905
)
"""Words that may stand before a parenthesis without being a call. Types take their length there."""
STATEMENTS = frozenset({"select", "table", "using", "values", "with"})
"""Keywords of queries, which are refused where they are parsed: a query can start programs (TRANSFORM … USING)."""


def refuse_calls(sql: str) -> None:
    """Raises ConditionError if the text calls a function that is not on the list."""
    tokens = DIALECT.tokenize(sql)
    for place, token in enumerate(tokens):
        quoted = token.token_type is TokenType.IDENTIFIER
        if token.token_type is TokenType.STRING or not (quoted or re.match(r"[^\W\d]", token.text)):
            continue
        word = token.text.lower()
        if not quoted and word in STATEMENTS and not _follows_dot(tokens, place):
            raise ConditionError(f"{token.text.upper()}: a query cannot be part of this text.")
        is_call = place + 1 < len(tokens) and tokens[place + 1].token_type is TokenType.L_PAREN
        if is_call and (_follows_dot(tokens, place) or word not in FUNCTIONS | (frozenset() if quoted else KEYWORDS)):
            raise ConditionError(
                f"{token.text}(…): text may call functions of Spark that compute a value and do nothing else, and this "
                "is none of them. Compute it as a column of the input first. On Spark, trusted=True allows every "
                "function: give it for text of your own only."
            )


def _follows_dot(tokens: list[Token], place: int) -> bool:
    return place > 0 and tokens[place - 1].token_type is TokenType.DOT
