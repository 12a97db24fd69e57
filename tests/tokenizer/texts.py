"""Texts that try a tokenizer, for property tests."""

from hypothesis import strategies as st

# White space of every kind, and the four controls that Python alone counts as such.
SPACES = [*" \t\n\r\v\f\x1c\x1d\x1e\x1f\x85\xa0\u1680\u2003\u2028\u202f\u3000\u200b\ufeff"]
FRAGMENTS = [
    *SPACES,
    *["  ", "\n\n", " \n", "\r\n", "' ", " '", "''", "'s", "'S", "'re", "'ve", "'ll", "'LL", "'d"],
    *["'m", "'t", "don't", "o'clock", "the", " The", "don’t", "I", "x" * 9, "12", " 345", "½", "Ⅷ"],
    *[
        "٣",
        "é",
        "e\u0301",
        "ß",
        "日本",
        "한국어",
        "שלום",
        "हिन्दी",
        "ไทย",
        "👍🏽",
        "👩\u200d👩\u200d👧",
        "𝕏",
        "𐍈",
    ],
    *["\U00031350", "\U0001e4d0", "\U0001e4f0", "\u0378", "\ue000", "\U000e0001", "\U0010ffff"],
    *["\x00", "\x7f", "\ufffd", "<|endoftext|>", "_", "...", " —", "“", "\\n", "C++", "a.b", "$"],
]
SURROGATES = ["\ud83d", "\udc4d", "\ud83d\udc4d", "\udc4d\ud83d", "\ud83d\n"]

characters = st.characters(exclude_categories=["Cs"])
plain = st.one_of(
    st.text(characters, max_size=30),
    st.text(st.sampled_from([*SPACES, "a", "1", "'"]), max_size=20),
    st.lists(st.one_of(st.sampled_from(FRAGMENTS), characters), max_size=16).map("".join),
    st.tuples(st.sampled_from(FRAGMENTS), st.integers(1, 60)).map(lambda pair: pair[0] * pair[1]),
)
with_surrogates = st.lists(
    st.one_of(st.sampled_from(SURROGATES), st.sampled_from(FRAGMENTS), characters), max_size=12
).map("".join)
any_text = st.one_of(plain, with_surrogates)
