"""Compiled attention along the lines of one mesh axis; called by `cato.kernels.attention`.

All heads of one line fit into a cache: rotated queries and keys, values, and for a block of queries
their scores. What is left are small matrix products and one exponential per score:

    s[j, i] = k_jᵀ q_i,  p[j, i] = exp(s[j, i] − max_j s[j, i]), o_i = Σ_j p[j, i] v_j / Σ_j p[j, i]

Vectors run over queries i where a product sums over channels, and over channels where it sums over
nodes. Scores carry a factor 1/ln 2, because powers of two are cheaper than powers of e. For the
backward pass only max and Σ p are kept; it computes p again.

Scratch arrays are padded to whole vectors and tiles; the padding is computed along but never used.
"""

import math
from typing import NamedTuple

import numpy as np
from numba import njit

from cato.kernels.simd import (
    LANES,
    cached,
    exp2,
    filled,
    larger,
    load,
    product,
    store,
    turn,
    turn_back,
)

BLOCK = 64
"""Queries whose scores are held at once: those of 512 nodes still fit a second-level cache."""


class Lines(NamedTuple):
    """The lines of one mesh axis and the channels they use."""

    number: int  # How many lines.
    length: int  # Nodes per line.
    stride: int  # Nodes of the mesh from one node of a line to the next.
    heads: int  # Attention heads.
    first_input: int  # Channel of `qkv` where q, k and v of this axis begin.
    first_output: int  # Channel of the result where this axis begins.


@njit(nogil=True)
def first_node(lines, line):
    """Where a line begins among the nodes of the mesh."""
    return line // lines.stride * lines.length * lines.stride + line % lines.stride


@njit(nogil=True)
def scratch(num_arrays, lines, size):
    """Arrays (heads, nodes, channels of a head)."""
    rows, columns = -(-lines.length // LANES) * LANES, -(-size // LANES) * LANES
    return np.zeros((num_arrays, lines.heads, rows, columns), np.float32)


@njit(nogil=True)
def gather(lines, start, qkv, turns, q, k, v):
    """Copy a line, with q and k rotated, and q scaled for powers of two."""
    size = turns.shape[1]
    width = lines.heads * size
    scale = np.float32(1.0 / (math.log(2.0) * math.sqrt(size)))
    for i in range(lines.length):
        node = start + i * lines.stride
        for d in range(0, size, LANES):
            count = size - d
            rotation = load(turns, (node, d), count)
            for head in range(lines.heads):
                channel = lines.first_input + head * size + d
                query = turn(rotation, load(qkv, (node, channel), count))
                key = turn(rotation, load(qkv, (node, channel + width), count))
                value = load(qkv, (node, channel + 2 * width), count)
                store(query * scale, q, (head, i, d), LANES)
                store(key, k, (head, i, d), LANES)
                store(value, v, (head, i, d), LANES)


@njit(nogil=True)
def transpose(x, out):
    """out = xᵀ."""
    for i in range(out.shape[1]):
        for d in range(out.shape[0]):
            out[d, i] = x[i, d]


@njit(nogil=True)
def exponentials(scores, statistics):
    """p = 2^(score − peak), in place; keeps peak and 1 / Σ p of every query."""
    num_keys, num_queries = scores.shape
    for i in range(0, num_queries, LANES):
        peak = load(scores, (0, i), LANES)
        for j in range(1, num_keys):
            peak = larger(peak, load(scores, (j, i), LANES))
        total = filled(0.0)
        for j in range(num_keys):
            p = exp2(load(scores, (j, i), LANES) - peak)
            store(p, scores, (j, i), LANES)
            total = total + p
        store(peak, statistics, (0, i), num_queries - i)
        store(1.0 / total, statistics, (1, i), num_queries - i)


@cached
def attend(lines, qkv, turns, out, statistics, begin, end):
    """Attention along the lines begin … end − 1.

    Args:
        lines: Layout of the lines, heads and channels.
        qkv: (nodes, channels), read only.
        turns: (nodes, channels of a head), pairs (cos, sin), read only.
        out: (nodes, channels), written.
        statistics: (lines, heads, 2, length), peak and 1 / Σ p of every query, written.
        begin, end: Range of lines.
    """
    n, size = lines.length, turns.shape[1]
    q, k, v, o = scratch(4, lines, size)
    q_transposed = np.zeros((size, q.shape[1]), np.float32)
    block = np.zeros((q.shape[1], BLOCK), np.float32)
    for line in range(begin, end):
        start = first_node(lines, line)
        gather(lines, start, qkv, turns, q, k, v)
        for head in range(lines.heads):
            transpose(q[head], q_transposed)
            for i in range(0, n, BLOCK):
                stop = min(i + BLOCK, n)
                scores = block[:n, : stop - i]
                product(k[head], q_transposed[:, i:stop], scores, False)
                exponentials(scores, statistics[line, head, :, i:stop])
                product(scores.T, v[head, :n], o[head, i:stop], False)
        for i in range(n):
            for head in range(lines.heads):
                norm = statistics[line, head, 1, i]
                for d in range(0, size, LANES):
                    place = start + i * lines.stride, lines.first_output + head * size + d
                    store(load(o, (head, i, d), LANES) * norm, out, place, size - d)


@njit(nogil=True)
def gather_gradient(lines, start, grad_out, statistics, g, size):
    """Copy the gradient of a line's result, divided by Σ p."""
    for i in range(lines.length):
        for head in range(lines.heads):
            norm = statistics[head, 1, i]
            for d in range(0, size, LANES):
                place = start + i * lines.stride, lines.first_output + head * size + d
                store(load(grad_out, place, size - d) * norm, g, (head, i, d), LANES)


@njit(nogil=True)
def score_gradients(scores, gradients, statistics):
    """In place: p = 2^(score − peak), and ∂p over Σ p becomes p (∂p − Σ_j p ∂p / Σ p) over Σ p."""
    num_keys, num_queries = scores.shape
    for i in range(0, num_queries, LANES):
        peak = load(statistics, (0, i), num_queries - i)
        mean = filled(0.0)
        for j in range(num_keys):
            p = exp2(load(scores, (j, i), LANES) - peak)
            store(p, scores, (j, i), LANES)
            mean = mean + p * load(gradients, (j, i), LANES)
        mean = mean * load(statistics, (1, i), num_queries - i)
        for j in range(num_keys):
            ds = load(scores, (j, i), LANES) * (load(gradients, (j, i), LANES) - mean)
            store(ds, gradients, (j, i), LANES)


@njit(nogil=True)
def deposit(x, out, place, count, add):
    """Write the first `count` lanes, or add them to what is there."""
    if add:
        x = x + load(out, place, count)
    store(x, out, place, count)


@njit(nogil=True)
def scatter_gradients(lines, start, qkv, turns, dq, dk, dv, grad_qkv, grad_turns, add):
    """Rotate a line's gradients back, and collect that of the rotation, which serves all heads."""
    size = turns.shape[1]
    width = lines.heads * size
    scale_q, scale_k = np.float32(1.0 / math.sqrt(size)), np.float32(math.log(2.0))
    for i in range(lines.length):
        node = start + i * lines.stride
        for d in range(0, size, LANES):
            count = size - d
            rotation = load(turns, (node, d), count)
            grad_rotation = filled(0.0)
            for head in range(lines.heads):
                channel = lines.first_input + head * size + d
                at_q, at_k = (node, channel), (node, channel + width)
                at_v = node, channel + 2 * width
                grad_q = load(dq, (head, i, d), LANES) * scale_q
                grad_k = load(dk, (head, i, d), LANES) * scale_k
                grad_rotation = grad_rotation + turn_back(load(qkv, at_q, count), grad_q)
                grad_rotation = grad_rotation + turn_back(load(qkv, at_k, count), grad_k)
                deposit(turn_back(rotation, grad_q), grad_qkv, at_q, count, add)
                deposit(turn_back(rotation, grad_k), grad_qkv, at_k, count, add)
                deposit(load(dv, (head, i, d), LANES), grad_qkv, at_v, count, add)
            store(grad_rotation, grad_turns, (node, d), count)


@cached
def attend_backward(lines, qkv, turns, grad_out, statistics, grad_qkv, grad_turns, add, begin, end):
    """Gradients of `attend`.

    Writes `grad_turns`, and writes or adds to `grad_qkv`; other arguments as for `attend`.
    """
    n, size = lines.length, turns.shape[1]
    q, k, v, g, dq, dk, dv = scratch(7, lines, size)
    q_transposed, g_transposed = np.zeros((2, size, q.shape[1]), np.float32)
    blocks = np.zeros((2, q.shape[1], BLOCK), np.float32)
    for line in range(begin, end):
        start = first_node(lines, line)
        gather(lines, start, qkv, turns, q, k, v)
        gather_gradient(lines, start, grad_out, statistics[line], g, size)
        for head in range(lines.heads):
            transpose(q[head], q_transposed)
            transpose(g[head], g_transposed)
            for i in range(0, n, BLOCK):
                stop = min(i + BLOCK, n)
                p, ds = blocks[0, :n, : stop - i], blocks[1, :n, : stop - i]
                product(k[head], q_transposed[:, i:stop], p, False)
                product(v[head], g_transposed[:, i:stop], ds, False)
                score_gradients(p, ds, statistics[line, head, :, i:stop])
                product(p, g[head, i:stop], dv[head, :n], i > 0)
                product(ds, q[head, i:stop], dk[head, :n], i > 0)
                product(ds.T, k[head, :n], dq[head, i:stop], False)
        scatter_gradients(lines, start, qkv, turns, dq, dk, dv, grad_qkv, grad_turns, add)
