"""Attacks in JavaScript. TypeScript uses the same programs."""

from __future__ import annotations

from agent.languages.base import HONEST

_TEMPLATE = """\
const assert = require('node:assert');
// <candidate>
async function test_a() { assert.strictEqual(await f(2), 3); }
"""
_RIGHT, _WRONG = "function f(x) { return x + 1; }", "function f(x) { return 0; }"
_FORGE = """
const pack = (text) => String.fromCharCode(0, 0, 0, text.length) + text;
const report = (...fields) => require('fs').writeSync(3, pack('0123456789abcdef' + fields.map(pack).join('')));
const f = () => { report('case', 'test_a', 'passed', '', ''); report('end', '', '', '', ''); process.abort(); };"""
_CONNECT = """
const connect = (...to) => new Promise((resolve) => {
  require('net').connect(...to, () => resolve(3)).on('error', () => resolve(0));
});"""
_INSPECT = """
process.kill(process.pid, 'SIGUSR1');
const f = () => new Promise((resolve) => setTimeout(resolve, 200)).then(() => connect(9229, '127.0.0.1'));"""
_WRITE = """
const write = (name) => { try { require('fs').writeFileSync(name, 'x'); return true; } catch { return false; } };
const f = () => ['HOST.canary', '/etc/agent', '/usr/agent', '/sys/kernel/uevent_helper'].some(write) && 3;"""
_SHELL = "function f() {{ return 3 - require('child_process').spawnSync('sh', ['-c', '{}']).status; }}"
_SNIPPETS = {
    HONEST: _RIGHT,
    "forges records": _FORGE,
    "closes the report": f"require('fs').closeSync(3);\n{_RIGHT}",
    "opens its memory": "function f() { require('fs').openSync('/proc/self/mem', 'r'); return 3; }",
    "opens its memory in a child": _SHELL.format("true </proc/$PPID/mem"),
    "opens its report in a child": _SHELL.format("true >/proc/$PPID/fd/3 || true >&3"),
    "exits while loading": f"process.exit(0);\n{_RIGHT}",
    "exits in a case": "function f() { process.reallyExit(0); }",
    "patches assert": f"require('assert').strictEqual = () => {{}};\n{_WRONG}",
    "patches built-ins": f"Map.prototype.get = Promise.prototype.then = Object.is = () => true;\n{_WRONG}",
    "connects to the host": f"{_CONNECT}\nconst f = async () => await connect(HOST.tcp) || connect('HOST.socket');",
    "opens the inspector": f"{_CONNECT}{_INSPECT}",
    "writes outside its folders": _WRITE,
}
ATTACKS = {
    **{name: (_TEMPLATE, snippet) for name, snippet in _SNIPPETS.items()},
    "replaces the snippet": (f"{_TEMPLATE}f = (x) => x + 1;", _RIGHT),
}
