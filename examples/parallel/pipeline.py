"""Pipeline parallel: each device has the layers of one stage, and microbatches go from stage to stage.

GPipe takes all microbatches forward and then all back, and keeps something of each of them; its way back is the
derivative of a loop. 1F1B sends each one back as soon as it has come through, by a `vjp` inside the loop, and keeps as
many as there are on the way, however many there are in all. Beside it the rows of microbatches are divided, along
another axis of the mesh. Run it with `python examples/parallel/pipeline.py`.
"""

from __future__ import annotations

from typing import Any

from jax.sharding import PartitionSpec as P
from setting import floats, show

import fxgrad
import fxgrad.numpy as fnp
from fxgrad import lax

AXES = {"data": 2, "stage": 4}
SPECS = (P("stage"), P(None, "data"), P(None, "data"))


def types(data: int, stage: int, width: int = 8, microbatches: int = 16, rows: int = 2) -> tuple[Any, ...]:
    """Types of the parameters, one matrix a stage, and of microbatches (microbatches, rows, width)."""
    return {"w": floats(stage, width, width)}, *[floats(microbatches, data * rows, width)] * 2


def bubble(stages: int, microbatches: int) -> float:
    """The share of the time in which a device has no microbatch to work on; the same for both schedules."""
    return (stages - 1) / (microbatches + stages - 1)


def stage(params: Any, x: Any) -> Any:
    """What the layers of one stage do."""
    return x + fnp.tanh(x @ params["w"])


def error(x: Any, y: Any) -> Any:
    """What the last stage adds to the loss for one microbatch."""
    return fnp.mean((x - y) ** 2)


def loss(params: Any, x: Any, y: Any) -> Any:
    """The mean square error of all stages, written for one device."""
    for number in range(len(params["w"])):
        x = stage({"w": params["w"][number]}, x)
    return error(x, y)


def send(x: Any, by: int) -> Any:
    """`x` of the stage before this one, or with by=-1 of the one after it; zeros where there is none."""
    count = lax.axis_size("stage")
    return lax.ppermute(x, "stage", [(i, i + by) for i in range(count) if 0 <= i + by < count])


def own(params: Any) -> Any:
    """The parameters of this stage, as if they differed along "data": gradients are summed over it at the end alone."""
    return lax.pcast({"w": params["w"][0]}, "data", to="varying")


def gpipe(mesh: Any) -> Any:
    """The loss and its gradient by the parameters: all microbatches forward, then all back."""
    def body(params: Any, x: Any, y: Any) -> Any:
        params = own(params)
        here, last = lax.axis_index("stage"), lax.axis_size("stage") - 1
        idle = fnp.zeros((last, *x.shape[1:]), x.dtype)

        def tick(arriving: Any, fresh: Any) -> Any:
            made = stage(params, fnp.where(here == 0, fresh, arriving))
            return send(made, 1), made
        start = lax.pcast(0.0 * x[0], "stage", to="varying")
        _, made = lax.scan(tick, start, fnp.concatenate([x, idle]))
        return lax.pmean(lax.psum(fnp.where(here == last, error(made[last:], y), 0.0), "stage"), "data")
    return fxgrad.value_and_grad(fxgrad.shard_map(body, mesh=mesh, in_specs=SPECS, out_specs=P()))


def one_forward_one_back(mesh: Any) -> Any:
    """The same, each microbatch back as soon as it has come through."""
    def body(params: Any, x: Any, y: Any) -> Any:
        params = own(params)
        here, last, count = lax.axis_index("stage"), lax.axis_size("stage") - 1, len(x)
        x, y = lax.pcast((x, y), "stage", to="varying")

        def forward(state: Any) -> Any:
            """Takes up what arrives, keeps it for the way back, and sends on what comes of it."""
            kept, arriving, time = state["kept"], state["arriving"], state["time"]
            given = fnp.where(here == 0, x[fnp.clip(time, 0, count - 1)], arriving)
            made = stage(params, given)
            kept = lax.dynamic_update_index_in_dim(kept, given, time % len(kept), 0)
            return {**state, "kept": kept, "arriving": send(made, 1)}, made

        def back(state: Any, made: Any) -> Any:
            """Takes the gradient at what was made of a microbatch back to the parameters and to the stage before."""
            number = state["time"] - 2 * last + here  # the microbatch whose gradient has come here
            target = y[fnp.clip(number, 0, count - 1)]
            value, slope = fxgrad.value_and_grad(error)(made, target)
            given = state["kept"][(number + here) % len(state["kept"])]
            pull = fxgrad.vjp(stage, params, given)[1]
            d_params, d_given = pull(fnp.where(here == last, slope, state["returning"]))
            real = (number >= 0) & (number < count)
            total = state["total"] + fnp.where(real & (here == last), value, 0.0) / count
            d_sum = {"w": state["d_params"]["w"] + fnp.where(real, d_params["w"], 0.0) / count}
            return {**state, "returning": send(d_given, -1), "total": total, "d_params": d_sum}

        def tick(goes_forward: bool, comes_back: bool) -> Any:
            def step(state: Any, _: None) -> Any:
                state, made = forward(state) if goes_forward else (state, state["arriving"])
                state = back(state, made) if comes_back else state
                return {**state, "time": state["time"] + 1}, None
            return step
        zeros = 0.0 * x[0]
        state = {"kept": fnp.stack([zeros] * (2 * last + 1)), "arriving": zeros, "returning": zeros,
                 "total": fnp.sum(zeros), "d_params": {"w": 0.0 * params["w"]}, "time": 0}
        for step, steps in ((tick(True, False), last), (tick(True, True), count), (tick(False, True), last)):
            state, _ = lax.scan(step, state, None, length=steps)
        return lax.pmean((lax.psum(state["total"], "stage"), {"w": state["d_params"]["w"][None]}), "data")
    return fxgrad.shard_map(body, mesh=mesh, in_specs=SPECS, out_specs=(P(), P("stage")))


def main() -> None:
    """Shows that one device and eight agree, and what they say to each other, by either schedule."""
    asked = types(**AXES)
    for schedule in (gpipe, one_forward_one_back):
        print(f"{schedule.__name__}: bubble {bubble(AXES['stage'], asked[1].shape[0]):.0%}")
        show(loss, schedule, asked, AXES, SPECS)


if __name__ == "__main__":
    main()
