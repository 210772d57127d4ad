"""initial_values - what Lanyard's rows and weights are before training, in numpy, bit for bit.

Functions of key and seed (rt_row_init in runtime/numbers/rt_optimizer.c) and of parameter number and seed
(init_values in edge_worker/model/ew_model.c): see docs/MODEL_FORMAT.md.
"""
import numpy as np

STEP = np.uint64(0x9E3779B97F4A7C15)
FIRST, SECOND = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
ID_MISSING = (1 << 56) - 1


def mix(x):
    """rt_mix of an array of uint64."""
    x = (x ^ (x >> np.uint64(30))) * FIRST
    x = (x ^ (x >> np.uint64(27))) * SECOND
    return x ^ (x >> np.uint64(31))


def _mix_one(value):
    return mix(np.array([value], np.uint64))[0]


def key_of(field, number):
    return field << 56 | number


def rows(keys, seed, scale, dim):
    """float32, len(keys) x dim."""
    unit = np.float32(scale) / np.float32(37837.2266)
    starts = mix(np.asarray(keys, np.uint64) + _mix_one(seed))
    out = np.empty((len(starts), dim), np.float32)
    for d in range(dim):
        bits = mix(starts + np.array([d + 1], np.uint64) * STEP)
        total = sum((bits >> np.uint64(shift)) & np.uint64(0xFFFF) for shift in (0, 16, 32, 48))
        out[:, d] = (total.astype(np.int64) - 2 * 65535).astype(np.float32) * unit
    return out


def parameter(number, shape, fan_in, seed):
    """The number-th dense parameter in the order of dense.bin."""
    count = int(np.prod(shape))
    bound = np.float32(1) / np.sqrt(np.float32(fan_in))
    state = mix(_mix_one(seed) + np.array([number], np.uint64))
    bits = mix(state + np.arange(1, count + 1, dtype=np.uint64) * STEP)
    integers = (bits >> np.uint64(40)).astype(np.int64) - (1 << 23)
    return (integers.astype(np.float32) * (bound * np.float32(2.0 ** -23))).reshape(shape)
