"""The IR: `Variable`, `Equation`, `Program`. Programs are values: built once and never changed."""

from __future__ import annotations

from collections.abc import Sequence
from types import CodeType
from typing import Any, NamedTuple

from fxgrad.engine.core.avals import Aval, Literal
from fxgrad.engine.core.faces import face
from fxgrad.engine.core.jaxprs import EquationAsJaxpr, ProgramAsJaxpr
from fxgrad.engine.core.primitive import Cost, Primitive
from fxgrad.engine.user_lines import at_user_line, file_name
from fxgrad.errors import ArgumentError


class Variable:
    """A variable of a program; it has a type, `aval`, and its identity is its name.

    >>> import numpy as np
    >>> Variable(Aval((2, 3), np.dtype("float32")))
    Variable(f32[2,3])
    """

    __slots__ = ("aval", "origins")

    aval: Aval
    origins: tuple[Provenance, ...]
    """The provenance of an input of a derived program, if it was recorded; else not set."""

    def __init__(self, aval: Aval) -> None:
        self.aval = aval

    def __repr__(self) -> str:
        return f"Variable({self.aval})"


Atom = Variable | Literal

PRIMAL, TANGENT, COTANGENT, TRANSPOSED = "primal", "tangent", "cotangent", "transposed"


class Provenance(NamedTuple):
    """Provenance of a derived variable: the primal, tangent or cotangent (`role`) of `var` in `program`.

    In a transposed program the role is cotangent too; if `var` was the tangent of x, it is the cotangent of x.

    `program` is the one that `var` belongs to.
    """

    role: str
    program: Program
    var: Variable


class Source(NamedTuple):
    """The place in the user's code that recorded an equation: a code object and an instruction in it.

    `part` and `origins` are set for equations that a transformation derived: `part` is a word, and `origins` gives the
    provenance of each output, if known; `part` is None for recorded user code. `results` are the paths of the outputs
    in the container that the expression returns, such as `[0].mean`; None for those outside of it. `scope` joins the
    names of `fxgrad.named_scope` around the code, "encoder/attention", or is "". `callers` are the user's calls around
    the code in displayed programs, the innermost first, each as a code object and an instruction in it.
    """

    code: CodeType
    instruction: int
    part: str | None = None
    origins: tuple[tuple[Provenance, ...], ...] = ()
    results: tuple[str | None, ...] = ()
    scope: str = ""
    callers: tuple[tuple[CodeType, int], ...] = ()

    def derived(self, part: str | None = None) -> Source:
        """Return the source of an equation derived from this one: of a part, by default the same."""
        part = part or self.part or ""
        if part == self.part and not self.origins:
            return self
        return Source(self.code, self.instruction, part, scope=self.scope, callers=self.callers)

    def inside(self, scope: str) -> Source:
        """Return the source of an equation whose own scope is nested in `scope`."""
        return self._replace(scope=join_scopes(scope, self.scope))

    @property
    def positions(self) -> tuple[int | None, int | None, int | None, int | None]:
        """First line, last line, first column, last column of the expression (None if unknown)."""
        for index, positions in enumerate(self.code.co_positions()):
            if index == self.instruction // 2:
                return positions
        return self.code.co_firstlineno, None, None, None

    @property
    def line(self) -> int:
        """The line number."""
        return self.positions[0] or self.code.co_firstlineno

    @property
    def filename(self) -> str:
        """The file of the code."""
        return self.code.co_filename

    @property
    def place(self) -> str:
        """The file, as messages name it, and the line: "model.py:3"."""
        return f"{file_name(self.filename)}:{self.line}"


def join_scopes(outer: str, inner: str) -> str:
    """Return the name of the scope `inner` within the scope `outer`; "" stands for none."""
    return f"{outer}/{inner}" if outer and inner else outer or inner


class Equation(EquationAsJaxpr):
    """One operation: `outputs = primitive[params](inputs)`; `source` is the user's line, if known.

    >>> import fxgrad, numpy as np
    >>> program = fxgrad.make_program(lambda x: np.sum(x, axis=0))(np.ones((2, 3)))
    >>> program.equations[0].primitive, program.equations[0].params
    (reduce_sum, {'axes': (0,)})
    """

    # A slots class that is not frozen: frozen dataclasses take three times as long to build.
    __slots__ = ("inputs", "outputs", "params", "primitive", "source")

    primitive: Primitive
    inputs: list[Atom]
    params: dict[str, Any]
    outputs: list[Variable]
    source: Source | None

    def __init__(self, primitive: Primitive, inputs: list[Atom], params: dict[str, Any], outputs: list[Variable],
                 source: Source | None = None) -> None:
        self.primitive, self.inputs, self.params = primitive, inputs, params
        self.outputs, self.source = outputs, source

    @property
    def scope(self) -> str:
        """The names of `fxgrad.named_scope` around the operation, outermost first: "encoder/attention"; "" if none.

        They are those within its own program: an operation in the body of a loop is in the scopes of the loop as well.

        >>> import fxgrad, numpy as np
        >>> def model(x):
        ...     with fxgrad.named_scope("encoder"):
        ...         hidden = np.tanh(x)
        ...     return hidden * 2.0
        >>> [equation.scope for equation in fxgrad.make_program(model)(np.ones(3)).equations]
        ['encoder', '']
        """
        return "" if self.source is None else self.source.scope

    @property
    def regions(self) -> tuple[Any, ...]:
        """The programs in the operation's parameters, each with its role (`Region`s); none for most operations."""
        regions = self.primitive.regions
        return () if regions is None else regions(self.inputs, **self.params)

    @property
    def cost(self) -> Cost:
        """The floating-point operations and the bytes moved, from types and parameters alone."""
        found: Cost = self.primitive.cost(*(atom.aval for atom in self.inputs), **self.params)
        return found

    @property
    def programs(self) -> list[Program]:
        """The programs in the operation's parameters."""
        return subprograms(self.primitive, self.params)

    def replace(self, inputs: list[Atom], params: dict[str, Any] | None = None) -> Equation:
        """Return the equation with other `inputs`, and other parameters if given; it binds the same variables."""
        return Equation(self.primitive, inputs, self.params if params is None else params, self.outputs, self.source)

    def __repr__(self) -> str:
        outputs = ", ".join(str(var.aval) for var in self.outputs)
        inputs = ", ".join(str(atom.aval) for atom in self.inputs)
        return f"{outputs} = {self.primitive}({inputs})"


class Signature(NamedTuple):
    """The public form of a program: its name, names of inputs, and the trees of arguments and results.

    `title` shows how the function was made, such as `grad(loss)`, if it is more than the name. `path` is the path that
    Python's control flow took for the values of the trace, if it needed any.
    """

    name: str
    input_names: tuple[str, ...]
    in_tree: Any
    out_tree: Any
    title: str = ""
    path: ControlFlowPath | None = None


class ControlFlowPath(NamedTuple):
    """Values of the conditions of Python's control flow during a trace: the program holds for these alone.

    `conditions` is a closed program of the same inputs that computes them; `values` are their values during the trace,
    and `places` the user's lines that tested them.
    """

    conditions: Program
    values: tuple[Any, ...]
    places: tuple[str, ...]


class Program(ProgramAsJaxpr):
    """A traced function: `inputs`, `equations` in order, `outputs`.

    The first `captured` inputs are values that the function closed over. `constants` holds their values when the
    program is closed (as `make_program` returns it); then calling the program takes the other inputs only. Calling it
    runs it: on NumPy arrays with NumPy, on jax arrays with XLA, on tracers by recording its equations.

    >>> import fxgrad, fxgrad.numpy as fnp
    >>> program = fxgrad.make_program(lambda x: fnp.sin(x) * 2.0)(1.0)
    >>> print(round(float(program(1.0)), 4))
    1.6829
    """

    __slots__ = (
        "__weakref__",
        "attributes",
        "base",
        "captured",
        "constants",
        "equations",
        "inputs",
        "memo",
        "outputs",
        "signature",
    )

    inputs: list[Variable]
    equations: list[Equation]
    outputs: list[Atom]
    captured: int
    constants: list[Any]
    signature: Signature | None
    base: Program | None
    """The program that `replace` made this one from; variables keep their names."""
    attributes: dict[Any, Any]
    """Values by `ProgramAttribute` or program property, with the lifetime of the program."""
    memo: dict[Any, Any]
    """Memoized derivations; dropped once user code that ran for one of them traces differently."""

    def __init__(self, inputs: Sequence[Variable], equations: Sequence[Equation], outputs: Sequence[Atom],
                 captured: int = 0, constants: Sequence[Any] = (), signature: Signature | None = None) -> None:
        self.inputs, self.equations, self.outputs = list(inputs), list(equations), list(outputs)
        self.captured, self.constants, self.signature = captured, list(constants), signature
        self.attributes, self.memo, self.base = {}, {}, None

    def replace(self, **changes: Any) -> Program:
        """Return the program with other `inputs`, `equations`, `outputs`, `captured`, `constants` or `signature`."""
        made = {name: getattr(self, name) for name in _FIELDS}
        assert made.keys() >= changes.keys(), f"a program has no {', '.join(changes.keys() - made.keys())}"
        result = Program(**{**made, **changes})
        result.base = self
        return result

    @property
    def in_avals(self) -> list[Aval]:
        """The types of the inputs, the captured ones first."""
        return [var.aval for var in self.inputs]

    @property
    def out_avals(self) -> list[Aval]:
        """The types of the outputs."""
        return [atom.aval for atom in self.outputs]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return face("call")(self, args, kwargs)

    def __str__(self) -> str:
        return str(face("text")(self))

    def __repr__(self) -> str:
        return str(face("text")(self))

    def __rich_console__(self, _: Any, options: Any) -> Any:
        yield face("rich")(self, options.max_width)

    def __copy__(self) -> Program:
        return self  # programs are immutable values

    def __deepcopy__(self, _: Any) -> Program:
        return self

    def __reduce__(self) -> Any:
        return face("pickled")(self)

    def _repr_html_(self) -> str:
        return str(face("html")(self))

    def diff(self, other: Program) -> Any:
        """Return the lines in which `other` differs; they print with `-` and `+`; false if the programs are equal.

        Equations are compared by what they compute, not by position: an equation that only moved, or that depends on a
        changed one, is not listed. Names alone make no difference.

        >>> import fxgrad, numpy as np
        >>> before = fxgrad.make_program(lambda x: np.sum(np.sin(x) * 2.0))(np.ones(3))
        >>> after = fxgrad.make_program(lambda x: np.sum(np.cos(x) * 2.0))(np.ones(3))
        >>> print(before.diff(after))
          x: f64[3]
        - a: f64[3] = sin(x)
        + a: f64[3] = cos(x)
          b: f64[3] = mul(a, 2.0)
          ...
        >>> len(before.diff(before))
        0
        """
        return face("difference")(self, other)

    def to_python(self, *, source: bool = True) -> str:
        """Return the text of a Python file with one public function that computes this program, importing NumPy alone.

        The function has the name, the docstring and the variables of the traced function, takes and returns its
        containers, and gives the same bits as running the program on NumPy arrays; inner jitted programs are computed
        by NumPy, too. With `source`, statements end with the user's lines. If a dtype or a kernel needs ml_dtypes or
        SciPy, the file imports these.

        Raises `UnsupportedError`, which names the operation and the user's line, for kernels that run XLA, callbacks,
        operations that only jax has, and containers of user classes.

        >>> import fxgrad, numpy as np
        >>> text = fxgrad.make_program(lambda x: np.sum(np.sin(x) * x))(np.ones(3)).to_python(source=False)
        >>> print(text[text.index("@np"):text.index("# ---")].strip())
        @np.errstate(all='ignore')
        def function(x):
            x = array_of(x, 'x', 'float64', (3,))
            a = np.sin(x)
            b = a * x
            c = np.sum(b)
            return c
        """
        return str(face("python")(self, source=source))

    def to_c(self, *, source: bool = True) -> str:
        """Return the text of a C99 file of one function that computes this program; it needs nothing but `-lm`.

        Its parameters are the arguments in order (numbers by value, arrays by pointer), then the results, to be filled,
        then work space, of a size that the file defines: nothing is allocated. With `source`, statements begin with the
        user's line. Gradients and whole training steps work like any other program.

        Raises `UnsupportedError`, which names the operation and the user's line, for dtypes other than float32,
        float64, int32, int64 and bool, and for operations without a form in C (docs/appendix/c-files.md).

        >>> import fxgrad, numpy as np
        >>> text = fxgrad.make_program(lambda x: np.sum(np.sin(x) * x))(np.ones(3)).to_c(source=False)
        >>> print(text[text.index("void function("):].strip())
        void function(const double *x, double *c, char *workspace)
        {
            (void)workspace;
            {
                double total = 0.0;
                for (int i = 0; i < 3; i++)
                    total += sin(x[i]) * x[i];
                *c = total;
            }
        }
        """
        return str(face("c")(self, source=source))

    def edit(self) -> Any:
        """Return an editor of a copy of the program, to insert, replace and erase equations (`fxgrad.tools.editing`).

        >>> import fxgrad, numpy as np
        >>> editor = fxgrad.make_program(lambda x: np.sin(x) + 1.0)(0.0).edit()
        >>> sine, = editor.find("sin")
        >>> editor.replace(sine, np.cos)
        >>> editor.program()(0.0)
        np.float64(2.0)
        """
        return face("edit")(self)

    def check(self) -> Program:
        """Verify the program: bindings, types, outputs, nested programs; return the program.

        Raises `ProgramError`, which shows the equation, its neighbours and the user's line.
        """
        face("check")(self)
        return self


def require_program(what: str, value: Any) -> Program:
    """Return `value` if it is a program; raise `ArgumentError` if not."""
    if isinstance(value, Program):
        return value
    hint = f". Write {what}(fxgrad.make_program(f)(x))" if callable(value) else ""
    raise ArgumentError(at_user_line(f"{what} takes a program, got a {type(value).__name__}{hint}"))


_FIELDS = ("inputs", "equations", "outputs", "captured", "constants", "signature")


def subprograms(primitive: Primitive, params: dict[str, Any]) -> list[Program]:
    """Return the programs in the parameters of an operation."""
    return [] if primitive.regions is None else [region.program for region in primitive.regions((), **params)]


def inner_first(main: Program) -> list[Program]:
    """Return `main` and the programs nested in it at any depth, each once and after those nested in it."""
    found: dict[int, Program] = {}
    stack = [require_program("inner_first", main)]
    while stack:  # not by recursion: calls may nest deeply
        top = stack[-1]
        missing = [] if id(top) in found else [
            inner for equation in top.equations for inner in equation.programs if id(inner) not in found]
        if missing:
            stack.extend(missing)
        else:
            found.setdefault(id(stack.pop()), top)
    return [*found.values()]
