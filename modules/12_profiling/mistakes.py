"""Wrong solutions that a student would plausibly write, and the points they lose."""

from tito.lessons.mistake import Alternative, Equivalent, Mistake

PER_CALL = """
def _seconds_per_call(function, calls, now):
    start = now()
    for _ in range(calls):
        function()
    return (now() - start) / calls
"""

LASTING = """
def _calls_lasting(function, seconds, now=time.perf_counter):
    calls = 1
    while True:
        taken = _seconds_per_call(function, calls, now) * calls
        if taken >= seconds:
            return calls
        calls = max(calls * 2, min(calls * 10, int(calls * seconds / max(taken, 1e-9)) + 1))
"""

SAMPLES = """
def _samples(functions, calls, rounds, now):
    samples = {name: [] for name in functions}
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        for _ in range(rounds):
            gc.collect(0)
            for name, function in functions.items():
                function()
                samples[name].append(_seconds_per_call(function, calls[name], now))
    finally:
        if was_enabled:
            gc.enable()
    return samples
"""

COST = """
def cost_of(op, inputs, params, plan):
    scalar = [type(t) in SCALAR_TYPES for t in inputs]
    shapes = [() if s else t.meta.shape for t, s in zip(inputs, scalar, strict=True)]
    metas = [t.meta for t, s in zip(inputs, scalar, strict=True) if not s]
    return Cost(op.flops(shapes, plan.meta.shape, params), op.bytes_moved(metas, plan.meta))
"""

RUN = """
class OpCounter(tinytorch.bench.OpCounter):
    def run(self, op, inputs, params, plan):
        start = perf_counter()
        data = self.below(op, inputs, params, plan)
        seconds = perf_counter() - start
        cost = self._costs.get(plan)
        if cost is None:
            cost = self._costs[plan] = cost_of(op, inputs, params, plan)
        self.note(op.name, start, seconds, cost)
        return data

    def note(self, name, start, seconds, cost):
        key = (current_phase(), name)
        stats = self.stats.get(key)
        if stats is None:
            stats = self.stats[key] = OpStats()
        stats.add(seconds, cost)
"""

MEMORY = """
class LiveMemory(tinytorch.bench.LiveMemory):
    def add(self, data, inputs):
        if not isinstance(data, np.ndarray):
            return
        owner = owner_of(data)
        key = id(owner)
        with self._lock:
            holders, nbytes = self._holders.get(key, (0, 0))
            if not holders:
                if _is_shared(owner, inputs):
                    return
                nbytes = data.nbytes
                self.current += nbytes
                self.peak = max(self.peak, self.current)
            self._holders[key] = (holders + 1, nbytes)
            reference = weakref.ref(data, self._discard)
            self._references[id(reference)] = (reference, key)

    def _discard(self, reference):
        with self._lock:
            entry = self._references.pop(id(reference), None)
            if entry is None:
                return
            holders, nbytes = self._holders.pop(entry[1])
            if holders > 1:
                self._holders[entry[1]] = (holders - 1, nbytes)
            else:
                self.current -= nbytes
"""

MACHINE = """
class Machine(tinytorch.bench.Machine):
    def seconds(self, flops, moved):
        return max(flops / self.flops, moved / self.bandwidth)

    def attainable(self, intensity):
        return min(self.flops, intensity * self.bandwidth)
"""

FASTEST = """
def fastest(function, repeats=REPEATS, now=perf_counter):
    function()
    times = []
    for _ in range(repeats):
        start = now()
        function()
        times.append(now() - start)
    return min(times)
"""

MEASURE = """
def measure_machine(backend, now=perf_counter):
    n, rate, seconds = 16, 0.0, 0.0
    while seconds < ENOUGH and n < LARGEST_PRODUCT:
        n *= 2
        a = np.ones((n, n), np.float32)
        seconds = fastest(lambda a=a: backend.matmul(a, a), now=now)
        rate = max(rate, 2 * n**3 / seconds)
    source = np.ones(COPIED_BYTES, np.uint8)
    target = np.ones(COPIED_BYTES, np.uint8)
    copying = fastest(lambda: np.copyto(target, source), now=now)
    return Machine(flops=rate, bandwidth=2 * COPIED_BYTES / copying)
"""

TRACE = """
class Profiler(tinytorch.bench.Profiler):
    @property
    def between_ops(self):
        return max(self.seconds - self.total.seconds, 0.0)

    def chrome_trace(self):
        if not self.trace:
            raise ValueError("this Profiler kept no events; make it with trace=True")
        process = os.getpid()
        events = [
            {
                "name": event.name,
                "cat": event.phase,
                "ph": "X",
                "ts": event.start * 1e6,
                "dur": event.seconds * 1e6,
                "pid": process,
                "tid": self._thread,
                "args": {"flops": event.cost.flops, "bytes": event.cost.bytes},
            }
            for event in self.events
        ]
        return {"traceEvents": events, "displayTimeUnit": "ms"}
"""

TIMING = """
class Timing(tinytorch.bench.Timing):
    @property
    def median(self):
        return statistics.median(self.samples)

    @property
    def iqr(self):
        if len(self.samples) < 2:
            return 0.0
        lower, _, upper = statistics.quantiles(self.samples, n=4, method="inclusive")
        return upper - lower
"""


def changed(text: str, old: str, new: str) -> str:
    """The text with `old`, which it has once, replaced."""
    if text.count(old) != 1:
        raise ValueError(f"{old!r} is {text.count(old)} times in the text")
    return text.replace(old, new)


def mistake(exercise: str, name: str, text: str, old: str, new: str, **loses: int) -> Mistake:
    """The solution with one change; in `loses` a _ is a - of the cell's name."""
    lost = {cell.replace("_", "-"): points for cell, points in loses.items()}
    return Mistake(exercise=exercise, name=name, source=changed(text, old, new), loses=lost)


MISTAKES = [
    mistake(
        "timer",
        "forgets to divide by the calls",
        PER_CALL,
        "(now() - start) / calls",
        "now() - start",
        seconds_per_call=2,
        enough_calls=2,
        interleaved=3,
    ),
    mistake(
        "timer",
        "asks the clock around every call",
        PER_CALL,
        """    start = now()
    for _ in range(calls):
        function()
    return (now() - start) / calls
""",
        """    total = 0.0
    for _ in range(calls):
        start = now()
        function()
        total += now() - start
    return total / calls
""",
        seconds_per_call=2,
    ),
    mistake(
        "timer",
        "only ever doubles",
        LASTING,
        "max(calls * 2, min(calls * 10, int(calls * seconds / max(taken, 1e-9)) + 1))",
        "calls * 2",
        enough_calls=2,
    ),
    mistake(
        "timer",
        "divides by a clock that did not move",
        LASTING,
        "max(taken, 1e-9)",
        "taken",
        enough_calls=2,
    ),
    mistake(
        "timer",
        "takes the time of one call for that of all",
        LASTING,
        "_seconds_per_call(function, calls, now) * calls",
        "_seconds_per_call(function, calls, now)",
        enough_calls=2,
    ),
    mistake(
        "timer",
        "asks for more than enough",
        LASTING,
        "taken >= seconds",
        "taken > seconds",
        enough_calls=2,
    ),
    mistake(
        "timer",
        "measures one function after the other",
        SAMPLES,
        """        for _ in range(rounds):
            gc.collect(0)
            for name, function in functions.items():
                function()
""",
        """        for name, function in functions.items():
            for _ in range(rounds):
                gc.collect(0)
                function()
""",
        interleaved=3,
    ),
    mistake(
        "timer",
        "does not warm up",
        SAMPLES,
        "                function()\n",
        "",
        interleaved=3,
        collector=3,
    ),
    mistake("timer", "leaves the collector on", SAMPLES, "    gc.disable()\n", "", collector=3),
    mistake(
        "timer",
        "always switches the collector on",
        SAMPLES,
        "        if was_enabled:\n            gc.enable()",
        "        gc.enable()",
        collector=3,
    ),
    mistake("timer", "never collects", SAMPLES, "            gc.collect(0)\n", "", collector=3),
    mistake(
        "timer",
        "forgets the collector after an error",
        SAMPLES,
        """    try:
        for _ in range(rounds):
            gc.collect(0)
            for name, function in functions.items():
                function()
                samples[name].append(_seconds_per_call(function, calls[name], now))
    finally:
        if was_enabled:
            gc.enable()
""",
        """    for _ in range(rounds):
        gc.collect(0)
        for name, function in functions.items():
            function()
            samples[name].append(_seconds_per_call(function, calls[name], now))
    if was_enabled:
        gc.enable()
""",
        collector=3,
    ),
    mistake(
        "spread",
        "takes the mean for the median",
        TIMING,
        "statistics.median(self.samples)",
        "statistics.mean(self.samples)",
        middle_half=2,
    ),
    mistake(
        "spread",
        "takes the whole range",
        TIMING,
        "return upper - lower",
        "return max(self.samples) - min(self.samples)",
        middle_half=2,
    ),
    mistake(
        "spread",
        "takes quartiles outside of the samples",
        TIMING,
        ', method="inclusive"',
        "",
        middle_half=2,
    ),
    mistake(
        "spread",
        "fails for one sample",
        TIMING,
        "        if len(self.samples) < 2:\n            return 0.0\n",
        "",
        middle_half=2,
    ),
    Mistake(
        exercise="spread",
        name="takes the ratio of the medians",
        source="""
def ratio(slower, faster):
    if len(slower.samples) != len(faster.samples) or slower.clock != faster.clock:
        raise ValueError(
            f"a ratio needs timings of one run: {len(slower.samples)} samples on the "
            f"{slower.clock} clock, {len(faster.samples)} on {faster.clock}"
        )
    return slower.median / faster.median
""",
        loses={"ratios": 2, "ratios-refused": 2},
    ),
    Mistake(
        exercise="spread",
        name="takes any two timings",
        source="""
def ratio(slower, faster):
    return statistics.median(a / b for a, b in zip(slower.samples, faster.samples))
""",
        loses={"ratios-refused": 2},
    ),
    Mistake(
        exercise="spread",
        name="does not look at the clocks",
        source="""
def ratio(slower, faster):
    if len(slower.samples) != len(faster.samples):
        raise ValueError(f"{len(slower.samples)} samples and {len(faster.samples)}")
    return statistics.median(a / b for a, b in zip(slower.samples, faster.samples))
""",
        loses={"ratios-refused": 2},
    ),
    mistake(
        "counter",
        "leaves numbers out of the shapes",
        COST,
        "[() if s else t.meta.shape for t, s in zip(inputs, scalar, strict=True)]",
        "[t.meta.shape for t, s in zip(inputs, scalar, strict=True) if not s]",
        cost=3,
    ),
    mistake(
        "counter",
        "exchanges FLOPs and bytes",
        COST,
        "Cost(op.flops(shapes, plan.meta.shape, params), op.bytes_moved(metas, plan.meta))",
        "Cost(op.bytes_moved(metas, plan.meta), op.flops(shapes, plan.meta.shape, params))",
        cost=3,
        counts=3,
        counter_details=3,
    ),
    mistake(
        "counter",
        "forgets the result's bytes",
        COST,
        "op.bytes_moved(metas, plan.meta)",
        "sum(m.nbytes for m in metas)",
        cost=3,
        counts=3,
        counter_details=3,
    ),
    mistake(
        "counter", "returns nothing", RUN, "        return data\n", "", counts=3, counter_details=3
    ),
    mistake(
        "counter",
        "runs the op twice",
        RUN,
        "        return data\n",
        "        return self.below(op, inputs, params, plan)\n",
        counts=3,
    ),
    mistake(
        "counter",
        "does not run the op inside the clock",
        RUN,
        """        start = perf_counter()
        data = self.below(op, inputs, params, plan)
""",
        """        data = self.below(op, inputs, params, plan)
        start = perf_counter()
""",
        counts=3,
    ),
    mistake(
        "counter",
        "remembers a cost by the op's name",
        RUN,
        """        cost = self._costs.get(plan)
        if cost is None:
            cost = self._costs[plan] = cost_of""",
        """        cost = self._costs.get(op.name)
        if cost is None:
            cost = self._costs[op.name] = cost_of""",
        counts=3,
        counter_details=3,
    ),
    mistake(
        "counter",
        "forgets the phase",
        RUN,
        "(current_phase(), name)",
        '("forward", name)',
        counter_details=3,
    ),
    mistake(
        "counter",
        "begins anew with every call",
        RUN,
        "        if stats is None:\n            stats",
        "        if True:\n            stats",
        counts=3,
        counter_details=3,
    ),
    Mistake(
        exercise="counter",
        name="keeps the last call only",
        source="""
class OpStats(tinytorch.bench.OpStats):
    def add(self, seconds, cost):
        self.calls += 1
        self.seconds = seconds
        self.flops = cost.flops
        self.bytes = cost.bytes
""",
        loses={"counts": 3, "counter-details": 3},
    ),
    mistake(
        "live-memory",
        "counts each view as memory of its own",
        MEMORY,
        "owner = owner_of(data)",
        "owner = data",
        views=3,
        live_memory_details=3,
    ),
    mistake(
        "live-memory",
        "counts the memory of inputs",
        MEMORY,
        """                if _is_shared(owner, inputs):
                    return
""",
        "",
        views=3,
    ),
    mistake(
        "live-memory",
        "does not keep the reference",
        MEMORY,
        "            self._references[id(reference)] = (reference, key)\n",
        "",
        held=3,
        views=3,
        live_memory_details=3,
    ),
    mistake(
        "live-memory",
        "keeps the array alive",
        MEMORY,
        "self._references[id(reference)] = (reference, key)",
        "self._references[id(reference)] = (reference, key, data)",
        held=3,
        views=3,
        live_memory_details=3,
    ),
    mistake(
        "live-memory",
        "never lowers what is held",
        MEMORY,
        "                self.current -= nbytes",
        "                pass",
        held=3,
        views=3,
        live_memory_details=3,
    ),
    mistake(
        "live-memory",
        "frees with the first holder",
        MEMORY,
        """            if holders > 1:
                self._holders[entry[1]] = (holders - 1, nbytes)
            else:
                self.current -= nbytes
""",
        """            self.current -= nbytes
            if holders > 1:
                self._holders[entry[1]] = (holders - 1, 0)
""",
        live_memory_details=3,
    ),
    mistake(
        "live-memory",
        "takes what is held now for the peak",
        MEMORY,
        "max(self.peak, self.current)",
        "self.current",
        held=3,
    ),
    mistake(
        "live-memory",
        "forgets the lock in add",
        MEMORY,
        "        key = id(owner)\n        with self._lock:",
        "        key = id(owner)\n        if True:",
        live_memory_details=3,
    ),
    mistake(
        "live-memory",
        "fails on a reference that it does not know",
        MEMORY,
        "pop(id(reference), None)",
        "pop(id(reference))",
        live_memory_details=3,
    ),
    mistake(
        "roofline",
        "adds both times",
        MACHINE,
        "max(flops / self.flops, moved / self.bandwidth)",
        "flops / self.flops + moved / self.bandwidth",
        roof=2,
    ),
    mistake("roofline", "takes the shorter time", MACHINE, "max(flops", "min(flops", roof=2),
    mistake(
        "roofline",
        "forgets the flat part",
        MACHINE,
        "min(self.flops, intensity * self.bandwidth)",
        "intensity * self.bandwidth",
        roof=2,
    ),
    mistake(
        "roofline", "takes the mean", FASTEST, "min(times)", "sum(times) / len(times)", least_time=2
    ),
    mistake(
        "roofline",
        "does not call once before it measures",
        FASTEST,
        "    function()\n    times",
        "    times",
        least_time=2,
        measured_machine=3,
    ),
    mistake(
        "roofline",
        "counts a multiply-add as one",
        MEASURE,
        "2 * n**3 / seconds",
        "n**3 / seconds",
        measured_machine=3,
    ),
    mistake(
        "roofline",
        "counts what a copy reads only",
        MEASURE,
        "2 * COPIED_BYTES / copying",
        "COPIED_BYTES / copying",
        measured_machine=3,
    ),
    mistake(
        "roofline",
        "keeps the last rate",
        MEASURE,
        "max(rate, 2 * n**3 / seconds)",
        "2 * n**3 / seconds",
        measured_machine=3,
    ),
    mistake(
        "roofline",
        "does not stop at the largest",
        MEASURE,
        "seconds < ENOUGH and n < LARGEST_PRODUCT",
        "seconds < ENOUGH and n < 2 * LARGEST_PRODUCT",
        measured_machine=3,
    ),
    mistake(
        "roofline",
        "measures in float64",
        MEASURE,
        "np.ones((n, n), np.float32)",
        "np.ones((n, n))",
        measured_machine=3,
    ),
    mistake(
        "trace",
        "leaves times in seconds",
        TRACE,
        "event.start * 1e6",
        "event.start",
        trace_events=3,
    ),
    mistake(
        "trace",
        "gives the end for how long",
        TRACE,
        "event.seconds * 1e6",
        "(event.start + event.seconds) * 1e6",
        trace_events=3,
    ),
    mistake(
        "trace",
        "gives the list alone",
        TRACE,
        'return {"traceEvents": events, "displayTimeUnit": "ms"}',
        "return events",
        trace_events=3,
        trace_details=2,
    ),
    mistake(
        "trace",
        "draws nothing where nothing was kept",
        TRACE,
        """        if not self.trace:
            raise ValueError("this Profiler kept no events; make it with trace=True")
""",
        "",
        trace_details=2,
    ),
    mistake(
        "trace",
        "lets the rest be negative",
        TRACE,
        "max(self.seconds - self.total.seconds, 0.0)",
        "self.seconds - self.total.seconds",
        trace_details=2,
    ),
    Mistake(
        exercise="timer",
        name="sorts the functions by their names",
        source="""
def _samples(functions, calls, rounds, now):
    samples = {name: [] for name in functions}
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        for _ in range(rounds):
            gc.collect(0)
            for name in sorted(functions):
                functions[name]()
                samples[name].append(_seconds_per_call(functions[name], calls[name], now))
    finally:
        if was_enabled:
            gc.enable()
    return samples
""",
        loses={"interleaved": 3},
    ),
    Mistake(
        exercise="spread",
        name="takes one of the two in the middle",
        source="""
class Timing(tinytorch.bench.Timing):
    @property
    def median(self):
        return sorted(self.samples)[len(self.samples) // 2]
""",
        loses={"middle-half": 2},
    ),
    Mistake(
        exercise="counter",
        name="looks for the cost while the clock runs",
        source="""
class OpCounter(tinytorch.bench.OpCounter):
    def run(self, op, inputs, params, plan):
        start = perf_counter()
        data = self.below(op, inputs, params, plan)
        if plan not in self._costs:
            self._costs[plan] = cost_of(op, inputs, params, plan)
        self.note(op.name, start, perf_counter() - start, self._costs[plan])
        return data
""",
        loses={"counter-details": 3},
    ),
]

ALTERNATIVES = [
    Alternative(
        exercise="live-memory",
        name="acquires the lock and releases it",
        source="""
class LiveMemory(tinytorch.bench.LiveMemory):
    def _discard(self, reference):
        self._lock.acquire()
        try:
            if id(reference) not in self._references:
                return
            _, key = self._references.pop(id(reference))
            holders, nbytes = self._holders[key]
            if holders == 1:
                del self._holders[key]
                self.current -= nbytes
            else:
                self._holders[key] = (holders - 1, nbytes)
        finally:
            self._lock.release()
""",
    ),
    Alternative(
        exercise="live-memory",
        name="counts the bytes of the owner",
        source="""
class LiveMemory(tinytorch.bench.LiveMemory):
    def add(self, data, inputs):
        if not isinstance(data, np.ndarray):
            return
        owner = owner_of(data)
        with self._lock:
            holders, nbytes = self._holders.get(id(owner), (0, owner.nbytes))
            if holders == 0 and _is_shared(owner, inputs):
                return
            if holders == 0:
                self.current += nbytes
                self.peak = max(self.peak, self.current)
            self._holders[id(owner)] = (holders + 1, nbytes)
            reference = weakref.ref(data, self._discard)
            self._references[id(reference)] = (reference, id(owner))
""",
    ),
    Alternative(
        exercise="timer",
        name="counts down, and keeps pairs in a list",
        source="""
def _seconds_per_call(function, calls, now):
    left, began = calls, now()
    while left:
        function()
        left -= 1
    return (now() - began) / calls

def _calls_lasting(function, seconds, now=time.perf_counter):
    calls, taken = 1, calls_taken(function, 1, now)
    while taken < seconds:
        wanted = int(calls * seconds / taken) + 1 if taken > 0 else calls * 10
        calls = min(max(wanted, 2 * calls), 10 * calls)
        taken = calls_taken(function, calls, now)
    return calls

def calls_taken(function, calls, now):
    return calls * _seconds_per_call(function, calls, now)

def _samples(functions, calls, rounds, now):
    found = []
    enabled = gc.isenabled()
    try:
        gc.disable()
        for _ in range(rounds):
            gc.collect(generation=0)
            for name in functions:
                functions[name]()
                found.append((name, _seconds_per_call(functions[name], calls[name], now)))
    finally:
        gc.enable() if enabled else gc.disable()
    return {name: [seconds for other, seconds in found if other == name] for name in functions}
""",
    ),
    Alternative(
        exercise="spread",
        name="sorts, and goes between neighbours itself",
        source="""
class Timing(tinytorch.bench.Timing):
    @property
    def median(self):
        return quantile(self.samples, 0.5)

    @property
    def iqr(self):
        return quantile(self.samples, 0.75) - quantile(self.samples, 0.25)

def quantile(samples, share):
    ordered = sorted(samples)
    place = share * (len(ordered) - 1)
    below = int(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (place - below) * (ordered[above] - ordered[below])

def ratio(slower, faster):
    ours, theirs = (len(slower.samples), slower.clock), (len(faster.samples), faster.clock)
    if ours != theirs:
        raise ValueError(f"these were not timed together: {ours} and {theirs}")
    rounds = range(len(slower.samples))
    return quantile([slower.samples[i] / faster.samples[i] for i in rounds], 0.5)
""",
    ),
    Alternative(
        exercise="counter",
        name="one loop over the inputs, and tables that make their entries",
        source="""
def cost_of(op, inputs, params, plan):
    shapes, metas = [], []
    for each in inputs:
        if type(each) in SCALAR_TYPES:
            shapes.append(())
            continue
        shapes.append(each.shape)
        metas.append(each.meta)
    moved = op.bytes_moved(metas, plan.meta)
    return Cost(flops=op.flops(shapes, plan.meta.shape, params), bytes=moved)

class OpStats(tinytorch.bench.OpStats):
    def add(self, seconds, cost):
        flops, moved = cost
        self.calls, self.seconds = self.calls + 1, self.seconds + seconds
        self.flops, self.bytes = self.flops + flops, self.bytes + moved

class OpCounter(tinytorch.bench.OpCounter):
    def run(self, op, inputs, params, plan):
        began = perf_counter()
        result = self.below(op, inputs, params, plan)
        ended = perf_counter()
        if plan not in self._costs:
            self._costs[plan] = cost_of(op, inputs, params, plan)
        self.note(op.name, began, ended - began, self._costs[plan])
        return result

    def note(self, name, start, seconds, cost):
        self.stats.setdefault((current_phase(), name), OpStats()).add(seconds, cost)
""",
    ),
    Alternative(
        exercise="live-memory",
        name="takes the lock by hand, and asks first",
        source="""
class LiveMemory(tinytorch.bench.LiveMemory):
    def add(self, data, inputs):
        if isinstance(data, np.ndarray):
            with self._lock:
                owner = owner_of(data)
                if id(owner) in self._holders:
                    holders, size = self._holders[id(owner)]
                elif _is_shared(owner, inputs):
                    return
                else:
                    holders, size = 0, data.nbytes
                    self.current = self.current + size
                    if self.current > self.peak:
                        self.peak = self.current
                self._holders[id(owner)] = (holders + 1, size)
                reference = weakref.ref(data, self._discard)
                self._references[id(reference)] = (reference, id(owner))

    def _discard(self, reference):
        with self._lock:
            if id(reference) in self._references:
                _, owner = self._references.pop(id(reference))
                holders, size = self._holders[owner]
                self._holders[owner] = (holders - 1, size)
                if holders == 1:
                    del self._holders[owner]
                    self.current = self.current - size
""",
    ),
    Alternative(
        exercise="roofline",
        name="writes the conditions out, and goes through a range of sizes",
        source="""
class Machine(tinytorch.bench.Machine):
    def seconds(self, flops, moved):
        computing, moving = flops / self.flops, moved / self.bandwidth
        return computing if computing > moving else moving

    def attainable(self, intensity):
        if intensity * self.bandwidth > self.flops:
            return self.flops
        return self.bandwidth * intensity

def fastest(function, repeats=REPEATS, now=perf_counter):
    best = float("inf")
    for i in range(repeats + 1):
        began = now()
        function()
        ended = now()
        if i:
            best = min(best, ended - began)
    return best

def measure_machine(backend, now=perf_counter):
    rates, n = [], 32
    while True:
        square = np.ones((n, n), dtype="float32")
        took = fastest(lambda: backend.matmul(square, square), now=now)
        rates.append(2.0 * n * n * n / took)
        if took >= ENOUGH or n >= LARGEST_PRODUCT:
            break
        n = 2 * n
    here, there = (np.ones(COPIED_BYTES, dtype="uint8") for _ in range(2))
    took = fastest(lambda: np.copyto(there, here), now=now)
    return Machine(max(rates), (here.nbytes + there.nbytes) / took)
""",
    ),
    Alternative(
        exercise="trace",
        name="makes each event by a function",
        source="""
class Profiler(tinytorch.bench.Profiler):
    @property
    def between_ops(self):
        rest = self.seconds - sum(stats.seconds for stats in self.stats.values())
        return rest if rest > 0 else 0.0

    def chrome_trace(self):
        if self.trace is False:
            raise ValueError("there are no events: say trace=True")
        return dict(displayTimeUnit="ms", traceEvents=[drawn(e, self._thread) for e in self.events])

def drawn(event, thread):
    name, phase, start, seconds, (flops, moved) = event
    result = dict(name=name, cat=phase, ph="X", pid=os.getpid(), tid=thread)
    result["ts"], result["dur"] = 1e6 * start, 1e6 * seconds
    result["args"] = {"flops": flops, "bytes": moved}
    return result
""",
    ),
]

EQUIVALENT = [
    Equivalent(
        "timer",
        "_calls_lasting: max(taken, 1e-09) -> max(taken, 2e-09)",
        "for a clock that did not move the next try has ten times as many calls either way",
    ),
    Equivalent(
        "spread",
        "Timing.iqr: statistics.quantiles(self.samples, n=4, method='inclusive') -> "
        "statistics.quantiles(self.samples, method='inclusive')",
        "four is what quantiles takes if nothing is said",
    ),
    Equivalent(
        "live-memory",
        "LiveMemory.add: (0, 0) -> (0, 1)",
        "the bytes of what has no holder are replaced before they are read",
    ),
    Equivalent(
        "live-memory",
        "LiveMemory.add: (0, 0) -> (0, -1)",
        "the bytes of what has no holder are replaced before they are read",
    ),
    Equivalent(
        "roofline",
        "measure_machine: (16, 0.0, 0.0) -> (16, 1.0, 0.0)",
        "every machine computes more than one FLOP a second",
    ),
    Equivalent(
        "roofline",
        "measure_machine: np.copyto(target, source) -> np.copyto(source, target)",
        "both have the same size and the same values",
    ),
]
