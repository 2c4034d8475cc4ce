"""Vectors of float32 for Numba code, and products of small matrices made of them.

Compilers vectorise loops over long rows. The matrices of an attention head are small, and what
makes their products fast are sums that stay in registers. So here a vector of `LANES` numbers is a
value of compiled code, with arithmetic, loads and stores.

Nothing depends on the processor but the choice of `LANES`: LLVM splits vectors that are too wide.
"""

import functools
import hashlib
import operator
from collections.abc import Sequence
from pathlib import Path

from llvmlite import binding, ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic, models, overload, register_model

from cato.kernels.jit import compiled

LANES = 16 if binding.get_host_cpu_features().get("avx512f") else 8
"""Numbers per vector. Any multiple of `TILE` is correct; this one fills a register."""
TILE = 8
"""Rows of a product summed at once: enough independent sums to hide the latency of an addition."""

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


def cached(function):
    """Compile for use in threads, anew when this file has changed."""
    # Numba looks for changes in the function's own file; by the name it notices those in this one.
    function.__qualname__ += hashlib.sha256(Path(__file__).read_bytes()).hexdigest()[:8]
    return compiled(function, nogil=True)
