"""`to_onnx` and `save`: a function, or a program, as a model of ONNX."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fxgrad import dtypes, tree
from fxgrad.errors import ArgumentError, UnsupportedError
from fxgrad.extend import Program, Variable, at_user_line, drop_devices, hide_frames
from fxgrad.extend.sizes import SymbolicDim, named_size
from fxgrad.extend.tracing import program_of
from fxgrad.shipping.files import File, require_file, write_file
from fxgrad.shipping.onnx import library, protos
from fxgrad.shipping.onnx.emission import COMPLEX, Emission
from fxgrad.shipping.onnx.graph import INT64, OnnxValue
from fxgrad.text.names import variable_names
from fxgrad.text.quoting import one_line

RESULT = "result"
"""The root of the names of outputs."""


def to_onnx(fun: Callable[..., Any] | Program) -> Callable[..., Any]:
    """Return a function that traces `fun` for the types of its arguments, and returns an `onnx.ModelProto`.

    The arguments are arrays, `ShapeDtypeStruct`s, or containers of them, of which only shapes and dtypes matter, as for
    `make_program`; a `Program` takes none. `fun` may be anything that can be traced: a gradient, a whole training step,
    a result of `vmap` or `jit`. The inputs of the graph are the leaves of the arguments, by their paths (`params.w`),
    its outputs those of the result (`result.loss`, or `result` if it is one array). Inner values have the names that
    the program prints, and the `doc_string` of a node is its line in your code. Closed-over arrays are initializers.
    Python floats are float64, as everywhere in fxgrad; random keys are two words of uint32, on a last axis.

    Raises `UnsupportedError`, which names the operation and the user's line, if an operation has no form (see the table
    in `docs/appendix/onnx.md`), for complex numbers, and if the package onnx is not installed.

    >>> import fxgrad, numpy as np
    >>> def loss(params, x):
    ...     return np.mean(np.tanh(x @ params["w"]) ** 2)
    >>> model = fxgrad.onnx.to_onnx(fxgrad.grad(loss))({"w": np.ones((3, 2), "f")}, np.ones((5, 3), "f"))
    >>> [value.name for value in model.graph.input], [value.name for value in model.graph.output]
    (['params.w', 'x'], ['result.w'])
    """
    def traced_model(*specs: Any, **kwargs: Any) -> Any:
        return _model(program_of("to_onnx", fun, specs, kwargs))
    return traced_model


@hide_frames
def save(file: File, fun: Callable[..., Any] | Program, *specs: Any, **kwargs: Any) -> Any:
    """Write `to_onnx(fun)(*specs, **kwargs)` to a file, a path or a binary file open for writing; returns the model.

    A path is replaced only once everything is written.

    Raises the errors of `to_onnx`. Models of 2 GiB and more do not fit into one file of this format.

    >>> import io, fxgrad, numpy as np
    >>> file = io.BytesIO()
    >>> model = fxgrad.onnx.save(file, np.sin, np.ones(3))
    >>> [node.op_type for node in model.graph.node], file.getvalue() == model.SerializeToString()
    (['Sin'], True)
    """
    require_file("onnx.save", file, "wb")
    model = _model(program_of("onnx.save", fun, specs, kwargs))
    write_file("onnx.save", file, model.SerializeToString())
    return model


def feeds(model: Any, *args: Any, **kwargs: Any) -> dict[str, Any]:
    """Return the arguments of the exported function as inputs for a session of onnxruntime, by name.

    The leaves of `args` and `kwargs` in order, each in the dtype of its input, random keys as words.

    Raises `ArgumentError` unless their number is that of the model's inputs.

    >>> import fxgrad, numpy as np
    >>> model = fxgrad.onnx.to_onnx(lambda p, k: p["x"] * k)({"x": np.ones(2, "f")}, 2.0)
    >>> fxgrad.onnx.feeds(model, {"x": np.ones(2, "f")}, 3.0)
    {'p.x': array([1., 1.], dtype=float32), 'k': array(3.)}
    """
    if not hasattr(model, "graph"):
        raise ArgumentError(at_user_line(
            f"onnx.feeds takes a model, got a {type(model).__name__}. Write feeds(fxgrad.onnx.to_onnx(f)(x), x)"))
    leaves, inputs = tree.leaves((args, kwargs)), model.graph.input
    if len(leaves) != len(inputs):
        raise ArgumentError(at_user_line(
            f"onnx.feeds: {len(leaves)} arrays, and the model takes {len(inputs)}: "
            f"{', '.join(each.name for each in inputs)}. Pass what the function was traced with"))
    helper = protos.require_onnx().helper
    return {each.name: _key_words(leaf) if dtypes.is_key(getattr(leaf, "dtype", None)) else np.asarray(
        leaf, helper.tensor_dtype_to_np_dtype(each.type.tensor_type.elem_type))
        for each, leaf in zip(inputs, leaves, strict=True)}


def _key_words(keys: Any) -> Any:
    return np.asarray(keys)["threefry2x32"]


# --- models ---------------------------------------------------------------------------------------------------------


def _model(program: Program) -> Any:
    program = drop_devices(program)
    signature = program.signature
    if not program.outputs:
        raise UnsupportedError("to_onnx: the function returns no array, and a model has at least one output. Return "
                               "what is to be computed")
    emission = Emission()
    names = {var: one_line(name) for var, name in variable_names(program, emission.sources).items()}
    results = [*map(one_line, _result_names(program))]
    emission.graph.unique.taken.update(results, (names[var] for var in program.inputs))
    inputs, infos = _inputs(emission, program, names)
    _sizes(emission, program, inputs)
    called: dict[Variable, str] = {}
    given = {*program.inputs}
    for atom, name in zip(program.outputs, results, strict=True):
        if isinstance(atom, Variable) and atom not in given and not dtypes.is_key(atom.aval.dtype):
            called.setdefault(atom, name)
    made = emission.program(program, inputs, called=called)
    outputs = _outputs(emission, program, made, results)
    title = "" if signature is None else signature.title or signature.name
    graph = emission.graph.model_graph(one_line(title) or "program", infos, outputs)
    return protos.make_model(graph, emission.graph.opset)


def _inputs(emission: Emission, program: Program, names: dict[Variable, str]) -> tuple[list[OnnxValue], list[Any]]:
    values: list[OnnxValue] = []
    infos: list[Any] = []
    closed = [*program.constants, *[None] * (len(program.inputs) - len(program.constants))]
    for number, (var, constant) in enumerate(zip(program.inputs, closed, strict=True)):
        aval = var.aval
        if dtypes.is_complex(aval.dtype):
            raise UnsupportedError(f"to_onnx: {names[var]} is an array of dtype {aval.dtype.name}, for which ONNX has "
                                   "no operators" + COMPLEX)
        if number < len(program.constants):
            emission.graph.unique.taken.discard(names[var])
            array = _key_words(constant) if dtypes.is_key(aval.dtype) else np.asarray(constant, aval.dtype)
            value = emission.graph.constant(array, names[var])
        else:
            value = OnnxValue(names[var], np.dtype(np.uint32) if dtypes.is_key(aval.dtype) else aval.dtype)
            shape = (*aval.shape, 2) if dtypes.is_key(aval.dtype) else aval.shape
            infos.append(protos.value_info(value.name, shape, value.dtype))
        if dtypes.is_key(aval.dtype):
            emission.graph.base = f"{names[var]}.key"
            value = library.key_of_words(emission.graph, value)
        values.append(value)
    return values, infos


def _sizes(emission: Emission, program: Program, inputs: Sequence[OnnxValue]) -> None:
    """Compute symbolic sizes from the arguments: `n` from an axis of n elements, or of 2 n + 1."""
    graph = emission.graph
    for value, var in zip(inputs, program.inputs, strict=True):
        sizes: Sequence[Any] = var.aval.shape
        for axis, size in enumerate(sizes):
            if type(size) is not SymbolicDim or len(size.names) > 1 or size.names[0] in graph.named:
                continue
            name, = size.names
            begin, step = size.at({name: 0}), size.at({name: 1}) - size.at({name: 0})
            if "(" not in str(size) and size == step * named_size(name) + begin:
                graph.base = f"{value.name}.shape"
                extent, = graph.raw("Shape", [value], [INT64], {"start": axis, "end": axis + 1})
                if begin:
                    extent = graph.operation("Sub", extent, graph.size(begin))
                graph.named[name] = extent if step == 1 else graph.operation("Div", extent, graph.size(step))


def _outputs(emission: Emission, program: Program, made: Sequence[OnnxValue], results: Sequence[str]) -> list[Any]:
    """Return the types of the outputs; an output that is not the result of a node gets an identity node."""
    infos, graph, done = [], emission.graph, set()
    for value, atom, name in zip(made, program.outputs, results, strict=True):
        aval = atom.aval
        graph.base = name
        given = library.words_of_key(graph, value) if dtypes.is_key(aval.dtype) else value
        if given.name != name or name in done:
            graph.nodes.append(protos.make_node("Identity", [given.name], [name], {"name": emission.node_names(name)}))
        done.add(name)
        shape = (*aval.shape, 2) if dtypes.is_key(aval.dtype) else aval.shape
        infos.append(protos.value_info(name, shape, given.dtype))
    return infos


def _result_names(program: Program) -> list[str]:
    """Return the names of the outputs: paths into the result."""
    signature, count = program.signature, len(program.outputs)
    if signature is None or signature.out_tree is None:
        return [RESULT] if count == 1 else [f"{RESULT}[{number}]" for number in range(count)]
    return tree.leaf_names(tree.unflatten(signature.out_tree, range(count)), RESULT)
