"""Every registered rewrite over all dtypes and peculiar numbers: the simplified program gives the same bits.

The rewrites are found in their table, and what each looks for behind its operands is found by watching it. So a new
one is held to the law without being named here; one that no program of this file reaches fails.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar

import ml_dtypes
import numpy as np
import pytest

from fxgrad import config
from fxgrad.engine.core.avals import Aval, Literal
from fxgrad.engine.core.primitive import Primitive
from fxgrad.engine.core.program import Program
from fxgrad.engine.derivation.rewrites import RecordedDefinitions, rewrites
from fxgrad.engine.derivation.simplify import simplify
from fxgrad.engine.ops.structural import broadcast_to_p, reshape_p, transpose_p
from fxgrad.engine.tracing.apply import apply_program
from fxgrad.engine.tracing.tape import bind
from fxgrad.engine.tracing.trace import UNSHARED, trace_at
from fxgrad.errors import FxgradError
from tests.samples import COMPILED, COMPLEX, INTEGER, REAL, all_samples

pytestmark = pytest.mark.slow

SAMPLES = all_samples()
DTYPES = [np.dtype(ml_dtypes.bfloat16 if name == "bfloat16" else name)
          for name in ("int8", "uint8", "bool", *REAL, *COMPLEX, *INTEGER[:2], *INTEGER[4:])]

QUICK_DTYPES = {"int8", "uint8", "bool", "float32", "complex64"}
"""One of each kind, all numbers of which there are few; the slow tier has the others."""


def peculiar(dtype: np.dtype[Any]) -> Any:
    """All numbers of 8 bits; of the others zeros, ones, infinities, NaN, the extremes, a few that round."""
    if dtype.kind == "b":
        return np.array([False, True])
    if dtype.kind in "iu":
        info = np.iinfo(dtype)
        few = [0, 1, info.max, info.min, 2, 3, 7, info.max - 1, info.max // 2 + 1, info.min + 1]
        return np.array([*few, *range(info.min, info.max + 1)] if dtype.itemsize == 1 else few, object).astype(dtype)
    if dtype.kind == "c":
        parts = peculiar(np.dtype(f"f{dtype.itemsize // 2}"))[:9]
        both = np.empty(len(parts) ** 2, dtype)
        both.real, both.imag = np.tile(parts, len(parts)), np.repeat(parts, len(parts))
        return both
    info = ml_dtypes.finfo(dtype)
    return np.array([0.0, -0.0, 1.0, -1.0, np.nan, np.inf, -np.inf, 1.1, -3.3, *map(float, (
        info.smallest_subnormal, -info.smallest_subnormal, info.max, info.tiny)), 0.3, 7.7, 2.5, -0.5]).astype(dtype)


def bits(value: Any) -> Any:
    """The bit pattern, NaNs all alike: executors choose theirs."""
    array = np.asarray(value)
    if array.dtype.kind == "c":
        return bits(array.real), bits(array.imag)
    if array.dtype.kind in "fV":
        return np.where(np.isnan(array), array.dtype.type(np.nan), array).tobytes()
    return array.tobytes()


class Made:
    """An operand that is made of arguments by another primitive, or an argument (without primitive).

    `shared` are the places of arguments that operands before it were made of too; they come first.
    """

    def __init__(self, avals: Sequence[Aval], primitive: Primitive | None = None, shared: Sequence[int] = (),
                 **params: Any) -> None:
        self.avals, self.primitive, self.shared, self.params = list(avals), primitive, shared, params

    def __call__(self, *inputs: Any) -> Any:
        return inputs[0] if self.primitive is None else bind(self.primitive, *inputs, **self.params)[0]


Operand = Made | Literal | None
"""None is the operand before once more."""


class Watched(RecordedDefinitions):
    """Definitions that note what they are asked for, and let every rewrite ask."""

    sought: ClassVar[set[Primitive]] = set()

    def inputs_if(self, value: Any, primitive: Primitive) -> list[Any] | None:
        self.sought.add(primitive)
        return super().inputs_if(value, primitive)

    def are_plain(self, atoms: Sequence[Any]) -> bool:
        return False


fired: set[tuple[Primitive, int]] = set()
"""What the test that runs has reached."""


@pytest.fixture(autouse=True)
def watching(monkeypatch: pytest.MonkeyPatch) -> None:
    fired.clear()

    def watched(primitive: Primitive, index: int, rewrite: Callable[..., Any]) -> Callable[..., Any]:
        def tell(known: RecordedDefinitions, inputs: list[Any], params: dict[str, Any]) -> list[Any] | None:
            outputs = rewrite(known, inputs, params)
            if outputs is not None:
                fired.add((primitive, index))
            return outputs
        return tell

    monkeypatch.setattr("fxgrad.engine.derivation.simplifying.RecordedDefinitions", Watched)
    monkeypatch.setattr(rewrites, "_entries", {
        primitive: [watched(primitive, index, rewrite) for index, rewrite in enumerate(entries)]
        for primitive, entries in rewrites._entries.items()})


def hold(primitive: Primitive, params: dict[str, Any], operands: Sequence[Operand], together: bool = False) -> None:
    """The law for one program: on arrays drawn from the peculiar numbers, or on all combinations of them `together`."""
    avals = [aval for operand in operands if isinstance(operand, Made) for aval in operand.avals]
    program = recorded(primitive, params, operands, avals)
    if simplify(program) is program:
        return
    pools = [peculiar(aval.dtype) for aval in avals]
    if together:
        most = int(70_000 ** (1 / max(len(pools), 1)))
        args = [each.ravel() for each in np.meshgrid(*(pool[:most] for pool in pools), indexing="ij")]
        program = recorded(primitive, params, operands, [Aval(arg.shape, arg.dtype) for arg in args])
    else:
        random = np.random.default_rng(0)
        args = [random.choice(pool, aval.shape) for pool, aval in zip(pools, avals, strict=True)]
    simple = simplify(program)
    assert [each.aval for each in simple.outputs] == [each.aval for each in program.outputs]
    if primitive.name in COMPILED:
        return  # their kernels take long, and longest where arguments are out of all range
    with np.errstate(all="ignore"):
        before, after = apply_program(program, args), apply_program(simple, args)
    for plain, simpler in zip(before, after, strict=True):
        assert bits(plain) == bits(simpler), f"{program}\nis not\n{simple}"


def recorded(primitive: Primitive, params: dict[str, Any], operands: Sequence[Operand],
             avals: Sequence[Aval]) -> Program:
    def function(*inputs: Any) -> list[Any]:
        rest = iter(inputs)
        values: list[Any] = []
        for operand in operands:
            values.append(values[-1] if operand is None else operand if isinstance(operand, Literal) else
                          operand(*(inputs[place] for place in operand.shared),
                                  *itertools.islice(rest, len(operand.avals))))
        return bind(primitive, *values, **params)

    return trace_at(function, avals, mode=UNSHARED)[0]


def gives(primitive: Primitive, avals: Sequence[Aval], params: dict[str, Any]) -> Aval | None:
    """The type of the one output for arguments of these types; None if they are refused."""
    try:
        outputs = primitive.abstract(*avals, **params)
    except (FxgradError, TypeError, IndexError):
        return None
    return outputs[0] if len(outputs) == 1 else None


@functools.cache
def is_elementwise(primitive: Primitive) -> bool:
    return all(getattr(gives(primitive, [Aval(shape, np.dtype(spec.dtype)) for spec in sample.specs], sample.params),
                       "shape", None) == shape for sample in SAMPLES[primitive] for shape in ((), (3,), (2, 3)))


def made_by(primitive: Primitive, aval: Aval) -> Iterator[Made]:
    """Operands of a type that an elementwise primitive makes, with the parameters of its samples."""
    params = {repr(sample.params): (len(sample.specs), sample.params) for sample in SAMPLES[primitive]}
    for arity, given in [*params.values()][:3]:
        for dtype in (aval.dtype, *DTYPES):
            if gives(primitive, [Aval((), dtype)] * arity, given) == aval:
                yield Made([Aval((), dtype)] * arity, primitive, **given)
                break


def elementwise_programs(primitive: Primitive, dtype: np.dtype[Any]) -> Iterator[tuple[dict[str, Any], list[Any]]]:
    """Arguments, literals and operands made by what the rewrites look for, in every combination."""
    params = {repr(sample.params): (sample.args(), sample.params) for sample in SAMPLES[primitive]}
    for args, given in params.values():
        own = [dtype if arg.dtype == args[-1].dtype else arg.dtype for arg in args]
        if gives(primitive, [Aval((), each) for each in own], given) is None:
            continue
        choices: list[list[Operand]] = []
        for each in own:
            aval = Aval((), each)
            numbers = peculiar(each)
            literals = [Literal(number, Aval((), each, weak)) for number in (*numbers[:9], *numbers[9:13])
                        for weak in ((False, True) if each in (np.float32, np.int8) else (False,))]
            repeated = [None] if choices and each == own[len(choices) - 1] else []
            hold(primitive, given, [Made([Aval((), one)]) for one in own])  # tells what is looked for
            choices.append([Made([aval]), *repeated, *literals, *(
                operand for maker in sorted(Watched.sought, key=str) if is_elementwise(maker)
                for operand in made_by(maker, aval))])
        for operands in itertools.islice(itertools.product(*choices), 600):
            yield given, list(operands)
        if len(own) == 2 and own[0] == own[1]:
            for operands in made_of_the_same(Aval((), own[0])):
                yield given, operands


def made_of_the_same(aval: Aval) -> Iterator[list[Operand]]:
    """Two operands of a type that are made of the same arguments, one of them of one argument twice, or of others."""
    makers = [maker for maker in sorted(Watched.sought, key=str) if is_elementwise(maker)]
    for first, second in itertools.product(makers, makers):
        for each in QUICK_DTYPES:
            avals = [Aval((), np.dtype(each))] * 2
            if gives(first, avals, {}) == gives(second, avals, {}) == aval:
                for places in ((0, 1), (0, 0), (1, 1)):
                    yield [Made(avals, first), Made([], second, places)]
                twice = Made(avals[1:], first, (0,))
                yield [twice, Made(avals[1:], second, (0,))]
                yield [twice, Made(avals, second)]


BROADCASTS = "without_needless_broadcasts"
ELEMENTWISE = sorted((primitive for primitive in rewrites._entries if is_elementwise(primitive)), key=str)
LAYOUT = sorted((primitive for primitive in rewrites._entries if not is_elementwise(primitive)), key=str)


ALGEBRA, SPREADING = ({primitive: {(primitive, index) for index, rewrite in enumerate(rewrites.of(primitive))
                                   if (rewrite.__name__ == BROADCASTS) == spreads} for primitive in rewrites._entries}
                      for spreads in (False, True))
"""By primitive, its rewrites; the one of all operations that broadcast by themselves is tested apart."""


def assert_all_reached(wanted: set[tuple[Primitive, int]]) -> None:
    """A rewrite that no program of its primitive's test reaches is not held to the law."""
    assert not wanted - fired


@pytest.mark.parametrize("rest", [False, True])
@pytest.mark.parametrize("primitive", [*filter(ALGEBRA.get, ELEMENTWISE)], ids=str)
def test_elementwise(primitive: Primitive, rest: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(config, "check_level", 0)  # thousands of programs, each with the types of its neighbour
    Watched.sought.clear()
    for dtype in DTYPES:
        if (dtype.name not in QUICK_DTYPES) is rest:
            for given, operands in elementwise_programs(primitive, dtype):
                hold(primitive, given, operands, together=True)
    if not rest:
        assert_all_reached(ALGEBRA[primitive])


@pytest.mark.parametrize("primitive", [*filter(SPREADING.get, ELEMENTWISE)], ids=str)
def test_broadcasts(primitive: Primitive) -> None:
    """Operands that were broadcast, or are scalars of another rank, beside arrays and beside each other."""
    quick = primitive.name not in COMPILED
    for dtype in DTYPES if quick else DTYPES[3:4]:
        sample = SAMPLES[primitive][0]
        own = [dtype if spec.dtype == sample.specs[-1].dtype else np.dtype(spec.dtype) for spec in sample.specs]
        if gives(primitive, [Aval((), each) for each in own], sample.params) is None:
            continue
        forms = [[Made([Aval((3,), each)]), Made([Aval((), each)], broadcast_to_p, shape=(3,)),
                  Made([Aval((), each)], reshape_p, shape=(1,)), Made([Aval((3,), each)], broadcast_to_p, shape=(2, 3))]
                 for each in own]
        few = [form if quick else form[place:place + 1] for place, form in enumerate(forms)]
        for operands in itertools.product(*few):
            hold(primitive, sample.params, operands)
    assert_all_reached(SPREADING[primitive])


def samples_of(primitive: Primitive) -> list[Any]:
    """Those of the quick tier."""
    return [sample for sample in SAMPLES[primitive] if not sample.slow][:12]


def layouts(primitive: Primitive) -> Iterator[tuple[dict[str, Any], list[Operand]]]:
    """The samples, with literals for whole scalars, and with an operand made by what the rewrites look for."""
    for sample in samples_of(primitive):
        avals = [Aval(arg.shape, arg.dtype) for arg in sample.args()]
        if runs_long(primitive, sample):
            few = [Made([aval]) if aval.shape or aval.dtype.kind not in "iu" else Literal(arg, aval)
                   for aval, arg in zip(avals, sample.args(), strict=True)]
            yield sample.params, few
            continue
        yield sample.params, [Made([aval]) for aval in avals]
        yield sample.params, [Made([aval]) if aval.shape or aval.dtype.kind not in "iu" else
                              Literal(1, aval) for aval in avals]
        for maker in sorted({primitive, *Watched.sought, transpose_p, reshape_p, broadcast_to_p}, key=str):
            for inner in samples_of(maker):
                made = Made([Aval(arg.shape, arg.dtype) for arg in inner.args()], maker, **inner.params)
                aval = gives(maker, made.avals, inner.params)
                if aval is not None and avals and gives(primitive, [aval, *avals[1:]], sample.params) is not None:
                    yield sample.params, [made, *(Made([other]) for other in avals[1:])]


def runs_long(primitive: Primitive, sample: Any) -> bool:
    """Whether it is a loop whose number of steps the values decide, which must not be any number then."""
    regions = () if primitive.regions is None else primitive.regions([None] * len(sample.specs), **sample.params)
    return any(region.times is None and region.role != "branch" for region in regions)


@pytest.mark.parametrize("primitive", LAYOUT, ids=str)
def test_layouts(primitive: Primitive, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(config, "check_level", 0)
    Watched.sought.clear()
    for given, operands in layouts(primitive):
        hold(primitive, given, operands)
    assert_all_reached(ALGEBRA[primitive] | SPREADING[primitive])
