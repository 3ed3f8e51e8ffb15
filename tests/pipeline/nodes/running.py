"""Helpers that run nodes on given programs, in a real or a scripted sandbox."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from agent.config import PipelineConfig
from agent.languages.python.language import PythonLanguage
from agent.llm.base import ScriptedLLM
from agent.llm.gateway import Gateway
from agent.llm.models import Models
from agent.pipeline.asker import Asker
from agent.pipeline.history import Recorder
from agent.pipeline.nodes.execute import Execute
from agent.pipeline.prompts import Prompts
from agent.pipeline.state import State, Tools
from agent.sandbox.base import Environment, SandboxBackend
from agent.sandbox.session import SandboxSession
from agent.types import Pair


@asynccontextmanager
async def open_tools(
    backend: SandboxBackend, config: PipelineConfig | None = None, model: ScriptedLLM | None = None
) -> AsyncIterator[Tools]:
    """Provide tools with a session in this backend, and a model that only replies from its script."""
    session = SandboxSession(backend)
    recorder = Recorder(Pair(id="1", query="q", code="c"))
    asker = Asker(Gateway(Models.of(model or ScriptedLLM([]))), Prompts(), recorder, pair_id="1")
    yield Tools(asker, recorder, PythonLanguage(), config or PipelineConfig(), session)
    await session.close()


async def execute_once(template: str, code: str, tools: Tools, environment: Environment | None = None) -> State:
    """Run a program once, as the pipeline does before its checks."""
    language = PythonLanguage()
    snippet = language.inspect(code)
    state: State = {"pair": Pair(id="1", query="q", code=code), "snippet": snippet}
    state["program"] = language.insert(template, snippet)
    if environment is not None:
        state["environment"] = environment
    step = await Execute()(state, tools)
    return {**state, **step.update}
