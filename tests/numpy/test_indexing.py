"""Indexing and updates: any index that NumPy takes gives what NumPy gives, traced or not, and its derivative."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import fxgrad
import fxgrad.numpy as fnp
from fxgrad.errors import ConcretizationError, DTypeError, IndexingError, MutationError, ShapeError
from tests.support.tiers import examples

Shape = tuple[int, ...]
SHAPES = st.lists(st.integers(0, 4), min_size=1, max_size=4).map(tuple)


def counted(shape: Shape) -> Any:
    return np.arange(1.0, 1.0 + int(np.prod(shape))).reshape(shape)


@st.composite
def indices(draw: Any, shape: Shape) -> Any:
    """An index for `shape`: integers, slices, None, '...', arrays of integers and bools, in any mixture."""
    count = draw(st.integers(0, len(shape)))
    broadcast = draw(st.sampled_from([(), (1,), (2,), (3,), (2, 3)]))
    entries: list[Any] = []
    for extent in shape[:count]:
        kinds = ["slice"] + (["int", "array", "list"] if extent else [])
        kind = draw(st.sampled_from(kinds))
        if kind == "slice":
            entries.append(draw(st.slices(extent)))
        elif kind == "int":
            entries.append(draw(st.integers(-extent, extent - 1)))
        elif kind == "array":
            sizes = tuple(draw(st.sampled_from([1, size])) for size in broadcast)
            entries.append(draw(hnp.arrays(np.int64, sizes, elements=st.integers(-extent, extent - 1))))
        else:
            length = broadcast[-1] if broadcast else 1
            entries.append(draw(st.lists(st.integers(-extent, extent - 1), min_size=length, max_size=length)))
    for _ in range(draw(st.integers(0, 2))):
        entries.insert(draw(st.integers(0, len(entries))), None)
    if draw(st.booleans()):
        # What stands behind '...' belongs to the last axes.
        place = draw(st.integers(0, len(entries)))
        if all(isinstance(entry, slice | None) for entry in entries[place:]):
            entries.insert(place, Ellipsis)
    if len(entries) == 1 and draw(st.booleans()):
        return entries[0]
    return tuple(entries)


@st.composite
def cases(draw: Any) -> tuple[Shape, Any]:
    shape = draw(SHAPES)
    return shape, draw(indices(shape))


@st.composite
def masks(draw: Any) -> tuple[Shape, Any]:
    """A mask of the first axes, or of one axis among slices."""
    shape = draw(SHAPES)
    first = draw(st.integers(0, len(shape) - 1))
    last = draw(st.integers(first + 1, len(shape)))
    mask = draw(hnp.arrays(np.bool_, shape[first:last]))
    index = (*(draw(st.slices(extent)) for extent in shape[:first]), mask)
    return shape, index if first or draw(st.booleans()) else mask


def check(shape: Shape, index: Any) -> None:
    x = counted(shape)
    expected = x[index]
    weights = counted(expected.shape)
    program = fxgrad.make_program(lambda t: t[index])(x)
    for got in (program(x), fxgrad.jit(lambda t: t[index])(x)):
        np.testing.assert_array_equal(np.asarray(got), expected)
        assert got.dtype == expected.dtype
    gradient = fxgrad.grad(lambda t: fnp.sum(t[index] * weights))(x)
    by_hand = np.zeros(shape)
    np.add.at(by_hand, index, weights)
    np.testing.assert_array_equal(gradient, by_hand)


@examples(150)
@given(cases())
def test_any_index(case: tuple[Shape, Any]) -> None:
    check(*case)


@examples(40)
@given(masks())
def test_any_mask(case: tuple[Shape, Any]) -> None:
    check(*case)


@examples(100)
@given(cases(), st.sampled_from(["set", "add", "multiply", "min", "max", "subtract"]))
def test_any_update(case: tuple[Shape, Any], method: str) -> None:
    shape, index = case
    x = counted(shape)
    values = counted(x[index].shape)[::-1] / 7 if x[index].ndim else np.float64(0.5)
    ufuncs = {"add": np.add, "multiply": np.multiply, "min": np.minimum, "max": np.maximum, "subtract": np.subtract}
    expected = x.copy()
    if method == "set":
        expected[index] = values
    else:
        ufuncs[method].at(expected, index, values)
    functions = lambda t: getattr(t.at[index], method)(values), lambda t: getattr(fnp.at(t)[index], method)(values)
    for function in functions:
        got = fxgrad.make_program(function)(x)(x)
        np.testing.assert_allclose(got, expected, rtol=1e-12)
    if method == "set":  # which of several values stays is not defined for XLA
        return
    np.testing.assert_allclose(np.asarray(fxgrad.jit(function)(x)), expected, rtol=1e-12)


BASIC: list[Any] = [
    0, -1, slice(None), slice(1, None), slice(None, None, -1), slice(None, None, 2), slice(3, 0, -2), None, Ellipsis,
    (0, 1), (slice(1, 3), None, 2), (..., 0), (None, ..., None), (slice(None), -1), (slice(2, 2),),
]


@pytest.mark.parametrize("index", BASIC, ids=repr)
def test_basic_indexing_is_no_gather(index: Any) -> None:
    program = fxgrad.make_program(lambda x: x[index])(counted((4, 3)))
    names = {equation.primitive.name for equation in program.equations}
    assert names <= {"slice", "rev", "reshape"}


@pytest.mark.parametrize("index", BASIC, ids=repr)
def test_basic_updates_are_one_scatter(index: Any) -> None:
    x = counted((4, 3))
    program = fxgrad.make_program(lambda x: x.at[index].set(5.0))(x)
    names = [equation.primitive.name for equation in program.equations]
    assert names.count("scatter") == (0 if 0 in x[index].shape else 1)
    assert "gather" not in names


# --- indices that are traced --------------------------------------------------------------------------------------


def test_traced_integers() -> None:
    x, i = counted((4, 3)), np.array([2, -1])
    for function in (lambda x, i: x[i], lambda x, i: x[:, i[0]], lambda x, i: x[i[0], i[1]], lambda x, i: x[i, 1:],
                     lambda x, i: x[i[:, None], np.array([0, 2])], lambda x, i: x[i[0]], lambda x, i: x[i[0], ::-1]):
        np.testing.assert_array_equal(fxgrad.jit(function)(x, i), function(x, i))
        np.testing.assert_array_equal(fxgrad.make_program(function)(x, i)(x, i), function(x, i))


def test_traced_integers_under_vmap() -> None:
    x, i = counted((4, 3)), np.array([2, -1, 0])
    # NumPy's own arrays cannot be indexed by what is traced: that is `take`.
    np.testing.assert_array_equal(fxgrad.vmap(lambda i: fnp.take(x, i, axis=0))(i), x[i])
    np.testing.assert_array_equal(fxgrad.vmap(lambda row, i: row[i])(x[:3], i), x[[0, 1, 2], i])


@pytest.mark.parametrize("method", ["set", "add", "multiply", "min", "max"])
def test_traced_updates(method: str) -> None:
    x, i, values = counted((4,)), np.array([2, -1]), np.array([10.0, 0.5])

    def function(x: Any, i: Any, values: Any) -> Any:
        return getattr(x.at[i], method)(values)

    expected = getattr(fnp.at(x)[i], method)(values)
    np.testing.assert_array_equal(fxgrad.jit(function)(x, i, values), expected)
    np.testing.assert_array_equal(fxgrad.make_program(function)(x, i, values)(x, i, values), expected)


def test_masks_of_known_value() -> None:
    x = np.array([1.0, -2.0, 3.0])
    np.testing.assert_array_equal(fxgrad.grad(lambda x: np.sum(x[x > 0] ** 2))(x), [2.0, 0.0, 6.0])


def test_integers_of_known_value() -> None:
    x = np.array([1.0, -2.0, 3.0])
    np.testing.assert_array_equal(fxgrad.grad(lambda x: x[:np.argmax(x)].sum())(x), [1.0, 1.0, 0.0])


def test_iteration_and_membership() -> None:
    x = counted((2, 3))
    program = fxgrad.make_program(lambda x: sum(row[0] for row in x))(x)
    assert [equation.primitive.name for equation in program.equations].count("unstack") == 1
    assert fxgrad.grad(lambda x: x.sum() if 3.0 in x else -x.sum())(x)[0, 0] == 1.0


# --- the other methods of `at` ------------------------------------------------------------------------------------


def test_get_divide_power_apply() -> None:
    x = np.array([1.0, 2.0, 4.0])
    place = fnp.at(x)[1:]
    np.testing.assert_array_equal(place.get(), [2.0, 4.0])
    np.testing.assert_array_equal(place.divide(2.0), [1.0, 1.0, 2.0])
    np.testing.assert_array_equal(fnp.at(x)[[0, 0, 2]].divide(2.0), [0.25, 2.0, 2.0])
    np.testing.assert_array_equal(place.power(2), [1.0, 4.0, 16.0])
    np.testing.assert_array_equal(place.apply(np.sqrt), [1.0, np.sqrt(2.0), 2.0])


@pytest.mark.parametrize(("mode", "expected"), [("fill", [3.0, np.nan]), ("clip", [3.0, 3.0]), ("wrap", [3.0, 2.0])])
def test_modes_of_get(mode: str, expected: list[float]) -> None:
    x, i = np.array([1.0, 2.0, 3.0]), np.array([2, 7])
    np.testing.assert_array_equal(fnp.at(x)[i].get(mode=mode), expected)
    np.testing.assert_array_equal(fxgrad.jit(lambda x, i: x.at[i].get(mode=mode))(x, i), expected)
    np.testing.assert_array_equal(fxgrad.jit(lambda x: x.at[7].get(mode=mode))(x), expected[1])


def test_fill_value_and_drop() -> None:
    x, i = np.array([1.0, 2.0]), np.array([1, 7])
    np.testing.assert_array_equal(fnp.at(x)[i].get(mode="fill", fill_value=-1.0), [2.0, -1.0])
    np.testing.assert_array_equal(fnp.at(x)[i].set(9.0, mode="drop"), [1.0, 9.0])


def test_updates_keep_the_dtype() -> None:
    x = np.array([1, 2, 3], np.int8)
    result = fxgrad.jit(lambda x: x.at[0].set(2.7))(x)
    assert result.dtype == np.int8
    assert list(result) == [2, 2, 3]


# --- errors -------------------------------------------------------------------------------------------------------


def message(function: Any, *args: Any, transform: Any = fxgrad.grad, error: Any = IndexingError) -> str:
    with pytest.raises(error) as caught:
        transform(function)(*args)
    text, _, line = str(caught.value).partition("\n  at ")
    assert line.startswith("test_indexing.py:"), str(caught.value)
    return text


X = np.zeros((5, 3))


@pytest.mark.parametrize(("index", "text"), [
    (5, "x[...]: index 5 is out of range for axis 0 of size 5; in range are -5 to 4"),
    ((0, -4), "x[...]: index -4 is out of range for axis 1 of size 3; in range are -3 to 2"),
    ((slice(None), [0, 3]), "x[...]: index 3 is out of range for axis 1 of size 3; in range are -3 to 2"),
    ((0, 0, 0), "x[...]: 3 indices for an array with 2 axes (shape (5, 3))"),
    ((..., ...), "x[...]: an index can have only one '...'"),
    (1.0, "x[...]: an index must be an integer, a slice, None, '...', or an array of integers or bools, got float"),
    (np.float32(1), "x[...]: an index must be an integer, got float32; convert with i.astype(int)"),
    (np.zeros((4,), bool),
     "x[mask]: a mask of shape (4,) for an array of shape (5, 3): axis 0 has size 5, where the mask has size 4"),
], ids=repr)
def test_messages(index: Any, text: str) -> None:
    assert message(lambda x: np.sum(x[index]), X) == text


def test_out_of_range_when_the_program_runs() -> None:
    program = fxgrad.make_program(lambda x, i: x[i])(X, 0)
    with pytest.raises(IndexingError, match="index 7 is out of range for axis 0 of size 5; in range are -5 to 4"):
        program(X, 7)


def test_a_mask_under_jit() -> None:
    text = message(lambda x: x[x > 0], X, transform=fxgrad.jit, error=ConcretizationError)
    assert "a mask x[mask], whose result has a size that depends on it" in text
    assert "for which you can write where(mask, x, 0)" in text


def test_values_that_do_not_fit() -> None:
    assert message(lambda x: np.sum(x.at[0].set(np.zeros(2))), X, error=ShapeError) == (
        "x.at[...]: values of shape (2,) for a place of shape (3,); they must broadcast to it")


def test_item_assignment_names_at() -> None:
    def assign(x: Any) -> Any:
        x[0] = 1.0
        return np.sum(x)

    assert "Write x = x.at[0].set(1.0)" in message(assign, X, error=MutationError)


def test_take_of_floats() -> None:
    assert message(lambda x: np.sum(np.take(x, np.array([0.0]))), X, error=DTypeError) == (
        "take: indices must be integers, got float64; convert with indices.astype(int)")


@pytest.mark.parametrize("axes", [1, 2])
@pytest.mark.parametrize("method", ["set", "add", "subtract", "multiply", "min", "max"])
def test_updates_at_a_mask_of_unknown_value_by_one_number(method: str, axes: int) -> None:
    x, mask = np.arange(6.0).reshape(2, 3) - 2.0, np.array([[True, False, True], [False, True, False]])
    chosen = mask if axes == 2 else mask[:, 0]

    def update(x: Any, chosen: Any) -> Any:
        return getattr(fnp.at(x)[chosen], method)(1.5)

    def energy(x: Any, chosen: Any) -> Any:
        return np.sum(update(x, chosen) ** 2)
    expected = update(x, chosen)  # the value of the mask is known here
    np.testing.assert_allclose(fxgrad.jit(update)(x, chosen), expected, rtol=1e-12)
    np.testing.assert_allclose(fxgrad.vmap(update)(x[None], chosen[None])[0], expected, rtol=1e-12)
    np.testing.assert_allclose(fxgrad.jit(fxgrad.grad(energy))(x, chosen), fxgrad.grad(energy)(x, chosen), rtol=1e-12)


_ALL = slice(None)


@pytest.mark.slow
@pytest.mark.parametrize(("masked", "index", "shape"), [
    ((0,), ("mask",), (4,)), ((0,), ("mask", 1), (4,)), ((0,), ("mask", ..., 1), (2,)),
    ((0,), ("mask", _ALL, -1), (2,)),
    ((2,), (1, _ALL, "mask"), (2,)), ((2,), (_ALL, 1, "mask"), (3, 1)), ((0, 1), ("mask", 1), ()),
    ((1, 2), (1, "mask"), (1,)), ((1, 2), (_ALL, "mask"), (3, 1)), ((2,), (..., "mask"), (2, 1)),
    ((0,), ("mask", slice(None, None, -1), 2), (2,)), ((1, 2), (slice(0, 2), "mask"), (2, 1)),
    ((2,), ("number", _ALL, "mask"), (1, 2)), ((1,), ("number", "mask"), (4,)), ((0,), ("mask", -1, "number"), ())],
    ids=str)
@pytest.mark.parametrize("method", ["set", "add", "multiply"])
def test_updates_at_a_mask_of_unknown_value_beside_other_entries(
        masked: tuple[int, ...], index: tuple[Any, ...], shape: tuple[int, ...], method: str) -> None:
    rng = np.random.default_rng(0)
    x, values = rng.normal(size=(3, 2, 4)), rng.normal(size=shape)
    mask, number = rng.random([x.shape[axis] for axis in masked]) > 0.4, np.int32(-2)

    def update(x: Any, mask: Any, number: Any, values: Any) -> Any:
        entries = tuple({"mask": mask, "number": number}.get(each, each) if isinstance(each, str) else each
                        for each in index)
        return getattr(fnp.at(x)[entries], method)(values)
    args = (x, mask, number, values)
    expected = update(*args)  # the value of the mask is known here
    np.testing.assert_allclose(fxgrad.jit(update)(*args), expected, rtol=1e-12)
    batched = fxgrad.vmap(update)(*fxgrad.tree.map(lambda each: np.asarray(each)[None], args))
    np.testing.assert_allclose(batched[0], expected, rtol=1e-12)
    if masked != (0, 1) or method == "set":
        plain = x.copy()
        entries = tuple({"mask": mask, "number": number}.get(each, each) if isinstance(each, str) else each
                        for each in index)
        plain[entries] = {"set": values, "add": plain[entries] + values, "multiply": plain[entries] * values}[method]
        np.testing.assert_allclose(expected, plain, rtol=1e-12)


def test_elements_that_a_traced_mask_leaves_out_make_no_nan() -> None:
    def scaled(factor: Any, x: Any, mask: Any) -> Any:
        return np.sum(np.where(mask, fnp.at(x)[mask].multiply(factor), 0.0))
    x, mask = np.array([np.inf, 2.0, np.nan]), np.array([False, True, False])
    np.testing.assert_allclose(fxgrad.jit(fxgrad.grad(scaled))(3.0, x, mask), 2.0)


def test_values_for_a_mask_of_unknown_value_are_the_same_for_all_that_it_selects() -> None:
    def update(x: Any, mask: Any) -> Any:
        return fnp.at(x)[mask, 1].set(np.arange(3.0))
    with pytest.raises(ShapeError) as raised:
        fxgrad.jit(update)(np.ones((3, 2)), np.ones(3, bool))
    assert str(raised.value).partition("\n")[0] == (
        "x.at[mask]: values of shape (3,) for a mask of shape (3,) that is traced, so that how many elements it "
        "selects is not known. Values for all of them must broadcast to (); to choose among arrays of the shape of x, "
        "write fxgrad.numpy.where(mask, values, x)")


def test_a_mask_of_unknown_value_must_fit() -> None:
    with pytest.raises(IndexingError, match=r"x\.at\[mask\]: a mask of shape \(3,\) for an array of shape \(2, 3\)"):
        fxgrad.jit(lambda x, m: x.at[m].set(1.0))(np.ones((2, 3)), np.ones(3, bool))
