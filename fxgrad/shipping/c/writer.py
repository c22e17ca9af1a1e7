"""Programs as C files: one function that takes and fills arrays, in C99, and needs the mathematical library alone."""

from __future__ import annotations

import re
import textwrap
from typing import Any

import numpy as np

from fxgrad import tree
from fxgrad.errors import UnsupportedError
from fxgrad.extend import (
    Aval,
    Equation,
    Program,
    Tracer,
    Variable,
    at_user_line,
    drop_devices,
    inner_first,
    require_all_paths,
    source_line,
)
from fxgrad.extend.sizes import require_numbers
from fxgrad.shipping.c.functions import CFunction
from fxgrad.shipping.c.helpers import HELPERS, helpers_of
from fxgrad.shipping.c.values import INDICES, CValue, SourceRefusal, array_value, c_type, expression_value, literal
from fxgrad.text.inlining import call_name
from fxgrad.text.names import UniqueNames, variable_names
from fxgrad.text.quoting import c_comment_line
from fxgrad.text.short import operation_name
from fxgrad.text.sources import Sources

_KEYWORDS = """auto break case char const continue default do double else enum extern float for goto if inline int long
register restrict return short signed sizeof static struct switch typedef union unsigned void volatile while bool true
false NAN INFINITY NULL main memcpy workspace step factor total best isnan isinf isfinite signbit y0 y1 yn j0 j1 jn
int8_t int32_t int64_t uint8_t uint32_t uint64_t INT8_MIN INT32_MIN INT64_MIN INT8_MAX UINT8_MAX INT32_MAX INT64_MAX
INT64_C errno signgam linux unix asm alignas alignof constexpr nullptr static_assert thread_local typeof typeof_unqual
size_t float_t double_t math_errhandling MATH_ERRNO MATH_ERREXCEPT HUGE_VAL HUGE_VALF HUGE_VALL fpclassify isnormal
isgreater isgreaterequal isless islessequal islessgreater isunordered FP_NAN FP_INFINITE FP_ZERO FP_SUBNORMAL FP_NORMAL
FP_ILOGB0 FP_ILOGBNAN M_E M_LOG2E M_LOG10E M_LN2 M_LN10 M_PI M_PI_2 M_PI_4 M_1_PI M_2_PI M_2_SQRTPI M_SQRT2 M_SQRT1_2
SIZE_MAX PTRDIFF_MIN PTRDIFF_MAX SIG_ATOMIC_MIN SIG_ATOMIC_MAX WCHAR_MIN WCHAR_MAX WINT_MIN WINT_MAX"""
"""Keywords, from C23 on some more, and names of the headers that a file includes."""
_FUNCTIONS = """acos acosh asin asinh atan atan2 atanh cbrt ceil copysign cos cosh erf erfc exp exp2 expm1 fabs fdim
floor fma fmax fmin fmod frexp hypot ilogb ldexp lgamma log log10 log1p log2 logb lrint lround modf nan nearbyint
nextafter nexttoward pow remainder remquo rint round scalbln scalbn sin sinh sqrt tan tanh tgamma trunc abs div labs
index rindex drem significand gamma"""
_LIBRARY = """abort abs atexit atof atoi atol atoll bsearch calloc div exit free getenv labs ldiv llabs lldiv malloc
mblen mbstowcs mbtowc qsort rand random realloc srand strtod strtof strtol strtold strtoll strtoull strtoul system
wcstombs wctomb clearerr fclose feof ferror fflush fgetc fgetpos fgets fopen fprintf fputc fputs fread freopen fscanf
fseek fsetpos ftell fwrite getc getchar gets perror printf putc putchar puts remove rename rewind scanf setbuf setvbuf
snprintf sprintf sscanf tmpfile tmpnam ungetc vfprintf vfscanf vprintf vscanf vsnprintf vsprintf vsscanf memchr memcmp
memmove memset strcat strchr strcmp strcoll strcpy strcspn strdup strerror strlen strncat strncmp strncpy strpbrk
strrchr strspn strstr strtok strxfrm bcmp bcopy bzero ffs exp10 pow10 scalb gamma_r lgamma_r finite asctime clock ctime
difftime gmtime localtime mktime strftime time raise signal setjmp longjmp isalnum isalpha isblank iscntrl isdigit
isgraph islower isprint ispunct isspace isupper isxdigit tolower toupper cabs carg cexp cimag clog conj cpow cproj
creal csqrt read write open close send recv select poll link sync pipe wait kill sleep pause bind listen accept
connect"""
"""Functions of C's and of the system's library, which no function of a file may replace."""
WIDTH = 100


def c_text(program: Program, *, source: bool = True) -> str:
    """Return `program` as the text of a C99 file of one public function, which needs the mathematical library alone.

    `Program.to_c` describes the contents.
    """
    return CFile(require_all_paths("to_c", program), source).text()


class CFile:
    """One file: the main function, the functions that it calls, constants, and helpers."""

    def __init__(self, program: Program, source: bool) -> None:
        program = drop_devices(require_numbers("to_c", program))
        self._main, self._source = program, source
        self._functions: dict[int, tuple[str, int]] = {}
        self._texts: list[str] = []
        self._constants: dict[str, str] = {}
        self._sources = Sources()
        functions = _FUNCTIONS.split()
        integers = [f"{sign}INT{kind}{bits}_{end}" for sign in ("", "U") for kind in ("", "_FAST", "_LEAST")
                    for bits in (8, 16, 32, 64, "MAX", "PTR") for end in ("MIN", "MAX", "C")]
        reserved = [*_KEYWORDS.split(), *integers, *functions, *(name + "f" for name in functions), *HELPERS, *INDICES,
                    *(f"i{number}" for number in range(40)), *(f"at_{index}" for index in INDICES)]
        self.unique = UniqueNames(reserved)
        self._title = self._function_name(_description(program))
        self._macro = self.unique(f"{self._title.upper()}_WORKSPACE")
        self._names: dict[int, dict[Variable, str]] = {}
        self._program_names: dict[int, str] = {}
        self._named: list[Program] = []
        """These stay, since programs are known by their identity."""
        self._tables: dict[tuple[str, tuple[int, ...], bytes], str] = {}
        self.add_names(program)

    def text(self) -> str:
        """Return the whole file."""
        function = self._function_of(self._main, self._title, True)
        body, size = function.text()
        head = _head(f"void {self._title}", function.parameters())
        code = "\n\n".join([*self._texts, f"{head}\n{body}"])
        statements = re.sub(r"/\*.*?\*/", "", code)  # comments are lines of the user's, in other names
        helpers = helpers_of(statements)
        # Operations may read none of their operands, and compilers warn of constants that nothing reads.
        constants = [text for name, text in self._constants.items() if re.search(rf"\b{name}\b", statements)]
        parts = [self._comment(function),
                 "#include <math.h>\n#include <stdbool.h>\n#include <stdint.h>\n#include <string.h>",
                 f"#define {self._macro} {size}", *constants, helpers, code]
        return "\n\n".join(part for part in parts if part) + "\n"

    def add_names(self, program: Program) -> None:
        """Give names to the variables of a program, and of those that its operations hold, and to these."""
        self._named.append(program)
        inside = [each for each in inner_first(program) if id(each) not in self._names]
        found = {id(each): variable_names(each, self._sources) for each in inside}
        constants = dict.fromkeys(program.inputs[:len(program.constants)])
        for var in constants:  # these are of the whole file
            found[id(program)][var] = self.unique(_identifier(found[id(program)][var]))
        for key, names in found.items():
            unique = UniqueNames([*self.unique.taken])
            self._names[key] = {var: name if var in constants else unique(_identifier(name))
                                for var, name in names.items()}
        self.unique.taken.update(name for key in found for name in self._names[key].values())
        for each in inside:
            for equation in each.equations:
                for region in equation.regions:
                    name = call_name(equation) if region.role in ("inline", "call", "recomputed") else region.role
                    self._program_names.setdefault(id(region.program), name or region.role)

    # --- functions ------------------------------------------------------------------------------------------

    def function(self, program: Program) -> tuple[str, int]:
        """Return the name of the function of a program that an operation holds, and its bytes of work space."""
        known = self._functions.get(id(program))
        if known is None:
            name = self._function_name(self._program_names.get(id(program), "body"))
            function = self._function_of(program, name, False)
            body, size = function.text()
            self._texts.append(f"{_head(f'static void {name}', function.parameters())}\n{body}")
            known = self._functions[id(program)] = name, size
        return known

    def _function_name(self, wanted: str) -> str:
        name = _identifier(wanted)
        return self.unique(f"{name}_1" if name in _LIBRARY.split() else name)

    def _function_of(self, program: Program, name: str, is_main: bool) -> CFunction:
        function = None
        try:
            function = CFunction.__new__(CFunction)
            function.__init__(self, program, name, self._names[id(program)], is_main)  # type: ignore[misc]
        except SourceRefusal as refusal:
            equation = getattr(function, "equation", None)
            raise UnsupportedError(_unsupported_error(equation, str(refusal))) from None
        return function

    def constant(self, name: str, var: Variable, value: object) -> CValue:
        """Return an array that the program closes over, added to the file; a number becomes a literal."""
        if isinstance(value, Tracer):
            raise UnsupportedError(at_user_line(
                "to_c: a constant of the program is a traced array, which has no elements yet. Write the program "
                "outside of the transformation that traces it"))
        array = np.asarray(value)
        if not array.shape:
            number = literal(array[()], array.dtype)
            return expression_value(var.aval, lambda indices: number, 0, lambda place: number)
        items = ", ".join(literal(each, array.dtype, exact=True) for each in array.ravel())
        text = "\n".join(textwrap.wrap(items or "0", WIDTH - 4, initial_indent="    ", subsequent_indent="    "))
        self._constants[name] = f"static const {c_type(var.aval)} {name}[{array.size or 1}] = {{\n{text}\n}};"
        return array_value(var.aval, name, lambda _: None, var=var)

    def table(self, values: np.ndarray[Any, Any]) -> str:
        """Return the name of a constant array that is no value of the program; equal ones are one."""
        key = values.dtype.str, values.shape, values.tobytes()
        if key not in self._tables:
            self._tables[key] = self.unique("table")
            self.constant(self._tables[key], Variable(Aval(values.shape, values.dtype)), values)
        return self._tables[key]

    # --- comments -------------------------------------------------------------------------------------------

    def comment(self, equation: Equation) -> str:
        """Return the user's line of an equation."""
        source = equation.source
        if not self._source or source is None:
            return ""
        line = source_line(source.filename, source.line).strip()
        return c_comment_line(f"{source.place}  {line}".strip())

    def _comment(self, function: CFunction) -> str:
        program = self._main
        signature = program.signature
        lines = [f"{_description(program)}: a program of fxgrad's, for arrays of these shapes in row-major order.", ""]
        rows = [(name, "takes", var.aval) for name, var in (
            (function.names[var], var) for var in function.inputs)]
        rows += [(name, "fills", atom.aval) for name, atom in zip(function.outputs, program.outputs, strict=True)]
        results = ["" for _ in program.outputs]
        if signature is not None and signature.out_tree is not None:
            results = tree.leaf_names(tree.unflatten(signature.out_tree, range(len(results))), "result")
        said = [*(signature.input_names if signature is not None else [""] * len(function.inputs)), *results]
        width = max([len(name) for name, _, _ in rows], default=0)
        for (name, does, aval), original in zip(rows, said, strict=True):
            shape = "".join(f"[{extent}]" for extent in aval.shape)
            note = f"  {original}" if original and original != name else ""
            lines.append(f"  {name:<{width}}  {does} {c_type(aval)}{shape}{note}")
        lines += ["",
                  f"`workspace` has {self._macro} bytes, aligned as malloc aligns them. Nothing else is written, and",
                  "arrays that are filled overlap no others. Compile with -std=c99, without -ffast-math."]
        inside = "\n".join(f" * {c_comment_line(line)}".rstrip() for line in lines)
        return f"/*\n{inside}\n */"


def _head(start: str, parameters: list[str]) -> str:
    line = f"{start}({', '.join(parameters)})"
    return line if len(line) <= WIDTH else f"{start}(\n    " + ",\n    ".join(parameters) + ")"


def _identifier(name: str) -> str:
    words = re.sub(r"[^0-9A-Za-z_]+", "_", name).strip("_") or "value"
    return f"_{words}" if words[0].isdigit() else words


def _description(program: Program) -> str:
    signature = program.signature
    return "function" if signature is None else (signature.title or signature.name).partition(", [")[0]


def _unsupported_error(equation: Equation | None, reason: str) -> str:
    if equation is None:
        return at_user_line(f"to_c: an argument is {reason}. Convert it first")
    source = equation.source
    line = "" if source is None else f"\n  at {source.place} (in {source.code.co_name})"
    return (f"to_c: {operation_name(equation)} is an operation {reason}. Leave it out of the function, or write the "
            f"program as a NumPy file, program.to_python(){line}")
