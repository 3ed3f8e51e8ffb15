"""Names and types of nodes with a special meaning."""

from __future__ import annotations

NOT_ERASABLE = frozenset({
    "decorator", "enum_declaration", "import_alias", "import_require_clause", "internal_module", "jsx_element",
    "jsx_self_closing_element", "module", "type_assertion",
})  # fmt: skip
"""Nodes that Node cannot run without a build step."""

WORKING = frozenset({
    "call_expression", "new_expression", "for_statement", "for_in_statement", "while_statement", "do_statement",
    "throw_statement", "await_expression",
})  # fmt: skip
"""Nodes that do more than define, import and assign."""
MODULES = frozenset({
    "_http_agent", "assert", "async_hooks", "buffer", "child_process", "cluster", "console", "constants", "crypto",
    "dgram", "diagnostics_channel", "dns", "domain", "events", "fs", "http", "http2", "https", "inspector", "module",
    "net", "os", "path", "perf_hooks", "process", "punycode", "querystring", "readline", "repl", "stream",
    "string_decoder", "sys", "timers", "tls", "trace_events", "tty", "url", "util", "v8", "vm", "wasi",
    "worker_threads", "zlib",
})  # fmt: skip
"""Node's own modules."""
FRAMEWORKS = frozenset({"node:test", "test", "mocha", "vitest", "@jest/globals", "jest", "ava", "tap", "tape"})
"""Test frameworks. Their imports would replace the runner's `test`."""

BROWSER = frozenset({
    "Audio", "DOMParser", "Element", "FileReader", "HTMLElement", "Image", "MutationObserver", "Node",
    "NodeList", "XMLHttpRequest", "XMLSerializer", "alert", "angular", "chrome", "confirm", "customElements",
    "document", "getComputedStyle", "history", "indexedDB", "localStorage", "location", "prompt",
    "requestAnimationFrame", "screen", "sessionStorage", "window",
})  # fmt: skip
"""Names that exist only in browsers."""
NEWER = frozenset({
    "escape", "fromAsync", "groupBy", "intersection", "isDisjointFrom", "isSubsetOf", "isSupersetOf", "difference",
    "symmetricDifference", "union", "try", "withResolvers", "Temporal", "Iterator", "drop", "take", "toArray",
    "Float16Array", "sumPrecise", "getOrInsert", "navigator", "WebSocket", "EventSource", "CloseEvent",
})  # fmt: skip
"""Global names and methods that Node 20 lacks."""

BUILT_IN = frozenset({
    "AggregateError", "Array", "ArrayBuffer", "BigInt", "Boolean", "Buffer", "DataView", "Date", "Error", "EvalError",
    "Function", "Intl", "Iterator", "JSON", "Map", "Math", "Number", "Object", "Promise", "Proxy", "RangeError",
    "ReferenceError", "Reflect", "RegExp", "Set", "String", "Symbol", "SyntaxError", "TypeError", "URIError", "WeakMap",
    "WeakSet", "globalThis", "global", "process", "require",
})  # fmt: skip
"""Built-in objects and functions. Changes to them affect the program around the snippet."""
GLOBAL = BUILT_IN | {
    "AbortController", "AbortSignal", "Atomics", "BigInt64Array", "BigUint64Array", "Blob", "Event", "EventTarget",
    "File", "FinalizationRegistry", "Float32Array", "Float64Array", "FormData", "Headers", "Infinity", "Int16Array",
    "Int32Array", "Int8Array", "NaN", "Request", "Response", "SharedArrayBuffer", "TextDecoder", "TextEncoder", "URL",
    "URLSearchParams", "Uint16Array", "Uint32Array", "Uint8Array", "Uint8ClampedArray", "WeakRef", "WebAssembly",
    "__dirname", "__filename", "arguments", "atob", "btoa", "clearImmediate", "clearInterval", "clearTimeout",
    "console", "crypto", "decodeURI", "decodeURIComponent", "encodeURI", "encodeURIComponent", "escape", "eval",
    "exports", "fetch", "isFinite", "isNaN", "module", "parseFloat", "parseInt", "performance", "queueMicrotask",
    "setImmediate", "setInterval", "setTimeout", "structuredClone", "undefined", "unescape",
}  # fmt: skip
"""Global names in Node 20."""
REACH_RUNNER = frozenset({
    "node:async_hooks", "node:child_process", "node:cluster", "node:diagnostics_channel", "node:domain",
    "node:inspector", "node:module", "node:repl", "node:v8", "node:vm", "node:wasi", "node:worker_threads",
    "AssertionError", "__enterSnippet", "__proto__", "_cache", "_compile", "_extensions", "_linkedBinding", "_load",
    "binding", "captureStackTrace", "closeSync", "dlopen", "eval", "getBuiltinModule", "getPrototypeOf",
    "mainModule", "prepareStackTrace", "registerHooks", "removeAllListeners", "removeListener", "setPrototypeOf",
    "setUncaughtExceptionCaptureCallback", "stackTraceLimit", "syncBuiltinESMExports", "uncaughtException",
    "unhandledRejection", "/proc",
})  # fmt: skip
"""Names through which code can reach the runner, its report or its handlers. Modules start with `node:`."""
