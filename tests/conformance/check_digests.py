"""Compares the digests in cases.json with those that tests/reference gives now: check_digests.py PROGRAM CASES"""

import json
import subprocess
import sys


def main() -> int:
    program, path = sys.argv[1:]
    cases = json.load(open(path))
    now = json.loads(subprocess.run([program, path], check=True, capture_output=True, text=True).stdout)
    wrong = [case["name"] for case in cases if case.get("digest") != now.get(case["name"])]
    for name in wrong:
        print(f"{name}: the file and tests/reference disagree; was make_cases.py run after a change?")
    print(f"{len(now)} digests, {len(wrong)} wrong")
    return 1 if wrong or not now else 0


if __name__ == "__main__":
    sys.exit(main())
