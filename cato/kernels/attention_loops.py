"""Compiled attention along the lines of one mesh axis; called by `cato.kernels.attention`.

All heads of one line fit into a cache: rotated queries and keys, values, and for a block of queries
their scores. What is left are small matrix products and one exponential per score:

    s[j, i] = k_jᵀ q_i,  p[j, i] = exp(s[j, i] − max_j s[j, i]), o_i = Σ_j p[j, i] v_j / Σ_j p[j, i]

Compilers vectorise loops over long rows. The matrices of an attention head are small, and what
makes their products fast are sums that stay in registers. So here a vector of `LANES` numbers is a
value of compiled code, with arithmetic, loads and stores. Nothing depends on the processor but the
choice of `LANES`: LLVM splits vectors that are too wide.

Vectors run over queries i where a product sums over channels, and over channels where it sums over
nodes. Scores carry a factor 1/ln 2, because powers of two are cheaper than powers of e. For the
backward pass only max and Σ p are kept; it computes p again.

Scratch arrays are padded to whole vectors and tiles; the padding is computed along but never used.
All compiled functions are in this file because Numba's cache is invalidated file by file.
"""

import functools
import math
import operator
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from llvmlite import binding, ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic, models, overload, register_model

from cato.kernels.jit import compiled

LANES = 16 if binding.get_host_cpu_features().get("avx512f") else 8
"""Numbers per vector. Any multiple of `TILE` is correct; this one fills a register."""
TILE = 8
"""Rows of a product summed at once: enough independent sums to hide the latency of an addition."""
# Queries whose scores are held at once: those of 512 nodes still fit a second-level cache.
BLOCK = 64

INTEGER = ir.IntType(32)
VECTOR = ir.VectorType(ir.FloatType(), LANES)
INTEGERS = ir.VectorType(INTEGER, LANES)
FUSE = ("contract",)  # Allows a product and a sum to become one instruction.


class Vector(types.Type):
    """Numba's type of a vector."""


@register_model(Vector)
class VectorModel(models.PrimitiveModel):
    """In compiled code it is one LLVM vector."""

    def __init__(self, manager, kind):
        super().__init__(manager, kind, VECTOR)


vector = Vector(name=f"Vector{LANES}")


# Arithmetic: functions of an LLVM builder and vectors, made callable from compiled code


def constant(values, kind=VECTOR):
    """A vector filled with a number, or with a pattern repeated."""
    pattern = list(values) if isinstance(values, Sequence) else [values]
    return ir.Constant(kind, pattern * (LANES // len(pattern)))


def spread(builder, x, kind=VECTOR):
    """A number in all lanes; a vector stays as it is."""
    if isinstance(x.type, ir.VectorType):
        return x
    x = builder.insert_element(ir.Constant(kind, ir.Undefined), x, INTEGER(0))
    return builder.shuffle_vector(x, x, constant(0, INTEGERS))


def instruction(emit):
    """Make `emit(builder, *vectors)` callable from compiled code, on vectors and numbers."""

    @functools.wraps(emit)
    def typed(_, *operands):
        def codegen(context, builder, signature, values):
            return emit(builder, *(spread(builder, value) for value in values))

        return vector(*(x if x is vector else types.float32 for x in operands)), codegen

    return intrinsic(typed)


def arithmetic(symbol, name):
    """Give compiled code an operator between vectors, and between vectors and numbers."""
    operation = instruction(lambda builder, x, y: getattr(builder, name)(x, y, flags=FUSE))

    @overload(symbol)
    def lanewise(x, y):
        return (lambda x, y: operation(x, y)) if vector in (x, y) else None


arithmetic(operator.add, "fadd")
arithmetic(operator.sub, "fsub")
arithmetic(operator.mul, "fmul")
arithmetic(operator.truediv, "fdiv")


@instruction
def filled(builder, x):
    """A number in all lanes."""
    return x


@instruction
def larger(builder, x, y):
    """The larger of both."""
    return builder.select(builder.fcmp_ordered(">", x, y), x, y)


def fused(builder, x, y, z):
    """x y + z."""
    return builder.fadd(builder.fmul(x, y, flags=FUSE), z, flags=FUSE)


@instruction
def exp2(builder, x):
    """2^x for x ≤ 0, with a relative error below 2e-7; NaN stays NaN.

    2^x = 2^n 2^f with n = round(x). Adding 1.5·2²³ leaves n in the last bits of the sum, from where
    it is shifted into the exponent of a minimax polynomial for 2^f on |f| ≤ ½. Below x = −100 the
    value stays at 2^−100: negligible against 1, but its products stay clear of slow subnormals.
    """
    x = builder.select(builder.fcmp_ordered("<", x, constant(-100.0)), constant(-100.0), x)
    shifted = builder.fadd(x, constant(1.5 * 2**23))
    f = builder.fsub(x, builder.fsub(shifted, constant(1.5 * 2**23)))
    power = constant(0.00132642477)
    for coefficient in (0.00967160612, 0.0555072315, 0.240222409, 0.693147004, 1.0):
        power = fused(builder, power, f, constant(coefficient))
    exponent = builder.shl(builder.bitcast(shifted, INTEGERS), constant(23, INTEGERS))
    return builder.bitcast(builder.add(builder.bitcast(power, INTEGERS), exponent), VECTOR)


def complex_product(builder, x, y, sign):
    """x y of vectors of (real, imaginary) pairs; x* y for sign −1."""

    def picked(x, source):
        sources = constant([source(lane) for lane in range(LANES)], INTEGERS)
        return builder.shuffle_vector(x, x, sources)

    real, imaginary = picked(x, lambda lane: lane & ~1), picked(x, lambda lane: lane | 1)
    signed = builder.fmul(imaginary, constant([-sign, sign]))
    crossed = builder.fmul(signed, picked(y, lambda lane: lane ^ 1), flags=FUSE)
    return fused(builder, real, y, crossed)


@instruction
def turn(builder, rotation, x):
    """x with its pairs of channels turned by the pairs (cos, sin) of a rotation."""
    return complex_product(builder, rotation, x, 1.0)


@instruction
def turn_back(builder, factor, gradient):
    """A gradient taken back through `turn`: to x by the rotation, or to the rotation by x."""
    return complex_product(builder, factor, gradient, -1.0)


# Memory: arrays of float32 whose last axis is contiguous


def element(context, builder, kind, array, *index):
    """Address of an element of an array."""
    view = context.make_array(kind)(context, builder, array)
    return cgutils.get_item_pointer(context, builder, kind, view, index)


def vector_at(*place):
    """Address of the vector that begins with an element."""
    return place[1].bitcast(element(*place), VECTOR.as_pointer())


def masked(builder, action, count, result, before, after):
    """Call LLVM's load or store of the first `count` lanes, given the arguments around them."""
    mask = builder.icmp_signed(
        "<", constant(range(LANES), INTEGERS), spread(builder, count, INTEGERS)
    )
    arguments = [*before, INTEGER(4), mask, *after]
    kind = ir.FunctionType(result, [argument.type for argument in arguments])
    name = f"llvm.masked.{action}.v{LANES}f32.p0"
    return builder.call(cgutils.get_or_insert_function(builder.module, kind, name), arguments)


@intrinsic
def load(_, array, index, count):
    """The vector that begins at an element; lanes from `count` on are not read but 0."""

    def codegen(context, builder, signature, values):
        index = cgutils.unpack_tuple(builder, values[1])
        pointer = vector_at(context, builder, array, values[0], *index)
        return masked(builder, "load", values[2], VECTOR, [pointer], [constant(0.0)])

    assert array.dtype == types.float32
    return vector(array, types.UniTuple(types.intp, array.ndim), types.int32), codegen


@intrinsic
def store(_, x, array, index, count):
    """Write the first `count` lanes of x from an element on."""

    def codegen(context, builder, signature, values):
        index = cgutils.unpack_tuple(builder, values[2])
        pointer = vector_at(context, builder, array, values[1], *index)
        masked(builder, "store", values[3], ir.VoidType(), [values[0], pointer], [])

    assert array.dtype == types.float32
    return types.void(vector, array, types.UniTuple(types.intp, array.ndim), types.int32), codegen


@intrinsic
def product_tile(_, a, b, out, row, column, add):
    """`TILE` × `LANES` elements of a b from (row, column) on, summed in registers."""

    def codegen(context, builder, signature, values):
        a_value, b_value, out_value, row, column, add = values
        rows = [builder.add(row, row.type(i)) for i in range(TILE)]
        targets = [vector_at(context, builder, out, out_value, i, column) for i in rows]
        sums = [cgutils.alloca_once(builder, VECTOR) for _ in rows]
        for target, total in zip(targets, sums, strict=True):
            before = builder.load(target, align=4)
            builder.store(builder.select(add, before, constant(0.0)), total)
        depth = builder.extract_value(context.make_array(b)(context, builder, b_value).shape, 0)
        with cgutils.for_range(builder, depth) as loop:
            y = builder.load(vector_at(context, builder, b, b_value, loop.index, column), align=4)
            for i, total in zip(rows, sums, strict=True):
                x = builder.load(element(context, builder, a, a_value, i, loop.index))
                x_y = fused(builder, spread(builder, x), y, builder.load(total))
                builder.store(x_y, total)
        for target, total in zip(targets, sums, strict=True):
            builder.store(builder.load(total), target, align=4)

    return types.void(a, b, out, types.intp, types.intp, types.boolean), codegen


@njit(nogil=True)
def product(a, b, out, add):
    """out = a b, or out + a b; memory beyond the edges is read and written, up to whole tiles."""
    for column in range(0, out.shape[1], LANES):
        for row in range(0, out.shape[0], TILE):
            product_tile(a, b, out, row, column, add)


# Attention


class Lines(NamedTuple):
    """The lines of one mesh axis and the channels they use."""

    number: int  # How many lines.
    length: int  # Nodes per line.
    stride: int  # Nodes of the mesh from one node of a line to the next.
    heads: int  # Attention heads.
    first_input: int  # Channel of `qkv` where q, k and v of this axis begin.
    first_output: int  # Channel of the result where this axis begins.
    turn_values: bool  # Whether values are rotated too, and the result is rotated back.


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
                if lines.turn_values:
                    value = turn(rotation, value)
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


@functools.partial(compiled, nogil=True)
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
            node = start + i * lines.stride
            for head in range(lines.heads):
                norm = statistics[line, head, 1, i]
                for d in range(0, size, LANES):
                    place = node, lines.first_output + head * size + d
                    result = load(o, (head, i, d), LANES) * norm
                    if lines.turn_values:
                        result = turn_back(load(turns, (node, d), size - d), result)
                    store(result, out, place, size - d)


@njit(nogil=True)
def gather_gradient(lines, start, grad_out, turns, statistics, g, size):
    """Copy the gradient of a line's result, divided by Σ p."""
    for i in range(lines.length):
        node = start + i * lines.stride
        for head in range(lines.heads):
            norm = statistics[head, 1, i]
            for d in range(0, size, LANES):
                place = node, lines.first_output + head * size + d
                grad = load(grad_out, place, size - d) * norm
                if lines.turn_values:
                    grad = turn(load(turns, (node, d), size - d), grad)
                store(grad, g, (head, i, d), LANES)


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
def scatter_gradients(
    lines, start, qkv, turns, out, grad_out, dq, dk, dv, grad_qkv, grad_turns, add
):
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
                grad_v = load(dv, (head, i, d), LANES)
                if lines.turn_values:
                    grad_rotation = grad_rotation + turn_back(load(qkv, at_v, count), grad_v)
                    place = node, lines.first_output + head * size + d
                    back = turn(rotation, load(out, place, count))
                    grad_rotation = grad_rotation + turn_back(load(grad_out, place, count), back)
                    grad_v = turn_back(rotation, grad_v)
                deposit(grad_v, grad_qkv, at_v, count, add)
            store(grad_rotation, grad_turns, (node, d), count)


@functools.partial(compiled, nogil=True)
def attend_backward(
    lines, qkv, turns, out, grad_out, statistics, grad_qkv, grad_turns, add, begin, end
):
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
        gather_gradient(lines, start, grad_out, turns, statistics[line], g, size)
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
        scatter_gradients(
            lines, start, qkv, turns, out, grad_out, dq, dk, dv, grad_qkv, grad_turns, add
        )
