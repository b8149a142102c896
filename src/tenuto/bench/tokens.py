"""How exact the token counts are: by kind of text, and of the anchored prediction over a conversation."""

from __future__ import annotations

import base64
import hashlib
import random
from typing import Any, cast

from tenuto.bench import workload
from tenuto.codec import JsonObject
from tenuto.context.tokens import Anchor, Family, count, measure, measure_message, predict

_CHINESE = (
    "上个月十二栋办公楼的用电量比前一个月下降了不少，主要原因是国庆长假期间大部分楼层停用了空调。"
    "如果把节假日排除在外，工作日的平均负荷其实略有上升，尤其是上午九点到十一点之间。"
    "我们建议先检查冷杉楼和银杏楼的新风机组，这两栋的夜间基础负荷明显偏高，可能有设备没有按时关闭。"
    "另外，含税口径与不含税口径要分开统计，财务部每个月底会核对一次，以免报表前后不一致。"
    "用户希望图表使用统一的配色，标题写明月份和单位，并在附注里说明数据来源和缺失的小时。"
    "之后再讨论是否把仓库也纳入分析范围，目前只看办公类建筑，其他类型暂时不计。"
)


def _samples() -> dict[str, str]:
    rng = random.Random(7)
    table = "\n".join(f"| B{n:02d} | {n * 37.5:.2f} | 办公楼 {n} |" for n in range(60))
    python = "\n".join(
        f"def total_{n}(rows: list[dict]) -> float:\n    return sum(row['kwh'] for row in rows if row['n'] != {n})\n"
        for n in range(20)
    )
    raw = b"".join(hashlib.sha256(str(n).encode()).digest() for n in range(60))
    return {
        "chinese": _CHINESE,
        "english": "The weekday load of the offices peaks at ten and falls after six; holidays are left out. "
        * 30,
        "python": python,
        "json rows": workload.rows(rng, 4_000),
        "table": table,
        "base64": base64.b64encode(raw).decode(),
        "emoji": "能耗📈上升 👩‍💻 分析 🏢🏬 ok ✅ " * 60,
    }


SAMPLES = _samples()


FAMILIES: tuple[tuple[Family, str], ...] = (("qwen", "qwen3"), ("llama", "llama3"))
"""Families whose own vocabulary is at hand to compare with."""


def vocabulary(name: str) -> Any:
    """A real tokenizer by name."""
    import quicktok

    return cast("Any", quicktok).get_encoding(name)


def measure_kinds() -> list[JsonObject]:
    """Our o200k count against a second tokenizer, and the formulas against the families' own vocabularies."""
    from bpe_openai import get_encoding  # pyright: ignore[reportMissingTypeStubs]

    truth = get_encoding("o200k_base")
    rows: list[JsonObject] = []
    for kind, text in SAMPLES.items():
        real = len(truth.encode(text))
        row: JsonObject = {
            "kind": kind,
            "chars": len(text),
            "o200k": real,
            "error_o200k": _error(count(text), real),
        }
        for family, name in FAMILIES:
            own = vocabulary(name).count(text)
            row[f"error_{family}"] = _error(measure(text).of(family), own)
        rows.append(row)
    return rows


def _error(ours: int, real: int) -> float:
    return round((ours - real) / real, 4)


def measure_anchor(turns: int = 100) -> JsonObject:
    """Predict each request of a conversation from the last one's usage; the provider counts with Qwen's vocabulary.

    The provider adds a template of 1,200 tokens that it doesn't disclose, and eight tokens a message.
    """
    provider = vocabulary("qwen3")
    rng = random.Random(3)
    ours = theirs = 0
    anchor: Anchor | None = None
    errors: list[float] = []
    theirs = 1_200
    for number in range(turns):
        messages: list[JsonObject] = [
            workload.question(rng),
            workload.call(rng, f"c{number}"),
            {"kind": "request", "parts": [workload.result(rng, f"c{number}", 2_000)]},
            workload.answer(rng),
        ]
        for message in messages:
            ours += measure_message(message).of("qwen")
            texts = [str(part.get("content", part.get("args", ""))) for part in message["parts"]]
            theirs += sum(provider.count(text) for text in texts) + 8
        predicted, how = predict(ours, "same", anchor)
        if how == "anchor":
            errors.append((predicted - theirs) / theirs)
        anchor = Anchor("same", theirs, ours)
    ordered = sorted(abs(error) for error in errors)
    return {
        "requests": len(errors),
        "mean_error": round(sum(errors) / len(errors), 4),
        "p95_error": round(ordered[int(len(ordered) * 0.95)], 4),
        "worst_error": round(ordered[-1], 4),
    }


def measure_all() -> JsonObject:
    return {"kinds": measure_kinds(), "anchored": measure_anchor()}


def as_rows(found: JsonObject) -> list[JsonObject]:
    """For a table: the kinds, without the anchored part."""
    return found["kinds"]
