"""Serves the variant `full` to LangGraph Studio; `langgraph.json` names `graph` and `app`. See docs/variants.md.

Settings choose the model and the sandbox. A thread holds one pair, and its model calls and sandbox session stay in this
process between steps. Nodes run in an event loop of their own, because the server's loop (uvloop) lacks features that
the sandboxes need.
"""

import asyncio
import threading
from collections.abc import AsyncIterator, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import Any, TypedDict

from langchain_core.runnables import RunnableConfig
from langgraph.graph import END, START, StateGraph
from starlette.applications import Starlette

from agent import Annotator, Pair, read_settings
from agent.errors import UsageError
from agent.llm.base import close
from agent.llm.gateway import Gateway
from agent.pipeline.asker import Asker
from agent.pipeline.history import Recorder
from agent.pipeline.nodes.registry import BUILT_IN
from agent.pipeline.state import State, Tools
from agent.sandbox.select import choose
from agent.sandbox.session import SandboxSession

spec = Annotator(**{"model": "heuristic", **read_settings(), "variant": "full"}).spec
variant, gateway, resources = spec.pipeline.variant, Gateway(spec.models), AsyncExitStack()
tools_by_thread: dict[str, Tools] = {}
loop = asyncio.SelectorEventLoop()


class Input(TypedDict):
    """The input of a thread: a pair with `query` and `code`."""

    pair: dict[str, Any]


async def run_in_loop(work: Coroutine[Any, Any, Any]) -> Any:
    return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, loop))


async def create_tools(pair: Pair) -> Tools:
    spec.check_pair(pair)
    asker = Asker(gateway, spec.prompts, Recorder(pair), pair_id=pair.id)
    session = SandboxSession(app.state.backend)
    resources.push_async_callback(session.close)
    return Tools(asker, asker.recorder, spec.languages[pair.language], spec.config.pipeline, session)


async def run_node(name: str, state: State, thread: str) -> dict[str, Any]:
    if name == variant.start and "outcome" in state:
        raise UsageError("This thread already holds a pair. Open a new thread.")
    pair = Pair.model_validate({"id": thread, **dict(state["pair"])})
    if thread not in tools_by_thread or name == variant.start:
        tools_by_thread[thread] = await create_tools(pair)
    step = await BUILT_IN[name](State(**{**state, "pair": pair}), tools_by_thread[thread])
    await tools_by_thread[thread].sandbox.renew()  # no sandbox waits for the next step
    return {**step.update, "pair": pair, "outcome": step.outcome}


async def visit(state: State, config: RunnableConfig, *, name: str) -> dict[str, Any]:
    return await run_in_loop(run_node(name, state, str(config["configurable"]["thread_id"])))


@asynccontextmanager
async def open_resources(app: Starlette) -> AsyncIterator[None]:
    threading.Thread(target=loop.run_forever, daemon=True).start()
    app.state.backend = await run_in_loop(choose(spec.config.sandbox, print))
    for closer in (app.state.backend.close, *(partial(close, model) for model in spec.models.list_models())):
        resources.push_async_callback(closer)
    yield
    await run_in_loop(resources.aclose())


app = Starlette(lifespan=open_resources)
builder = StateGraph(State, input_schema=Input)
builder.add_edge(START, variant.start)
for node, edges in variant.nodes.items():
    builder.add_node(node, partial(visit, name=node))
    targets = {outcome: END if target == "end" else target for outcome, target in edges.items()}
    builder.add_conditional_edges(node, lambda state: state["outcome"], targets)
graph = builder.compile()
