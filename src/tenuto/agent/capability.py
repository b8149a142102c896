"""The context layers for somebody's own Pydantic AI agent: its runs become turns of a thread.

The agent keeps its model, tools and instructions. What it is asked and what comes back goes into the log, and each
request is assembled from there: window, bridge, task, memory. Give the run no message history: the log is it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pydantic_ai.capabilities import AbstractCapability

from tenuto.agent.app import App, Workspace, fixed_parts
from tenuto.agent.conversation import RequestRules
from tenuto.agent.models import named_facts
from tenuto.agent.tools import ToolPlace
from tenuto.agent.turn import TurnLoop
from tenuto.codec import dumps
from tenuto.errors import UsageError
from tenuto.sandbox.protocol import SandboxKey
from tenuto.scope import Scope, require

if TYPE_CHECKING:
    from pydantic_ai.models import Model


class Continuity(AbstractCapability[Any]):
    """One thread's context layers. Get it from `ThreadHandle.continuity()`."""

    def __init__(self, app: App, scope: Scope, loop: TurnLoop | None = None) -> None:
        self._app = app
        self._scope = scope
        self._loop = loop

    async def for_run(self, ctx: Any) -> Continuity:
        return Continuity(self._app, self._scope)

    async def wrap_run(self, ctx: Any, *, handler: Any) -> Any:
        """The run has the thread to itself, and its end is logged whatever it is."""
        workspace = self._app.workspace(self._scope.workspace)
        require(workspace.member(self._scope.user), "send")
        workspace.threads.open(self._scope, create=True)
        async with self._app.turn_lock(workspace, self._scope):
            try:
                result = await handler()
            except BaseException as error:
                if self._loop is not None:
                    self._loop.broke_off(error)
                raise
        self._app.afterwards(workspace, self._scope)
        return result

    async def before_model_request(self, ctx: Any, request_context: Any) -> Any:
        if self._loop is None:
            self._loop = self._begin(ctx, request_context)
            request_context.messages = await self._loop.next_request(())
        else:
            request_context.messages = await self._loop.next_request(request_context.messages)
        return request_context

    async def after_model_request(self, ctx: Any, *, request_context: Any, response: Any) -> Any:
        assert self._loop is not None
        self._loop.settle_response(response)
        return response

    def _begin(self, ctx: Any, request_context: Any) -> TurnLoop:
        """Log the question; the rules of this run's requests come from the agent itself."""
        workspace = self._app.workspace(self._scope.workspace)
        thread = workspace.thread(self._scope)
        conversation = workspace.conversation(thread)
        if ctx.prompt is None:
            raise UsageError("the run has no prompt", hint="call agent.run with the user's message")
        content = ctx.prompt if isinstance(ctx.prompt, str) else _content(ctx.prompt)
        message = {"kind": "request", "parts": [{"part_kind": "user-prompt", "content": content}]}
        question = conversation.begin(message, zone=workspace.settings.agent.timezone)
        parameters = request_context.model_request_parameters
        instructions = "\n\n".join(part.content for part in parameters.instruction_parts or ())
        definitions = [
            {"name": tool.name, "description": tool.description or "", "schema": tool.parameters_json_schema}
            for tool in parameters.function_tools
        ]
        sections, covers_seq = self._sections(workspace)
        rules = RequestRules(
            fixed=fixed_parts(conversation.log, instructions, dumps(definitions).decode()),
            model=named_facts(_name_of(ctx.model), workspace.settings),
            settings=workspace.settings.context,
            sections=sections,
            covers_seq=covers_seq,
        )
        place = ToolPlace(
            key=SandboxKey(self._scope.workspace, self._scope.user, self._scope.thread),
            member=workspace.member(self._scope.user),
            settings=workspace.settings,
            log=conversation.log,
            results=workspace.results(self._scope),
            files=workspace.files(self._scope),
            shared=workspace.shared,
            skills=(),
            sandbox=None,
            emit=lambda _: None,
        )
        return TurnLoop(
            conversation, question.turn, ctx.model, rules, instructions, (), place, self._app.learned
        )

    def _sections(self, workspace: Workspace) -> tuple[Any, int]:
        thread = workspace.thread(self._scope)
        conversation = workspace.conversation(thread)
        task, covers_seq = workspace.tasks.in_request(thread, conversation)
        return (*task, *workspace.memories.in_request(self._scope.user, conversation)), covers_seq


def _content(prompt: Any) -> Any:
    """A prompt of several pieces in the log's form."""
    from pydantic_ai.messages import ModelMessagesTypeAdapter, ModelRequest, UserPromptPart

    from tenuto.codec import loads

    raw = ModelMessagesTypeAdapter.dump_json(
        [ModelRequest([UserPromptPart(list(prompt))])], exclude_none=True
    )
    return loads(raw)[0]["parts"][0]["content"]


def _name_of(model: Model) -> str:
    return f"{model.system}:{model.model_name}"
