"""Wrong solutions that a student would plausibly write, and the points they lose."""

from tito.lessons.mistake import Alternative, Equivalent, Mistake

ORDERS = """
def matmul_ijk(a, b, c):
    for i in range(a.shape[0]):
        for j in range(b.shape[1]):
            total = a.dtype.type(0)
            for p in range(a.shape[1]):
                total += a[i, p] * b[p, j]
            c[i, j] = total


def matmul_ikj(a, b, c):
    c[:, :] = 0
    for i in range(a.shape[0]):
        c_row = c[i]
        for p in range(a.shape[1]):
            factor, b_row = a[i, p], b[p]
            for j in range(b.shape[1]):
                c_row[j] += factor * b_row[j]
"""

TILE = """
def _multiply_tile(a, b, starts, c_rows, width):
    for start in range(0, width, STRIP):
        b_strip, c_strip = b[start:], c_rows[start:]
        for p in range(0, starts.size, TILE):
            row0, row1 = b_strip[starts[p] :], b_strip[starts[p + 1] :]
            row2, row3 = b_strip[starts[p + 2] :], b_strip[starts[p + 3] :]
            a00, a01, a02, a03 = a[0, p], a[0, p + 1], a[0, p + 2], a[0, p + 3]
            a10, a11, a12, a13 = a[1, p], a[1, p + 1], a[1, p + 2], a[1, p + 3]
            a20, a21, a22, a23 = a[2, p], a[2, p + 1], a[2, p + 2], a[2, p + 3]
            a30, a31, a32, a33 = a[3, p], a[3, p + 1], a[3, p + 2], a[3, p + 3]
            for j in range(STRIP):
                b0, b1, b2, b3 = row0[j], row1[j], row2[j], row3[j]
                c_strip[j] += a00 * b0 + a01 * b1 + a02 * b2 + a03 * b3
                c_strip[BLOCK_N + j] += a10 * b0 + a11 * b1 + a12 * b2 + a13 * b3
                c_strip[2 * BLOCK_N + j] += a20 * b0 + a21 * b1 + a22 * b2 + a23 * b3
                c_strip[3 * BLOCK_N + j] += a30 * b0 + a31 * b1 + a32 * b2 + a33 * b3
"""

PACKING = """
def _copy(source, target):
    for j in range(source.size):
        target[j] = source[j]


def _transpose(x, out):
    for i in range(0, x.shape[0], ROWS_AT_ONCE):
        last = min(i + ROWS_AT_ONCE, x.shape[0])
        for j in range(x.shape[1]):
            for r in range(i, last):
                out[j, r] = x[r, j]
"""

BLOCKS = """
def matmul_blocked(a, b, c):
    (m, k), n = a.shape, b.shape[1]
    a_tile = np.zeros((TILE, BLOCK_K), a.dtype)
    b_block = _aligned(BLOCK_K * BLOCK_N, b)
    c_rows = _aligned(TILE * BLOCK_N, c)
    starts = np.arange(BLOCK_K) * BLOCK_N
    c[:, :] = 0
    for j in range(0, n, BLOCK_N):
        width = min(BLOCK_N, n - j)
        for p in range(0, k, BLOCK_K):
            used = min(BLOCK_K, k - p)
            depth = (used + TILE - 1) // TILE * TILE
            for row in range(used):
                _copy(b[p + row, j : j + width], b_block[row * BLOCK_N :])
            b_block[used * BLOCK_N : depth * BLOCK_N] = 0
            for i in range(0, m, TILE):
                rows = range(min(TILE, m - i))
                for r in rows:
                    _copy(a[i + r, p : p + used], a_tile[r])
                    a_tile[r, used:depth] = 0
                    _copy(c[i + r, j : j + width], c_rows[r * BLOCK_N :])
                _multiply_tile(a_tile, b_block, starts[:depth], c_rows, width)
                for r in rows:
                    _copy(c_rows[r * BLOCK_N : r * BLOCK_N + width], c[i + r, j : j + width])
"""

THREADS = """
def matmul_parallel(threads, a, b, c):
    m = a.shape[0]
    for t in prange(threads):
        first, last = m * t // threads, m * (t + 1) // threads
        matmul_blocked(a[first:last], b, c[first:last])
"""

LAYOUT = """
def images_last(x, images, padding):
    phases = images.shape[2]
    for phase in range(phases):
        first = (phase - padding[1]) % phases
        start = (first + padding[1]) // phases
        for channel in range(x.shape[1]):
            for y in range(x.shape[2]):
                source = x[:, channel, y, first::phases]
                target = images[channel, padding[0] + y, phase]
                _transpose(source, target[start : start + source.shape[1]])


def window_starts(layout, kernel_size, dilation):
    (channels, rows, phases, pitch, n), (kh, kw) = layout, kernel_size
    used = (channels - 1) * kh * kw
    starts = np.empty((used + TILE - 1) // TILE * TILE, np.int64)
    for k in range(starts.size):
        channel, i, j = k // (kh * kw), k // kw % kh * dilation[0], k % kw * dilation[1]
        if k >= used:
            channel, i, j = channels - 1, 0, 0
        row = (channel * rows + i) * phases + j % phases
        starts[k] = (row * pitch + j // phases) * n
    return starts
"""

ROWS = """
def _output_row(w, b, pixels, starts, c_rows, out):
    n, o, ow = out.shape
    for i in range(0, o, TILE):
        rows = range(min(TILE, o - i))
        for r in rows:
            c_rows[r * BLOCK_N : r * BLOCK_N + ow * n] = b[i + r]
        _multiply_tile(w[i : i + TILE], pixels, starts, c_rows, ow * n)
        for r in rows:
            row = c_rows[r * BLOCK_N : r * BLOCK_N + ow * n]
            _transpose(row.reshape(ow, n), out[:, i + r])
"""

GRADIENTS = """
def dot_products(a, b, starts, c):
    m, n = c.shape
    for i in range(0, m, 4):
        i1, i2, i3 = min(i + 1, m - 1), min(i + 2, m - 1), min(i + 3, m - 1)
        a0, a1, a2, a3 = a[i], a[i1], a[i2], a[i3]
        for j in range(0, n, 2):
            j1 = min(j + 1, n - 1)
            row0, row1 = b[starts[j] :], b[starts[j1] :]
            s00 = s01 = s10 = s11 = s20 = s21 = s30 = s31 = a.dtype.type(0)
            for p in range(a.shape[1]):
                b0, b1 = row0[p], row1[p]
                s00, s01 = s00 + a0[p] * b0, s01 + a0[p] * b1
                s10, s11 = s10 + a1[p] * b0, s11 + a1[p] * b1
                s20, s21 = s20 + a2[p] * b0, s21 + a2[p] * b1
                s30, s31 = s30 + a3[p] * b0, s31 + a3[p] * b1
            c[i, j], c[i1, j], c[i2, j], c[i3, j] = s00, s10, s20, s30
            c[i, j1], c[i1, j1], c[i2, j1], c[i3, j1] = s01, s11, s21, s31


def turned(w, groups):
    o, c, kh, kw = w.shape
    each = w.reshape(groups, o // groups, c, kh, kw)[:, :, :, ::-1, ::-1]
    return each.transpose(0, 2, 1, 3, 4).reshape(groups * c, o // groups, kh, kw)
"""

FUSION = """
def _momentum(p, g, buf, lr, momentum, fresh, weight_decay, nesterov):
    real = p.dtype.type
    rate, kept, new, decay = real(lr), real(momentum), real(fresh), real(weight_decay)
    for i in range(p.size):
        gradient = g[i] + decay * p[i]
        velocity = kept * buf[i] + new * gradient
        buf[i] = velocity
        p[i] -= rate * (gradient + kept * velocity if nesterov else velocity)


def fuse(outer, inner):
    if len(outer.inputs) != 1:
        raise ValueError(f"{outer.name} has {len(outer.inputs)} inputs; fuse an op of one around")
    last, first = _compiled(outer), _compiled(inner)
    return _over_arrays(kernel(lambda *xs: last(first(*xs))), len(inner.inputs))
"""


def changed(source: str, old: str, new: str) -> str:
    assert source.count(old) == 1, old
    return source.replace(old, new)


MISTAKES = [
    Mistake(
        exercise="orders",
        name="adds to what was in c",
        source=changed(ORDERS, "    c[:, :] = 0\n", ""),
        loses={"orders-values": 4, "orders-views": 2},
    ),
    Mistake(
        exercise="orders",
        name="takes a column of A",
        source=changed(ORDERS, "total += a[i, p] * b[p, j]", "total += a[p, i] * b[p, j]"),
        loses={"orders-values": 4, "orders-views": 2},
    ),
    Mistake(
        exercise="tile",
        name="overwrites the rows of c",
        source=changed(TILE, "c_strip[j] += a00", "c_strip[j] = a00"),
        loses={
            "tile-values": 5,
            "tile-strips": 3,
            "blocks-shapes": 6,
            "blocks-edges": 4,
            "threads-rows": 3,
            "rows-values": 3,
            "rows-views": 2,
        },
    ),
    Mistake(
        exercise="tile",
        name="two rows exchanged",
        source=changed(
            TILE,
            "row0, row1 = b_strip[starts[p] :], b_strip",
            "row1, row0 = b_strip[starts[p] :], b_strip",
        ),
        loses={
            "tile-values": 5,
            "tile-strips": 3,
            "blocks-shapes": 6,
            "blocks-edges": 4,
            "threads-rows": 3,
            "rows-values": 3,
            "rows-views": 2,
        },
    ),
    Mistake(
        exercise="tile",
        name="only the first strip",
        source=changed(TILE, "range(0, width, STRIP)", "range(0, STRIP, STRIP)"),
        loses={"tile-strips": 3, "blocks-shapes": 6, "blocks-edges": 4, "rows-views": 2},
    ),
    Mistake(
        exercise="packing",
        name="copies all of the target",
        source=changed(PACKING, "range(source.size)", "range(target.size)"),
        loses={
            "packing-values": 3,
            "blocks-shapes": 6,
            "blocks-edges": 4,
            "threads-rows": 3,
            "threads-share": 1,
        },
    ),
    Mistake(
        exercise="packing",
        name="forgets the last rows",
        source=changed(
            PACKING,
            "range(0, x.shape[0], ROWS_AT_ONCE)",
            "range(0, x.shape[0] - ROWS_AT_ONCE + 1, ROWS_AT_ONCE)",
        ),
        loses={
            "packing-values": 3,
            "packing-views": 2,
            "layout-images": 4,
            "rows-values": 3,
            "rows-views": 2,
        },
    ),
    Mistake(
        exercise="blocks",
        name="forgets to fill up with zeros",
        source=changed(
            changed(BLOCKS, "            b_block[used * BLOCK_N : depth * BLOCK_N] = 0\n", ""),
            "                    a_tile[r, used:depth] = 0\n",
            "",
        ),
        loses={"blocks-shapes": 6, "blocks-edges": 4},
    ),
    Mistake(
        exercise="blocks",
        name="each block of rows overwrites the one before",
        source=changed(
            BLOCKS,
            "                    _copy(c[i + r, j : j + width], c_rows[r * BLOCK_N :])\n",
            "                    c_rows[r * BLOCK_N : (r + 1) * BLOCK_N] = 0\n",
        ),
        loses={"blocks-shapes": 6, "blocks-edges": 4},
    ),
    Mistake(
        exercise="blocks",
        name="drops the last rows of A",
        source=changed(BLOCKS, "range(0, m, TILE)", "range(0, m - m % TILE, TILE)"),
        loses={
            "blocks-shapes": 6,
            "blocks-edges": 4,
            "threads-rows": 3,
            "threads-share": 1,
        },
    ),
    Mistake(
        exercise="threads",
        name="the same number of rows for each, and the rest for nobody",
        source=changed(
            THREADS,
            "first, last = m * t // threads, m * (t + 1) // threads",
            "first, last = m // threads * t, m // threads * (t + 1)",
        ),
        loses={"threads-rows": 3, "threads-share": 1},
    ),
    Mistake(
        exercise="threads",
        name="the last thread has the rest",
        source=changed(
            THREADS,
            "first, last = m * t // threads, m * (t + 1) // threads",
            "first = m // threads * t\n"
            "        last = m if t == threads - 1 else m // threads * (t + 1)",
        ),
        loses={"threads-share": 1},
    ),
    Mistake(
        exercise="layout",
        name="forgets the padding to the left",
        source=changed(
            changed(LAYOUT, "(phase - padding[1]) % phases", "phase"),
            "(first + padding[1]) // phases",
            "0",
        ),
        loses={"layout-images": 4},
    ),
    Mistake(
        exercise="layout",
        name="each phase begins at the left border",
        source=changed(LAYOUT, "(phase - padding[1]) % phases", "phase"),
        loses={"layout-images": 4},
    ),
    Mistake(
        exercise="layout",
        name="fills up with the first element",
        source=changed(LAYOUT, "channel, i, j = channels - 1, 0, 0", "channel, i, j = 0, 0, 0"),
        loses={"layout-starts": 4},
    ),
    Mistake(
        exercise="layout",
        name="forgets dilation",
        source=changed(
            LAYOUT, "k // kw % kh * dilation[0], k % kw * dilation[1]", "k // kw % kh, k % kw"
        ),
        loses={"layout-starts": 4},
    ),
    Mistake(
        exercise="rows",
        name="the sums start from what was there",
        source=changed(
            ROWS,
            "c_rows[r * BLOCK_N : r * BLOCK_N + ow * n] = b[i + r]",
            "pass",
        ),
        loses={"rows-values": 3, "rows-views": 2},
    ),
    Mistake(
        exercise="rows",
        name="takes images for positions",
        source=changed(
            ROWS,
            "_transpose(row.reshape(ow, n), out[:, i + r])",
            "_copy(row, out[:, i + r].reshape(-1))",
        ),
        loses={"rows-values": 3, "rows-views": 2},
    ),
    Mistake(
        exercise="gradients",
        name="drops the rows that are left over",
        source=changed(
            changed(GRADIENTS, "range(0, m, 4)", "range(0, m - 3, 4)"),
            "range(0, n, 2)",
            "range(0, n - 1, 2)",
        ),
        loses={"gradients-dots": 5},
    ),
    Mistake(
        exercise="gradients",
        name="adds to what was in c",
        source=GRADIENTS.replace(
            "c[i, j], c[i1, j], c[i2, j], c[i3, j] = s00, s10, s20, s30",
            "c[i, j] += s00; c[i1, j] += s10; c[i2, j] += s20; c[i3, j] += s30",
        ),
        loses={"gradients-dots": 5},
    ),
    Mistake(
        exercise="gradients",
        name="turns the images, not the weights' channels",
        source=changed(GRADIENTS, ".transpose(0, 2, 1, 3, 4)", ""),
        loses={"gradients-turned": 3},
    ),
    Mistake(
        exercise="gradients",
        name="turns one side only",
        source=changed(GRADIENTS, "[:, :, :, ::-1, ::-1]", "[:, :, :, ::-1]"),
        loses={"gradients-turned": 3},
    ),
    Mistake(
        exercise="fusion",
        name="decay goes around the buffer",
        source=changed(
            changed(FUSION, "gradient = g[i] + decay * p[i]", "gradient = g[i]"),
            "p[i] -= rate * (",
            "p[i] -= rate * decay * p[i] + rate * (",
        ),
        loses={"fusion-momentum": 4},
    ),
    Mistake(
        exercise="fusion",
        name="outer and inner exchanged",
        source=changed(FUSION, "last(first(*xs))", "first(last(*xs))"),
        loses={"fusion-ops": 4},
    ),
    Mistake(
        exercise="fusion",
        name="never refuses",
        source=changed(
            FUSION,
            '    if len(outer.inputs) != 1:\n        raise ValueError(f"{outer.'
            'name} has {len(outer.inputs)} inputs; fuse an op of one around")\n',
            "",
        ),
        loses={"fusion-ops": 4},
    ),
    Mistake(
        exercise="blocks",
        name="asks NumPy for the whole product",
        source="""
def matmul_blocked(a, b, c):
    c[:, :] = a @ b
""",
        loses={"blocks-edges": 4},
    ),
    Mistake(
        exercise="fusion",
        name="writes the decay into the gradient",
        source="""
def _momentum(p, g, buf, lr, momentum, fresh, weight_decay, nesterov):
    real = p.dtype.type
    rate, kept, new, decay = real(lr), real(momentum), real(fresh), real(weight_decay)
    for i in range(p.size):
        g[i] += decay * p[i]
        buf[i] = kept * buf[i] + new * g[i]
        p[i] -= rate * (g[i] + kept * buf[i] if nesterov else buf[i])
""",
        loses={"fusion-momentum": 4},
    ),
    Mistake(
        exercise="fusion",
        name="goes through memory twice",
        source="""
def fuse(outer, inner):
    if len(outer.inputs) != 1:
        raise ValueError(f"{outer.name} has {len(outer.inputs)} inputs")
    last = _over_arrays(_compiled(outer), 1)
    first = _over_arrays(_compiled(inner), len(inner.inputs))
    return lambda *arrays: last(first(*arrays))
""",
        loses={"fusion-ops": 4},
    ),
]

ALTERNATIVES = [
    Alternative(
        exercise="threads",
        name="slices rows and columns",
        source="""
def matmul_parallel(threads, a, b, c):
    m = a.shape[0]
    for t in prange(threads):
        first, last = m * t // threads, m * (t + 1) // threads
        matmul_blocked(a[first:last, :], b, c[first:last, :])
""",
    ),
    Alternative(
        "orders",
        "writes the sum into c, and adds whole rows",
        """
def matmul_ijk(a, b, c):
    for i in range(c.shape[0]):
        for j in range(c.shape[1]):
            c[i, j] = 0
            for p in range(b.shape[0]):
                c[i, j] += a[i, p] * b[p, j]


def matmul_ikj(a, b, c):
    for i in range(c.shape[0]):
        c[i] = 0
        for p in range(b.shape[0]):
            for j in range(c.shape[1]):
                c[i, j] += a[i, p] * b[p, j]
""",
    ),
    Alternative(
        "tile",
        "one row of c after the other",
        """
def _multiply_tile(a, b, starts, c_rows, width):
    for r in range(TILE):
        for begin in range(0, width, STRIP):
            c = c_rows[r * BLOCK_N + begin :]
            for p in range(0, starts.size, TILE):
                first, second, third, fourth = a[r, p], a[r, p + 1], a[r, p + 2], a[r, p + 3]
                row0, row1 = b[starts[p] + begin :], b[starts[p + 1] + begin :]
                row2, row3 = b[starts[p + 2] + begin :], b[starts[p + 3] + begin :]
                for j in range(STRIP):
                    c[j] += first * row0[j] + second * row1[j] + third * row2[j] + fourth * row3[j]
""",
    ),
    Alternative(
        "packing",
        "a column of the piece at a time",
        """
def _copy(source, target):
    j = 0
    while j < source.size:
        target[j] = source[j]
        j += 1


def _transpose(x, out):
    for i in range(0, x.shape[0], ROWS_AT_ONCE):
        rows = x[i : i + ROWS_AT_ONCE]
        for j in range(x.shape[1]):
            target = out[j, i : i + ROWS_AT_ONCE]
            for r in range(rows.shape[0]):
                target[r] = rows[r, j]
""",
    ),
    Alternative(
        "blocks",
        "rows of B outermost, zeros written beforehand",
        """
def matmul_blocked(a, b, c):
    a_tile = np.zeros((TILE, BLOCK_K), a.dtype)
    b_block = _aligned(BLOCK_K * BLOCK_N, b)
    c_rows = _aligned(TILE * BLOCK_N, c)
    starts = np.arange(0, BLOCK_K * BLOCK_N, BLOCK_N)
    c[:, :] = 0
    for p in range(0, a.shape[1], BLOCK_K):
        used = min(BLOCK_K, a.shape[1] - p)
        depth = -(-used // TILE) * TILE
        for j in range(0, b.shape[1], BLOCK_N):
            width = min(BLOCK_N, b.shape[1] - j)
            b_block[:] = 0
            for row in range(used):
                _copy(b[p + row, j : j + width], b_block[row * BLOCK_N :])
            for i in range(0, a.shape[0], TILE):
                height = min(TILE, a.shape[0] - i)
                a_tile[:, :] = 0
                a_tile[:height, :used] = a[i : i + height, p : p + used]
                c_rows[:] = 0
                _multiply_tile(a_tile, b_block, starts[:depth], c_rows, width)
                for r in range(height):
                    for k in range(width):
                        c[i + r, j + k] += c_rows[r * BLOCK_N + k]
""",
    ),
    Alternative(
        "threads",
        "bounds in an array",
        """
def matmul_parallel(threads, a, b, c):
    bounds = np.empty(threads + 1, np.int64)
    for t in range(threads + 1):
        bounds[t] = t * a.shape[0] // threads
    for t in prange(threads):
        matmul_blocked(a[bounds[t] : bounds[t + 1]], b, c[bounds[t] : bounds[t + 1]])
""",
    ),
    Alternative(
        "layout",
        "pixel by pixel, and three loops with a counter",
        """
def images_last(x, images, padding):
    n, channels, height, width = x.shape
    phases = images.shape[2]
    for channel in range(channels):
        for y in range(height):
            for j in range(width):
                place = j + padding[1]
                target = images[channel, y + padding[0], place % phases, place // phases]
                for image in range(n):
                    target[image] = x[image, channel, y, j]


def window_starts(layout, kernel_size, dilation):
    channels, rows, phases, pitch, n = layout
    used = (channels - 1) * kernel_size[0] * kernel_size[1]
    starts = np.full(-(-used // TILE) * TILE, (channels - 1) * rows * phases * pitch * n)
    k = 0
    for channel in range(channels - 1):
        for i in range(kernel_size[0]):
            for j in range(kernel_size[1]):
                column = j * dilation[1]
                row = channel * rows + i * dilation[0]
                starts[k] = n * (pitch * (phases * row + column % phases) + column // phases)
                k += 1
    return starts
""",
    ),
    Alternative(
        "rows",
        "the bias at the end, element by element",
        """
def _output_row(w, b, pixels, starts, c_rows, out):
    n, o, ow = out.shape
    for i in range(0, o, TILE):
        c_rows[:] = 0
        _multiply_tile(w[i : i + TILE], pixels, starts, c_rows, ow * n)
        for r in range(i, min(i + TILE, o)):
            for x in range(ow):
                for image in range(n):
                    out[image, r, x] = c_rows[(r - i) * BLOCK_N + x * n + image] + b[r]
""",
    ),
    Alternative(
        "gradients",
        "one sum at a time, and axes exchanged one by one",
        """
def dot_products(a, b, starts, c):
    for i in range(c.shape[0]):
        for j in range(c.shape[1]):
            total, row = a.dtype.type(0), b[starts[j] :]
            for p in range(a.shape[1]):
                total += a[i, p] * row[p]
            c[i, j] = total


def turned(w, groups):
    o, c, kh, kw = w.shape
    parts = [part[:, :, ::-1, ::-1].swapaxes(0, 1) for part in np.split(w, groups)]
    return np.concatenate(parts)
""",
    ),
    Alternative(
        "fusion",
        "formulas written out, a named scalar function",
        """
def _momentum(p, g, buf, lr, momentum, fresh, weight_decay, nesterov):
    kind = p.dtype.type
    rate, kept, new, decay = kind(lr), kind(momentum), kind(fresh), kind(weight_decay)
    for i in range(g.size):
        slope = decay * p[i] + g[i]
        buf[i] = new * slope + kept * buf[i]
        if nesterov:
            p[i] = p[i] - rate * (slope + kept * buf[i])
        else:
            p[i] = p[i] - rate * buf[i]


def fuse(outer, inner):
    if not len(outer.inputs) == 1:
        raise ValueError("cannot fuse " + outer.name + ": it needs one input")
    around, within = _compiled(outer), _compiled(inner)

    @kernel
    def both(*xs):
        return around(within(*xs))

    return _over_arrays(both, len(inner.inputs))
""",
    ),
]

WEAK = "in Python the same numbers; compiled, float64 in the loop, which only costs time"
HARMLESS = "a 0 in the other buffer makes any number in this one harmless"
TWICE = "each sum is still computed, some of them twice or beside another one"
FILLED = "matmul_blocked: b_block[used * BLOCK_N:depth * BLOCK_N] = 0 -> "
FILLED += "b_block[used * BLOCK_N:depth * BLOCK_N] = "

EQUIVALENT = [
    Equivalent("orders", "matmul_ijk: a.dtype.type(0) -> 0", WEAK),
    *[Equivalent("blocks", FILLED + number, HARMLESS) for number in ("1", "-1")],
    *[
        Equivalent(
            "blocks",
            f"matmul_blocked: a_tile[r, used:depth] = 0 -> a_tile[r, used:depth] = {number}",
            HARMLESS,
        )
        for number in ("1", "-1")
    ],
    *[
        Equivalent("blocks", f"matmul_blocked: {change}", "more rows of zeros take part")
        for change in (
            "(used + TILE - 1) // TILE -> (used + TILE - 1) * TILE",
            "used + TILE - 1 -> used + TILE + 1",
            "used + TILE - 1 -> used + TILE - 0",
        )
    ],
    Equivalent(
        "layout",
        "window_starts: k >= used -> k > used",
        "element `used` is the first of the next channel by itself",
    ),
    Equivalent("gradients", "dot_products: a.dtype.type(0) -> 0", WEAK),
    *[
        Equivalent("gradients", f"dot_products: {change}", TWICE)
        for change in (
            "range(0, m, 4) -> range(-1, m, 4)",
            "range(0, m, 4) -> range(0, m, 3)",
            "range(0, n, 2) -> range(-1, n, 2)",
            "range(0, n, 2) -> range(0, n, 1)",
            "j + 1 -> j - 1",
            "m - 1 -> m - 2",
            "m - 1 -> m - 2 (2)",
        )
    ],
    Equivalent(
        "gradients",
        "turned: w.reshape(groups, o // groups, c, kh, kw) -> "
        "w.reshape(groups, o // groups, c, kw, kh)",
        "both axes are reversed, and so is the order of all their elements",
    ),
    *[
        Equivalent("fusion", f"_momentum: real({name}) -> {name}", WEAK)
        for name in ("lr", "momentum", "fresh", "weight_decay")
    ],
]
