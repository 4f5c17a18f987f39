"""Loops over NumPy arrays, compiled by Numba: each does in one pass over memory what PyTorch's operations would do in many.

A bfloat16 array comes as its bits, uint16; sums are float32. All loops are serial. `glint.model.compiled` wraps them for autograd.
Axes: N packed tokens, D width, H heads, K width of a head, E experts, F hidden width of an expert, R rows, S slots of routed tokens.
In hyper-connections S is residual streams, I those before a write, and M = S (2 + S) a token's weights of reading and writing.
Everything compiled stays in this one file, because Numba's cache on disk watches the file that a kernel stands in and no other.
"""

from collections.abc import Callable
from typing import Any, Protocol, TypeVar, cast

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic, overload, register_jitable
from numpy.typing import NDArray

Array = NDArray[Any]
Function = TypeVar("Function", bound=Callable[..., Any])
ZERO, ONE, UNLIMITED = np.float32(0), np.float32(1), np.float32(np.inf)
DENOMINATOR_FLOOR = np.float32(1e-6)


class Decorator(Protocol):
    """What compiles a function and leaves its type as it is."""

    def __call__(self, function: Function, /) -> Function:
        """Return the compiled function."""


# Neither assumes that NaN and infinity are absent: a diverged run must show them. Only `summing` may change the order of a sum.
elementwise = cast(Decorator, njit(fastmath={"contract", "nsz", "arcp"}, error_model="numpy", cache=True))
summing = cast(Decorator, njit(fastmath={"contract", "nsz", "arcp", "reassoc"}, error_model="numpy", cache=True))
emitted = cast(Callable[[Callable[..., Any]], Callable[..., None]], intrinsic)


def widen(x: Any) -> Any:
    """Return the float32 value of a float32, or of the bits of a bfloat16."""
    raise NotImplementedError("compiled only")


@overload(widen, strict=False)
def _widen(x: Any) -> Any:
    if isinstance(x, types.Integer):
        return lambda x: np.uint32(np.uint32(x) << np.uint32(16)).view(np.float32)
    return lambda x: x


def narrow(x: Any, like: Any) -> Any:
    """Return float32 `x` rounded to the type of `like`: itself, or the bits of the nearest bfloat16 (ties to even)."""
    raise NotImplementedError("compiled only")


@overload(narrow, strict=False)
def _narrow(x: Any, like: Any) -> Any:  # noqa: ARG001
    def round_to_bfloat16(x: Any, like: Any) -> Any:  # noqa: ARG001
        bits = np.float32(x).view(np.uint32)
        odd = np.uint32(np.uint32(bits >> np.uint32(16)) & np.uint32(1))
        return np.uint16(np.uint32(bits + np.uint32(0x7FFF) + odd) >> np.uint32(16))

    return round_to_bfloat16 if isinstance(like, types.Integer) else lambda x, like: x  # noqa: ARG005


@register_jitable
def exp(x: Any) -> Any:
    """Return e^x of a float32 within 2e-7 relative, x held to [-87, 88]; NaN stays NaN.

    x = n ln 2 + r: 2^n is set in the exponent's bits, e^r is a polynomial of degree 6 (Cephes' expf).
    """
    held = min(max(x, np.float32(-87)), np.float32(88))
    biased = np.int32(held * np.float32(1.44269504) + np.float32(127.5))
    n = np.float32(np.int32(biased - np.int32(127)))
    r = held - n * np.float32(0.693359375) + n * np.float32(2.12194440e-4)
    p = np.float32(1.9875691500e-4)
    p = p * r + np.float32(1.3981999507e-3)
    p = p * r + np.float32(8.3334519073e-3)
    p = p * r + np.float32(4.1665795894e-2)
    p = p * r + np.float32(1.6666665459e-1)
    p = p * r + np.float32(5.0000001201e-1)
    return (p * r * r + r + ONE) * np.int32(biased << np.int32(23)).view(np.float32) + (x - x)


@summing
def dot(a: Array, b: Array) -> Any:
    """Return sum a_i b_i."""
    total = ZERO
    for i in range(a.size):
        total += a[i] * b[i]
    return total


@summing
def mixed_dot(a: Array, b: Array) -> Any:
    """Return sum a_i b_i, each float32 or bfloat16."""
    total = ZERO
    for i in range(a.size):
        total += widen(a[i]) * widen(b[i])
    return total


@summing
def rms_norm(x_ND: Array, weight_D: Array, epsilon: float, out_ND: Array, scale_N: Array) -> None:
    """Write x * scale * weight and scale = 1 / sqrt(mean(x^2) + epsilon)."""
    for n in range(x_ND.shape[0]):
        scale = ONE / np.sqrt(dot(x_ND[n], x_ND[n]) / np.float32(x_ND.shape[1]) + np.float32(epsilon))
        scale_N[n] = scale
        for d in range(x_ND.shape[1]):
            out_ND[n, d] = narrow(x_ND[n, d] * scale * weight_D[d], out_ND[n, d])


@summing
def rms_norm_backward(grad_ND: Array, x_ND: Array, weight_D: Array, scale_N: Array, grad_x_ND: Array, grad_weight_D: Array) -> None:
    """Write the gradient of x, and add that of the weight to `grad_weight_D`."""
    for n in range(x_ND.shape[0]):
        scale = scale_N[n]
        radial = ZERO
        for d in range(x_ND.shape[1]):
            grad = widen(grad_ND[n, d])
            unit = x_ND[n, d] * scale
            grad_weight_D[d] += grad * unit
            grad_x_ND[n, d] = grad * weight_D[d]
            radial += grad * weight_D[d] * unit
        radial = radial / np.float32(x_ND.shape[1]) * scale
        for d in range(x_ND.shape[1]):
            grad_x_ND[n, d] = (grad_x_ND[n, d] - x_ND[n, d] * radial) * scale


@elementwise
def read_and_norm(streams_LND: Array, weights_L: Array, weight_D: Array, epsilon: float, x_ND: Array, normed_ND: Array) -> None:
    """Write x = sum_l weights_l streams_l, and its norm."""
    scale_N = np.empty(x_ND.shape[0], np.float32)
    for n in range(x_ND.shape[0]):
        for d in range(x_ND.shape[1]):
            x_ND[n, d] = ZERO
        for level in range(weights_L.size):
            for d in range(x_ND.shape[1]):
                x_ND[n, d] += weights_L[level] * streams_LND[level, n, d]
    rms_norm(x_ND, weight_D, epsilon, normed_ND, scale_N)


@elementwise
def add(x_ND: Array, change_ND: Array, out_ND: Array) -> None:
    """Write x + change, float32."""
    for n in range(x_ND.shape[0]):
        for d in range(x_ND.shape[1]):
            out_ND[n, d] = x_ND[n, d] + widen(change_ND[n, d])


@elementwise
def add_and_norm(x_ND: Array, change_ND: Array, weight_D: Array, epsilon: float, out_ND: Array, normed_ND: Array) -> None:
    """Write x + change, and its norm."""
    add(x_ND, change_ND, out_ND)
    rms_norm(out_ND, weight_D, epsilon, normed_ND, np.empty(x_ND.shape[0], np.float32))


@register_jitable
def sigmoid(x: Any) -> Any:
    """Return 1 / (1 + e^-x)."""
    return ONE / (ONE + exp(-x))


@register_jitable
def below(x: Any, limit: Any) -> Any:
    """Return the smaller of the two; NaN stays."""
    return limit if x > limit else x


@elementwise
def gate(gate_value_N2F: Array, limit: Any, out_NF: Array) -> None:
    """Write silu(gate) * value; a row holds the gates, then the values. Neither exceeds `limit`, nor a value -`limit`."""
    hidden = out_NF.shape[1]
    for n in range(out_NF.shape[0]):
        for f in range(hidden):
            g, value = below(widen(gate_value_N2F[n, f]), limit), below(widen(gate_value_N2F[n, hidden + f]), limit)
            out_NF[n, f] = narrow(g * sigmoid(g) * -below(-value, limit), out_NF[n, f])


@elementwise
def gate_backward(grad_NF: Array, gate_value_N2F: Array, limit: Any, grad_gate_value_N2F: Array, product_NF: Array) -> None:
    """Write the gradients of gates and values, 0 beyond `limit`, and silu(gate) * value anew."""
    hidden = grad_NF.shape[1]
    for n in range(grad_NF.shape[0]):
        for f in range(hidden):
            whole_g, whole_value, grad = widen(gate_value_N2F[n, f]), widen(gate_value_N2F[n, hidden + f]), widen(grad_NF[n, f])
            g, value = below(whole_g, limit), -below(-below(whole_value, limit), limit)
            share = sigmoid(g)
            activated = g * share
            product_NF[n, f] = narrow(activated * value, product_NF[n, f])
            grad_value, grad_gate = grad * activated, grad * value * (share + activated * (ONE - share))
            grad_gate_value_N2F[n, hidden + f] = narrow(ZERO if abs(whole_value) > limit else grad_value, product_NF[n, f])
            grad_gate_value_N2F[n, f] = narrow(ZERO if whole_g > limit else grad_gate, product_NF[n, f])


@elementwise
def gate_chosen(experts_RJ: Array, weights_RJ: Array, gate_value_REX: Array, out_REF: Array) -> None:
    """Write weight * silu(gate) * value of each row's chosen experts and, at weight 1, of the shared one, the last; 0 for all others.

    In the product that follows, a weight that is not finite still reaches every row, as 0 times infinity is NaN.
    """
    shared, hidden = out_REF.shape[1] - 1, out_REF.shape[2]
    for r in range(out_REF.shape[0]):
        for e in range(shared):
            for f in range(hidden):
                out_REF[r, e, f] = 0
        for j in range(experts_RJ.shape[1] + 1):
            routed = j < experts_RJ.shape[1]
            e, weight = (experts_RJ[r, j], weights_RJ[r, j]) if routed else (shared, ONE)
            for f in range(hidden):
                g, value = widen(gate_value_REX[r, e, f]), widen(gate_value_REX[r, e, hidden + f])
                out_REF[r, e, f] = narrow(weight * (g * sigmoid(g) * value), out_REF[r, e, f])


@register_jitable
def _ranks_above(x: Any, y: Any) -> Any:
    """Return whether x > y, NaN above all, so that it reaches the output."""
    return x > y or (np.isnan(x) and not np.isnan(y))


@elementwise
def choose_experts(logits_NE: Array, experts_NJ: Array, weights_NJ: Array) -> None:
    """Write each token's J experts of the largest logits, in falling order, and the softmax over those logits."""
    chosen = experts_NJ.shape[1]
    for n in range(logits_NE.shape[0]):
        for j in range(chosen):
            best = -1
            for e in range(logits_NE.shape[1]):
                taken = False
                for earlier in range(j):
                    taken |= experts_NJ[n, earlier] == e
                if not taken and (best < 0 or _ranks_above(widen(logits_NE[n, e]), widen(logits_NE[n, best]))):
                    best = e
            experts_NJ[n, j] = best
        total = ZERO
        for j in range(chosen):
            weights_NJ[n, j] = exp(widen(logits_NE[n, experts_NJ[n, j]]) - widen(logits_NE[n, experts_NJ[n, 0]]))
            total += weights_NJ[n, j]
        for j in range(chosen):
            weights_NJ[n, j] /= total


@elementwise
def route(x_RD: Array, router_ED: Array, logits_RE: Array, experts_RJ: Array, weights_RJ: Array) -> None:
    """Choose the experts of a few rows by a float32 router."""
    x_D = np.empty(x_RD.shape[1], np.float32)
    for r in range(x_RD.shape[0]):
        for d in range(x_D.size):
            x_D[d] = widen(x_RD[r, d])
        for e in range(router_ED.shape[0]):
            logits_RE[r, e] = narrow(dot(x_D, router_ED[e]), logits_RE[r, e])
    choose_experts(logits_RE, experts_RJ, weights_RJ)


@elementwise
def place_by_expert(experts_NJ: Array, firsts_E: Array, slots_NJ: Array, tokens_S: Array) -> None:
    """Write the slot of every choice and the token in every slot: expert e's tokens follow one another from slot firsts_E[e] on."""
    free_E = firsts_E.copy()
    for n in range(experts_NJ.shape[0]):
        for j in range(experts_NJ.shape[1]):
            slot = free_E[experts_NJ[n, j]]
            free_E[experts_NJ[n, j]] += 1
            slots_NJ[n, j] = slot
            tokens_S[slot] = n


@elementwise
def combine(residual_ND: Array, shared_ND: Array, routed_SD: Array, weights_NJ: Array, slots_NJ: Array, out_ND: Array) -> None:
    """Write residual + shared + sum_j weight_j routed_j."""
    for n in range(out_ND.shape[0]):
        for d in range(out_ND.shape[1]):
            out_ND[n, d] = residual_ND[n, d] + widen(shared_ND[n, d])
        for j in range(slots_NJ.shape[1]):
            weight, slot = weights_NJ[n, j], slots_NJ[n, j]
            for d in range(out_ND.shape[1]):
                out_ND[n, d] += weight * widen(routed_SD[slot, d])


@elementwise
def combine_backward(grad_ND: Array, routed_SD: Array, weights_NJ: Array, slots_NJ: Array, grad_shared_ND: Array, grad_routed_SD: Array,
                     grad_weights_NJ: Array) -> None:  # fmt: skip
    """Write the gradients of shared, routed and weights."""
    for n in range(grad_ND.shape[0]):
        for d in range(grad_ND.shape[1]):
            grad_shared_ND[n, d] = narrow(grad_ND[n, d], grad_shared_ND[n, d])
        for j in range(slots_NJ.shape[1]):
            weight, slot = weights_NJ[n, j], slots_NJ[n, j]
            grad_weights_NJ[n, j] = mixed_dot(grad_ND[n], routed_SD[slot])
            for d in range(grad_ND.shape[1]):
                grad_routed_SD[slot, d] = narrow(weight * grad_ND[n, d], grad_routed_SD[slot, d])


@elementwise
def choose_experts_backward(grad_weights_NJ: Array, weights_NJ: Array, experts_NJ: Array, grad_logits_NE: Array) -> None:
    """Add the gradient of the chosen logits to `grad_logits_NE`."""
    for n in range(weights_NJ.shape[0]):
        mean = ZERO
        for j in range(weights_NJ.shape[1]):
            mean += grad_weights_NJ[n, j] * weights_NJ[n, j]
        for j in range(weights_NJ.shape[1]):
            grad_logits_NE[n, experts_NJ[n, j]] += weights_NJ[n, j] * (grad_weights_NJ[n, j] - mean)


@elementwise
def sum_copies(shared_ND: Array, routed_SD: Array, slots_NJ: Array, out_ND: Array) -> None:
    """Write shared + sum_j routed_j: the gradient of a token that was copied to its slots."""
    total_D = np.empty(out_ND.shape[1], np.float32)
    for n in range(out_ND.shape[0]):
        for d in range(total_D.size):
            total_D[d] = widen(shared_ND[n, d])
        for j in range(slots_NJ.shape[1]):
            slot = slots_NJ[n, j]
            for d in range(total_D.size):
                total_D[d] += widen(routed_SD[slot, d])
        for d in range(total_D.size):
            out_ND[n, d] = narrow(total_D[d], out_ND[n, d])


@elementwise
def turn(x_K: Array, cos_C: Array, sin_C: Array, out_K: Array) -> None:
    """Write `x_K` with its pairs (2c, 2c+1) turned by the angles."""
    for c in range(cos_C.size):
        a, b = widen(x_K[2 * c]), widen(x_K[2 * c + 1])
        out_K[2 * c] = a * cos_C[c] - b * sin_C[c]
        out_K[2 * c + 1] = b * cos_C[c] + a * sin_C[c]


@elementwise
def turn_back(x_K: Array, cos_C: Array, sin_C: Array, out_K: Array) -> None:
    """Write float32 `x_K` turned by minus the angles, rounded to the type of `out_K`: the gradient of `turn`."""
    for c in range(cos_C.size):
        a, b = x_K[2 * c], x_K[2 * c + 1]
        out_K[2 * c] = narrow(a * cos_C[c] + b * sin_C[c], out_K[2 * c])
        out_K[2 * c + 1] = narrow(b * cos_C[c] - a * sin_C[c], out_K[2 * c + 1])


@elementwise
def read_head(qkv_N3HK: Array, head: int, first: int, end: int, position: int, cos_PC: Array, sin_PC: Array, qkv_3TK: Array,
              to: int) -> None:  # fmt: skip
    """Write q and k, turned, and v of one head of the tokens first..end-1, the first of which stands at `position`, from row `to` on."""
    for t in range(end - first):
        turn(qkv_N3HK[first + t, 0, head], cos_PC[position + t], sin_PC[position + t], qkv_3TK[0, to + t])
        turn(qkv_N3HK[first + t, 1, head], cos_PC[position + t], sin_PC[position + t], qkv_3TK[1, to + t])
        for i in range(qkv_N3HK.shape[3]):
            qkv_3TK[2, to + t, i] = widen(qkv_N3HK[first + t, 2, head, i])


@elementwise
def write_head_gradient(grad_3TK: Array, begin: int, head: int, first: int, end: int, position: int, cos_PC: Array, sin_PC: Array,
                        grad_N3HK: Array) -> None:  # fmt: skip
    """Write the gradients of one head's q, k and v, given those of the turned ones, which lie from row `begin` on."""
    for t in range(end - first):
        turn_back(grad_3TK[0, begin + t], cos_PC[position + t], sin_PC[position + t], grad_N3HK[first + t, 0, head])
        turn_back(grad_3TK[1, begin + t], cos_PC[position + t], sin_PC[position + t], grad_N3HK[first + t, 1, head])
        for i in range(grad_N3HK.shape[3]):
            grad_N3HK[first + t, 2, head, i] = narrow(grad_3TK[2, begin + t, i], grad_N3HK[first + t, 2, head, i])


@elementwise
def positive(x_TK: Array, count: int) -> None:
    """Apply phi(x) = elu(x) + 1 to the first `count` rows, in place."""
    for t in range(count):
        for i in range(x_TK.shape[1]):
            x_TK[t, i] = min(exp(x_TK[t, i]), max(x_TK[t, i] + ONE, ONE))


@elementwise
def positive_backward(grad_TK: Array, phi_TK: Array, count: int) -> None:
    """Multiply a gradient by phi'(x): 1 above 0, exp(x) = phi(x) below, so min(phi, 1)."""
    for t in range(count):
        for i in range(phi_TK.shape[1]):
            grad_TK[t, i] *= min(phi_TK[t, i], ONE)


LANES = 16
"""Columns that are added side by side, in one register of the widest kind. Arrays of heads are padded to a multiple of it."""


@register_jitable
def padded(size: Any) -> Any:
    """Return `size`, rounded up to whole registers."""
    return (size + LANES - 1) // LANES * LANES


def _arrays(context: Any, builder: Any, signature: Any, values: Any) -> list[Any]:
    """Return the arrays that an emitted function is called with."""
    return [context.make_array(kind)(context, builder, value) for kind, value in zip(signature.args, values, strict=True)]


class _Registers:
    """LANES neighbouring floats of an array, as one LLVM value."""

    def __init__(self, builder: Any) -> None:
        self.builder, self.kind, self.index = builder, ir.VectorType(ir.FloatType(), LANES), ir.IntType(32)

    def load(self, array: Any, at: Any) -> Any:
        """Return the floats from place `at` on."""
        return self.builder.load(self._place(array, at), align=4)

    def store(self, value: Any, array: Any, at: Any) -> None:
        """Write `value` from place `at` on."""
        self.builder.store(value, self._place(array, at), align=4)

    def spread(self, array: Any, at: Any) -> Any:
        """Return the float at one place, in every lane."""
        nothing, everywhere = self.kind(ir.Undefined), ir.Constant(ir.VectorType(self.index, LANES), [0] * LANES)
        single = self.builder.insert_element(nothing, self.builder.load(self.builder.gep(array.data, [at])), self.index(0))
        return self.builder.shuffle_vector(single, nothing, everywhere)

    def zero(self) -> Any:
        """Return the place of a sum that begins with 0; LLVM keeps it in a register."""
        place = cgutils.alloca_once(self.builder, self.kind)
        self.builder.store(self.kind(None), place)
        return place

    def plus_product(self, x: Any, y: Any, z: Any) -> Any:
        """Return x + y z, which may be one instruction."""
        return self.builder.fadd(x, self.builder.fmul(y, z, flags=["contract"]), flags=["contract"])

    def add_to(self, place: Any, x: Any, y: Any) -> None:
        """Add x y to the sum at `place`."""
        self.builder.store(self.plus_product(self.builder.load(place), x, y), place)

    def sum(self, x: Any) -> Any:
        """Return the sum of the lanes, in whatever order is fastest."""
        kind = ir.FunctionType(ir.FloatType(), [ir.FloatType(), self.kind])
        reduce = cgutils.get_or_insert_function(self.builder.module, kind, f"llvm.vector.reduce.fadd.v{LANES}f32")
        return self.builder.call(reduce, [ir.FloatType()(0), x], fastmath=["reassoc"])

    def _place(self, array: Any, at: Any) -> Any:
        return self.builder.bitcast(self.builder.gep(array.data, [at]), self.kind.as_pointer())


@emitted
def add_outer_and_read(typing: Any, state_IJ: Any, a_I: Any, b_J: Any, c_I: Any, out_J: Any) -> Any:  # noqa: ARG001
    """Add a b^T to the state, then write c state. J is a multiple of LANES; a and c may be longer than I.

    Emitted for LLVM by hand: a sum over the rows stays in a register, where LLVM's own loops write it to memory after every row.
    """

    def emit(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        state, a, b, c, out = _arrays(context, builder, signature, values)
        rows, columns = cgutils.unpack_tuple(builder, state.shape, 2)
        lanes = _Registers(builder)
        with cgutils.for_range_slice(builder, rows.type(0), columns, rows.type(LANES)) as (j, _):
            b_j, total = lanes.load(b, j), lanes.zero()
            with cgutils.for_range(builder, rows) as loop:
                at = builder.add(builder.mul(loop.index, columns), j)
                entries = lanes.plus_product(lanes.load(state, at), lanes.spread(a, loop.index), b_j)
                lanes.store(entries, state, at)
                lanes.add_to(total, lanes.spread(c, loop.index), entries)
            lanes.store(builder.load(total), out, j)
        return context.get_dummy_value()

    return types.void(state_IJ, a_I, b_J, c_I, out_J), emit


@elementwise
def _linear_tokens(qkv_3TK: Array, count: int, first: int, head: int, s_KK: Array, z_K: Array, out_NHK: Array, total_NH: Array) -> None:
    """Advance a state over `count` tokens and write what they attend to, at the packed tokens from `first` on."""
    q_TK, k_TK, v_TK = qkv_3TK[0], qkv_3TK[1], qkv_3TK[2]
    sums_K = np.empty(q_TK.shape[1], np.float32)
    for t in range(count):
        for i in range(z_K.size):
            z_K[i] += k_TK[t, i]
        add_outer_and_read(s_KK, k_TK[t], v_TK[t], q_TK[t], sums_K)
        total = max(dot(z_K, q_TK[t]), DENOMINATOR_FLOOR)
        total_NH[first + t, head] = total
        for i in range(z_K.size):
            out_NHK[first + t, head, i] = narrow(sums_K[i] / total, out_NHK[first + t, head, i])


@elementwise
def linear_attention(qkv_N3HK: Array, prompt: int, starts_R: Array, cos_PC: Array, sin_PC: Array, out_NHK: Array, total_NH: Array,
                     s_RHKK: Array, z_RHK: Array) -> None:  # fmt: skip
    """Write phi(q) S / total, total = max(phi(q) z, 1e-6), of every token, and each row's last state.

    The first `prompt` tokens precede every row; row r holds the tokens starts_R[r]..starts_R[r+1]-1.
    """
    size = qkv_N3HK.shape[3]
    qkv_3TK = np.zeros((3, cos_PC.shape[0], padded(size)), np.float32)
    for head in range(qkv_N3HK.shape[2]):
        s_KK, z_K = np.zeros((size, padded(size)), np.float32), np.zeros(size, np.float32)
        for r in range(-1, starts_R.size - 1):
            first, end, position = (0, prompt, 0) if r < 0 else (starts_R[r], starts_R[r + 1], prompt)
            read_head(qkv_N3HK, head, first, end, position, cos_PC, sin_PC, qkv_3TK, 0)
            positive(qkv_3TK[0], end - first)
            positive(qkv_3TK[1], end - first)
            if r < 0:
                _linear_tokens(qkv_3TK, end - first, first, head, s_KK, z_K, out_NHK, total_NH)
            else:
                s_RHKK[r, head] = s_KK
                z_RHK[r, head] = z_K
                _linear_tokens(qkv_3TK, end - first, first, head, s_RHKK[r, head], z_RHK[r, head], out_NHK, total_NH)


@elementwise
def linear_step(qkv_R3HK: Array, positions_R: Array, cos_PC: Array, sin_PC: Array, s_RHKK: Array, z_RHK: Array, out_RHK: Array,
                total_RH: Array) -> None:  # fmt: skip
    """Advance every row's state by one token, and write what it attends to."""
    qkv_3TK = np.zeros((3, 1, padded(qkv_R3HK.shape[3])), np.float32)
    for r in range(qkv_R3HK.shape[0]):
        for head in range(qkv_R3HK.shape[2]):
            read_head(qkv_R3HK, head, r, r + 1, positions_R[r], cos_PC, sin_PC, qkv_3TK, 0)
            positive(qkv_3TK[0], 1)
            positive(qkv_3TK[1], 1)
            _linear_tokens(qkv_3TK, 1, r, head, s_RHKK[r, head], z_RHK[r, head], out_RHK, total_RH)


@summing
def _sum_gradients(grad_K: Array, out_K: Array, total: Any, grad_sums_K: Array) -> Any:
    """Write the gradient of the sums, given that of out = sums / total; return that of total, 0 where it was held to the floor."""
    radial = ZERO
    for i in range(grad_K.size):
        share = widen(grad_K[i]) / total
        grad_sums_K[i] = share
        radial -= share * widen(out_K[i])
    return radial if total > DENOMINATOR_FLOOR else ZERO


@elementwise
def _linear_queries(qkv_3TK: Array, count: int, grad_sums_TK: Array, grad_total_T: Array, s_KK: Array, z_K: Array, grad_3TK: Array) -> None:
    """Write the gradients of q, advancing the transposed state v k^T as the forward pass did."""
    for t in range(count):
        k_K, grad_q_K = qkv_3TK[1, t], grad_3TK[0, t]
        add_outer_and_read(s_KK, qkv_3TK[2, t], k_K, grad_sums_TK[t], grad_q_K)
        for i in range(z_K.size):
            z_K[i] += k_K[i]
            grad_q_K[i] += grad_total_T[t] * z_K[i]


@elementwise
def _linear_keys(qkv_3TK: Array, count: int, grad_sums_TK: Array, grad_total_T: Array, grad_s_KK: Array, grad_st_KK: Array, grad_z_K: Array,
                 grad_3TK: Array) -> None:  # fmt: skip
    """Write the gradients of k and v, carrying the gradient of the state, and its transpose, from the last token to the first."""
    for t in range(count - 1, -1, -1):
        q_K, grad_k_K = qkv_3TK[0, t], grad_3TK[1, t]
        add_outer_and_read(grad_s_KK, q_K, grad_sums_TK[t], qkv_3TK[1, t], grad_3TK[2, t])
        add_outer_and_read(grad_st_KK, grad_sums_TK[t], q_K, qkv_3TK[2, t], grad_k_K)
        for i in range(grad_z_K.size):
            grad_z_K[i] += grad_total_T[t] * q_K[i]
            grad_k_K[i] += grad_z_K[i]


@elementwise
def _read_linear(grad_NHK: Array, qkv_N3HK: Array, head: int, first: int, end: int, position: int, cos_PC: Array, sin_PC: Array,
                 out_NHK: Array, total_NH: Array, qkv_3TK: Array, grad_sums_TK: Array, grad_total_T: Array) -> None:  # fmt: skip
    """Read phi(q), phi(k) and v of the tokens first..end-1, and write the gradients of their sums and totals."""
    read_head(qkv_N3HK, head, first, end, position, cos_PC, sin_PC, qkv_3TK, 0)
    positive(qkv_3TK[0], end - first)
    positive(qkv_3TK[1], end - first)
    for t in range(end - first):
        of_out, out, total = grad_NHK[first + t, head], out_NHK[first + t, head], total_NH[first + t, head]
        grad_total_T[t] = _sum_gradients(of_out, out, total, grad_sums_TK[t])


@elementwise
def _write_linear(grad_3TK: Array, qkv_3TK: Array, head: int, first: int, end: int, position: int, cos_PC: Array, sin_PC: Array,
                  grad_qkv_N3HK: Array) -> None:  # fmt: skip
    """Write the gradient of qkv, given those of phi(q), phi(k) and v."""
    positive_backward(grad_3TK[0], qkv_3TK[0], end - first)
    positive_backward(grad_3TK[1], qkv_3TK[1], end - first)
    write_head_gradient(grad_3TK, 0, head, first, end, position, cos_PC, sin_PC, grad_qkv_N3HK)


@elementwise
def linear_attention_backward(grad_NHK: Array, qkv_N3HK: Array, prompt: int, starts_R: Array, cos_PC: Array, sin_PC: Array,
                              out_NHK: Array, total_NH: Array, grad_qkv_N3HK: Array) -> None:  # fmt: skip
    """Write the gradient of qkv. The state runs forward again for q; its gradient runs backward for k and v, the prompt's last."""
    size, longest = qkv_N3HK.shape[3], cos_PC.shape[0]
    width = padded(size)
    qkv_3TK, grad_3TK = np.zeros((3, longest, width), np.float32), np.zeros((3, longest, width), np.float32)
    grad_sums_TK, grad_total_T = np.zeros((longest, width), np.float32), np.empty(longest, np.float32)
    for head in range(qkv_N3HK.shape[2]):
        s_KK, z_K = np.zeros((size, width), np.float32), np.zeros(size, np.float32)
        after_KK, after_t_KK, after_K = np.zeros_like(s_KK), np.zeros_like(s_KK), np.zeros_like(z_K)
        given, made = (cos_PC, sin_PC, out_NHK, total_NH), (qkv_3TK, grad_sums_TK, grad_total_T)
        _read_linear(grad_NHK, qkv_N3HK, head, 0, prompt, 0, *given, *made)
        _linear_queries(qkv_3TK, prompt, grad_sums_TK, grad_total_T, s_KK, z_K, grad_3TK)
        for r in range(starts_R.size - 1):
            own = (head, starts_R[r], starts_R[r + 1], prompt)
            count = starts_R[r + 1] - starts_R[r]
            _read_linear(grad_NHK, qkv_N3HK, *own, *given, *made)
            _linear_queries(qkv_3TK, count, grad_sums_TK, grad_total_T, s_KK.copy(), z_K.copy(), grad_3TK)
            own_KK, own_t_KK, own_K = np.zeros_like(s_KK), np.zeros_like(s_KK), np.zeros_like(z_K)
            _linear_keys(qkv_3TK, count, grad_sums_TK, grad_total_T, own_KK, own_t_KK, own_K, grad_3TK)
            after_KK += own_KK
            after_t_KK += own_t_KK
            after_K += own_K
            _write_linear(grad_3TK, qkv_3TK, *own, cos_PC, sin_PC, grad_qkv_N3HK)
        _read_linear(grad_NHK, qkv_N3HK, head, 0, prompt, 0, *given, *made)
        _linear_queries(qkv_3TK, prompt, grad_sums_TK, grad_total_T, np.zeros_like(s_KK), np.zeros_like(z_K), grad_3TK)
        _linear_keys(qkv_3TK, prompt, grad_sums_TK, grad_total_T, after_KK, after_t_KK, after_K, grad_3TK)
        _write_linear(grad_3TK, qkv_3TK, head, 0, prompt, 0, cos_PC, sin_PC, grad_qkv_N3HK)


@elementwise
def softmax(scores: Array, count: int) -> None:
    """Turn the first `count` scores into shares, in place."""
    largest, total = scores[0], ZERO
    for i in range(count):
        largest = max(largest, scores[i])
    for i in range(count):
        scores[i] = exp(scores[i] - largest)
    for i in range(count):
        total += scores[i]
    for i in range(count):
        scores[i] /= total


@elementwise
def _read_keys(qkv_N3HK: Array, head: int, prompt: int, first: int, end: int, cos_PC: Array, sin_PC: Array, stride: int, qkv_3TK: Array,
               across_2KT: Array, strided_2KC: Array) -> None:  # fmt: skip
    """Read the prompt and a row of one head; write k and v with positions last as well, all of them and every stride-th apart."""
    read_head(qkv_N3HK, head, 0, prompt, 0, cos_PC, sin_PC, qkv_3TK, 0)
    read_head(qkv_N3HK, head, first, end, prompt, cos_PC, sin_PC, qkv_3TK, prompt)
    for part in range(2):
        for i in range(qkv_3TK.shape[2]):
            for t in range(prompt + end - first):
                across_2KT[part, i, t] = qkv_3TK[1 + part, t, i]
            for c in range((prompt + end - first + stride - 1) // stride):
                strided_2KC[part, i, c] = qkv_3TK[1 + part, c * stride, i]


@elementwise
def _products(x_K: Array, across_KT: Array, strided_KC: Array, before: int, recent: int, end: int, out: Array) -> None:
    """Write x . k of the first `before` strided positions, then of the positions recent..end-1."""
    out_recent = out[before:]
    for i in range(before + end - recent):
        out[i] = ZERO
    for d in range(x_K.size):
        x, keys = x_K[d], across_KT[d, recent:end]
        for c in range(before):
            out[c] += x * strided_KC[d, c]
        for i in range(keys.size):
            out_recent[i] += x * keys[i]


@elementwise
def _shares(q_K: Array, across_KT: Array, strided_KC: Array, before: int, recent: int, end: int, shares: Array) -> None:
    """Write softmax(q k^T K^-0.5) over the positions seen."""
    _products(q_K, across_KT, strided_KC, before, recent, end, shares)
    scale = np.float32(q_K.size**-0.5)
    for i in range(before + end - recent):
        shares[i] *= scale
    softmax(shares, before + end - recent)


@elementwise
def sparse_attention(qkv_N3HK: Array, prompt: int, starts_R: Array, cos_PC: Array, sin_PC: Array, window: int, stride: int,
                     out_NHK: Array) -> None:  # fmt: skip
    """Write softmax(q k^T K^-0.5) v of every token over what it sees: the last `window` positions, and every stride-th before them."""
    size, longest = qkv_N3HK.shape[3], cos_PC.shape[0]
    qkv_3TK, across_2KT = np.empty((3, longest, size), np.float32), np.empty((2, size, longest), np.float32)
    strided_2KC = np.empty((2, size, (longest + stride - 1) // stride), np.float32)
    shares, sums_K = np.empty(longest, np.float32), np.empty(size, np.float32)
    for head in range(qkv_N3HK.shape[2]):
        for r in range(-1, starts_R.size - 1):
            first, end, before = (0, 0, 0) if r < 0 else (starts_R[r], starts_R[r + 1], prompt)
            _read_keys(qkv_N3HK, head, prompt, first, end, cos_PC, sin_PC, stride, qkv_3TK, across_2KT, strided_2KC)
            for t in range(before, prompt + end - first):
                recent = max(0, t - window + 1)
                strided = (recent + stride - 1) // stride
                _shares(qkv_3TK[0, t], across_2KT[0], strided_2KC[0], strided, recent, t + 1, shares)
                sums_K[:] = ZERO
                for i in range(strided + t + 1 - recent):
                    at = i * stride if i < strided else recent + i - strided
                    for d in range(size):
                        sums_K[d] += shares[i] * qkv_3TK[2, at, d]
                for d in range(size):
                    out_NHK[first + t - before, head, d] = narrow(sums_K[d], out_NHK[first + t - before, head, d])


@elementwise
def sparse_attention_backward(grad_NHK: Array, qkv_N3HK: Array, prompt: int, starts_R: Array, cos_PC: Array, sin_PC: Array, window: int,
                              stride: int, grad_qkv_N3HK: Array) -> None:  # fmt: skip
    """Write the gradient of qkv; the shares are computed again, and the prompt's gradients are summed over the rows."""
    size, longest = qkv_N3HK.shape[3], cos_PC.shape[0]
    scale = np.float32(size**-0.5)
    qkv_3TK, across_2KT = np.empty((3, longest, size), np.float32), np.empty((2, size, longest), np.float32)
    strided_2KC, grad_3TK = np.empty((2, size, (longest + stride - 1) // stride), np.float32), np.empty((3, longest, size), np.float32)
    prompt_3TK = np.empty((3, prompt, size), np.float32)
    shares, grads, grad_K = np.empty(longest, np.float32), np.empty(longest, np.float32), np.empty(size, np.float32)
    for head in range(qkv_N3HK.shape[2]):
        prompt_3TK[:] = ZERO
        for r in range(-1, starts_R.size - 1):
            first, end, before = (0, 0, 0) if r < 0 else (starts_R[r], starts_R[r + 1], prompt)
            _read_keys(qkv_N3HK, head, prompt, first, end, cos_PC, sin_PC, stride, qkv_3TK, across_2KT, strided_2KC)
            grad_3TK[:, : prompt + end - first] = ZERO
            for t in range(before, prompt + end - first):
                recent = max(0, t - window + 1)
                strided = (recent + stride - 1) // stride
                count = strided + t + 1 - recent
                for d in range(size):
                    grad_K[d] = widen(grad_NHK[first + t - before, head, d])
                _shares(qkv_3TK[0, t], across_2KT[0], strided_2KC[0], strided, recent, t + 1, shares)
                _products(grad_K, across_2KT[1], strided_2KC[1], strided, recent, t + 1, grads)
                mean = dot(shares[:count], grads[:count])
                for i in range(count):
                    at = i * stride if i < strided else recent + i - strided
                    grad_score = shares[i] * (grads[i] - mean) * scale
                    for d in range(size):
                        grad_3TK[0, t, d] += grad_score * qkv_3TK[1, at, d]
                    for d in range(size):
                        grad_3TK[1, at, d] += grad_score * qkv_3TK[0, t, d]
                    for d in range(size):
                        grad_3TK[2, at, d] += shares[i] * grad_K[d]
            prompt_3TK += grad_3TK[:, :prompt]
            write_head_gradient(grad_3TK, prompt, head, first, end, prompt, cos_PC, sin_PC, grad_qkv_N3HK)
        write_head_gradient(prompt_3TK, 0, head, 0, prompt, 0, cos_PC, sin_PC, grad_qkv_N3HK)


@elementwise
def _keep(qkv_3HK: Array, cos_C: Array, sin_C: Array, slot: int, position: int, k_HCK: Array, v_HCK: Array, positions_C: Array) -> None:
    """Put the key, turned, and the value of one token into a slot of a row's cache."""
    positions_C[slot] = position
    for head in range(k_HCK.shape[0]):
        turn(qkv_3HK[1, head], cos_C, sin_C, k_HCK[head, slot])
        for i in range(v_HCK.shape[2]):
            v_HCK[head, slot, i] = widen(qkv_3HK[2, head, i])


@elementwise
def fill_cache(qkv_N3HK: Array, prompt: int, starts_R: Array, cos_PC: Array, sin_PC: Array, window: int, stride: int, k_RHCK: Array,
               v_RHCK: Array, positions_RC: Array) -> None:  # fmt: skip
    """Keep of every row the last `window` positions, in a ring of slots, and after the ring every stride-th position."""
    for r in range(starts_R.size - 1):
        length = prompt + starts_R[r + 1] - starts_R[r]
        for position in range(length):
            token = position if position < prompt else starts_R[r] + position - prompt
            args = (qkv_N3HK[token], cos_PC[position], sin_PC[position])
            if length - position <= window:
                _keep(*args, position % window, position, k_RHCK[r], v_RHCK[r], positions_RC[r])
            if position % stride == 0:
                _keep(*args, window + position // stride, position, k_RHCK[r], v_RHCK[r], positions_RC[r])


@elementwise
def sparse_step(qkv_R3HK: Array, positions_R: Array, cos_PC: Array, sin_PC: Array, window: int, stride: int, k_RHCK: Array, v_RHCK: Array,
                positions_RC: Array, out_RHK: Array) -> None:  # fmt: skip
    """Keep one token a row, and write what it attends to: the filled ring, and the strided slots that have left it."""
    size = out_RHK.shape[2]
    scale = np.float32(size**-0.5)
    seen, shares = np.empty(k_RHCK.shape[2], np.int64), np.empty(k_RHCK.shape[2], np.float32)
    q_K, sums_K = np.empty(size, np.float32), np.empty(size, np.float32)
    for r in range(qkv_R3HK.shape[0]):
        position = positions_R[r]
        args = (qkv_R3HK[r], cos_PC[position], sin_PC[position])
        _keep(*args, position % window, position, k_RHCK[r], v_RHCK[r], positions_RC[r])
        if position % stride == 0:
            _keep(*args, window + position // stride, position, k_RHCK[r], v_RHCK[r], positions_RC[r])
        count = 0
        for slot in range(k_RHCK.shape[2]):
            kept = positions_RC[r, slot]
            if kept >= 0 and (slot < window or position - kept >= window):
                seen[count] = slot
                count += 1
        for head in range(out_RHK.shape[1]):
            turn(qkv_R3HK[r, 0, head], cos_PC[position], sin_PC[position], q_K)
            for i in range(count):
                shares[i] = scale * dot(q_K, k_RHCK[r, head, seen[i]])
            softmax(shares, count)
            sums_K[:] = ZERO
            for i in range(count):
                v_K = v_RHCK[r, head, seen[i]]
                for d in range(size):
                    sums_K[d] += shares[i] * v_K[d]
            for d in range(size):
                out_RHK[r, head, d] = narrow(sums_K[d], out_RHK[r, head, d])


KEY_EPSILON = np.float32(1e-6)
STRONGEST_DECAY = np.float32(-5)
BEFORE = 3
"""Inputs before a token's own that the convolution sees."""
CHUNK = 16
"""Tokens of which the backward pass holds the states at a time."""


@emitted
def advance_delta(typing: Any, state_IJ: Any, a_I: Any, b_J: Any, c_I: Any, out_J: Any, fade_I: Any, d_I: Any,  # noqa: ARG001
                  next_IJ: Any, answer_J: Any) -> Any:  # fmt: skip
    """Add a b^T to the state and write what c reads of it; then let row i fade by fade_i, and write the result and what d reads of that.

    One pass, emitted as `add_outer_and_read` is; `next_IJ` may be the state itself.
    """

    def emit(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        state, a, b, c, out, fade, d, after, answer = _arrays(context, builder, signature, values)
        rows, columns = cgutils.unpack_tuple(builder, state.shape, 2)
        lanes = _Registers(builder)
        with cgutils.for_range_slice(builder, rows.type(0), columns, rows.type(LANES)) as (j, _):
            b_j, of_c, of_d = lanes.load(b, j), lanes.zero(), lanes.zero()
            with cgutils.for_range(builder, rows) as loop:
                at = builder.add(builder.mul(loop.index, columns), j)
                entries = lanes.plus_product(lanes.load(state, at), lanes.spread(a, loop.index), b_j)
                lanes.add_to(of_c, lanes.spread(c, loop.index), entries)
                faded = builder.fmul(entries, lanes.spread(fade, loop.index))
                lanes.store(faded, after, at)
                lanes.add_to(of_d, lanes.spread(d, loop.index), faded)
            lanes.store(builder.load(of_c), out, j)
            lanes.store(builder.load(of_d), answer, j)
        return context.get_dummy_value()

    return types.void(state_IJ, a_I, b_J, c_I, out_J, fade_I, d_I, next_IJ, answer_J), emit


@elementwise
def read_delta(x_N3HK: Array, head: int, first: int, end: int, kernel_3JK: Array, inputs_3TK: Array, convolved_3TK: Array, qkv_3TK: Array,
               scales_2T: Array) -> None:  # fmt: skip
    """Convolve the tokens first..end-1 of one head and write SiLU of it, q and k of unit length, q times K^-0.5.

    The first three rows of `inputs_3TK` hold what stands before the tokens; the tokens follow them.
    """
    size = x_N3HK.shape[3]
    for part in range(3):
        inputs_TK, w = inputs_3TK[part], kernel_3JK[part]
        for t in range(end - first):
            for i in range(size):
                inputs_TK[BEFORE + t, i] = widen(x_N3HK[first + t, part, head, i])
        for t in range(end - first):
            out_K = qkv_3TK[part, t]
            for i in range(size):
                c = (
                    w[0, i] * inputs_TK[t, i]
                    + w[1, i] * inputs_TK[t + 1, i]
                    + w[2, i] * inputs_TK[t + 2, i]
                    + w[3, i] * inputs_TK[t + 3, i]
                )
                convolved_3TK[part, t, i] = c
                out_K[i] = c * sigmoid(c)
            if part < 2:
                scales_2T[part, t] = ONE / np.sqrt(dot(out_K, out_K) + KEY_EPSILON)
                factor = scales_2T[part, t] / np.sqrt(np.float32(size)) if part == 0 else scales_2T[part, t]
                for i in range(size):
                    out_K[i] *= factor


@elementwise
def read_fades(z_NHK: Array, head: int, first: int, end: int, bias_K: Array, rate: Any, share_TK: Array, fade_TK: Array) -> None:
    """Write sigmoid(rate (z + bias)), and e^(-5 times it): what of each channel stays."""
    for t in range(end - first):
        z_K, share_K, fade_K = z_NHK[first + t, head], share_TK[t], fade_TK[t]
        for i in range(bias_K.size):
            share_K[i] = sigmoid(rate * (widen(z_K[i]) + bias_K[i]))
        for i in range(bias_K.size):
            fade_K[i] = exp(STRONGEST_DECAY * share_K[i])


@elementwise
def _begin_delta(qkv_3TK: Array, fade_TK: Array, count: int, s_KV: Array, sums_V: Array, answer_V: Array) -> None:
    """Let the state fade for the first token and ask it for that token's key; behind the last token nothing fades and nothing is asked."""
    fade_TK[count] = ONE
    qkv_3TK[:, count] = ZERO
    nothing_K, nothing_V = np.zeros(s_KV.shape[0], np.float32), np.zeros(s_KV.shape[1], np.float32)
    advance_delta(s_KV, nothing_K, nothing_V, nothing_K, sums_V, fade_TK[0], qkv_3TK[1, 0], s_KV, answer_V)


@elementwise
def _delta_tokens(qkv_3TK: Array, fade_TK: Array, beta_NH: Array, count: int, first: int, head: int, s_KV: Array, out_NHK: Array) -> None:
    """Advance a state over `count` tokens and write what their queries read, at the packed tokens from `first` on."""
    width = s_KV.shape[1]
    sums_V, answer_V, change_V = np.empty(width, np.float32), np.empty(width, np.float32), np.empty(width, np.float32)
    _begin_delta(qkv_3TK, fade_TK, count, s_KV, sums_V, answer_V)
    for t in range(count):
        beta = sigmoid(widen(beta_NH[first + t, head]))
        for j in range(width):
            change_V[j] = beta * (qkv_3TK[2, t, j] - answer_V[j])
        advance_delta(s_KV, qkv_3TK[1, t], change_V, qkv_3TK[0, t], sums_V, fade_TK[t + 1], qkv_3TK[1, t + 1], s_KV, answer_V)
        for i in range(out_NHK.shape[2]):
            out_NHK[first + t, head, i] = sums_V[i]


@elementwise
def delta_attention(x_N3HK: Array, kernel_H3JK: Array, z_NHK: Array, bias_HK: Array, rate_H: Array, beta_NH: Array, prompt: int,
                    starts_R: Array, longest: int, out_NHK: Array, s_RHKV: Array) -> None:  # fmt: skip
    """Write what the queries of all tokens read from the states of their rows, and each row's last state.

    The first `prompt` tokens precede every row; row r holds the tokens starts_R[r]..starts_R[r+1]-1; no row is longer than `longest`.
    """
    size, width = x_N3HK.shape[3], s_RHKV.shape[3]
    inputs_3TK, convolved_3TK = np.zeros((3, BEFORE + longest, size), np.float32), np.empty((3, longest, size), np.float32)
    qkv_3TK, scales_2T = np.zeros((3, longest + 1, width), np.float32), np.empty((2, longest), np.float32)
    share_TK, fade_TK = np.empty((longest, size), np.float32), np.empty((longest + 1, size), np.float32)
    heads = x_N3HK.shape[2]
    s_HKV, before_H3JK = np.zeros((heads, size, width), np.float32), np.zeros((heads, 3, BEFORE, size), np.float32)
    for r in range(-1, starts_R.size - 1):
        first, end = (0, prompt) if r < 0 else (starts_R[r], starts_R[r + 1])
        for head in range(heads):
            inputs_3TK[:, :BEFORE] = before_H3JK[head]
            read_delta(x_N3HK, head, first, end, kernel_H3JK[head], inputs_3TK, convolved_3TK, qkv_3TK, scales_2T)
            read_fades(z_NHK, head, first, end, bias_HK[head], rate_H[head], share_TK, fade_TK)
            if r < 0:
                before_H3JK[head] = inputs_3TK[:, prompt : prompt + BEFORE]
                if prompt:
                    _delta_tokens(qkv_3TK, fade_TK, beta_NH, prompt, 0, head, s_HKV[head], out_NHK)
            else:
                s_RHKV[r, head] = s_HKV[head]
                _delta_tokens(qkv_3TK, fade_TK, beta_NH, end - first, first, head, s_RHKV[r, head], out_NHK)


@elementwise
def delta_step(x_R3HK: Array, kernel_H3JK: Array, z_RHK: Array, bias_HK: Array, rate_H: Array, beta_RH: Array, before_RJ3HK: Array,
               s_RHKV: Array, out_RHK: Array) -> None:  # fmt: skip
    """Advance every row's state and the inputs before it by one token, and write what that token's query reads."""
    size, width = x_R3HK.shape[3], s_RHKV.shape[3]
    inputs_3TK, convolved_3TK = np.empty((3, BEFORE + 1, size), np.float32), np.empty((3, 1, size), np.float32)
    qkv_3TK, scales_2T = np.zeros((3, 2, width), np.float32), np.empty((2, 1), np.float32)
    share_TK, fade_TK = np.empty((1, size), np.float32), np.empty((2, size), np.float32)
    for r in range(x_R3HK.shape[0]):
        for head in range(x_R3HK.shape[2]):
            for part in range(3):
                for j in range(BEFORE):
                    for i in range(size):
                        inputs_3TK[part, j, i] = widen(before_RJ3HK[r, j, part, head, i])
            read_delta(x_R3HK, head, r, r + 1, kernel_H3JK[head], inputs_3TK, convolved_3TK, qkv_3TK, scales_2T)
            read_fades(z_RHK, head, r, r + 1, bias_HK[head], rate_H[head], share_TK, fade_TK)
            _delta_tokens(qkv_3TK, fade_TK, beta_RH, 1, r, head, s_RHKV[r, head], out_RHK)
        before_RJ3HK[r, 0], before_RJ3HK[r, 1], before_RJ3HK[r, 2] = before_RJ3HK[r, 1], before_RJ3HK[r, 2], x_R3HK[r]


@emitted
def undo_advance(typing: Any, state_IJ: Any, grad_IJ: Any, x_J: Any, y_J: Any, z_J: Any, a_I: Any, fade_I: Any,  # noqa: ARG001
                 of_x_I: Any, of_y_I: Any, of_fade_I: Any) -> Any:  # fmt: skip
    """Write the rows' products state x and grad y + state z; add a z^T to grad; write its rows' products with the state; then let it fade.

    One pass over a token's state, before its key changes it, and the gradient of the state after: see `_delta_backward`.
    """

    def emit(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        state, grad, x, y, z, a, fade, of_x, of_y, of_fade = _arrays(context, builder, signature, values)
        rows, columns = cgutils.unpack_tuple(builder, state.shape, 2)
        lanes = _Registers(builder)
        with cgutils.for_range(builder, rows) as loop:
            sums = [lanes.zero() for _ in range(3)]
            begin, a_i, fade_i = builder.mul(loop.index, columns), lanes.spread(a, loop.index), lanes.spread(fade, loop.index)
            with cgutils.for_range_slice(builder, rows.type(0), columns, rows.type(LANES)) as (j, _):
                at = builder.add(begin, j)
                own, of_own, z_j = lanes.load(state, at), lanes.load(grad, at), lanes.load(z, j)
                lanes.add_to(sums[0], own, lanes.load(x, j))
                lanes.add_to(sums[1], of_own, lanes.load(y, j))
                lanes.add_to(sums[1], own, z_j)
                of_own = lanes.plus_product(of_own, a_i, z_j)
                lanes.add_to(sums[2], of_own, own)
                lanes.store(builder.fmul(of_own, fade_i), grad, at)
            for total, out in zip(sums, (of_x, of_y, of_fade), strict=True):
                builder.store(lanes.sum(builder.load(total)), builder.gep(out.data, [loop.index]))
        return context.get_dummy_value()

    return types.void(state_IJ, grad_IJ, x_J, y_J, z_J, a_I, fade_I, of_x_I, of_y_I, of_fade_I), emit


@elementwise
def _delta_backward(grad_TV: Array, qkv_3TK: Array, fade_TK: Array, beta_T: Array, count: int, s_KV: Array, grad_s_KV: Array,
                    grad_3TK: Array, grad_g_TK: Array, grad_beta_T: Array) -> None:  # fmt: skip
    """Write the gradients of q, k, v, the log fades and beta of `count` tokens.

    `s_KV` is the state before them, and is the state after them in the end; `grad_s_KV` the gradient of that, and in the end of the
    state before them. States run forward twice, once for their values at the starts of chunks, once within each chunk.
    """
    size, width = s_KV.shape
    q_TK, k_TK, v_TK = qkv_3TK[0], qkv_3TK[1], qkv_3TK[2]
    starts_CKV, faded_IKV = np.empty(((count + CHUNK - 1) // CHUNK, size, width), np.float32), np.empty((CHUNK, size, width), np.float32)
    answers_TV, changes_TV = np.empty((count + 1, width), np.float32), np.empty((count, width), np.float32)
    sums_V, grad_change_V, grad_answer_V = np.empty(width, np.float32), np.empty(width, np.float32), np.empty(width, np.float32)
    _begin_delta(qkv_3TK, fade_TK, count, s_KV, sums_V, answers_TV[0])
    for t in range(count):
        if t % CHUNK == 0:
            starts_CKV[t // CHUNK] = s_KV
        for j in range(width):
            changes_TV[t, j] = beta_T[t] * (v_TK[t, j] - answers_TV[t, j])
        advance_delta(s_KV, k_TK[t], changes_TV[t], q_TK[t], sums_V, fade_TK[t + 1], k_TK[t + 1], s_KV, answers_TV[t + 1])
    for chunk in range(starts_CKV.shape[0] - 1, -1, -1):
        first, end = chunk * CHUNK, min((chunk + 1) * CHUNK, count)
        faded_IKV[0] = starts_CKV[chunk]
        for t in range(first, end - 1):
            faded_KV, next_KV = faded_IKV[t - first], faded_IKV[t - first + 1]
            advance_delta(faded_KV, k_TK[t], changes_TV[t], q_TK[t], sums_V, fade_TK[t + 1], k_TK[t + 1], next_KV, answers_TV[t + 1])
        for t in range(end - 1, first - 1, -1):
            add_outer_and_read(grad_s_KV, q_TK[t], grad_TV[t], k_TK[t], grad_change_V)
            of_beta, along = ZERO, ZERO
            for j in range(width):
                of_beta += grad_change_V[j] * (v_TK[t, j] - answers_TV[t, j])
                along += changes_TV[t, j] * grad_TV[t, j]
                grad_3TK[2, t, j] = beta_T[t] * grad_change_V[j]
                grad_answer_V[j] = -grad_3TK[2, t, j]
            grad_beta_T[t] = of_beta
            undo_advance(faded_IKV[t - first], grad_s_KV, grad_TV[t], changes_TV[t], grad_answer_V, k_TK[t], fade_TK[t],
                         grad_3TK[0, t], grad_3TK[1, t], grad_g_TK[t])  # fmt: skip
            for i in range(size):
                grad_3TK[0, t, i] += along * k_TK[t, i]  # the query reads the state after the change k (x) change


@elementwise
def _unread_delta(grad_3TK: Array, count: int, inputs_3TK: Array, convolved_3TK: Array, qkv_3TK: Array, scales_2T: Array,
                  kernel_3JK: Array, grad_convolved_TK: Array, grad_inputs_3TK: Array, grad_kernel_3JK: Array) -> None:  # fmt: skip
    """Write the gradients of the inputs, those before the tokens first, and add that of the kernel, given those of q, k and v.

    Undoes `read_delta`. `grad_convolved_TK` is room for the tokens, three rows before and three behind them, which are 0.
    """
    size, grad_TK = kernel_3JK.shape[2], grad_convolved_TK
    root = np.sqrt(np.float32(size))
    grad_TK[:BEFORE], grad_TK[BEFORE + count : 2 * BEFORE + count] = ZERO, ZERO
    for part in range(3):
        for t in range(count):
            grad_K, y_K, c_K, grad_c_K = grad_3TK[part, t], qkv_3TK[part, t], convolved_3TK[part, t], grad_TK[BEFORE + t]
            of_grad, of_y = ONE, ZERO
            if part < 2:
                of_grad, of_y = scales_2T[part, t], -scales_2T[part, t] * dot(y_K, grad_K)
            if part == 0:
                of_grad, of_y = of_grad / root, of_y * root
            for i in range(size):
                share = sigmoid(c_K[i])
                grad_c_K[i] = (of_grad * grad_K[i] + of_y * y_K[i]) * share * (ONE + c_K[i] * (ONE - share))
        w, grad_w, inputs_TK = kernel_3JK[part], grad_kernel_3JK[part], inputs_3TK[part]
        for m in range(BEFORE + count):
            for i in range(size):
                later = w[0, i] * grad_TK[m + 3, i] + w[1, i] * grad_TK[m + 2, i]
                grad_inputs_3TK[part, m, i] = later + w[2, i] * grad_TK[m + 1, i] + w[3, i] * grad_TK[m, i]
        for t in range(count):
            for i in range(size):
                grad = grad_TK[BEFORE + t, i]
                grad_w[0, i] += inputs_TK[t, i] * grad
                grad_w[1, i] += inputs_TK[t + 1, i] * grad
                grad_w[2, i] += inputs_TK[t + 2, i] * grad
                grad_w[3, i] += inputs_TK[t + 3, i] * grad


@elementwise
def _unread_fades(grad_g_TK: Array, z_NHK: Array, share_TK: Array, head: int, first: int, count: int, bias_K: Array, rate: Any,
                  grad_z_NHK: Array, grad_bias_K: Array) -> Any:  # fmt: skip
    """Write the gradient of z, add that of the bias, and return that of the rate's logarithm, given those of the log fades."""
    of_log_rate = ZERO
    for t in range(count):
        for i in range(bias_K.size):
            share = share_TK[t, i]
            grad = grad_g_TK[t, i] * STRONGEST_DECAY * share * (ONE - share) * rate
            of_log_rate += grad * (widen(z_NHK[first + t, head, i]) + bias_K[i])
            grad_bias_K[i] += grad
            grad_z_NHK[first + t, head, i] = narrow(grad, grad_z_NHK[first + t, head, i])
    return of_log_rate


@elementwise
def delta_attention_backward(grad_NHK: Array, x_N3HK: Array, kernel_H3JK: Array, z_NHK: Array, bias_HK: Array, rate_H: Array,
                             beta_NH: Array, prompt: int, starts_R: Array, longest: int, grad_x_N3HK: Array, grad_kernel_H3JK: Array,
                             grad_z_NHK: Array, grad_bias_HK: Array, grad_log_rate_H: Array, grad_beta_NH: Array) -> None:  # fmt: skip
    """Write the gradients of all that `delta_attention` reads; the prompt comes last, since every row goes on from its state."""
    size, width = x_N3HK.shape[3], padded(x_N3HK.shape[3])
    inputs_3TK, convolved_3TK = np.zeros((3, BEFORE + longest, size), np.float32), np.empty((3, longest, size), np.float32)
    qkv_3TK, scales_2T = np.zeros((3, longest + 1, width), np.float32), np.empty((2, longest), np.float32)
    share_TK, fade_TK = np.empty((longest, size), np.float32), np.empty((longest + 1, size), np.float32)
    grad_TV, grad_3TK = np.zeros((longest, width), np.float32), np.zeros((3, longest, width), np.float32)
    grad_convolved_TK = np.empty((longest + 2 * BEFORE, size), np.float32)
    grad_inputs_3TK, grad_g_TK = np.empty_like(inputs_3TK), np.empty_like(share_TK)
    beta_T, grad_beta_T = np.empty(longest, np.float32), np.empty(longest, np.float32)
    heads = x_N3HK.shape[2]
    s_HKV, after_HKV = np.zeros((heads, size, width), np.float32), np.zeros((heads, size, width), np.float32)
    before_H3JK, grad_before_H3JK = np.zeros((heads, 3, BEFORE, size), np.float32), np.zeros((heads, 3, BEFORE, size), np.float32)
    for head in range(heads if prompt else 0):
        inputs_3TK[:, :BEFORE] = ZERO
        read_delta(x_N3HK, head, 0, prompt, kernel_H3JK[head], inputs_3TK, convolved_3TK, qkv_3TK, scales_2T)
        read_fades(z_NHK, head, 0, prompt, bias_HK[head], rate_H[head], share_TK, fade_TK)
        before_H3JK[head] = inputs_3TK[:, prompt : prompt + BEFORE]
        _delta_tokens(qkv_3TK, fade_TK, beta_NH, prompt, 0, head, s_HKV[head], np.empty_like(grad_NHK[:prompt]))
    for turn_ in range(starts_R.size - 1 + (1 if prompt else 0)):
        own = turn_ < starts_R.size - 1
        first, end = (starts_R[turn_], starts_R[turn_ + 1]) if own else (0, prompt)
        count = end - first
        for head in range(heads):
            inputs_3TK[:, :BEFORE] = before_H3JK[head] if own else np.zeros_like(before_H3JK[head])
            read_delta(x_N3HK, head, first, end, kernel_H3JK[head], inputs_3TK, convolved_3TK, qkv_3TK, scales_2T)
            read_fades(z_NHK, head, first, end, bias_HK[head], rate_H[head], share_TK, fade_TK)
            for t in range(count):
                beta_T[t] = sigmoid(widen(beta_NH[first + t, head]))
                grad_TV[t, :size] = grad_NHK[first + t, head]
            grad_s_KV = np.zeros_like(s_HKV[head]) if own else after_HKV[head]
            state_KV = s_HKV[head].copy() if own else np.zeros_like(s_HKV[head])
            _delta_backward(grad_TV, qkv_3TK, fade_TK, beta_T, count, state_KV, grad_s_KV, grad_3TK, grad_g_TK, grad_beta_T)
            _unread_delta(grad_3TK, count, inputs_3TK, convolved_3TK, qkv_3TK, scales_2T, kernel_H3JK[head], grad_convolved_TK,
                          grad_inputs_3TK, grad_kernel_H3JK[head])  # fmt: skip
            if own:
                after_HKV[head] += grad_s_KV
                grad_before_H3JK[head] += grad_inputs_3TK[:, :BEFORE]
            else:
                grad_inputs_3TK[:, count : count + BEFORE] += grad_before_H3JK[head]
            grad_log_rate_H[head] += _unread_fades(grad_g_TK, z_NHK, share_TK, head, first, count, bias_HK[head], rate_H[head], grad_z_NHK,
                                                   grad_bias_HK[head])  # fmt: skip
            for t in range(count):
                grad_beta_NH[first + t, head] = narrow(grad_beta_T[t] * beta_T[t] * (ONE - beta_T[t]), grad_beta_NH[first + t, head])
                for part in range(3):
                    for i in range(size):
                        like = grad_x_N3HK[first + t, part, head, i]
                        grad_x_N3HK[first + t, part, head, i] = narrow(grad_inputs_3TK[part, BEFORE + t, i], like)


@register_jitable
def _divide(comb_SSN: Array, by_row: bool, totals_SN: Array, floor: np.float32) -> None:
    """Divide each row, or each column, of every token's matrix in place by its sum plus `floor`, and keep these divisors."""
    streams, tokens = totals_SN.shape
    inverse_N = np.empty(tokens, np.float32)
    for a in range(streams):
        for n in range(tokens):
            totals_SN[a, n] = floor
        for b in range(streams):
            row, column = (a, b) if by_row else (b, a)
            for n in range(tokens):
                totals_SN[a, n] += comb_SSN[row, column, n]
        for n in range(tokens):
            inverse_N[n] = ONE / totals_SN[a, n]
        for b in range(streams):
            row, column = (a, b) if by_row else (b, a)
            for n in range(tokens):
                comb_SSN[row, column, n] *= inverse_N[n]


@register_jitable
def _divide_backward(comb_SSN: Array, by_row: bool, totals_SN: Array, grad_SSN: Array) -> None:
    """Turn the gradient of the divided matrices into that of the matrices before, and `comb_SSN` into these."""
    streams, tokens = totals_SN.shape
    along_N, inverse_N = np.empty(tokens, np.float32), np.empty(tokens, np.float32)
    for a in range(streams):
        for n in range(tokens):
            along_N[n], inverse_N[n] = ZERO, ONE / totals_SN[a, n]
        for b in range(streams):
            row, column = (a, b) if by_row else (b, a)
            for n in range(tokens):
                along_N[n] += grad_SSN[row, column, n] * comb_SSN[row, column, n]
        for b in range(streams):
            row, column = (a, b) if by_row else (b, a)
            for n in range(tokens):
                grad_SSN[row, column, n] = (grad_SSN[row, column, n] - along_N[n]) * inverse_N[n]
                comb_SSN[row, column, n] *= totals_SN[a, n]


@elementwise
def sinkhorn(comb_SSN: Array, floor: np.float32, totals_ISN: Array) -> None:
    """Turn logits in place into softmax over rows plus `floor`, then columns and rows divided by their sums in turn, columns last.

    `totals_ISN` takes the divisors; its length says how often. A loop over tokens is innermost, one vector register for many of them.
    """
    streams, _, tokens = comb_SSN.shape
    for a in range(streams):
        for n in range(tokens):
            largest = comb_SSN[a, 0, n]
            for b in range(1, streams):
                largest = max(largest, comb_SSN[a, b, n])
            totals_ISN[0, a, n] = largest
        for b in range(streams):
            for n in range(tokens):
                comb_SSN[a, b, n] = exp(comb_SSN[a, b, n] - totals_ISN[0, a, n])
    _divide(comb_SSN, True, totals_ISN[0], ZERO)
    for i in range(streams):
        for j in range(streams):
            for n in range(tokens):
                comb_SSN[i, j, n] += floor
    for division in range(len(totals_ISN)):
        _divide(comb_SSN, division % 2 == 1, totals_ISN[division], floor)


@elementwise
def sinkhorn_backward(comb_SSN: Array, floor: np.float32, totals_ISN: Array, grad_SSN: Array) -> None:
    """Turn the gradient of `comb_SSN` in place into that of the logits, undoing one division after the other."""
    streams, _, tokens = comb_SSN.shape
    for division in range(len(totals_ISN) - 1, -1, -1):
        _divide_backward(comb_SSN, division % 2 == 1, totals_ISN[division], grad_SSN)
    for a in range(streams):
        along_N = np.zeros(tokens, np.float32)
        for b in range(streams):
            for n in range(tokens):
                along_N[n] += grad_SSN[a, b, n] * (comb_SSN[a, b, n] - floor)
        for b in range(streams):
            for n in range(tokens):
                grad_SSN[a, b, n] = (comb_SSN[a, b, n] - floor) * (grad_SSN[a, b, n] - along_N[n])


@summing
def write_streams(streams_NID: Array, y_ND: Array, post_NS: Array, comb_NIS: Array, epsilon: float, out_NSD: Array, rms_N: Array) -> None:
    """Write the new streams post_j y + sum_i comb_ij X_i, and 1 / sqrt(mean(x^2) + epsilon) over all of a token's."""
    tokens, streams, width = out_NSD.shape
    for n in range(tokens):
        squares = ZERO
        for j in range(streams):
            for d in range(width):
                out_NSD[n, j, d] = post_NS[n, j] * widen(y_ND[n, d])
            for i in range(streams_NID.shape[1]):
                for d in range(width):
                    out_NSD[n, j, d] += comb_NIS[n, i, j] * streams_NID[n, i, d]
            for d in range(width):
                squares += out_NSD[n, j, d] * out_NSD[n, j, d]
        rms_N[n] = ONE / np.sqrt(squares / np.float32(streams * width) + np.float32(epsilon))


@elementwise
def _mixing(
    products_NM: Array, rms_N: Array, scale_3: Array, base_M: Array, floor: np.float32, mixing_MN: Array, totals_ISN: Array
) -> None:
    """Write the weights of reading and writing, tokens last: S rows sigmoid + `floor`, S rows 2 sigmoid, S x S rows by Sinkhorn."""
    streams, tokens = totals_ISN.shape[1:]
    for m in range(len(mixing_MN)):
        part = min(m // streams, 2)
        for n in range(tokens):
            mixing_MN[m, n] = products_NM[n, m] * rms_N[n] * scale_3[part] + base_M[m]
        if part < 2:
            for n in range(tokens):
                mixing_MN[m, n] = sigmoid(mixing_MN[m, n]) * np.float32(part + 1) + (ZERO if part else floor)
    sinkhorn(mixing_MN[2 * streams :].reshape(streams, streams, tokens), floor, totals_ISN)


@elementwise
def read_streams(streams_NSD: Array, products_NM: Array, rms_N: Array, scale_3: Array, base_M: Array, divisions: int, floor: np.float32,
                 x_ND: Array, post_NS: Array, comb_NSS: Array) -> None:  # fmt: skip
    """Write x = sum_i pre_i X_i, post and comb; `products_NM` are the streams times the projection, before the norm."""
    tokens, streams, width = streams_NSD.shape
    mixing_MN = np.empty((len(base_M), tokens), np.float32)
    _mixing(products_NM, rms_N, scale_3, base_M, floor, mixing_MN, np.empty((divisions, streams, tokens), np.float32))
    for n in range(tokens):
        for i in range(streams):
            post_NS[n, i] = mixing_MN[streams + i, n]
            for j in range(streams):
                comb_NSS[n, i, j] = mixing_MN[(2 + i) * streams + j, n]
        for d in range(width):
            x_ND[n, d] = ZERO
        for i in range(streams):
            for d in range(width):
                x_ND[n, d] += mixing_MN[i, n] * streams_NSD[n, i, d]


@elementwise
def _mixing_backward(mixing_MN: Array, totals_ISN: Array, floor: np.float32, grad_MN: Array) -> None:
    """Turn the gradient of `mixing_MN` in place into that of what stands in the sigmoids and in Sinkhorn's exponentials."""
    streams, tokens = totals_ISN.shape[1:]
    for s in range(streams):
        for n in range(tokens):
            share, half = mixing_MN[s, n] - floor, mixing_MN[streams + s, n] / np.float32(2)
            grad_MN[s, n] *= share * (ONE - share)
            grad_MN[streams + s, n] *= np.float32(2) * half * (ONE - half)
    shape = (streams, streams, tokens)
    sinkhorn_backward(mixing_MN[2 * streams :].reshape(shape), floor, totals_ISN, grad_MN[2 * streams :].reshape(shape))


@summing
def read_streams_backward(grad_x_ND: Array, grad_post_NS: Array, grad_comb_NSS: Array, streams_NSD: Array, products_NM: Array, rms_N: Array,
                          scale_3: Array, base_M: Array, divisions: int, floor: np.float32, pre_NS: Array, radial_N: Array,
                          grad_products_NM: Array, grad_scale_3: Array, grad_base_M: Array) -> None:  # fmt: skip
    """Write pre, the gradient of the products, and the factor of the streams in that of the norm; add those of scale and base."""
    tokens, streams, width = streams_NSD.shape
    mixing_MN, grad_MN = np.empty((len(base_M), tokens), np.float32), np.empty((len(base_M), tokens), np.float32)
    totals_ISN = np.empty((divisions, streams, tokens), np.float32)
    _mixing(products_NM, rms_N, scale_3, base_M, floor, mixing_MN, totals_ISN)
    for n in range(tokens):
        for i in range(streams):
            pre_NS[n, i] = mixing_MN[i, n]
            grad_MN[i, n] = dot(grad_x_ND[n], streams_NSD[n, i])
            grad_MN[streams + i, n] = grad_post_NS[n, i]
            for j in range(streams):
                grad_MN[(2 + i) * streams + j, n] = grad_comb_NSS[n, i, j]
    _mixing_backward(mixing_MN, totals_ISN, floor, grad_MN)
    for n in range(tokens):
        radial = ZERO
        for m in range(len(base_M)):
            part = min(m // streams, 2)
            grad, product = grad_MN[m, n], products_NM[n, m]
            grad_base_M[m] += grad
            grad_scale_3[part] += grad * product * rms_N[n]
            grad_products_NM[n, m] = grad * scale_3[part] * rms_N[n]
            radial += grad_products_NM[n, m] * product
        radial_N[n] = -radial * rms_N[n] * rms_N[n] / np.float32(streams * width)


@summing
def write_streams_backward(grad_out_NSD: Array, grad_x_ND: Array, pre_NS: Array, radial_N: Array, out_NSD: Array, streams_NID: Array,
                           y_ND: Array, post_NS: Array, comb_NIS: Array, total_NSD: Array, grad_streams_NID: Array, grad_y_ND: Array,
                           grad_post_NS: Array, grad_comb_NIS: Array) -> None:  # fmt: skip
    """Write the gradients of all that was written from; `total_NSD` comes as what the projection adds to that of the new streams."""
    tokens, streams, width = out_NSD.shape
    sums_D = np.empty(width, np.float32)
    for n in range(tokens):
        sums_D[:] = ZERO
        for j in range(streams):
            along = ZERO
            for d in range(width):
                total_NSD[n, j, d] += grad_out_NSD[n, j, d] + pre_NS[n, j] * grad_x_ND[n, d] + radial_N[n] * out_NSD[n, j, d]
            for d in range(width):
                along += total_NSD[n, j, d] * widen(y_ND[n, d])
            for d in range(width):
                sums_D[d] += post_NS[n, j] * total_NSD[n, j, d]
            grad_post_NS[n, j] = along
        for d in range(width):
            grad_y_ND[n, d] = narrow(sums_D[d], grad_y_ND[n, d])
        for i in range(streams_NID.shape[1]):
            for d in range(width):
                grad_streams_NID[n, i, d] = ZERO
            for j in range(streams):
                grad_comb_NIS[n, i, j] = dot(streams_NID[n, i], total_NSD[n, j])
                for d in range(width):
                    grad_streams_NID[n, i, d] += comb_NIS[n, i, j] * total_NSD[n, j, d]
