"""The process in which verdicts are found: one line of JSON in, one line out, until the end.

Run as a script by `tito.course.exam.jury`, in the sandbox: what a submission claims can be made to
cost time and memory when it is decoded and compared, and here that costs nobody else anything.
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict

PREFIX = "verdict"


def main() -> None:
    sys.path[:0] = sys.argv[1:]
    from tito.course.exam.judge import TestKey, judge

    print(f"\n{PREFIX} {{}}", flush=True)  # it has started
    for line in sys.stdin.buffer:
        asked = json.loads(line)
        verdict = judge(TestKey.from_json(asked["key"]), asked["result"], asked["ended"])
        print(f"\n{PREFIX} {json.dumps(asdict(verdict))}", flush=True)


if __name__ == "__main__":
    main()
