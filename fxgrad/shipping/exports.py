"""`export`: programs that XLA compiles elsewhere and later, with symbolic sizes, without their Python function.

The exported program (`jax.export`) consists of operations of jax's, with jax's symbolic sizes for ours. A serialised
export is an archive (`fxgrad/archives.py`): the header `export.json` has the types, the trees of arguments and results
and the names; jax wrote `exported.bin`. Arrays that jax writes once for each order of derivatives are entries of their
own, and `arrays` in the header has the lengths of the parts between which they stand.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from functools import partial
from importlib.util import find_spec
from itertools import accumulate
from typing import Any

import jax
import numpy as np
from jax import export as jax_export
from rich.table import Table

from fxgrad import tree
from fxgrad.errors import ArgumentError, FxgradError, UnsupportedError
from fxgrad.extend import (
    Aval,
    ExpectedArguments,
    Program,
    Signature,
    Tracer,
    argument_aval,
    at_user_line,
    hide_frames,
    inner_first,
    primitives,
    user_location,
)
from fxgrad.extend.sizes import argument_names, size_names, solve_sizes, types_at
from fxgrad.extend.tracing import program_of
from fxgrad.interop import from_jax
from fxgrad.interop.emission import apply_with_own_derivative
from fxgrad.interop.flat import at_jax_sizes, emit, keys_to_jax, like_arguments, needs_x64, x64
from fxgrad.interop.manual import struct_for_jax
from fxgrad.shipping.archives import Archive, Format, signature_from_json, signature_to_json
from fxgrad.shipping.python.carried import CALLS_BACK, REASONS
from fxgrad.text.tables import Report, add_row, new_table
from fxgrad.text.text_parser import refuse_excess
from fxgrad.text.text_reader import read_type
from fxgrad.text.values import is_named_tuple

FORMAT = Format("fxgrad export", 2, "export.json", "the export", "Exported.serialize",
                "these are no bytes of an exported program")
EXECUTABLE = "exported.bin"
_LARGE = 4096
"""Bytes from which on an array is stored once."""


class Exported(Report):
    """A program that jax exported: `call` runs it, `serialize` returns bytes that `export.deserialize` reads.

    `in_avals` and `out_avals` are the types, `in_tree` and `out_tree` the containers, `input_names` the names of the
    arguments; `platforms` are those that it was lowered for, and `stablehlo` is its text.

    >>> import numpy as np, fxgrad
    >>> exported = fxgrad.export(lambda x: np.mean(x, axis=0))(fxgrad.symbolic_spec("n", 3))
    >>> exported.in_avals, exported.out_avals, exported.platforms
    ([f64[n,3]], [f64[3]], ('cpu',))
    >>> again = fxgrad.export.deserialize(exported.serialize())
    >>> again.call(np.ones((2, 3))), again.call(np.ones((5, 3)))
    (array([1., 1., 1.]), array([1., 1., 1.]))
    """

    in_tree: Any
    out_tree: Any

    def __init__(self, signature: Signature, in_avals: Sequence[Aval], out_avals: Sequence[Aval], exported: Any,
                 wide: bool, arrays: Sequence[Any] = ()) -> None:
        self.in_avals, self.out_avals = [*in_avals], [*out_avals]
        self.name, self.input_names = signature.name, signature.input_names
        self.in_tree, self.out_tree = signature.in_tree, signature.out_tree
        self._signature, self._exported, self._wide = signature, exported, wide
        self._arrays = arrays  # that the program holds
        self._compiled = jax.jit(exported.call)  # which keeps one executable for each size
        self._imported = from_jax(exported.call)

    @property
    def platforms(self) -> tuple[str, ...]:
        """The platforms that it was lowered for."""
        return tuple(self._exported.platforms)

    @property
    def stablehlo(self) -> str:
        """The StableHLO text of the program, with `?` for symbolic sizes."""
        return str(self._exported.mlir_module())

    @property
    def jax(self) -> Any:
        """The `jax.export.Exported` of the flat function: it takes and returns leaves."""
        return self._exported

    def call(self, *args: Any, **kwargs: Any) -> Any:
        """Run the program on containers like those it was exported with, on arrays of NumPy or jax.

        Results are as those of `fxgrad.jit`: dtypes are kept, and those of 64 bits are returned as NumPy arrays unless
        an argument is a jax array. Within traced functions the call is one operation of jax's (`from_jax`), with
        the reverse mode that `fun` has, to the `vjp_order` of `serialize` if it was read from bytes; without forward
        mode and batches.
        Raises `ArgumentError` for other types and for sizes that do not agree, `UnsupportedError` for those
        derivatives and batches.
        """
        leaves, structure = tree.flatten((args, kwargs))
        if structure != self.in_tree:
            expected = ExpectedArguments(self.in_tree, tuple(self.input_names), tuple(self.in_avals))
            raise ArgumentError(expected.message(
                f"the exported program {self.name} was called with other arguments than it was exported for", "export",
                args, kwargs))
        here = jax_export.default_export_platform()
        if here not in self.platforms:
            raise ArgumentError(at_user_line(
                f"the exported program {self.name} was made for {', '.join(self.platforms)}, and this process runs on "
                f"{here}. Export it with platforms={(*self.platforms, here)!r}"))
        values = [np.asarray(leaf, aval.dtype)[()] if not hasattr(leaf, "shape") and not aval.shape else leaf
                  for leaf, aval in zip(leaves, self.in_avals, strict=True)]
        came = [argument_aval(value, "export", partial(str, name)) for value, name in zip(
            values, self.input_names, strict=True)]
        solve_sizes(f"the exported program {self.name}", self.in_avals, came, self.input_names)
        with x64(self._wide):
            if any(type(leaf) is Tracer for leaf in leaves):
                return tree.unflatten(self.out_tree, self._imported(*values))
            outputs = self._compiled(*map(keys_to_jax, values))
        result = tree.unflatten(self.out_tree, outputs)
        return like_arguments(result, args, kwargs) if self._wide else result

    def out_types(self, **sizes: int) -> list[Aval]:
        """Return the types of the results for sizes by name: `exported.out_types(n=5)`."""
        return types_at(self.out_avals, sizes)

    def serialize(self, vjp_order: int = 0) -> bytes:
        """Return the program as bytes, which another process reads, of the same or a later version of jax.

        The program that is read has reverse mode to the order `vjp_order`: 1 for gradients of it, 2 for gradients of
        these. The bytes hold the arrays that `fun` closes over once, and the program that is read holds them once for
        each order: export it with large ones as arguments.
        jax guarantees how long it can read them at https://docs.jax.dev/en/latest/export/export.html. Raises
        `ArgumentError` for a higher order than the program has, `UnsupportedError` for derivatives that have no form
        for symbolic sizes, for containers that are neither dicts, lists, tuples nor named tuples, and if flatbuffers,
        which jax writes with, is not installed (`pip install 'fxgrad[export]'`).
        """
        _need_flatbuffers("Exported.serialize")
        header = {"wide": self._wide, "signature": signature_to_json(self._signature, "export"),
                  "takes": [*map(repr, self.in_avals)], "gives": [*map(repr, self.out_avals)]}
        unwritten = {aval.dtype.name for aval in (*self.in_avals, *self.out_avals)} & {"int2", "uint2"}
        if unwritten:
            raise UnsupportedError(at_user_line(
                f"Exported.serialize: jax has no form for arguments and results of {', '.join(sorted(unwritten))}. "
                "Convert them, for example x.astype('int8')"))
        with x64(self._wide):
            try:
                written = self._exported.serialize(vjp_order=vjp_order)
            except (TypeError, ValueError, UnsupportedError, jax.errors.InconclusiveDimensionOperation) as error:
                if any(type(size) is not int for aval in self.in_avals for size in aval.shape):
                    raise UnsupportedError(at_user_line(
                        f"Exported.serialize: the derivative of {self.name} has no form for sizes that vary, "
                        f"vjp_order={vjp_order!r}. Export the gradient, grad(f), or for sizes that are numbers"
                    )) from error
                raise ArgumentError(at_user_line(
                    f"Exported.serialize: vjp_order={vjp_order!r}; the number of gradients is needed that "
                    "bytes keep, which a program that was read from bytes has up to the vjp_order of those")) from error
            rest, arrays, lengths = _store_once(bytes(written), self._arrays)
            return FORMAT.write(header | {"arrays": lengths}, [
                (EXECUTABLE, rest), *((_entry(number), array) for number, array in enumerate(arrays))])

    def __reduce__(self) -> tuple[Any, ...]:
        """Return the bytes of `serialize`, for pickle: what is read has no derivatives."""
        return deserialize, (self.serialize(), _named_tuples(self.in_tree, self.out_tree))

    def __copy__(self) -> Exported:
        return self

    def __deepcopy__(self, _: Any) -> Exported:
        return self

    def table(self) -> Table:
        """Return the table of arguments and results with their types."""
        made = new_table(f"{self._signature.title or self.name}, exported for {', '.join(self.platforms)}",
                         {"": "left", "name": "left", "type": "left"})
        for name, aval in zip(self.input_names, self.in_avals, strict=True):
            add_row(made, ["takes", name, repr(aval)])
        names = tree.leaf_names(tree.unflatten(self.out_tree, range(self.out_tree.num_leaves)), "result")
        for name, aval in zip(names, self.out_avals, strict=True):
            add_row(made, ["gives", name, repr(aval)])
        return made

    def __repr__(self) -> str:
        takes, gives = (", ".join(map(repr, avals)) for avals in (self.in_avals, self.out_avals))
        return f"Exported({self.name}: ({takes}) -> ({gives}), platforms={self.platforms})"


def _entry(number: int) -> str:
    return f"array{number}.bin"


def _store_once(data: bytes, arrays: Sequence[Any]) -> tuple[bytes, list[bytes], list[list[int]]]:
    """Return `data` without the large arrays that it holds several times, these, and the lengths of the parts between.

    The parts of one array are those of the data without the arrays before it; `_restored` is the inverse.
    """
    kept, lengths = [], []
    for array in arrays:
        if array.nbytes >= _LARGE and (parts := data.split(stored := np.asarray(array).tobytes()))[2:]:
            data = b"".join(parts)
            kept.append(stored)
            lengths.append([*map(len, parts)])
    return data, kept, lengths


def _restored(data: bytes, arrays: Sequence[bytes], lengths: Sequence[Sequence[int]]) -> bytes:
    """Return data with arrays between parts of these lengths; raise `ValueError` if they are not those of the data."""
    for array, sizes in reversed([*zip(arrays, lengths, strict=True)]):
        ends = [*accumulate(sizes)]
        if min(sizes, default=-1) < 0 or ends[-1] != len(data):
            raise ValueError("the parts of an array")
        data = array.join(data[end - size:end] for size, end in zip(sizes, ends, strict=True))
    return data


def export(fun: Callable[..., Any] | Program, *, platforms: Sequence[str] | None = None) -> Callable[..., Exported]:
    """Return the function that exports `fun(*specs)`, a compiled program that needs neither `fun` nor tracing.

    `specs` are arrays, or types (`spec`, `ShapeDtypeStruct`), in containers; sizes may be symbolic, and the program
    then runs for all of them. `fun` may be a program, a gradient or a whole training step. `platforms` are those to
    lower for, such as `("cpu", "cuda", "tpu")`, which need not be available here; by default that of this process.
    Dtypes of 64 bits are kept, whatever jax's x64 mode is.

    Raises the errors of tracing; `UnsupportedError`, which names the user's line, if jax cannot export an operation
    (checks, also those of `raise` in converted functions, and callbacks) or needs the number of a symbolic size;
    `ArgumentError` for unknown platforms. `export.deserialize` reads the bytes of `Exported.serialize`.

    >>> import numpy as np, fxgrad
    >>> def loss(w, x):
    ...     return np.mean((x @ w) ** 2)
    >>> step = fxgrad.export(lambda w, x: w - 0.1 * fxgrad.grad(loss)(w, x), platforms=("cpu", "cuda", "tpu"))
    >>> exported = step(fxgrad.symbolic_spec(3), fxgrad.symbolic_spec("n", 3))
    >>> exported.call(np.ones(3), np.ones((4, 3)))
    array([0.4, 0.4, 0.4])
    """
    wanted = (platforms,) if isinstance(platforms, str) else None if platforms is None else tuple(platforms)
    if wanted is not None and (not wanted or any(each not in _KNOWN for each in wanted)):
        raise ArgumentError(at_user_line(
            f"export: platforms={platforms!r}; some of {', '.join(map(repr, _KNOWN))} are needed"))

    @hide_frames
    def exported(*specs: Any, **kwargs: Any) -> Exported:
        return _export_program(program_of("export", fun, specs, kwargs), wanted)
    return exported


def _named_tuples(*structures: Any) -> list[type]:
    """Return the classes of named tuples in trees."""
    found: dict[type, None] = {}

    def note(value: Any) -> bool:
        if is_named_tuple(type(value)):
            found[type(value)] = None
        return False

    for structure in structures:
        tree.leaves(tree.unflatten(structure, range(structure.num_leaves)), is_leaf=note)
    return [*found]


_KNOWN = ("cpu", "cuda", "rocm", "tpu")


_CHOOSES_DERIVATIVE = frozenset(primitives[name] for name in (
    "custom_jvp", "custom_vjp", "custom_vjp_tangent", "stop_gradient", "strong_mul", "safe_call", "custom_root"))
"""Operations whose derivative is another one than that of the operations that compute their value."""


def _export_program(program: Program, platforms: tuple[str, ...] | None) -> Exported:
    explicit = program.inputs[len(program.constants):]
    signature = program.signature
    if signature is None or signature.in_tree is None:
        signature = Signature("program", tuple(argument_names(program)),
                              tree.structure((tuple(range(len(explicit))), {})),
                              tree.structure([*range(len(program.outputs))]))
    names = size_names(program)
    sizes = dict(zip(names, jax_export.symbolic_shape(",".join(names)), strict=True)) if names else {}
    emitted = (at_jax_sizes(program, sizes) if names else program).replace(constants=())
    wide = needs_x64(program)
    # Loops and sorting have no derivative of fxgrad's for sizes of jax's; jax's own is equal but at kinks.
    own = not names or any(equation.primitive in _CHOOSES_DERIVATIVE for inner in inner_first(program)
                           for equation in inner.equations)

    def function(*leaves: Any) -> list[Any]:
        values = [*program.constants, *leaves]
        # jax differentiates what it exports, and knows neither rules of users nor values without derivatives.
        outputs = apply_with_own_derivative(emitted, values) if own else None
        return emit(emitted, values) if outputs is None else outputs

    function.__name__ = function.__qualname__ = signature.name if signature.name.isidentifier() else "function"
    with x64(wide):
        structs = [struct_for_jax(var.aval) for var in emitted.inputs[len(program.constants):]]
        try:
            made = jax_export.export(jax.jit(function), platforms=platforms)(*structs)
        except FxgradError:
            raise
        except Exception as error:
            raise _export_error(program, signature.name, error) from error
    held = [value for value in program.constants if isinstance(value, np.ndarray | jax.Array) and isinstance(
        value.dtype, np.dtype) and getattr(value, "is_fully_addressable", True)]
    return Exported(signature, [var.aval for var in explicit], program.out_avals, made, wide, held)


def _export_error(program: Program, name: str, error: Exception) -> UnsupportedError:
    """Return jax's error as ours, with the user's line of the operation."""
    calling = next((equation for each in inner_first(program) for equation in each.equations
                    if REASONS.get(getattr(equation.primitive.numpy, "__module__", "")) == CALLS_BACK), None)
    if calling is not None:
        line = "" if calling.source is None else f"\n  at {calling.source.place}"
        return UnsupportedError(
            f"export: {calling.primitive} {CALLS_BACK}, which exported programs cannot. Leave checks, callbacks and "
            f"debug.print out of the function: export f in place of checked(f){line}")
    # jax chains the error to one at the place of tracing.
    place = user_location(error) or (error.__cause__ and user_location(error.__cause__))
    where = "" if place is None else f"\n  at {place}"
    first = str(error).strip().split("\n", maxsplit=1)[0]
    return UnsupportedError(
        f"export: jax cannot export an operation of {name} as it is: {type(error).__name__}: {first} Where a size is "
        "needed as a number, export for one (fxgrad.symbolic_spec(4, 3)); functions of jax's that call back into "
        f"Python have no export{where}")


def _need_flatbuffers(what: str) -> None:
    if find_spec("flatbuffers") is None:
        raise UnsupportedError(at_user_line(
            f"{what}: jax writes and reads programs with flatbuffers, which is not installed. Write pip install "
            "'fxgrad[export]'; fxgrad.save writes a file without it"))


def deserialize(data: bytes, classes: Sequence[type] = ()) -> Exported:
    """Return the exported program that `Exported.serialize` wrote as `data`; `classes` are your named tuples in it.

    The types, trees and names are checked. The part that jax wrote is read by jax, and runs when it is called, so load
    it only from sources that you trust. Raises `ProgramSyntaxError`, which names the place, for bytes in any other
    form, and `UnsupportedError` if flatbuffers is not installed, like `Exported.serialize`.
    """
    _need_flatbuffers("export.deserialize")
    with refuse_excess():
        try:
            archive = Archive(FORMAT, io.BytesIO(data))
        except TypeError as error:
            FORMAT.fail(error)
        header = archive.header() if FORMAT.header in archive.names else {}
        lengths: Any = header.get("arrays", [])  # files of version 1 have none
        is_list = isinstance(lengths, list) and all(isinstance(each, list) and all(
            type(size) is int for size in each) for each in lengths)
        entries = [_entry(number) for number in range(len(lengths) if is_list else 0)]
        if archive.names != {FORMAT.header, EXECUTABLE, *entries}:
            FORMAT.fail(f"{FORMAT.header} and {EXECUTABLE} are expected in it, not compressed")
        arrays = [*map(archive.read, entries)]
        try:
            written = _restored(archive.read(EXECUTABLE), arrays, lengths)
        except (TypeError, ValueError):
            FORMAT.fail("arrays are lists of lengths of the parts of " + EXECUTABLE)
        types: list[Any] = [header.get(name) for name in ("takes", "gives")]
        if any(not isinstance(each, list) or not all(isinstance(text, str) for text in each) for each in types) or \
                type(header.get("wide")) is not bool:
            FORMAT.fail("takes and gives are lists of types, and wide is true or false")
        takes, gives = ([*map(read_type, each)] for each in types)
        signature = signature_from_json(header.get("signature"), [*classes], (len(takes), len(gives)))
        if signature is None or signature.in_tree is None or signature.out_tree is None:
            FORMAT.fail("a signature is expected")
    with x64(header["wide"]):
        try:
            exported = jax_export.deserialize(bytearray(written))
        except Exception as error:  # noqa: BLE001  (whatever jax raises for bytes that it did not write)
            FORMAT.fail(f"jax cannot read {EXECUTABLE}: {type(error).__name__}: {error}")
    held = [np.frombuffer(array, np.uint8) for array in arrays]
    return Exported(signature, takes, gives, exported, header["wide"], held)


export.deserialize = deserialize  # type: ignore[attr-defined]
