"""A rule-based model for the demo, in Chinese and English. Not a language model: an honest probe.

It reads only the request it is given. If "exclude holidays" doesn't stand there, holidays are counted; if a
saved file isn't named there, it queries again. So the demo's numbers are right only if the platform kept the
right things in front of it.
"""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tenuto.demo.keeper import EXCLUDE, EXTRACT, INCLUDE, PREFER, REFRESH, answer

if TYPE_CHECKING:
    from pydantic_ai.messages import ModelMessage
    from pydantic_ai.models.function import AgentInfo, DeltaToolCall, FunctionModel

_FENCE = re.compile(r'<context id="([^"]+)">\n(.*?)\n</context id="\1">\n', re.DOTALL)
_BRIDGE = re.compile(r"\[bridge\] (.*?)(?=\n\n\[(?:task|memory)\]|\Z)", re.DOTALL)

_MEMORY = re.compile(r"\[memory\] (.*)\Z", re.DOTALL)
_LANGUAGE = re.compile(r"which language|what language|哪种语言|什么语言", re.IGNORECASE)
_ENGLISH = re.compile(r"english|英文", re.IGNORECASE)
_CHINESE = re.compile(r"chinese|中文", re.IGNORECASE)
_TASK = re.compile(r"\[task\] (.*?)(?=\n\n\[memory\]|\Z)", re.DOTALL)
_CONDITIONS_IN_FORCE = re.compile(r"^Conditions in force:\n((?:- .*\n?)*)", re.MULTILINE)

_MONTHS: list[str] = list(
    "january february march april may june july august september october november december".split()  # noqa: SIM905
)
_MONTH = re.compile(
    r"(20\d\d)\s*[-年/]\s*(\d{1,2})(?!\d)\s*月?|\b(" + "|".join(_MONTHS) + r")\s+(20\d\d)\b", re.IGNORECASE
)
_COMPUTE = re.compile(
    r"analy|total|energy use|consum|recomput|again|how much|calculat|能耗|总量|总用电|重新计算|再算|重算|多少",
    re.IGNORECASE,
)
_COMPARE = re.compile(r"compar|versus|\bvs\b|对比|比较|相比", re.IGNORECASE)
_COST = re.compile(r"\bcost|price|tariff|bill|费用|电费|多少钱|电价", re.IGNORECASE)
_CHART = re.compile(r"chart|plot|draw|graph|画|图", re.IGNORECASE)
_STYLE = re.compile(
    r"colou?r|font|title|legend|axis|grid|style|bigger|smaller|label"
    r"|颜色|字体|标题|图例|坐标|网格|样式|大一点|小一点|标签",
    re.IGNORECASE,
)
_CONDITIONS = re.compile(r"which conditions|what conditions|哪些条件|什么条件", re.IGNORECASE)
_SAVED = re.compile(r"\[saved\] (/results/\S+) has the whole result")
_EXPIRED = re.compile(r"\[expired: the file (\S+) was reclaimed")
_RESULT = re.compile(r"^RESULT (\{.*\})$", re.MULTILINE)


@dataclass(slots=True)
class Reading:
    """What the request says."""

    question: str = ""
    said: list[str] = field(default_factory=list[str])
    """The user's words in order: conditions of the task, bridge, history, question."""
    saved: dict[str, str] = field(default_factory=dict[str, str])
    """Month to path of a result that is still there."""
    memory: str = ""
    """What the request says is remembered."""
    expired: set[str] = field(default_factory=set[str])
    """Months whose file is gone."""
    computed: dict[str, Any] | None = None
    """What this turn's code printed."""
    failed: str = ""
    tariff: dict[str, Any] | None = None
    queried: set[str] = field(default_factory=set[str])
    """Months asked for in this turn."""

    @property
    def chinese(self) -> bool:
        return bool(re.search(r"[一-鿿]", self.question))

    @property
    def exclude(self) -> bool:
        """Whether holidays are left out: the last word of the user on it counts."""
        excluded = False
        for text in self.said:
            places = [(match.start(), True) for match in EXCLUDE.finditer(text)]
            places += [(match.start(), False) for match in INCLUDE.finditer(text)]
            if places:
                excluded = max(places)[1]
        return excluded

    @property
    def expired_again(self) -> bool:
        """Whether a file was gone and this turn queried it anew."""
        return bool(self.expired & self.queried)

    @property
    def months(self) -> list[str]:
        """The months of the question, else the last ones that were named."""
        for text in reversed(self.said):
            found = [_month(match) for match in _MONTH.finditer(text)]
            if found:
                return list(dict.fromkeys(found))
        return []


def _month(match: re.Match[str]) -> str:
    if match[1]:
        return f"{match[1]}-{int(match[2]):02d}"
    return f"{match[4]}-{_MONTHS.index(match[3].lower()) + 1:02d}"


def read(messages: Sequence[ModelMessage]) -> Reading:
    """Take from the request what the rules need."""
    reading = Reading()
    calls: dict[str, tuple[str, dict[str, Any]]] = {}
    for message in messages:
        for part in message.parts:
            if part.part_kind == "user-prompt":
                _read_words(part.content, reading)
            elif part.part_kind == "tool-call":
                calls[part.tool_call_id] = (part.tool_name, part.args_as_dict())
            elif part.part_kind == "tool-return":
                name, arguments = calls.get(part.tool_call_id, (part.tool_name, {}))
                _read_result(name, arguments, str(part.content), part.outcome, reading)
    return reading


def _read_words(content: Any, reading: Reading) -> None:
    text = content if isinstance(content, str) else "".join(item for item in content if isinstance(item, str))
    if match := _FENCE.search(text):
        if bridge := _BRIDGE.search(match[2]):
            reading.said.insert(0, bridge[1])
        memory = _MEMORY.search(match[2])
        reading.memory = memory[1] if memory else ""
        if task := _TASK.search(match[2]):
            # The task stands for words older than the bridge's.
            reading.said[:0] = _CONDITIONS_IN_FORCE.findall(task[1])
        text = text[match.end() :]
    reading.said.append(text)
    reading.question = text
    reading.computed, reading.tariff, reading.failed = None, None, ""
    reading.queried = set()


def _read_result(name: str, arguments: dict[str, Any], text: str, outcome: str, reading: Reading) -> None:
    month = str(arguments.get("month", ""))
    if name.endswith("query_energy"):
        reading.queried.add(month)
        if saved := _SAVED.search(text):
            reading.saved[month] = saved[1]
        elif _EXPIRED.search(text):
            reading.saved.pop(month, None)
            reading.expired.add(month)
        elif outcome != "success" or "interrupted" in text:
            reading.failed = text
    elif name.endswith("get_tariff"):
        reading.tariff = json.loads(text) if text.startswith("{") else None
    elif name == "run_python":
        found = _RESULT.findall(text)
        if found:
            reading.computed = json.loads(found[-1])
        else:
            reading.failed = text


@dataclass(frozen=True, slots=True)
class Call:
    tool: str
    arguments: dict[str, Any]


def decide(reading: Reading, tools: Sequence[str]) -> str | list[Call]:
    """The next step: an answer, or calls."""
    question = reading.question
    if reading.failed and reading.computed is None:
        return _failed(reading)
    if _CONDITIONS.search(question):
        return _conditions(reading)
    if _LANGUAGE.search(question):
        return _language(reading)
    if PREFER.search(question):
        return "好的。" if reading.chinese else "All right."
    wants_number = _COMPUTE.search(question) or _COMPARE.search(question) or _COST.search(question)
    wants_chart = _CHART.search(question) and not _STYLE.search(question)
    if not (wants_number or wants_chart):
        return _styled(reading) if _STYLE.search(question) else _help(reading)
    months = reading.months
    if not months:
        return "请问是哪个月份？例如 2026-10。" if reading.chinese else "Which month? For example 2026-10."
    query = next((name for name in tools if name.endswith("query_energy")), None)
    if query is None:
        return "这里没有能耗数据的工具。" if reading.chinese else "There is no tool for energy data here."
    missing = [month for month in months if month not in reading.saved]
    if missing and not set(missing) <= reading.queried:
        calls = [Call(query, {"month": month}) for month in missing]
        if _COST.search(question) and reading.tariff is None:
            calls.append(Call(query.replace("query_energy", "get_tariff"), {"month": months[0]}))
        return calls
    if missing or "run_python" not in tools:
        return _cannot_compute(reading)
    if reading.computed is None:
        calls = []
        if _COST.search(question) and reading.tariff is None:
            calls.append(Call(query.replace("query_energy", "get_tariff"), {"month": months[0]}))
        return [*calls, Call("run_python", {"code": _code(reading, months, bool(wants_chart))})]
    return _answer(reading, months)


def _code(reading: Reading, months: list[str], chart: bool) -> str:
    lines = ["import json", "import pandas as pd", "totals = {}"]
    for month in months:
        lines += [
            f"rows = pd.DataFrame(json.load(open({reading.saved[month]!r})))",
            "read = len(rows)",
        ]
        if reading.exclude:
            lines.append("rows = rows[~rows['holiday']]")
        lines.append(f"totals[{month!r}] = round(float(rows['kwh'].sum()), 2)")
    lines.append("by_building = rows.groupby('building')['kwh'].sum().round(2)")
    if chart:
        title = "办公楼能耗" if reading.chinese else "Energy use of the offices"
        unit = "千瓦时" if reading.chinese else "kWh"
        lines += [
            "import matplotlib.pyplot as plt",
            "figure, axes = plt.subplots(figsize=(8, 4))",
            "axes.bar(by_building.index, by_building.values, color='#2f6f8f')",
            f"axes.set_title({f'{title} {months[-1]}'!r})",
            f"axes.set_ylabel({unit!r})",
        ]
    lines.append(
        "print('RESULT', json.dumps({'totals': totals, 'rows': read, "
        f"'excluded': {reading.exclude}, 'top': by_building.idxmax()}}))"
    )
    return "\n".join(lines)


def _answer(reading: Reading, months: list[str]) -> str:
    assert reading.computed is not None
    totals = reading.computed["totals"]
    if reading.chinese:
        lines = ["之前的结果文件已过期，已重新查询。"] if reading.expired_again else []
        rule = "已排除节假日" if reading.computed["excluded"] else "包含节假日"
        lines += [f"{month} 办公楼总能耗为 {totals[month]:,.2f} 千瓦时（{rule}）。" for month in months]
        lines.append(
            f"基于完整的 {reading.computed['rows']:,} 行数据计算；用电最多的是 {reading.computed['top']}。"
        )
        if reading.tariff is not None:
            cost = round(totals[months[0]] * reading.tariff["gross"], 2)
            lines.append(f"含税电费为 {cost:,.2f} 元。")
        return "".join(lines)
    lines = ["The earlier result file had expired, so I queried again. "] if reading.expired_again else []
    rule = "public holidays left out" if reading.computed["excluded"] else "public holidays included"
    lines += [f"In {month} the offices used {totals[month]:,.2f} kWh ({rule}). " for month in months]
    lines.append(
        f"Computed over all {reading.computed['rows']:,} rows; {reading.computed['top']} used the most."
    )
    if reading.tariff is not None:
        cost = round(totals[months[0]] * reading.tariff["gross"], 2)
        lines.append(f" With tax that costs {cost:,.2f} yuan.")
    return "".join(lines)


def _failed(reading: Reading) -> str:
    reason = reading.failed[:300]
    if reading.chinese:
        return f"这一步没有成功，因此没有给出数字：{reason}"
    return f"That step did not succeed, so there is no number: {reason}"


def _cannot_compute(reading: Reading) -> str:
    if reading.chinese:
        return "这里不能运行代码，只能看到部分数据，无法给出总量。请缩小查询范围。"
    return "I can't run code here and see only a part of the data, so I can't give a total. Please narrow the query."


def _conditions(reading: Reading) -> str:
    if reading.chinese:
        return "当前条件：排除节假日。" if reading.exclude else "当前没有关于节假日的条件，节假日计入。"
    return "Holidays are left out." if reading.exclude else "No condition on holidays: they are counted."


def _language(reading: Reading) -> str:
    """Every language that the memory names: one that was replaced must not be among them."""
    found = [
        name for name, known in (("English", _ENGLISH), ("Chinese", _CHINESE)) if known.search(reading.memory)
    ]
    if reading.chinese:
        names = {"English": "英文", "Chinese": "中文"}
        return f"月报用{'和'.join(names[name] for name in found)}。" if found else "没有记住这一点。"
    return f"Your monthly reports are in {' and '.join(found)}." if found else "I have no note of that."


def _styled(reading: Reading) -> str:
    wish = reading.question.strip().replace("\n", " ")[:120]
    if reading.chinese:
        return (
            f"好的，已记下这项图表样式：{wish}。下次绘图时会一并采用，数据口径保持不变。"
            "图表的其余部分沿用现有设置：柱形按建筑排列，纵轴为千瓦时，标题含月份，"
            "留白与字号按屏幕阅读优化；如果需要导出到报告，请告知尺寸与分辨率。"
        )
    return (
        f"Noted for the chart: {wish}. It will be used the next time I draw; the figures stay as they are. "
        "Everything else keeps its setting: bars by building, kilowatt-hours on the vertical axis, the month in "
        "the title, margins and type sized for the screen. Tell me size and resolution if it goes into a report."
    )


def _help(reading: Reading) -> str:
    if reading.chinese:
        return (
            "我是演示用的规则模型（不是大语言模型）。可以问：分析2026年10月办公楼的能耗，排除节假日，并画图。"
        )
    return (
        "I am the demo's rule-based model, not a language model. Try: analyse the energy use of the offices in "
        "October 2026, leave out public holidays, and draw a chart."
    )


async def _stream(
    messages: list[ModelMessage], info: AgentInfo
) -> AsyncIterator[str | dict[int, DeltaToolCall]]:
    from pydantic_ai.models.function import DeltaToolCall

    last = str(getattr(messages[-1].parts[-1], "content", ""))
    if REFRESH in last or EXTRACT in last:
        yield answer(last)
        return
    step = decide(read(messages), [tool.name for tool in info.function_tools])
    if isinstance(step, str):
        for start in range(0, len(step), 24):
            yield step[start : start + 24]
        return
    number = sum(part.part_kind == "tool-call" for message in messages for part in message.parts)
    for index, call in enumerate(step):
        arguments = json.dumps(call.arguments, ensure_ascii=False)
        identity = f"demo_{number + index + 1}"
        yield {index: DeltaToolCall(name=call.tool, json_args=arguments, tool_call_id=identity)}


def demo_model() -> FunctionModel:
    """The model, as `demo` is found by name."""
    from pydantic_ai.models.function import FunctionModel

    return FunctionModel(stream_function=_stream, model_name="demo")
