import numpy as np
import pyarrow as pa

from dovetail.kernels.hashing import combine, hash_codes, hash_strings
from dovetail.matching.equal_keys import hash_column

CODES = [0, -5451962507482445012, 7256831767414464289, 7301644554408135072]
STRINGS = [-7160610219483255062, -6124234764004268503, -2923020643531738951]


def test_hashes_are_the_same_on_every_machine() -> None:
    assert hash_codes(np.array([0, 1, -1, 2**62])).tolist() == CODES
    text = b"abcdefghij"
    assert hash_strings(np.array([0, 0, 1, 10]), np.frombuffer(text, np.uint8)).tolist() == STRINGS


def test_different_codes_have_different_hashes() -> None:
    codes = np.arange(-50_000, 50_000)
    assert len(np.unique(hash_codes(codes))) == len(codes)


def test_a_string_hash_depends_on_every_byte_and_the_length() -> None:
    words = ["", "a", "b", "aa", "ab", "ba", "a\0", "\0a", "abcdefgh", "abcdefg", "abcdefghi", "bbcdefgh", "é"]
    assert len(set(hash_column(pa.array(words)).tolist())) == len(words)
    assert hash_column(pa.array(["x", *words]).slice(1)).tolist() == hash_column(pa.array(words)).tolist()
    assert hash_column(pa.array(words, pa.large_string())).tolist() == hash_column(pa.array(words)).tolist()


def test_combined_hashes_depend_on_the_order_of_the_keys() -> None:
    a, b = hash_codes(np.array([1])), hash_codes(np.array([2]))
    ab, ba = a.copy(), b.copy()
    combine(ab, b)
    combine(ba, a)
    assert ab[0] != ba[0]
