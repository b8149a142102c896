"""Run the cases against an adapter; see README.md. Python alone is needed."""

import argparse
import json
import shlex
import subprocess
import sys
from pathlib import Path

CASES = Path(__file__).with_name("cases")


def load_cases():
    """The cases with repeats written out, by file name."""
    for path in sorted(CASES.glob("*.json")):
        case = json.loads(path.read_text("utf-8"))
        case["entries"] = list(expand(case["entries"]))
        yield case


def expand(entries):
    for entry in entries:
        for number in range(entry.get("repeat", 1)):
            yield fill({k: v for k, v in entry.items() if k not in ("repeat", "times")}, number, entry.get("times", 1))


def fill(value, number, times):
    if isinstance(value, str):
        return value.replace("{n}", str(number)) * times
    if isinstance(value, list):
        return [fill(item, number, times) for item in value]
    if isinstance(value, dict):
        return {k: v if k in ("id", "tool") and times > 1 else fill(v, number, times) for k, v in value.items()}
    return value


def check(case, answer):
    """What the answer gets wrong, one line each."""
    wrong = []
    for name, argument in case["expect"].items():
        problem = CHECKS[name](case, answer, argument)
        if problem:
            wrong.append(f"{name}: {problem}")
    return wrong


def pairs(messages):
    """Each call is answered once, right after it; no result without its call; no id twice."""
    waiting, seen = [], set()
    for message in messages:
        for identity in message.get("results", []):
            if identity not in waiting:
                return f"result {identity} answers nothing"
            waiting.remove(identity)
        if waiting and message["role"] != "tool":
            return f"{waiting} have no result"
        for identity in message.get("calls", []):
            if identity in seen:
                return f"id {identity} is used twice"
            seen.add(identity)
            waiting.append(identity)
    return f"{waiting} have no result" if waiting else ""


def everything(answer):
    return "\n".join(message["text"] for message in answer.get("messages", []))


def common(first, second):
    count = 0
    for a, b in zip(first, second):
        if a != b:
            break
        count += 1
    return count


def breaks(requests):
    """How often a request differs from the previous one before that one's newest user message."""
    return sum(common(a, b) < newest(a) for a, b in zip(requests, requests[1:]))


def newest(messages):
    return max(at for at, message in enumerate(messages) if message["role"] == "user")


CHECKS = {
    "valid_pairs": lambda case, answer, _: pairs(answer.get("messages", [])) or ("" if "messages" in answer else "no request"),
    "contains": lambda case, answer, words: next((f"{w!r} is missing" for w in words if w not in everything(answer)), ""),
    "lacks": lambda case, answer, words: next((f"{w!r} is there" for w in words if w in everything(answer)), ""),
    "last_is": lambda case, answer, text: "" if answer["messages"][-1]["text"].endswith(text) else "another message is last",
    "valid_unicode": lambda case, answer, _: "" if everything(answer).encode("utf-8", "strict") is not None else "broken",
    "at_most_attempts": lambda case, answer, n: "" if answer.get("attempts", 0) <= n else f"{answer['attempts']} attempts",
    "fits_or_typed_error": lambda case, answer, _: ""
    if "messages" in answer or (answer.get("error", {}).get("code") and answer["error"]["message"])
    else "neither a request nor a typed error",
    "texts": lambda case, answer, texts: "" if answer["texts"] == texts else f"got {answer['texts']}",
    "texts_count": lambda case, answer, n: "" if len(answer["texts"]) == n else f"{len(answer['texts'])} texts",
    "reports_gap": lambda case, answer, yes: "" if (answer["gaps"] > 0) == yes else f"{answer['gaps']} gaps",
    "branches": lambda case, answer, n: "" if answer["branches"] == n else f"{answer['branches']} branches",
    "rebuilt_equal": lambda case, answer, _: "" if answer["requests"] == answer["rebuilt"] else "a fresh process makes others",
    "at_most_breaks": lambda case, answer, n: "" if breaks(answer["requests"]) <= n else f"{breaks(answer['requests'])} breaks",
    "once": lambda case, answer, words: next(
        (f"{w!r} is there {everything(answer).count(w)} times" for w in words if everything(answer).count(w) != 1), ""
    ),
    "at_least_attempts": lambda case, answer, n: "" if answer["attempts"] >= n else f"{answer['attempts']} attempts",
    "memory_is": lambda case, answer, texts: "" if answer["memory"] == texts else f"remembered: {answer['memory']}",
    "task_is": lambda case, answer, texts: "" if answer["task"] == texts else f"the task holds {answer['task']}",
    "kept": lambda case, answer, n: "" if answer["kept"] == n else f"{answer['kept']} messages are kept",
    "not_saved": lambda case, answer, yes: "" if answer["not_saved"] == yes else f"not_saved is {answer['not_saved']}",
    "every_request_valid": lambda case, answer, _: next(filter(None, map(pairs, answer["requests"])), ""),
}  # fmt: skip


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--adapter", required=True, help="command that answers one case on standard input")
    command = shlex.split(parser.parse_args().adapter)
    failed = 0
    for case in load_cases():
        done = subprocess.run(command, input=json.dumps(case), capture_output=True, text=True)
        wrong = check(case, json.loads(done.stdout)) if done.returncode == 0 else [done.stderr.strip()[-300:]]
        failed += bool(wrong)
        print("FAIL" if wrong else "ok  ", case["id"], *wrong)
    print(f"{failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
