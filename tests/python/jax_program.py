# SPDX-License-Identifier: Apache-2.0
"""A training without PyTorch for the tests: a tree of JAX's arrays, or of NumPy's."""

import argparse
import collections
import hashlib
import os
import signal
import sys

import numpy

import muster
import stand

parser = argparse.ArgumentParser()
parser.add_argument("--run", required=True)
parser.add_argument("--numpy", action="store_true")
parser.add_argument("--width", type=int, default=4)
parser.add_argument("--notice-at", type=int, default=0, help="a step, on the last rank")
parser.add_argument("--nothing", action="store_true", help="is attached")
parser.add_argument("--die-at", type=int, default=0, help="a step")
parser.add_argument("--pause", type=float, default=0.0, help="seconds, in each step")
args = parser.parse_args()
world = muster.init()

Moments = collections.namedtuple("Moments", "count mean")
inputs = numpy.random.default_rng(5).normal(size=(256, args.width)).astype("float32")
targets = inputs.sum(1)

if args.numpy:
    state = {"weights": numpy.zeros(args.width, "float32"), "moments": [0, None], "rate": 0.01}

    def step(state, x, y):
        error = x @ state["weights"] - y
        weights = state["weights"] - numpy.float32(state["rate"]) * (x.T @ error / len(y))
        moments = [state["moments"][0] + 1, None]
        return {**state, "weights": weights, "moments": moments}, float((error**2).mean())
else:
    import jax
    import jax.numpy as jnp

    zeros = jnp.zeros(args.width)
    moments = Moments(jnp.zeros((), jnp.int32), jnp.zeros(args.width, jnp.bfloat16))
    state = {"weights": zeros, "moments": moments, "key": jax.random.key(3), "names": ("a", 1)}

    @jax.jit
    def update(weights, moments, key, x, y):
        key, own = jax.random.split(key)
        x = x * jax.random.bernoulli(own, 0.9, x.shape)
        loss, gradient = jax.value_and_grad(lambda w: jnp.mean((x @ w - y) ** 2))(weights)
        mean = 0.9 * moments.mean + 0.1 * gradient.astype(jnp.bfloat16)
        return weights - 0.02 * mean, Moments(moments.count + 1, mean), key, loss

    def step(state, x, y):
        weights, moments, key, loss = update(state["weights"], state["moments"], state["key"], x, y)
        return {**state, "weights": weights, "moments": moments, "key": key}, loss


run = muster.attach(args.run, state=None if args.nothing else state, every=5)
for samples in muster.Sampler(256, 32, step=run.step, steps=40):
    stand.pause(args.pause)
    run.state, loss = step(run.state, inputs[samples], targets[samples])
    if run.step + 1 == args.notice_at and world.rank == world.world_size - 1:
        stand.take_notice()
    run.end_step(loss)
    if run.step == args.die_at:
        os.kill(os.getpid(), signal.SIGKILL)
found = hashlib.sha256()
found.update(numpy.asarray(run.state["weights"]).tobytes())
if not args.numpy:
    found.update(numpy.asarray(run.state["moments"].mean).tobytes())
    found.update(numpy.asarray(jax.random.key_data(run.state["key"])).tobytes())
    assert run.state["names"] == ("a", 1)
assert "torch" not in sys.modules
print(f"ends: {found.hexdigest()} {int(run.state['moments'][0])}", flush=True)
