"""The asynchronous Python interface: annotate pairs inside a running event loop."""

from __future__ import annotations

from typing import Unpack

from agent.runs.run import Run
from agent.runs.spec import AnnotatorOptions, RunSpec


class Annotator(Run):
    """Annotates pairs. An asynchronous context manager that owns models, sandboxes and files while it is open.

    Use one `Annotator` per event loop. It prints nothing and logs only to the `agent` logger. It writes files only to
    `run_dir`, `cache` and the folders that store sandbox environments. An error that affects only one pair is recorded
    in `annotation.error`. An error that ends the run is raised.

    Args:
        model: a name (`gpt-4o-mini`, `heuristic`, `replay:FILE`), a LangChain `BaseChatModel`, or an object with the
            two methods of `agent.llm.base.LLM`. It can also be a `Models` object, or a mapping from roles to any of the
            above (the `default` key applies to all other roles).
        sandbox: `auto`, `docker`, `bwrap`, or your own `SandboxBackend`, which you must close yourself.
        variant: a name, a YAML file, a mapping or a `Variant`.
        without: names of the nodes to toggle off.
        nodes: a mapping from names to nodes that are added to the built-in nodes or replace them. The run identity
            contains the class of each node and its `version` attribute, if it has one.
        prompts: a folder with templates that replace the built-in templates with the same names.
        languages: languages that are added to the built-in languages or replace them. The run identity contains their
            classes and versions in the same way as for nodes.
        unsupported: what to do with pairs in unsupported languages: `fail` before any model call, `judge` them without
            a test, or `skip` them.
        run_dir: a folder for annotations and evidence. An interrupted run resumes from this folder.
        cache: a file that caches model replies across runs, or a `ReplyCache`, which you must close yourself.
        retry_errors: annotate a pair again if its annotation in `run_dir` has an error.
        rounds: number of annotations per pair. Each round uses new samples from the model; see `annotation.round`.
        concurrency: maximum number of pairs in progress, or `auto` to adapt this number to the model server.
        pair_timeout: total time limit for each pair, in seconds.
        config: a `Config`, or a mapping such as `{"sandbox.memory_mb": 512}`, with the same keys as the `-c`
            command-line option. Settings files and environment variables are ignored; to use them, pass the result of
            `agent.read_settings`.
        executions: execution results to share with other `Annotator`s that use the same `sandbox`.
        engine: `local`, or `ray` to annotate in Ray workers. The workers run on this machine or, if `address` is set,
            on the cluster at that address.
        address: address of the Ray cluster, such as `auto` or `HOST:6379`.
        budget: maximum total cost, in US dollars, of all sessions in `run_dir`. It can also be a `Budget` that several
            `Annotator`s share. The limits of a `Budget` override the limits in `config`.
        on_event: called with each event of `agent.events`.

    For models that are chosen by name, the arguments of `ModelOptions` are accepted as well.

    Raises:
        UsageError: an argument has a wrong type or value. The message names the argument and its valid values.
    """

    def __init__(self, **options: Unpack[AnnotatorOptions]) -> None:
        super().__init__(RunSpec.of(options))
