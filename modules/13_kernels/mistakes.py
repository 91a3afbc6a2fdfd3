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
def _multiply_tile(a, b_block, c_rows, depth, width):
    for p in range(0, depth, TILE):
        b = b_block[p * BLOCK_N :]
        a00, a01, a02, a03 = a[0, p], a[0, p + 1], a[0, p + 2], a[0, p + 3]
        a10, a11, a12, a13 = a[1, p], a[1, p + 1], a[1, p + 2], a[1, p + 3]
        a20, a21, a22, a23 = a[2, p], a[2, p + 1], a[2, p + 2], a[2, p + 3]
        a30, a31, a32, a33 = a[3, p], a[3, p + 1], a[3, p + 2], a[3, p + 3]
        for start in range(0, width, STRIP):
            b_strip, c_strip = b[start:], c_rows[start:]
            for j in range(STRIP):
                b0, b1 = b_strip[j], b_strip[BLOCK_N + j]
                b2, b3 = b_strip[2 * BLOCK_N + j], b_strip[3 * BLOCK_N + j]
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
        rows = x[i : i + ROWS_AT_ONCE]
        for j in range(x.shape[1]):
            target = out[j, i : i + ROWS_AT_ONCE]
            for r in range(rows.shape[0]):
                target[r] = rows[r, j]
"""

BLOCKS = """
def matmul_blocked(a, b, c):
    m, k = a.shape
    n = b.shape[1]
    a_tile = np.zeros((TILE, BLOCK_K), a.dtype)
    b_block = _aligned(BLOCK_K * BLOCK_N, b)
    c_rows = _aligned(TILE * BLOCK_N, c)
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
                _multiply_tile(a_tile, b_block, c_rows, depth, width)
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

COLUMNS = """
def first_and_last(start, stride, count, size):
    first = min(count, max(0, -(start // stride)))  # -(a // b) rounds -a / b up
    last = min(count, -((start - size) // stride))
    return first, max(first, last)


def im2col(image, columns, kernel_size, stride, padding, dilation, out_size):
    (kh, kw), (oh, ow) = kernel_size, out_size
    columns[:, :] = 0
    for element in range(kh * kw):
        i, j = element // kw, element % kw
        top, left = i * dilation[0] - padding[0], j * dilation[1] - padding[1]
        first_y, last_y = first_and_last(top, stride[0], oh, image.shape[1])
        first_x, last_x = first_and_last(left, stride[1], ow, image.shape[2])
        for channel in range(image.shape[0]):
            target, source = columns[channel * kh * kw + element], image[channel]
            for y in range(first_y, last_y):
                for x in range(first_x, last_x):
                    target[y * ow + x] = source[top + y * stride[0], left + x * stride[1]]
"""

SPREAD = """
def col2im(columns, image, kernel_size, stride, padding, dilation, out_size):
    (kh, kw), (oh, ow) = kernel_size, out_size
    image[:, :, :] = 0
    for element in range(kh * kw):
        i, j = element // kw, element % kw
        top, left = i * dilation[0] - padding[0], j * dilation[1] - padding[1]
        first_y, last_y = first_and_last(top, stride[0], oh, image.shape[1])
        first_x, last_x = first_and_last(left, stride[1], ow, image.shape[2])
        for channel in range(image.shape[0]):
            target, source = image[channel], columns[channel * kh * kw + element]
            for y in range(first_y, last_y):
                for x in range(first_x, last_x):
                    target[top + y * stride[0], left + x * stride[1]] += source[y * ow + x]
"""

BATCH = """
def _forward(first, last, x, w, out, kernel_size, stride, padding, dilation, out_size):
    columns = np.empty((w.shape[2], out.shape[3]), x.dtype)
    for n in range(first, last):
        for group in range(w.shape[0]):
            im2col(x[n, group], columns, kernel_size, stride, padding, dilation, out_size)
            matmul_blocked(w[group], columns, out[n, group])


def _backward_input(first, last, g, w_t, out, kernel_size, stride, padding, dilation, out_size):
    columns = np.empty((w_t.shape[1], g.shape[3]), g.dtype)
    for n in range(first, last):
        for group in range(w_t.shape[0]):
            matmul_blocked(w_t[group], g[n, group], columns)
            col2im(columns, out[n, group], kernel_size, stride, padding, dilation, out_size)


def _backward_weight(first, last, x, g, total, kernel_size, stride, padding, dilation, out_size):
    columns = np.empty((total.shape[2], g.shape[3]), x.dtype)
    part = np.empty(total.shape[1:], x.dtype)
    total[:, :, :] = 0
    for n in range(first, last):
        for group in range(total.shape[0]):
            im2col(x[n, group], columns, kernel_size, stride, padding, dilation, out_size)
            matmul_blocked(g[n, group], np.ascontiguousarray(columns.T), part)
            total[group] += part
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
            "blocks-shapes": 6,
            "blocks-edges": 4,
            "threads-rows": 3,
            "batch-weight": 5,
        },
    ),
    Mistake(
        exercise="tile",
        name="two rows exchanged",
        source=changed(TILE, "b2, b3 = b_strip[2", "b3, b2 = b_strip[2"),
        loses={
            "tile-values": 5,
            "tile-strips": 3,
            "blocks-shapes": 6,
            "blocks-edges": 4,
            "threads-rows": 3,
            "batch-forward": 4,
            "batch-weight": 5,
        },
    ),
    Mistake(
        exercise="tile",
        name="only the first strip",
        source=changed(TILE, "range(0, width, STRIP)", "range(0, STRIP, STRIP)"),
        loses={"tile-strips": 3, "blocks-shapes": 6, "blocks-edges": 4},
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
            "batch-forward": 4,
            "batch-weight": 5,
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
        loses={"packing-values": 3, "packing-views": 2},
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
            "batch-forward": 4,
            "batch-weight": 5,
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
        exercise="columns",
        name="reads beyond the border",
        source=changed(COLUMNS, "max(0, -(start // stride))", "0"),
        loses={
            "columns-bounds": 3,
            "columns-values": 5,
            "spread-values": 3,
            "spread-inverse": 1,
            "batch-weight": 5,
        },
    ),
    Mistake(
        exercise="columns",
        name="leaves what was in the columns",
        source=changed(COLUMNS, "    columns[:, :] = 0\n", ""),
        loses={"columns-values": 5, "batch-weight": 5},
    ),
    Mistake(
        exercise="columns",
        name="rows by element, then by channel",
        source=changed(
            COLUMNS,
            "columns[channel * kh * kw + element]",
            "columns[element * image.shape[0] + channel]",
        ),
        loses={"columns-values": 5, "batch-weight": 5},
    ),
    Mistake(
        exercise="spread",
        name="the last one wins",
        source=changed(SPREAD, "left + x * stride[1]] +=", "left + x * stride[1]] ="),
        loses={"spread-values": 3, "batch-forward": 4, "batch-weight": 5},
    ),
    Mistake(
        exercise="spread",
        name="adds to the image as it is",
        source=changed(SPREAD, "    image[:, :, :] = 0\n", ""),
        loses={"spread-values": 3, "spread-inverse": 1, "batch-forward": 4, "batch-weight": 5},
    ),
    Mistake(
        exercise="batch",
        name="always all images",
        source=BATCH.replace("for n in range(first, last):", "for n in range(out.shape[0]):", 1),
        loses={"batch-forward": 4},
    ),
    Mistake(
        exercise="batch",
        name="the last image's gradient instead of the sum",
        source=changed(BATCH, "total[group] += part", "total[group] = part"),
        loses={"batch-weight": 5},
    ),
    Mistake(
        exercise="batch",
        name="the columns of the first group for all",
        source=BATCH.replace("im2col(x[n, group]", "im2col(x[n, 0]", 1),
        loses={"batch-forward": 4, "batch-weight": 5},
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
]

ALTERNATIVES = [
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
def _multiply_tile(a, b_block, c_rows, depth, width):
    for p in range(0, depth, TILE):
        for r in range(TILE):
            first, second, third, fourth = a[r, p], a[r, p + 1], a[r, p + 2], a[r, p + 3]
            for start in range(0, width, STRIP):
                b = b_block[p * BLOCK_N + start :]
                c = c_rows[r * BLOCK_N + start :]
                for j in range(STRIP):
                    c[j] += (
                        first * b[j]
                        + second * b[BLOCK_N + j]
                        + third * b[2 * BLOCK_N + j]
                        + fourth * b[3 * BLOCK_N + j]
                    )
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
        last = min(i + ROWS_AT_ONCE, x.shape[0])
        for j in range(x.shape[1]):
            for r in range(i, last):
                out[j, r] = x[r, j]
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
                _multiply_tile(a_tile, b_block, c_rows, depth, width)
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
        "columns",
        "counts positions, and asks for each element",
        """
def first_and_last(start, stride, count, size):
    first = 0
    while first < count and start + first * stride < 0:
        first += 1
    last = first
    while last < count and start + last * stride < size:
        last += 1
    return first, last


def im2col(image, columns, kernel_size, stride, padding, dilation, out_size):
    (kh, kw), (oh, ow) = kernel_size, out_size
    channels, height, width = image.shape
    for row in range(columns.shape[0]):
        channel, i, j = row // (kh * kw), row // kw % kh, row % kw
        for y in range(oh):
            for x in range(ow):
                v = y * stride[0] + i * dilation[0] - padding[0]
                u = x * stride[1] + j * dilation[1] - padding[1]
                inside = v >= 0 and v < height and u >= 0 and u < width
                columns[row, y * ow + x] = image[channel, v, u] if inside else 0
""",
    ),
    Alternative(
        "spread",
        "element by element of the columns",
        """
def col2im(columns, image, kernel_size, stride, padding, dilation, out_size):
    (kh, kw), (oh, ow) = kernel_size, out_size
    channels, height, width = image.shape
    image[:, :, :] = 0
    for row in range(columns.shape[0]):
        channel, i, j = row // (kh * kw), row // kw % kh, row % kw
        for place in range(columns.shape[1]):
            v = place // ow * stride[0] + i * dilation[0] - padding[0]
            u = place % ow * stride[1] + j * dilation[1] - padding[1]
            if v >= 0 and v < height and u >= 0 and u < width:
                image[channel, v, u] += columns[row, place]
""",
    ),
    Alternative(
        "batch",
        "groups outside, images inside",
        """
def _forward(first, last, x, w, out, kernel_size, stride, padding, dilation, out_size):
    for group in range(w.shape[0]):
        columns = np.zeros((w.shape[2], out_size[0] * out_size[1]), x.dtype)
        for n in range(first, last):
            im2col(x[n, group], columns, kernel_size, stride, padding, dilation, out_size)
            matmul_blocked(w[group], columns, out[n, group])


def _backward_input(first, last, g, w_t, out, kernel_size, stride, padding, dilation, out_size):
    for group in range(w_t.shape[0]):
        for n in range(first, last):
            columns = np.zeros((w_t.shape[1], g.shape[3]), g.dtype)
            matmul_blocked(w_t[group], g[n, group], columns)
            col2im(columns, out[n, group], kernel_size, stride, padding, dilation, out_size)


def _backward_weight(first, last, x, g, total, kernel_size, stride, padding, dilation, out_size):
    columns = np.empty((total.shape[2], g.shape[3]), x.dtype)
    part = np.empty((total.shape[1], total.shape[2]), x.dtype)
    for group in range(total.shape[0]):
        total[group] = 0
        for n in range(first, last):
            im2col(x[n, group], columns, kernel_size, stride, padding, dilation, out_size)
            matmul_blocked(g[n, group], np.ascontiguousarray(columns.T), part)
            total[group] = total[group] + part
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
    Equivalent(
        "batch",
        "_backward_weight: np.ascontiguousarray(columns.T) -> columns.T",
        "a product reads any strides; it only takes longer",
    ),
    *[
        Equivalent("fusion", f"_momentum: real({name}) -> {name}", WEAK)
        for name in ("lr", "momentum", "fresh", "weight_decay")
    ],
    Equivalent(
        "fusion",
        "fuse: kernel(lambda *xs: last(first(*xs))) -> lambda *xs: last(first(*xs))",
        "numba compiles a lambda where a kernel calls it",
    ),
]
