"""Every sentence the command line says, in English and Chinese.

The language comes from `TENUTO_LANG` (`en` or `zh`), else from `LC_ALL` or `LANG`.
"""

from __future__ import annotations

import os

TEXTS: dict[str, tuple[str, str]] = {
    "app": ("Tenuto keeps a conversation whole.", "Tenuto 让对话保持完整。"),
    "demo": ("Run the demo; exit 0 only if every number is right.", "运行演示；所有数字都正确时才以 0 退出。"),
    "demo_json": ("Write the demo's results as JSON to this file ('-' for output).", "把演示结果以 JSON 写入文件（'-' 表示输出）。"),
    "chat": ("Talk to a thread; commands begin with /.", "与一个会话对话；以 / 开头的是命令。"),
    "threads": ("List your threads.", "列出你的会话。"),
    "context": ("Show what the model was given in a turn, layer by layer.", "按层显示某一轮给模型的内容。"),
    "why": ("Where some words stand: in the context, the log, a file; and why not.", "某些词出现在哪里：上下文、日志、文件；以及为何没有。"),
    "results": ("List a thread's saved results and files, or print one.", "列出会话保存的结果和文件，或打印其中一个。"),
    "export": ("Write a thread as JSON Lines.", "把会话导出为 JSON Lines。"),
    "import": ("Make a thread from an export.", "从导出文件建立会话。"),
    "config": ("Settings.", "设置。"),
    "config_show": ("Every setting with its value, unit and origin.", "每项设置的值、单位和来源。"),
    "doctor": ("Check sandbox, models, MCP servers, disk and logs.", "检查沙箱、模型、MCP 服务器、磁盘和日志。"),
    "repair": ("Write anew what can be recovered.", "重写可以恢复的内容。"),
    "bench": ("Measurements, with the floor taken in the same run.", "测量，与同一次运行中的基准比较。"),
    "bench_data": ("Conversations with labelled evidence, as JSON; our own set unless given.", "带证据标注的对话（JSON）；默认使用自带的数据集。"),
    "sandbox": ("The sandbox's own Python environment.", "沙箱自己的 Python 环境。"),
    "sandbox_setup": ("Build the sandbox's Python environment.", "构建沙箱的 Python 环境。"),
    "branch": ("The branches that edits and regenerations made.", "由编辑和重新生成产生的分支。"),
    "branch_list": ("List the branches.", "列出分支。"),
    "branch_select": ("Go back to the branch that ends in a record.", "回到以某条记录结尾的分支。"),
    "arg_record": ("Record, as listed.", "记录编号，见列表。"),
    "col_turn": ("turn", "轮次"), "col_version": ("version", "版本"),
    "attach": ("Attach a folder or an archive to a thread, to be read on demand.", "把文件夹或压缩包附加到会话，按需读取。"),
    "attached_folder": ("files/{name}: {files} files, {bytes} bytes; {left} links and hidden entries left out", "files/{name}：{files} 个文件，{bytes} 字节；略去 {left} 个链接和隐藏项"),
    "versions": ("A file's versions; one of them; or what changed between two.", "文件的版本；其中一个；或两个版本的差异。"),
    "arg_version": ("Version.", "版本。"), "arg_path": ("Folder, zip or tar file.", "文件夹、zip 或 tar 文件。"), "opt_name": ("Name of the folder in the thread.", "会话中的文件夹名。"),
    "task": ("The task of a thread: goals, conditions, decisions, with the words they rest on.", "会话的任务：目标、条件、决定，及其依据的原话。"),
    "task_show": ("Show the items that apply.", "显示当前有效的条目。"),
    "task_history": ("Every version: what a refresh changed and what it took in.", "每个版本：刷新改变了什么、纳入了哪些记录。"),
    "task_refresh": ("Refresh now, with a focus if given, and move the window.", "立即刷新（可给出重点），并移动窗口。"),
    "task_add": ("Add an item in your own words.", "用自己的话添加条目。"),
    "task_edit": ("Change an item's text.", "修改条目的文字。"),
    "task_pin": ("Show an item first, and never let it go.", "置顶条目，始终保留。"),
    "task_unpin": ("Take a pin away.", "取消置顶。"),
    "task_withdraw": ("Take an item back.", "撤回条目。"),
    "task_done": ("Mark an item as done.", "标记条目已完成。"),
    "task_reopen": ("Take an item up again.", "重新启用条目。"),
    "task_empty": ("The task has no items yet.", "任务还没有条目。"),
    "task_covers": ("covers records up to #{seq}, version {version}", "已覆盖至 #{seq} 的记录，版本 {version}"),
    "task_failed": ("the last refresh failed: {reason}; not before {at}", "上次刷新失败：{reason}；{at} 之前不再尝试"),
    "task_version": ("version {version}, {at}, {by}:", "版本 {version}，{at}，{by}："),
    "refresh_done": ("Refreshed: covers records up to #{seq}.", "已刷新：覆盖至 #{seq} 的记录。"),
    "refresh_nothing": ("Nothing new to take in.", "没有新的内容需要纳入。"),
    "refresh_cooling": ("A refresh failed lately ({reason}); it is tried again later.", "最近刷新失败（{reason}），稍后再试。"),
    "refresh_failed": ("The refresh failed, everything stays as it was: {reason}", "刷新失败，一切保持原状：{reason}"),
    "refresh_off": ("The task is switched off (task.enabled).", "任务已关闭（task.enabled）。"),
    "memory": ("What is remembered of you in this workspace.", "本工作区记住的关于你的内容。"),
    "memory_list": ("List what is remembered.", "列出记住的内容。"),
    "memory_add": ("Add a fact.", "添加一条。"),
    "memory_edit": ("Change a fact's text.", "修改一条的文字。"),
    "memory_explain": ("When a fact was used, and why not.", "一条记忆何时被使用，以及为何没有。"),
    "memory_forget": ("Take facts out of use; a short history keeps them.", "停用若干条（短期保留历史）。"),
    "memory_delete": ("Delete facts for good.", "彻底删除若干条。"),
    "memory_on": ("Use memory in conversations (with --extraction: note facts by itself).", "在对话中使用记忆（加 --extraction：自动提取）。"),
    "memory_off": ("Stop using memory (with --extraction: stop noting facts).", "停用记忆（加 --extraction：停止提取）。"),
    "memory_export": ("Write the facts as JSON.", "把记忆导出为 JSON。"),
    "memory_import": ("Read facts from an export.", "从导出文件读入。"),
    "memory_state": ("Memory is {use}, extraction is {extract}.", "记忆：{use}，自动提取：{extract}。"),
    "memory_added": ("Remembered as {fact}.", "已记住，编号 {fact}。"),
    "memory_edited": ("{fact} was changed.", "{fact} 已修改。"),
    "memory_used": ("used in {count} turn(s), last in {thread}, turn {turn}", "已用于 {count} 轮，最近一次在 {thread} 第 {turn} 轮"),
    "memory_next": ("It is in the next request.", "下一次请求会带上它。"),
    "memory_not_next": ("It is not in the next request: {reason}.", "下一次请求不会带上它：{reason}。"),
    "memory_forgotten": ("Forgotten: {count}.", "已忘记 {count} 条。"),
    "memory_sure": ("Delete for good?", "确定彻底删除吗？"),
    "memory_deleted": ("Deleted: {count}; removed from {shown} stored requests.", "已删除 {count} 条；并从 {shown} 份已保存的请求中移除。"),
    "memory_imported": ("Taken: {count}; refused: {refused}.", "已读入 {count} 条；拒绝 {refused} 条。"),
    "search": ("Search what was said in your conversations.", "搜索自己说过和得到的内容。"),
    "search_none": ("Nothing was found.", "没有找到。"),
    "search_later": ("  later, {at} #{record}: {text}", "  之后 {at} #{record}：{text}"),
    "clear": ("Clear a thread: nothing of its content is left anywhere.", "清除会话：内容不留在任何地方。"),
    "delete": ("Delete a thread, or everything of a user.", "删除会话，或某个用户的全部内容。"),
    "retention": ("Delete the threads that are older than the workspace keeps them.", "删除超过保留期限的会话。"),
    "verify": ("Prove that nothing of what was cleared or deleted is left, and that every file is sound.", "证明已清除或删除的内容没有残留，且所有文件完好。"),
    "clear_sure": ("Clear everything in {thread}?", "确定清除 {thread} 的全部内容吗？"),
    "delete_sure": ("Delete {what} for good?", "确定彻底删除 {what} 吗？"),
    "needs_yes": ("this can't be undone and needs --yes", "此操作不可撤销，需要 --yes"),
    "receipt_line": ("{what}: {count} ({bytes} bytes)", "{what}：{count}（{bytes} 字节）"),
    "receipt_kept": ("kept: {what}", "保留：{what}"),
    "retained": ("Deleted: {count} thread(s).", "已删除 {count} 个会话。"),
    "verified": ("{threads} threads, {records} records, {facts} facts", "{threads} 个会话，{records} 条记录，{facts} 条记忆"),
    "verify_good": ("Nothing is left of what was cleared or deleted, and every file is sound.", "已清除或删除的内容没有残留，所有文件完好。"),
    "verify_bad": ("{count} finding(s).", "{count} 项发现。"),
    "on": ("on", "开"), "off": ("off", "关"),
    "col_item": ("item", "条目"), "col_kind": ("kind", "类别"), "col_text": ("text", "文字"), "col_words": ("rests on", "依据"),
    "col_fact": ("fact", "编号"), "col_importance": ("importance", "重要性"), "col_uses": ("used", "使用"),
    "arg_item": ("Item, for example c1.", "条目，例如 c1。"),
    "arg_fact": ("Fact, for example f1a2b3.", "记忆编号，例如 f1a2b3。"),
    "arg_text": ("Text.", "文字。"),
    "arg_focus": ("What matters most.", "最应关注的内容。"),
    "opt_sure": ("Don't ask.", "不再询问。"),
    "opt_importance": ("1 to 5.", "1 到 5。"),
    "opt_applies": ("When it holds; always unless given.", "适用情形；不给出则始终适用。"),
    "opt_until": ("Last day it holds, 2027-03-31.", "有效的最后一天，如 2027-03-31。"),
    "opt_since": ("From this day on, 2026-11-01.", "起始日期，如 2026-11-01。"),
    "opt_to": ("Up to this day, 2026-11-30.", "截止日期，如 2026-11-30。"),
    "opt_rebuild": ("Build the index again from the logs first.", "先由日志重建索引。"),
    "opt_of_user": ("Everything of this user instead of a thread.", "删除该用户的全部内容。"),
    "opt_kind": ("goal, constraint, decision, reference, progress or open.", "goal、constraint、decision、reference、progress 或 open。"),
    "opt_past": ("Also what was forgotten, replaced or evicted.", "包括已忘记、被取代和被淘汰的。"),
    "opt_all": ("All facts.", "全部记忆。"),
    "opt_extraction": ("The noting of facts by itself, not their use.", "指自动提取，而非使用。"),
    "not_saved": ("the answer says it remembers, but nothing was saved", "回答声称已记住，但实际没有保存"),
    "opt_json": ("Print JSON.", "输出 JSON。"),
    "opt_workspace": ("Workspace.", "工作区。"),
    "opt_user": ("User.", "用户。"),
    "opt_home": ("Folder of all data (default ~/.tenuto).", "数据目录（默认 ~/.tenuto）。"),
    "opt_thread": ("Thread; a new one unless given.", "会话；不给出则新建。"),
    "opt_model": ("Model, for example openai:gpt-5 or demo.", "模型，例如 openai:gpt-5 或 demo。"),
    "opt_message": ("Send this one message and end.", "只发送这一条消息后结束。"),
    "opt_yes": ("Allow tools that need approval.", "允许需要批准的工具。"),
    "arg_thread": ("Thread.", "会话。"),
    "arg_turn": ("Turn; the newest unless given.", "轮次；不给出则为最新一轮。"),
    "arg_words": ("Words to look for.", "要查找的词。"),
    "arg_name": ("Name of a result or file.", "结果或文件的名字。"),
    "arg_file": ("File ('-' for standard input or output).", "文件（'-' 表示标准输入或输出）。"),
    "opt_texts": ("Show the exact texts.", "显示原文。"),
    "opt_step": ("Model request within the turn, from 0; the last unless given.", "该轮中的第几次请求，从 0 起；默认最后一次。"),
    "chat_start": ("Thread {thread}, model {model}. /help shows the commands, Ctrl-C stops an answer.", "会话 {thread}，模型 {model}。/help 查看命令，Ctrl-C 停止回答。"),
    "chat_demo": ("The model is the rule-based demo, and its energy data is connected. Choose another with /model.", "当前是规则演示模型，已连接能耗数据。用 /model 选择其他模型。"),
    "chat_help": (
        "/context [TURN]  what the model was given\n/files           results and files\n/task            what the work rests on\n/compact [FOCUS] refresh the task and move the window\n/edit TURN TEXT  ask an earlier question in other words (a branch)\n/again [TURN]    answer a question once more (a branch)\n/clear           clear this thread\n/model [NAME]    show or change the model\n/help            this list\n/quit            end",
        "/context [轮次]  给模型的内容\n/files           结果和文件\n/task            任务条目\n/compact [重点]  刷新任务并移动窗口\n/edit 轮次 文字  改写较早的问题（产生分支）\n/again [轮次]    重新回答（产生分支）\n/clear           清除本会话\n/model [名字]    查看或更换模型\n/help            本列表\n/quit            结束",
    ),
    "chat_unknown": ("Unknown command {command}; /help lists them.", "未知命令 {command}；/help 查看命令。"),
    "model_now": ("Model: {model}", "模型：{model}"),
    "stopping": ("stopping…", "正在停止…"),
    "stopped": ("stopped; what came is kept", "已停止；已有内容已保留"),
    "queued": ("waits behind {position} other message(s)", "前面还有 {position} 条消息"),
    "attached": ("the long text was saved as {name}", "长文本已保存为 {name}"),
    "saved": ("saved whole: {name}, {rows} rows", "已完整保存：{name}，{rows} 行"),
    "file": ("file: {name}", "文件：{name}"),
    "approve": ("Allow {tool}({arguments})? [y/N] ", "允许 {tool}({arguments})？[y/N] "),
    "usage": ("{input} in ({cached} cached), {output} out, {requests} request(s)", "输入 {input}（缓存 {cached}），输出 {output}，{requests} 次请求"),
    "partial": ("coverage: partial; some of your earlier words had no room", "覆盖不全：部分较早的话放不下"),
    "no_threads": ("No threads yet. Start one with `tenuto chat`.", "还没有会话。用 `tenuto chat` 开始。"),
    "no_results": ("Nothing is saved in this thread.", "该会话没有保存的内容。"),
    "col_thread": ("thread", "会话"), "col_title": ("title", "标题"), "col_used": ("last used", "最近使用"), "col_state": ("state", "状态"),
    "col_layer": ("layer", "层"), "col_tokens": ("tokens", "词元"), "col_records": ("records", "记录"), "col_source": ("source", "来源"),
    "col_name": ("name", "名字"), "col_size": ("bytes", "字节"), "col_rows": ("rows", "行"), "col_expires": ("expires", "到期"), "col_from": ("from", "来自"),
    "col_key": ("setting", "设置"), "col_value": ("value", "值"), "col_unit": ("unit", "单位"), "col_check": ("check", "检查"), "col_found": ("found", "结果"), "col_do": ("what to do", "怎么办"),
    "layer_base": ("base rules", "基本规则"), "layer_tools": ("tools", "工具"), "layer_history": ("history", "历史"), "layer_clock": ("clock", "时间"),
    "layer_bridge": ("bridge", "桥接"), "layer_task": ("task", "任务"), "layer_memory": ("memory", "记忆"), "layer_question": ("question", "问题"), "layer_turn": ("this turn", "本轮"),
    "context_head": ("Turn {turn}, request {step} to {model}: about {used} of {window} tokens ({how}), coverage {coverage}", "第 {turn} 轮第 {step} 次请求（{model}）：约 {used} / {window} 词元（{how}），覆盖 {coverage}"),
    "rebuilt": ("rebuilt from the log, byte for byte the request that was sent", "由日志重建，与当时发送的请求逐字节一致"),
    "not_rebuilt": ("the log was changed since: this is not exactly the request that was sent", "日志此后有变化：与当时发送的请求不完全一致"),
    "left_out": ("left out: #{first} to #{last} ({reason}; covered by {covered})", "未包含：#{first} 至 #{last}（{reason}；由 {covered} 覆盖）"),
    "why_context": ("In the context of the newest turn:", "在最新一轮的上下文中："),
    "why_log": ("In the log:", "在日志中："),
    "why_results": ("In files:", "在文件中："),
    "why_none": ("“{words}” stands nowhere in this thread.", "“{words}”在该会话中没有出现。"),
    "in_context": ("in the context", "在上下文中"),
    "exported": ("{thread}: {records} lines", "{thread}：{records} 行"),
    "imported": ("{thread}: {records} records", "{thread}：{records} 条记录"),
    "ok": ("ok", "正常"), "warning": ("warning", "警告"), "problem": ("problem", "问题"),
    "doctor_good": ("Everything is in order.", "一切正常。"),
    "doctor_bad": ("{count} problem(s).", "{count} 个问题。"),
    "error": ("error", "错误"),
    "do_next": ("what to do", "怎么办"),
    "interrupted": ("interrupted", "已中断"),
    "demo_title": ("Tenuto demo", "Tenuto 演示"),
    "demo_rule": ("The model is rule-based and labelled so: it acts only on what stands in its request.", "模型是规则模型（非大语言模型）：它只依据请求中的内容行动。"),
    "demo_turns": ("{count} turns about chart styling …", "{count} 轮图表样式对话……"),
    "demo_held": ("Styling, while the summary job is held back", "调整样式，同时推迟摘要任务"),
    "demo_refreshes": ("{count} more refreshes of the task", "任务再刷新 {count} 次"),
    "demo_preference": ("A preference, corrected; then a second thread", "一个偏好及其更正；然后是第二个会话"),
    "demo_killed": ("A process is killed in mid-turn", "进程在一轮中途被杀死"),
    "demo_clear": ("The thread is cleared while a summary and an extraction run", "在摘要和提取运行时清除会话"),
    "demo_expire": ("The saved files are made to expire.", "让已保存的文件过期。"),
    "demo_thread_en": ("A second thread, in English", "第二个会话（英文）"),
    "demo_thread_zh": ("A thread in Chinese", "中文会话"),
    "demo_checks": ("What was promised", "所作承诺"),
    "demo_good": ("Every number equals the one computed straight from the data set, and every promise held.", "所有数字都与直接由数据集计算的一致，所有承诺都已兑现。"),
    "demo_bad": ("{count} did not hold.", "{count} 项未成立。"),
    "demo_shown": ("shown", "显示"), "demo_truth": ("truth", "真值"),
    "demo_context": ("The context of this turn", "这一轮的上下文"),
    "demo_chart": ("chart", "图表"),
}  # fmt: skip


ERRORS_ZH: dict[str, str] = {
    "error": "出错", "internal": "内部错误", "usage": "用法有误", "invalid_id": "标识无效", "settings_invalid": "设置有误",
    "not_found": "找不到", "result_not_found": "找不到该结果", "forbidden": "没有权限", "thread_busy": "会话繁忙",
    "log_version": "日志版本较新", "log_invalid": "不是日志", "question_too_large": "问题超出模型窗口",
    "context_unfittable": "上下文放不下", "disk_full": "磁盘空间不足", "result_too_large": "结果超出配额",
    "sandbox_unavailable": "沙箱不可用", "sandbox_busy": "沙箱繁忙", "sandbox_cleared": "会话已清除",
    "model_failed": "模型调用失败", "tool_server_failed": "工具服务器失败", "stopped": "已停止", "damaged_line": "日志行已损坏",
    "late_write": "会话或记忆已清除，写入作废", "thread_cleared": "会话已被清除", "fact_refused": "不予记住", "edit_refused": "修改未执行", "archive_refused": "压缩包不被接受", "memory_damaged": "记忆文件已损坏",
}  # fmt: skip
"""What each error code means; the details that follow it are in English."""


WORDS_ZH: dict[str, str] = {
    "older turns": "较早的轮次", "recent turns": "最近的轮次", "steps of this turn": "本轮的步骤", "clipped": "已截短",
    "elided": "图片已省略", "bridge": "桥接", "full": "完整", "bridged": "含桥接", "partial": "不全", "window": "超出窗口",
    "bridge_full": "桥接已满", "task": "任务", "log": "日志", "anchor": "按实际用量推算", "formula": "按公式估算",
    "carried in the bridge": "由桥接带上", "came after this request": "在这次请求之后",
    "before the window; read_record or search finds it": "在窗口之前；可用 read_record 查看",
    "in a clipped part of this record": "在该记录被截短的部分", "on another branch": "在另一个分支上",
    "before the window; covered by the task": "在窗口之前；由任务覆盖", "goal": "目标", "constraint": "条件", "decision": "决定",
    "reference": "参考", "progress": "进展", "open": "未决", "active": "有效", "pending": "待确认", "done": "已完成", "withdrawn": "已撤回",
    "superseded": "已被取代", "unconfirmed": "未确认", "pinned": "置顶", "by hand": "手工", "user": "用户", "assistant": "助手", "refresh": "刷新",
    "applied": "已采纳", "unverified": "未能核实", "refused": "已拒绝", "forgotten": "已忘记", "memory is switched off": "记忆已关闭",
    "cleared": "已清除", "deleted": "已删除", "user deleted": "用户已删除", "results": "结果", "files": "文件", "blobs": "附属内容", "index_rows": "索引行",
    "residue": "残留", "damage": "损坏", "unproven": "缺少依据", "settings": "设置",
    "memory: facts noted from this thread stay until they are deleted": "记忆：从该会话记下的内容在删除前仍保留",
    "the thread's name, owner and model": "会话的名字、所有者和模型",
    "no request was made yet": "还没有请求", "kept": "保留", "expired": "已过期", "evicted": "已清理", "ok": "正常",
}  # fmt: skip
"""Words of manifests and indexes, which are data, as the screen shows them."""


def word(value: str) -> str:
    """A word of our own data in the user's language."""
    if language() != "zh":
        return value
    if value.endswith(" questions"):
        return f"{value.removesuffix(' questions')} 个问题"
    return WORDS_ZH.get(value, value)


def error_label(code: str) -> str:
    """`error [code]`, in Chinese with what the code means."""
    meaning = f" {ERRORS_ZH[code]}" if language() == "zh" and code in ERRORS_ZH else ""
    return f"{t('error')} [{code}]{meaning}"


def language() -> str:
    """`zh` or `en`."""
    chosen = os.environ.get("TENUTO_LANG") or os.environ.get("LC_ALL") or os.environ.get("LANG") or ""
    return "zh" if chosen.lower().startswith("zh") else "en"


def t(key: str, **values: object) -> str:
    """The sentence `key` in the user's language, with `values` filled in."""
    english, chinese = TEXTS[key]
    return (chinese if language() == "zh" else english).format(**values)
