"""Fifteen hazards of converting control flow: each works, or is refused by line."""

# ruff: noqa: ISC004, PERF401, RET503, RET508, T201  (the functions are written as users write them)

from __future__ import annotations

import array
import contextlib
import functools
import re
import traceback
from typing import Any

import numpy as np
import pytest

from fxgrad import grad, jit, make_program, python_control_flow, vmap
from fxgrad.engine.frontend.flat import trace_flat
from fxgrad.engine.tracing.trace import SHARED
from fxgrad.engine.transparency import sources
from fxgrad.errors import ConcretizationError, ControlFlowError, UnsupportedError
from fxgrad.extend import Aval
from tests.engine.control_flow import unconverted

converted = python_control_flow


def refusal(function: Any, *args: Any) -> str:
    """Return the message of the refusal, with line numbers counted from the function's own."""
    with pytest.raises(ControlFlowError) as refused:
        jit(converted(function))(*args)
    first = getattr(function, "__func__", function).__code__.co_firstlineno
    return re.sub(r"test_hazards\.py:(\d+)", lambda match: f"line {int(match[1]) - first}", str(refused.value))


def test_a_name_set_on_one_side_is_refused_if_it_is_used_and_local_if_not():
    def used(x):
        if x > 0:
            y = x
        return y

    def unused(x):
        z = x
        if x > 0:
            y = 2 * x
            z = y + 1
        return z

    assert refusal(used, 1.0) == (
        "`y` is set only if the condition of this `if` is true, and it is used after. Set it on both sides, or before\n"
        "  at line 1 (in used)")
    assert [float(jit(converted(unused))(x)) for x in (2.0, -2.0)] == [5.0, -2.0]


def test_none_on_one_side_is_refused():
    def forgets(x):
        if x > 0:
            return x
        x = 2 * x

    def assigns(x):
        y = nothing()
        if x > 0:
            y = x
        return y

    def nothing():
        return None

    assert refusal(forgets, 1.0) == (
        "forgets returns None on one path and a value on another, and a traced condition chooses: what is compiled or "
        "batched returns arrays and numbers. In the place of None, return np.nan or another default; or return a flag "
        "beside the value: `return x, True` and `return 0.0, False`\n  at line 0 (in forgets)")
    assert refusal(assigns, 1.0) == (
        "`y` is f64*[] if the condition of this `if` is true, and None otherwise. In the place of None, give "
        "values of the same type, and beside them a flag: found = True on one side, and False on the other\n"
        "  at line 2 (in assigns)")


def test_an_integer_before_a_loop_and_a_float_after_a_turn_is_widened_once():
    def f(x, n):
        total = 0
        for _ in range(n):
            total = total * 0.5 + x
        return total

    program = make_program(converted(f))(2.0, 3)
    assert str(program.outputs[0].aval) == "f64*[]"
    assert [float(jit(converted(f))(2.0, n)) for n in (0, 3)] == [f(2.0, 0), f(2.0, 3)]


def test_a_shape_that_grows_is_refused():
    def f(x, n):
        for _ in range(n):
            x = np.concatenate([x, x])
        return x

    assert refusal(f, np.ones(2), 2) == (
        "`x` is f64[2] before a turn of this `for` and f64[4] after it; the number of turns is traced, so the shape "
        "must stay. Begin with an array of the final shape, and fill it with x[i] = v\n  at line 1 (in f)")


def test_lists_stack_where_the_length_is_static_and_are_refused_where_it_is_traced():
    def static(x):
        out = []
        for i in range(3):
            out.append(x * i if x > 0 else x)
        return np.stack(out)

    def traced(x, n):
        out = []
        for i in range(n):
            out.append(x * i)
        return out

    def inside(x, n):
        for _ in range(n):
            pair = []
            pair.append(x)
            pair.append(2 * x)
            x = pair[0] + pair[1]
        return x

    def dictionary(x, seen):
        if x > 0:
            seen["last"] = x
        return x

    np.testing.assert_array_equal(jit(converted(static))(2.0), static(2.0))
    assert refusal(traced, 1.0, 3) == (
        "`out`, which changes at line 3 (in traced), is 0 items long before a turn of this `for` and 1 item long after "
        "it; the number of turns is traced, so the length must stay. Begin with an array of the greatest length, and "
        "write into it with x[i] = v\n  at line 2 (in traced)")
    assert float(jit(converted(inside))(1.0, 2)) == 9.0
    assert refusal(dictionary, 1.0, {"last": 0.0}) == (
        "a dict is changed inside the traced `if` at line 1 (in dictionary), which is traced once and may run never or "
        "often. Change a copy of it: x = dict(x)\n  at line 2 (in dictionary)")


class Counter:
    def __init__(self):
        self.count = 0

    def add(self):
        self.count += 1


TOTAL = 0


def test_changes_of_attributes_and_globals_in_a_callee_are_refused():
    counter = Counter()

    def attribute(x):
        if x > 0:
            counter.add()
        return x

    def add_to_total():
        global TOTAL
        TOTAL += 1

    def of_module(x):
        if x > 0:
            add_to_total()
        return x

    def closure(x):
        count = 0

        def add():
            nonlocal count
            count += 1
        by_another_name = add
        if x > 0:
            by_another_name()
        return x + count

    def walrus(x):
        count = 0.0

        def double(v):
            nonlocal count
            return (count := v * 2)
        by_another_name = double
        if x > 0:
            x = by_another_name(x)
        return x + count

    def target(x):
        count = 0

        def count_to(v):
            nonlocal count
            for count in range(3):
                v = v + count
            return v
        by_another_name = count_to
        if x > 0:
            x = by_another_name(x)
        return x + count

    def keep_if_positive(x):
        global TOTAL
        if x > 0:
            TOTAL = x

    def of_module_in_its_own_block(x):
        keep_if_positive(x)
        return x

    for function, what in ((attribute, "a Counter is changed inside"),
                           (of_module, "`TOTAL` belongs to a scope outside and is assigned inside"),
                           (of_module_in_its_own_block, "`TOTAL` belongs to a scope outside and is assigned inside"),
                           *((function, "`count` belongs to a scope outside and is assigned inside")
                             for function in (closure, walrus, target))):
        with pytest.raises(ControlFlowError, match=re.escape(what)) as refused:
            jit(converted(function))(1.0)
        assert "the traced `if` at test_hazards.py" in str(refused.value)
    assert (counter.count, TOTAL) == (0, 0)


def test_a_closure_reads_the_variable_of_the_turn():
    def f(x, n):
        k = 1.0
        g = lambda t: t * k
        total = 0.0
        for _ in range(n):
            k = k + 1
            total = total + g(x)
        return total

    assert float(jit(converted(f))(2.0, 3)) == f(2.0, 3)


def test_and_returns_an_operand_and_guards_the_right_side():
    def f(x):
        return x > 0 and np.log(x)

    def g(x):
        return x or 7.0

    assert [float(jit(converted(f))(x)) for x in (2.0, -1.0)] == [np.log(2.0), 0.0]
    assert [float(jit(converted(g))(x)) for x in (2.0, 0.0)] == [2.0, 7.0]

    def h(x):
        return x * (x > 0 and np.sqrt(x))

    np.testing.assert_array_equal(vmap(grad(converted(h)))(np.array([4.0, 0.0])), [3.0, 0.0])


def test_an_error_on_a_side_names_it():
    def f(x):
        if x > 0:
            return x @ np.ones(4)
        return x

    with pytest.raises(ValueError, match="matmul") as raised:
        jit(converted(f))(np.float64(1.0))
    assert [re.sub(r":\d+", "", note) for note in raised.value.__notes__] == [
        "while tracing the side of the `if` at test_hazards.py (in f) for a condition that is true; both sides are "
        "traced"]


def test_a_loop_variable_after_no_turns_is_refused_if_it_is_used():
    def f(x, n):
        for i in range(n):
            x = x + i
        return i

    def g(x, n):
        i = -1
        for i in range(n):
            x = x + i
        return i

    assert refusal(f, 1.0, 3) == (
        "`i` has no value before this `for`, whose number of turns is traced and may be 0, and it is used later. Set "
        "`i` before the loop, to a value of the same type\n  at line 1 (in f)")
    assert [int(jit(converted(g))(1.0, n)) for n in (0, 3)] == [-1, 2]


def test_return_in_a_loop_has_the_type_of_what_is_returned():
    def f(x, n):
        for i in range(n):
            if x * i > 3:
                return np.ones(2) * i * x
            x = x + 0.5
        return np.zeros(2) + x

    for args in ((1.0, 10), (0.1, 2), (1.0, 0)):
        np.testing.assert_allclose(jit(converted(f))(*args), f(*args), rtol=1e-15)


def factorial(n):
    return 1 if n < 2 else n * factorial(n - 1)


def nested(depth, x):
    return x if depth == 0 else nested(depth - 1, 2 * x)


def test_recursion_under_a_traced_condition_is_refused_and_runs_under_a_known_one():
    with pytest.raises(ControlFlowError, match=r"^factorial calls itself inside the traced `if` at test_hazards.py:\d+ "
                       r"\(in factorial\): both sides of a traced condition are traced, so the recursion would not "
                       r"end\. "):
        jit(converted(factorial))(3)
    assert float(jit(converted(nested), static_argnums=0)(3, 1.0)) == 8.0


def twice(function):
    @functools.wraps(function)
    def wrapper(*args):
        return 2 * function(*args)
    return wrapper


def test_decorators_and_lambdas_on_one_line_are_told_apart():
    one, other = (lambda x: 1.0 if x > 0 else 2.0), (lambda x: 3.0 if x > 0 else 4.0)

    @converted
    @twice
    def f(x):
        return x if x > 0 else -x

    assert [float(jit(converted(each))(x)) for each in (one, other) for x in (1.0, -1.0)] == [1.0, 2.0, 3.0, 4.0]
    assert float(jit(f)(-3.0)) == 6.0


def test_source_that_is_not_what_runs_is_refused(tmp_path, monkeypatch):
    path = tmp_path / "stale_module.py"
    path.write_text("def f(x):\n    return 1.0 if x > 0 else 2.0\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    import stale_module

    path.write_text("def f(x):\n    return 5.0 if x > 0 else 2.0\n")
    texts = [f"python_control_flow: f cannot be converted: its source in {path} is not what runs: the file was "
             "changed, or the code was rewritten. Save the file and import it again, or use fxgrad.lax.cond and "
             "while_loop"]
    session: dict[str, Any] = {}
    exec("def typed(x):\n    return x if x > 0 else -x", session)
    texts.append("python_control_flow: typed cannot be converted: its source is not in a file (it was typed at a "
                 "prompt, or made by exec, in <string>). Write it into a file and import it, or use fxgrad.lax.cond "
                 "and while_loop")

    def generator(x):
        yield x

    def looks(x):
        return locals()

    line = generator.__code__.co_firstlineno
    texts += ["python_control_flow: abs is a builtin_function_or_method, not a function written in Python, so it has "
              "no source to convert. Wrap the function that calls it",
              f"python_control_flow: generator cannot be converted: it is a generator (test_hazards.py:{line}), whose "
              "turns are asked for from outside. Return a list, or use fxgrad.lax.scan",
              "python_control_flow: looks cannot be converted: it calls locals(), which sees variables by name "
              f"(test_hazards.py:{looks.__code__.co_firstlineno}). Use the variables themselves"]
    for function, text in zip((stale_module.f, session["typed"], abs, generator, looks), texts, strict=True):
        with pytest.raises(UnsupportedError) as refused:
            converted(function)
        assert str(refused.value).partition("\n")[0] == text


def test_print_prints_every_turn_and_host_randomness_is_refused(capfd):
    def shows(x, n):
        for i in range(n):
            print("turn", i, x)
            print(f"x={x:.2f}")
            x = x * 2
        return x

    def draws(x, n):
        for _ in range(n):
            x = x + np.random.rand()  # noqa: NPY002
        return x

    float(jit(converted(shows))(1.0, 2))
    assert capfd.readouterr().out == "turn 0 1.0\nx=1.00\nturn 1 2.0\nx=2.00\n"
    assert refusal(draws, 1.0, 2) == (
        "rand() draws numbers on the host inside the traced `for` at line 1 (in draws): it would run once, and every "
        "turn would get the same numbers. Use fxgrad.random with a key, split in each turn\n  at line 2 (in draws)")


def test_the_width_of_a_number_in_a_printed_text_may_be_computed(capfd):
    def shows(x, width):
        if x > 0:
            print(f"{double(x)}|{x:{width}.{width - 3}f}|")
        if x < 0:
            raise ValueError(f"{double(x)}: {x:{width}} is no length")
        return x

    def double(x):
        return x * 2 if x > 1 else x

    compiled = jit(converted(shows), static_argnums=1)
    assert float(compiled(1.5, 5)) == 1.5
    assert capfd.readouterr().out == "3.0| 1.50|\n"
    with pytest.raises(ValueError, match=r"-1\.5:   -1\.5 is no length"):
        compiled(-1.5, 6)
    assert refusal(lambda x: print(f"{x:{x}}"), 2.0).startswith("an f-string has a traced value")


def test_a_side_that_only_prints_prints(capfd):
    @jit
    @python_control_flow
    def told(x):
        if x > 0:
            print("positive", x)
        elif x < -1:
            print("below")
        for k in range(2):
            if x > k + 1:
                print("turn", k)
        return x

    for x in (3.0, -0.5, -2.0):
        assert told(x) == x
    assert capfd.readouterr().out == "positive 3.0\nturn 0\nturn 1\nbelow\n"


def test_a_probed_turn_prints_once(capfd):
    def known(x):
        k = 0
        while k < 2:
            print("known", k)
            k += 1
        return x

    def traced(x):
        error = 1.0
        while error > 0.3:
            print("error", error)
            error = error * x
        return x

    jit(converted(known))(1.0)
    assert capfd.readouterr().out == "known 0\nknown 1\n"
    float(jit(converted(traced))(0.5))
    assert capfd.readouterr().out == "error 1.0\nerror 0.5\n"


def test_the_side_that_is_not_taken_makes_no_nan_also_in_batches():
    def f(x):
        if x > 0:
            y = np.sqrt(x)
        else:
            y = 0.0 * x
        return y

    x = np.array([4.0, 0.0, -1.0])
    for batched in (vmap(grad(converted(f))), jit(vmap(grad(converted(f)))), vmap(jit(grad(converted(f))))):
        np.testing.assert_array_equal(batched(x), [0.25, 0.0, 0.0])


def test_side_effects_of_blocks_are_refused_with_the_way_out():
    def raises(x, strict=True):
        while x > 1:
            if strict:
                raise ValueError("too large")
            x = x / 2
        return x

    def tries(x):
        try:
            y = x if x > 0 else -x
        except ValueError:
            y = 0.0
        return y

    def filters(x):
        return {each: 1.0 for each in (1, 2) if each > x}

    assert refusal(raises, 1.0) == (
        "`raise` stands inside the traced `while` at line 1 (in raises): the block is traced whether it runs or not, "
        "so the exception cannot depend on the condition. Give the `raise` an `if` of its own with a traced condition, "
        "which becomes a check; or return a NaN or a flag, and raise outside of the compiled function\n"
        "  at line 3 (in raises)")
    assert refusal(tries, 1.0) == (
        "the condition of this `if` is traced and stands inside of `try`: both sides are traced once, so no exception "
        "can depend on traced values. Move the traced code out of the `try`\n  at line 2 (in tries)")
    assert refusal(filters, 1.0).replace("<dictcomp>", "filters") == (
        "the filter of a comprehension is traced, and so would be the length of what it makes. Only lists of numbers, "
        "of arrays of one shape, or of tuples of these may have one: [v for v in x if v > 0]\n"
        "  at line 1 (in filters)")


def test_arrays_change_in_place_only_where_no_other_name_holds_them():
    def aliased(v, n):
        v = v * 1.0
        w = v
        for i in range(n):
            v += i
        return v, w

    def own(v, n):
        for i in range(n):
            u = v * 2.0
            u += i
            v = u
        return v

    assert refusal(aliased, np.ones(2), 3) == (
        "an operator such as += changes the array of `v` in place inside the traced `for` at line 3 (in aliased), and "
        "another name may hold that array. Write v = v + ...\n  at line 4 (in aliased)")
    np.testing.assert_array_equal(jit(converted(own))(np.ones(2), 3), own(np.ones(2), 3))


def test_generated_names_are_in_no_traceback_and_no_program():
    def f(x, n):
        for i in range(n):
            if x > i:
                x = x + undefined_name  # noqa: F821
        return x

    try:
        jit(converted(f))(1.0, 3)
    except NameError as error:
        shown = "".join(traceback.format_exception(error))
    assert "~" not in re.sub(r"^\s*[~^]+$", "", shown, flags=re.MULTILINE)
    assert "in f\n" in shown
    assert "control_flow/" not in shown.replace("tests/engine/control_flow/", "")

    def g(x):
        for k, v in enumerate(x):
            if v > 3:
                return k
        return -1

    text = str(make_program(converted(g))(np.arange(5.0)))
    assert not re.search(r"~(?!stops|returned|_)\w* \d", text)
    assert "result" in text


def test_variables_are_as_before_after_a_refusal():
    seen = []

    def f(x):
        y = 1.0
        with contextlib.suppress(ControlFlowError):
            if x > 0:
                y = np.ones(2)
            else:
                y = 3.0
        seen.append(y)
        return x

    jit(converted(f))(2.0)
    assert seen == [1.0]


def test_without_traced_conditions_the_program_is_the_same():
    def f(x):
        y = x
        for i in range(3):
            if i == 1:
                continue
            y = np.sin(y) if i else y * x
        while i > 0 and not y is None:  # noqa: E714
            i -= 1
            y = y + i
        return y

    aval = Aval((3,), np.dtype("float64"))
    programs = [trace_flat(lambda x, function=function: function(x), [aval], "test", function, mode=SHARED).program
                for function in (f, converted(f))]
    assert programs[0] is programs[1]
    x = np.array([0.5, 1.0, 2.0])
    np.testing.assert_array_equal(grad(lambda x: f(x).sum())(x), grad(converted(lambda x: f(x).sum()))(x))
    assert make_program(converted(f))(x).equations[0].source.code.co_filename == __file__


CONDITION = (
    "bool() needs the value of a traced array (bool[]) in {name}, which is traced without values. It depends on: x. "
    "Write fxgrad.numpy.where(condition, a, b) to choose between values, fxgrad.lax.cond, while_loop or fori_loop to "
    "choose or repeat pieces of code, or make the argument static (static_argnums). python_control_flow leaves ")


@pytest.mark.parametrize(("function", "reason"), [
    (unconverted.of_typed,
     "typed as it is: its source is not in a file (it was typed at a prompt, or made by exec, in <string>). Write it "
     "into a file and import it, or use fxgrad.lax.cond and while_loop\n  at <string>:2 (in typed)"),
    (unconverted.of_turns,
     "turns as it is: it is a generator (unconverted.py:10), whose turns are asked for from outside. Return a list, or "
     "use fxgrad.lax.scan\n  at unconverted.py:11 (in turns)")])
def test_an_error_in_a_function_that_is_left_as_it_is_says_why(function, reason):
    assert np.isfinite(converted(function)(1.5))  # the condition is known
    with pytest.raises(ConcretizationError) as caught:
        jit(converted(function))(1.5)
    assert str(caught.value) == CONDITION.format(name=function.__name__) + reason


def test_equal_functions_of_two_files(tmp_path):
    """Their code is equal for Python; each is converted for itself, and errors name its own file."""
    lines = ["import numpy as np", "def f(x):", "    if x > 0:", "        y = 1.0", "    else:",
             "        y = np.ones(3)", "    return y"]
    functions = {}
    for name in ("typed", "one.py", "other.py"):
        path = tmp_path / name
        if name != "typed":
            path.write_text("\n".join(lines))
        exec(compile("\n".join(lines), str(path), "exec"), space := {})
        functions[name] = space["f"]
    with pytest.raises(UnsupportedError, match=r"cannot be converted: its source is not found in .*typed"):
        python_control_flow(functions["typed"])
    for name in ("one.py", "other.py"):
        with pytest.raises(ControlFlowError, match=rf"at {name}:3 \(in f\)$"):
            jit(python_control_flow(functions[name]))(1.0)


LAYOUTS = '''"""Text
def no_function(x):
"""
from __future__ import annotations
import functools
import numpy as np
from numpy import (
    abs as size,
    linalg,
)

if not __doc__:
    def f(x):
        return x
else:
    def in_else(x):
        return x if x > 0 else -x

try:
    def in_try(x):
        return np.sin(x) if x > 0 else size(x)
except ValueError:
    pass

@functools.wraps(
    in_else,
    assigned=(),
)
@functools.lru_cache(
    None
)
def cached_maker(
    a,
):
# a comment at the margin
    """Text
at the margin, and
def inside(x): of a string
    """
    def made(x):
        return a * x if x > 0 else linalg.norm([x, x])
    return made

class Model:
    weight = 2.0

    @staticmethod
    def method(x):
        return __class__.weight * x if x > 0 else x

    pair = (lambda x: x if x > 0 else 1.0), \\
        lambda x: x if x > 0 else 2.0

broken = lambda x: (
x if x > 0
else 3.0
)
'''


def test_functions_are_found_however_the_text_around_them_is_laid_out(tmp_path):
    path = tmp_path / "layouts.py"
    path.write_text(LAYOUTS)
    exec(compile(LAYOUTS, str(path), "exec"), space := {"__name__": "layouts"})
    functions = [space["in_else"], space["in_try"], space["cached_maker"](3.0), space["Model"].method,
                 *space["Model"].pair, space["broken"]]
    for function in functions:
        for x in (1.5, -1.5):
            np.testing.assert_allclose(jit(converted(function))(x), function(x), rtol=1e-15)
    assert [function.__code__.co_firstlineno for function in functions] == [
        number for number, line in enumerate(LAYOUTS.splitlines(), 1) if any(each in line for each in (
            "in_else(x)", "in_try(x)", "made(x)", "@staticmethod", "pair =", "lambda x: x if x > 0 else 2.0",
            "broken ="))]


def test_a_function_is_read_without_the_rest_of_its_file(tmp_path, monkeypatch):
    rest = "\n".join(f"def other_{number}(x):\n    return x\n" for number in range(50))
    text = f"import numpy as np\n{rest}\ndef f(x):\n    return np.sin(x) if x > 0 else x\n{rest}"
    path = tmp_path / "long_file.py"
    path.write_text(text)
    exec(compile(text, str(path), "exec"), space := {})
    parsed = []
    parse = sources.parse_source
    monkeypatch.setattr(sources, "parse_source", lambda source: (parsed.append(source.strip()), parse(source))[1])
    assert jit(converted(space["f"]))(-1.0) == -1.0
    assert {*parsed} == {"def f(x):\n    return np.sin(x) if x > 0 else x", "import numpy as np"}


def test_a_turn_that_is_probed_ends_where_its_break_is_traced(capfd):
    """It is run to see what is traced; what it has done is undone, and its body is recorded as that of the loop."""
    entered = []

    @contextlib.contextmanager
    def noting(what):
        entered.append(what)
        yield
        entered.append(what.upper())

    def traced(x):
        steps = []
        for k in range(5):
            print("turn", k)
            with noting("with"):
                if x > 3.0:
                    break
            x = x * 2.0
        return x, steps

    def both_ways(x):
        for k in range(5):
            if x > 3.0:
                x = -x
                break
            else:
                if k > 2:
                    x = x + 100.0
                    break
                x = x * 2.0
        return x

    def both_sides(x):
        for k in range(5):
            if x > 3.0:
                x = x + k
                break
            else:
                x = x - k
                break
        return x

    def known(x):
        for k in range(5):
            if x > 100.0:
                x = x + 1.0
            if k == 2:
                break
            x = 2.0 * x
        return x

    assert float(jit(converted(traced))(1.0)[0]) == 4.0
    assert capfd.readouterr().out == "turn 0\nturn 1\nturn 2\n"
    assert entered.count("with") == 2
    for function in (both_ways, both_sides, known):
        for x in (0.5, 1.0, 5.0, 200.0):
            assert float(jit(converted(function))(x)) == function(x), (function.__name__, x)
    assert "while" not in str(make_program(converted(known))(1.0))
    assert "while" not in str(make_program(converted(both_sides))(1.0))


def test_a_loop_that_breaks_is_written_as_by_hand():
    def root(a):
        x = a
        for _ in range(50):
            step = (x * x - a) / (2.0 * x)
            x = x - step
            if abs(step) < 1e-12:
                break
        return x

    loop, = (each for each in make_program(converted(root))(2.0).equations if str(each.primitive) == "while")
    body, = (region.program for region in loop.regions if region.role == "body")
    assert [str(each.primitive) for each in body.equations] == [
        "add", "mul", "sub", "mul", "div", "sub", "abs", "lt"]


def test_an_array_of_the_module_array_that_a_block_changes_is_to_be_one_of_numpy() -> None:
    def function(x):
        table = array.array("d", [0.0] * 2)
        if x > 0:
            table[0] = 1.0
        return table[0]

    with pytest.raises(ControlFlowError, match=r"changed inside[\s\S]*Make it an array of NumPy's before: x = np.arr"):
        jit(python_control_flow(function))(1.0)
