"""Survivors that are no faults, or that no test is to catch, each with the reason."""

from __future__ import annotations

EXPLAINED: dict[tuple[str, str, str], str] = {
    ("_whole_pow_numpy", 'y.dtype.kind == "u"', "False"):
        "Equal answers: unsigned exponents are never negative, so that the longer way chooses the same power.",
    ("jvp_program", '("jvp", wrt)', "(wrt,)"):
        "Equal answers: all other keys of derived programs begin with a word, so that none is equal to this one.",
    ("search", '"naive forms", known', "(known,)"):
        "Equal answers: all other keys of programs begin with a word, so that none is equal to this one.",
    ("_array", 'array.astype(array.dtype.newbyteorder("<"))', "array"):
        "Equal answers where numbers are little-endian in memory, as on all machines that tests run on.",
    ("dot_numpy", "y.astype(np.float32)", "y"):
        "Equal answers: beside an operand of float32 NumPy takes the narrower one as float32 too.",
    ("short_form", "1", "2"):
        "Equal answers: of how many operands a form is, matters where it is read, and this one is written alone.",
    ("step", "fnp.conj(basis)", "basis"):
        "Equal answers but for rounding: whatever one of the two passes leaves, the other takes out and counts.",
    ("fxgrad/engine/tracing/interning.py", "0", "1"):
        "Equal answers: the table counts one entry more until it is first emptied.",
    ("_places", "1", "2"):
        "Equal answers: of places in the padding it is asked whether they are negative, and no more.",
    ("_stored", "not any(stores)", "False"):
        "Equal answers: a program of which nothing is stored in another way is packed as the same one.",
    ("at_once", '("at once", layout)', "(layout,)"):
        "Equal answers: all other keys of derived programs begin with a word, so that none is equal to this one.",
    ("finite_outputs", "(aval.dtype, aval.size)", "(aval.size,)"):
        "Equal answers: products of two dtypes are as finite as those of one, and take longer.",
    ("_fold", "np.int64", "None"):
        "Equal answers: the numbers of keys are whole already.",
    ("_argsort", "2", "3"):
        "Equal answers: places as a third key leave equal elements in the order in which a stable sort has them.",
}
"""By function (the file, for what is in none), and what was replaced by what."""
