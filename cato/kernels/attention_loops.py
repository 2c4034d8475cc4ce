"""Compiled attention along the lines of one mesh axis; called by `cato.kernels.attention`.

All heads of one line fit into a cache: rotated queries and keys, values, and for a block of queries
their scores. What is left are small matrix products and one exponential per score:

    s[j, i] = k_jᵀ q_i,  p[j, i] = exp(s[j, i] − max_j s[j, i]), o_i = Σ_j p[j, i] v_j / Σ_j p[j, i]

Compilers vectorise loops over long rows. The matrices of an attention head are small, and what
makes their products fast are sums that stay in registers. So here a vector of `LANES` numbers is a
value of compiled code, with arithmetic, loads and stores. Nothing depends on the processor but the
choice of `LANES`: LLVM splits vectors that are too wide.

Vectors run over nodes: over queries i in the forward pass, where sums over keys j stay in one lane,
and over keys in the backward pass, where most sums are over queries. Scores carry a factor 1/ln 2,
because powers of two are cheaper than powers of e. For the backward pass only max and Σ p are kept;
it computes p again, and takes the weighted mean of ∂p from the result, Σ_j p ∂p / Σ p = o ∂o.

Arrays of nodes are float32 or bfloat16, which NumPy does not have: its bits come as int16. All
arithmetic is in float32.

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
"""Numbers per vector. Any multiple of 8 is correct; this one fills a register."""
TILES = ((4 if LANES == 16 else 2, 4), (4, 2), (8, 1))
"""Rows and vectors of a product summed at once. At least 8 independent sums hide the latency of an
addition; the more vectors share a number of the left factor, the fewer loads. Processors with
shorter vectors have fewer registers for sums."""
BLOCK = 64
"""Nodes across which scores are held at once: those of a line of 170 fit a first-level cache."""
CACHE_LINE = 64  # Bytes that memory delivers at once.

INTEGER = ir.IntType(32)
VECTOR = ir.VectorType(ir.FloatType(), LANES)
INTEGERS = ir.VectorType(INTEGER, LANES)
HALVES = ir.VectorType(ir.IntType(16), LANES)
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


@intrinsic
def total(_, x):
    """Sum of all lanes."""

    def codegen(context, builder, signature, values):
        kind = ir.FunctionType(ir.FloatType(), [ir.FloatType(), VECTOR])
        name = f"llvm.vector.reduce.fadd.v{LANES}f32"
        add = cgutils.get_or_insert_function(builder.module, kind, name)
        return builder.call(add, [ir.Constant(ir.FloatType(), 0.0), *values], fastmath=("reassoc",))

    return types.float32(vector), codegen


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


# Memory: arrays whose last axis is contiguous, of float32 or of the bits of bfloat16 as int16


def element(context, builder, kind, array, *index):
    """Address of an element of an array."""
    view = context.make_array(kind)(context, builder, array)
    return cgutils.get_item_pointer(context, builder, kind, view, index)


def vector_at(*place, kind=VECTOR):
    """Address of the vector that begins with an element."""
    return place[1].bitcast(element(*place), kind.as_pointer())


def masked(builder, action, count, kind, result, before, after):
    """Call LLVM's load or store of the first `count` lanes, given the arguments around them."""
    mask = builder.icmp_signed(
        "<", constant(range(LANES), INTEGERS), spread(builder, count, INTEGERS)
    )
    element_name, alignment = ("f32", 4) if kind is VECTOR else ("i16", 2)
    arguments = [*before, INTEGER(alignment), mask, *after]
    signature = ir.FunctionType(result, [argument.type for argument in arguments])
    name = f"llvm.masked.{action}.v{LANES}{element_name}.p0"
    return builder.call(cgutils.get_or_insert_function(builder.module, signature, name), arguments)


def stored_kind(array):
    """The LLVM vector of an array's elements."""
    assert array.dtype in (types.float32, types.int16)
    return VECTOR if array.dtype == types.float32 else HALVES


def from_bfloat16(builder, bits):
    """Its 16 bits are the first of a float32."""
    bits = builder.shl(builder.zext(bits, INTEGERS), constant(16, INTEGERS))
    return builder.bitcast(bits, VECTOR)


def to_bfloat16(builder, x):
    """Rounded to the nearest, ties to even; NaN stays NaN."""
    bits = builder.bitcast(x, INTEGERS)
    high = builder.lshr(bits, constant(16, INTEGERS))
    odd = builder.and_(high, constant(1, INTEGERS))
    rounded = builder.add(builder.add(bits, constant(0x7FFF, INTEGERS)), odd)
    rounded = builder.lshr(rounded, constant(16, INTEGERS))
    is_nan = builder.fcmp_unordered("uno", x, x)
    rounded = builder.select(is_nan, constant(0x7FC0, INTEGERS), rounded)
    return builder.trunc(rounded, HALVES)


@intrinsic
def load(_, array, index, count):
    """The vector that begins at an element; lanes from `count` on are not read but 0."""
    kind = stored_kind(array)

    def codegen(context, builder, signature, values):
        index = cgutils.unpack_tuple(builder, values[1])
        pointer = vector_at(context, builder, array, values[0], *index, kind=kind)
        zero = ir.Constant(kind, None)
        x = masked(builder, "load", values[2], kind, kind, [pointer], [zero])
        return x if kind is VECTOR else from_bfloat16(builder, x)

    return vector(array, types.UniTuple(types.intp, array.ndim), types.int32), codegen


@intrinsic
def store(_, x, array, index, count):
    """Write the first `count` lanes of x from an element on."""
    kind = stored_kind(array)

    def codegen(context, builder, signature, values):
        index = cgutils.unpack_tuple(builder, values[2])
        pointer = vector_at(context, builder, array, values[1], *index, kind=kind)
        x = values[0] if kind is VECTOR else to_bfloat16(builder, values[0])
        masked(builder, "store", values[3], kind, ir.VoidType(), [x, pointer], [])

    return types.void(vector, array, types.UniTuple(types.intp, array.ndim), types.int32), codegen


@intrinsic
def prefetch(_, array, index):
    """Ask for an element to be brought into the second-level cache."""

    def codegen(context, builder, signature, values):
        index = cgutils.unpack_tuple(builder, values[1])
        byte = ir.IntType(8).as_pointer()
        pointer = builder.bitcast(element(context, builder, array, values[0], *index), byte)
        arguments = [pointer, INTEGER(0), INTEGER(2), INTEGER(1)]  # read, second level, data
        kind = ir.FunctionType(ir.VoidType(), [argument.type for argument in arguments])
        name = "llvm.prefetch.p0"
        builder.call(cgutils.get_or_insert_function(builder.module, kind, name), arguments)

    return types.void(array, types.UniTuple(types.intp, array.ndim)), codegen


def product_tile(num_rows, num_vectors):
    """A function of compiled code: rows × vectors of a b from (row, column) on."""

    @intrinsic
    def tile(_, a, b, out, row, column, add):
        def codegen(context, builder, signature, values):
            a_value, b_value, out_value, row, column, add = values
            rows = [builder.add(row, row.type(i)) for i in range(num_rows)]
            columns = [builder.add(column, column.type(LANES * i)) for i in range(num_vectors)]
            targets = [
                vector_at(context, builder, out, out_value, i, j) for i in rows for j in columns
            ]
            sums = [cgutils.alloca_once(builder, VECTOR) for _ in targets]
            for total in sums:
                builder.store(constant(0.0), total)
            depth = builder.extract_value(context.make_array(b)(context, builder, b_value).shape, 0)
            with cgutils.for_range(builder, depth) as loop:
                ys = [vector_at(context, builder, b, b_value, loop.index, j) for j in columns]
                ys = [builder.load(y, align=4) for y in ys]
                for i, row in enumerate(rows):
                    x = builder.load(element(context, builder, a, a_value, row, loop.index))
                    x = spread(builder, x)
                    for y, total in zip(ys, sums[i * num_vectors :], strict=False):
                        builder.store(fused(builder, x, y, builder.load(total)), total)
            with builder.if_then(add):
                for target, total in zip(targets, sums, strict=True):
                    before = builder.load(target, align=4)
                    builder.store(builder.fadd(builder.load(total), before), total)
            for target, total in zip(targets, sums, strict=True):
                builder.store(builder.load(total), target, align=4)

        return types.void(a, b, out, types.intp, types.intp, types.boolean), codegen

    return tile


tile_of_4, tile_of_2, tile_of_1 = (product_tile(*shape) for shape in TILES)
ROWS_OF_4, ROWS_OF_2, ROWS_OF_1 = (rows for rows, _ in TILES)


@njit(nogil=True)
def product(a, b, out, add):
    """out = a b, or out + a b; memory beyond the edges is read and written, up to whole tiles."""
    num_rows, num_columns = out.shape
    column = 0
    while column < num_columns:
        num_vectors = -(-(num_columns - column) // LANES)
        if num_vectors >= 4:
            for row in range(0, num_rows, ROWS_OF_4):
                tile_of_4(a, b, out, row, column, add)
            column += 4 * LANES
        elif num_vectors >= 2:
            for row in range(0, num_rows, ROWS_OF_2):
                tile_of_2(a, b, out, row, column, add)
            column += 2 * LANES
        else:
            for row in range(0, num_rows, ROWS_OF_1):
                tile_of_1(a, b, out, row, column, add)
            column += LANES


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
def expect(lines, line, head, array, first, num_channels):
    """Prefetch the channels of a head's share of a line, which the next pass over lines will read.

    Nodes of a line lie far apart, so processors do not foresee them; while one line is computed,
    the next arrives.
    """
    start = first_node(lines, line)
    begin, end = head * lines.length // lines.heads, (head + 1) * lines.length // lines.heads
    step = CACHE_LINE // array.itemsize
    for i in range(begin, end):
        for channel in range(first, first + num_channels, step):
            prefetch(array, (start + i * lines.stride, channel))


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


@intrinsic
def transpose_tile(_, x, out, row, column):
    """Write `LANES` × `LANES` elements of x from (row, column) on to (column, row) of out.

    At step s, a power of two, the blocks of s × s elements next to the diagonal change places.
    """

    def codegen(context, builder, signature, values):
        x_value, out_value, row, column = values

        def vectors(kind, array, row, column):
            rows = [builder.add(row, row.type(i)) for i in range(LANES)]
            return [vector_at(context, builder, kind, array, i, column) for i in rows]

        lines = [builder.load(line, align=4) for line in vectors(x, x_value, row, column)]
        step = 1
        while step < LANES:
            for i in range(LANES):
                if not i & step:
                    upper, lower = lines[i], lines[i + step]
                    first = [LANES + (n ^ step) if n & step else n for n in range(LANES)]
                    second = [LANES + n if n & step else n ^ step for n in range(LANES)]
                    for place, sources in ((i, first), (i + step, second)):
                        sources = ir.Constant(INTEGERS, sources)
                        lines[place] = builder.shuffle_vector(upper, lower, sources)
            step *= 2
        for line, target in zip(lines, vectors(out, out_value, column, row), strict=True):
            builder.store(line, target, align=4)

    return types.void(x, out, types.intp, types.intp), codegen


@njit(nogil=True)
def transpose(x, out):
    """out = xᵀ; both padded to whole vectors along both axes."""
    for row in range(0, x.shape[0], LANES):
        for column in range(0, x.shape[1], LANES):
            transpose_tile(x, out, row, column)


@njit(nogil=True)
def exponentials(scores, statistics):
    """p = 2^(score − peak), in place; keeps peak and 1 / Σ p of every query."""
    num_keys, num_queries = scores.shape
    for i in range(0, num_queries, LANES):
        peak = load(scores, (0, i), LANES)
        for j in range(1, num_keys):
            peak = larger(peak, load(scores, (j, i), LANES))
        norm = filled(0.0)
        for j in range(num_keys):
            p = exp2(load(scores, (j, i), LANES) - peak)
            store(p, scores, (j, i), LANES)
            norm = norm + p
        store(peak, statistics, (0, i), num_queries - i)
        store(1.0 / norm, statistics, (1, i), num_queries - i)


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
    q_transposed, o_transposed = np.zeros((2, q.shape[2], q.shape[1]), np.float32)
    block = np.zeros((q.shape[1], BLOCK), np.float32)
    for line in range(begin, end):
        start = first_node(lines, line)
        gather(lines, start, qkv, turns, q, k, v)
        for head in range(lines.heads):
            if line + 1 < end:
                expect(lines, line + 1, head, qkv, lines.first_input, 3 * lines.heads * size)
            transpose(q[head], q_transposed)
            for i in range(0, n, BLOCK):
                stop = min(i + BLOCK, n)
                scores = block[:n, : stop - i]
                product(k[head], q_transposed[:size, i:stop], scores, False)
                exponentials(scores, statistics[line, head, :, i:stop])
                product(v[head].T, scores, o_transposed[:size, i:stop], False)
            transpose(o_transposed, o[head])
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
def gather_gradient(lines, start, out, grad_out, turns, statistics, g, means):
    """Copy the gradient of a line's result, and its product with the result, divided by Σ p."""
    size = turns.shape[1]
    for i in range(lines.length):
        node = start + i * lines.stride
        for head in range(lines.heads):
            norm = statistics[head, 1, i]
            mean = filled(0.0)
            for d in range(0, size, LANES):
                place = node, lines.first_output + head * size + d
                grad = load(grad_out, place, size - d) * norm
                mean = mean + grad * load(out, place, size - d)
                if lines.turn_values:
                    grad = turn(load(turns, (node, d), size - d), grad)
                store(grad, g, (head, i, d), LANES)
            means[head, i] = total(mean)


@njit(nogil=True)
def score_gradients(scores, gradients, peaks, means):
    """In place: p = 2^(score − peak), and ∂p over Σ p becomes p (∂p − Σ_j p ∂p / Σ p) over Σ p."""
    num_queries, num_keys = scores.shape
    for i in range(num_queries):
        peak, mean = filled(peaks[i]), filled(means[i])
        for j in range(0, num_keys, LANES):
            p = exp2(load(scores, (i, j), LANES) - peak)
            store(p, scores, (i, j), LANES)
            store(p * (load(gradients, (i, j), LANES) - mean), gradients, (i, j), LANES)


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
    means = np.zeros((lines.heads, n), np.float32)
    transposed = np.zeros((4, q.shape[2], q.shape[1]), np.float32)
    k_transposed, v_transposed, dk_transposed, dv_transposed = transposed
    blocks = np.zeros((2, q.shape[1], BLOCK), np.float32)
    for line in range(begin, end):
        start = first_node(lines, line)
        gather(lines, start, qkv, turns, q, k, v)
        gather_gradient(lines, start, out, grad_out, turns, statistics[line], g, means)
        for head in range(lines.heads):
            if line + 1 < end:
                width = lines.heads * size
                expect(lines, line + 1, head, qkv, lines.first_input, 3 * width)
                expect(lines, line + 1, head, out, lines.first_output, width)
                expect(lines, line + 1, head, grad_out, lines.first_output, width)
            transpose(k[head], k_transposed)
            transpose(v[head], v_transposed)
            for j in range(0, n, BLOCK):
                stop = min(j + BLOCK, n)
                p, ds = blocks[0, :n, : stop - j], blocks[1, :n, : stop - j]
                product(q[head], k_transposed[:size, j:stop], p, False)
                product(g[head], v_transposed[:size, j:stop], ds, False)
                score_gradients(p, ds, statistics[line, head, 0], means[head])
                product(g[head].T, p, dv_transposed[:size, j:stop], False)
                product(q[head].T, ds, dk_transposed[:size, j:stop], False)
                product(ds, k[head, j:stop], dq[head, :n], j > 0)
            transpose(dv_transposed, dv[head])
            transpose(dk_transposed, dk[head])
        scatter_gradients(
            lines, start, qkv, turns, out, grad_out, dq, dk, dv, grad_qkv, grad_turns, add
        )
