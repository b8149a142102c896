"""Models and tool servers of a workspace: which there are, and adding one's own."""

from __future__ import annotations

from fastapi import APIRouter
from pydantic import BaseModel, Field

from tenuto.additions import servers
from tenuto.agent.found import all_models
from tenuto.codec import JsonObject
from tenuto.server.identity import Here, InWorkspace

router = APIRouter(tags=["settings"])

HERE = "/workspaces/{workspace}"


class NewModel(BaseModel):
    name: str = Field(max_length=64, examples=["mine"])
    model: str = Field(
        "", max_length=200, examples=["openai:gpt-5"], description="Empty: a model that is there."
    )
    base_url: str = Field("", max_length=500, examples=["http://127.0.0.1:8080/v1"])
    api_key: str = Field("", max_length=2_000, description="Kept apart from the settings; never answered.")
    default: bool = Field(False, description="For new threads.")


class NewServer(BaseModel):
    name: str = Field(max_length=64, examples=["sales"])
    where: str = Field(min_length=1, max_length=2_000, examples=["https://mcp.example.com/mcp"])


async def _models(here: Here) -> JsonObject:
    return {"models": await all_models(here.workspace.settings)}


@router.get(f"{HERE}/models")
async def list_models(here: InWorkspace) -> JsonObject:
    """The models by name, and those that a server on this machine offers (`found`)."""
    here.need("read")
    return await _models(here)


@router.post(f"{HERE}/models", status_code=201)
async def add_model(here: InWorkspace, new: NewModel) -> JsonObject:
    """Add a model, or make one that is there the default."""
    here.need("administer")
    if new.model:
        here.app.add_model(
            here.workspace, new.name, new.model, base_url=new.base_url, key=new.api_key, default=new.default
        )
    else:
        here.app.use_model(here.workspace, new.name)
    return await _models(here)


def _servers(here: Here) -> JsonObject:
    return {"servers": servers(here.workspace.settings)}


@router.get(f"{HERE}/tools")
async def list_servers(here: InWorkspace) -> JsonObject:
    here.need("read")
    return _servers(here)


@router.post(f"{HERE}/tools", status_code=201)
async def add_server(here: InWorkspace, new: NewServer) -> JsonObject:
    """Add an MCP server. A command runs on this machine with the server's rights."""
    here.need("administer")
    here.app.add_server(here.workspace, new.name, new.where)
    return _servers(here)
