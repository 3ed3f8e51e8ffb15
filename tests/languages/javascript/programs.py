"""Programs in JavaScript and TypeScript with their verdicts. Many of them try to deceive the runner."""

from __future__ import annotations

ASSERT = "const assert = require('node:assert');\n"
MARKER = "// <candidate>\n"
TEST_A = "function test_a() { assert.strictEqual(f(2), 3); }\n"
T = f"{ASSERT}{MARKER}{TEST_A}function test_b() {{ assert.strictEqual(f(5), 6); }}\n"
TITLES = f"""{ASSERT}{MARKER}describe('f', () => {{
  test('adds (1)', () => {{ assert.strictEqual(f(2), 3); }});
  it('adds [2]', async () => {{ assert.strictEqual(f(5), 6); }});
}});
"""
ESM = f"import assert from 'node:assert';\nimport {{ join }} from 'path';\n{MARKER}export {TEST_A}"
ASYNC = f"{ASSERT}{MARKER}async function test_a() {{ assert.strictEqual(await f(2), 3); }}\n"
LATE = f"{ASSERT}{MARKER}function test_a() {{ f((x) => assert.strictEqual(x, 3)); }}\n"
METHOD = f"{ASSERT}class A {{\n{MARKER}}}\nfunction test_a() {{ assert.strictEqual(new A().f(2), 3); }}\n"
MEMBER = f"{ASSERT}const A = {{\n{MARKER}}};\nfunction test_a() {{ assert.strictEqual(A.f(2), 3); }}\n"
EXPRESSION = f"{ASSERT}const f = (\n{MARKER});\n{TEST_A}"
THROWS = f"{ASSERT}{MARKER}function test_a() {{ assert.throws(() => f(null), TypeError); }}\n"
GENERATOR = f"{ASSERT}{MARKER}function test_a() {{ assert.deepStrictEqual([...f(2)], [3]); }}\n"
LOOP = f"{ASSERT}{MARKER}for (const i of [1]) {{ test('a', () => {{ assert.ok(f(i)); }}); }}\n"
JOINS = f"{ASSERT}const g = (x) => x\n{MARKER}function test_a() {{ assert.ok(f(1)); }}\n"
INCLUDES = f"{ASSERT}{MARKER}function test_a() {{ assert.ok([3].includes(f(2))); }}\n"
TWICE = (
    f"{ASSERT}{MARKER}function test_a() {{ return f(); }}\n"
    "async function test_b() { f(); await new Promise((r) => setTimeout(r, 5)); assert.equal(1, 2); }\n"
)
HELPER = f"{ASSERT}function check(x) {{ assert.equal(x, 3); }}\n{MARKER}function test_a() {{ check(f(2)); }}\n"
TYPED = f"""import assert from 'node:assert';
{MARKER}test('f', () => {{ const x: number = f(2); assert.equal(x, 3); }});
"""
DEFAULT = f"""import assert from 'node:assert';
{MARKER}async function test_a() {{ assert.equal((await import(import.meta.url)).default(2), 3); }}
"""
READS = f"{ASSERT}{MARKER}function test_a() {{ f('/etc/passwd', (_, text) => assert.equal(text, '')); }}\n"
UTIL = f"{ASSERT}const u = require('util');\n{MARKER}function test_a() {{ assert.ok(u.isDeepStrictEqual(f(2), 3)); }}\n"
GOOD = "function f(x) { return x + 1; }"
BAD = "function f(x) { return 0; }"
CALLBACKS = "const r = [1].map((x) => x + 1);"
SWALLOWS = """process.removeAllListeners('unhandledRejection'); process.on('unhandledRejection', () => {});
async function f(done) { done(4); }"""
DOMAIN = """const domain = require('domain').create().on('error', () => {});
const f = (done) => domain.run(() => setTimeout(done, 1, 4));"""
PATCHES = """Map.prototype.get = () => () => {}; Promise.prototype.then = function () { return this; };
RegExp.prototype.exec = () => null; Array.prototype.toJSON = () => 1; String.prototype.slice = () => 'x';
Object.is = () => true; Reflect.apply = () => {}; JSON.stringify = () => ''; Array.prototype[Symbol.iterator] = null;"""
PATCHED = (
    "Array.prototype.toJSON Array.prototype[Symbol.iterator] JSON.stringify Map.prototype.get Object.is"
    " Promise.prototype.then Reflect.apply RegExp.prototype.exec String.prototype.slice"
)
PATCH = "A.prototype.includes = () => true;"
PARENT = "const fs = require('fs'); try {{ {}; console.log('done'); }} catch (e) {{ }}\nfunction f(x) {{ return 0; }}"
NAMES = """if (typeof fs !== 'undefined' || process.argv.length !== 2 || process.execArgv.length) throw 1;
if (!process.execPath.endsWith('node') || require.main === module || crypto.createHash) throw 2;"""
HEAP = "const s = String(require('v8').getHeapSnapshot().read()); console.log(/[0-9a-f]{32}/.exec(s));\n" + BAD
MEMORY = (
    """const fs = require('fs');
for (const line of fs.readFileSync('/proc/self/maps', 'utf8').split('\\n')) {
  const [from, to] = line.split(' ')[0].split('-').map((x) => parseInt(x, 16));
  if (!/ rw-p /.test(line) || to - from > 64e6) continue;
  const data = Buffer.alloc(to - from);
  try { fs.readSync(fs.openSync('/proc/self/mem', 'r'), data, 0, to - from, from); } catch { continue; }
  if (/\\0\\0\\0 [0-9a-f]{32}\\0/.test(data.toString('latin1'))) console.log('the key');
}
"""
    + BAD
)

# The name, the program, the snippet, and the outcome: status, cause and introspection. The status is `refused` if the
# snippet (with a cause) or the program (without) is refused, and `not_exercised` if no case enters the snippet.
PROGRAMS: list[tuple[str, str, str, str]] = [
    # right programs
    ("good", T, GOOD, "passed"),
    ("titles", TITLES, GOOD, "passed"),
    ("module", ESM, "export const f = (x) => x + 1;\nexport default f;", "passed"),
    ("anonymous export", DEFAULT, "export default (x) => x + 1;", "passed"),
    ("module in a script", T, "export default function f(x) { return x + 1; }", "passed"),
    ("top-level await", T, f"await null;\n{GOOD}", "passed"),
    ("module.exports", T, f"{GOOD}\nmodule.exports = {{ f }};", "passed"),
    ("async", ASYNC, "async function f(x) { await null; return x + 1; }", "passed"),
    ("callback", LATE, "function f(done) { setTimeout(() => done(3), 10); }", "passed"),
    ("method", METHOD, "#n = 1;\nstatic make() { return new A(); }\nf(x) { return x + this.#n; }", "passed"),
    ("object member", MEMBER, "f: function (x) { return x + 1; },\ng: 2", "passed"),
    ("anonymous function", EXPRESSION, "function (x) { return x + 1; }", "passed"),
    ("comment at the end", T, f"{GOOD} // end", "passed"),
    ("strict", T, f"'use strict';\n{GOOD}", "passed"),
    ("sloppy with", T, "function f(x) { with ({ y: x + 1 }) { return y; } }", "passed"),
    ("hashbang", f"{MARKER}{T.replace(MARKER, '')}", f"#!/usr/bin/env node\n{GOOD}", "passed"),
    ("caught exception", THROWS, "function f(x) { return x.length; }", "passed"),
    ("callbacks only", f"{MARKER}{ASSERT}function test_a() {{ assert.deepStrictEqual(r, [2]); }}", CALLBACKS, "passed"),
    ("result at load", f"{MARKER}{ASSERT}const r = f(2);\nfunction test_a() {{ assert.equal(r, 3); }}", GOOD, "passed"),
    ("same name in a loop", f"{T}for (const f of []) {{}}", GOOD, "passed"),
    ("interval", T, f"setInterval(() => {{}}, 1);\n{GOOD}", "passed"),
    ("generator", GENERATOR, "function* f(x) { yield x + 1; }", "passed"),
    ("names of a file", T, f"{NAMES}\n{GOOD}", "passed"),
    ("signal", T, f"process.kill(process.pid, 'SIGUSR1');\n{GOOD}", "passed"),
    # wrong snippets
    ("bad", T, BAD, "failed snippet"),
    ("bad with titles", TITLES, BAD, "failed snippet"),
    ("throws", T, "function f(x) { throw new Error('no'); }", "error snippet"),
    ("throws text", T, "function f(x) { throw 'no'; }", "error snippet"),
    ("throws a proxy", T, "function f(x) { throw new Proxy({}, { get() { throw 1; } }); }", "error program"),
    ("lacks a method", T, "function f(x) { const a = { node: {} }; return a.node.get(); }", "error snippet"),
    ("asserts itself", T, f"{GOOD.replace('return', 'require(`assert`).fail();')}", "error snippet"),
    ("stack overflow", T, "function f(x) { return f(x); }", "error snippet"),
    ("loop", T, "function f(x) { while (true); }", "timeout snippet"),
    ("loop of microtasks", T, "function f(x) { (function g() { Promise.resolve().then(g); })(); }", "timeout snippet"),
    ("loop at load", T, f"while (true);\n{GOOD}", "timeout snippet"),
    ("backtracking", T, "function f(x) { return /(a+)+$/.test('a'.repeat(40) + 'b'); }", "timeout snippet"),
    ("memory", T, "function f(x) { const a = []; for (;;) a.push(new Array(3e7).fill(1)); }", "error snippet"),
    ("never resolves", ASYNC, "function f() { return new Promise(() => {}); }", "error snippet"),
    ("late failure", LATE, "function f(done) { setTimeout(() => done(4), 300); }", "failed snippet"),
    ("late request", READS, "const f = (path, done) => require('fs').readFile(path, 'utf8', done);", "failed snippet"),
    ("late rejection", LATE, "async function f() { throw new Error('x'); }", "error snippet"),
    ("duplicate const", T, "const f = 1; const f = 2;", "error snippet"),
    ("exit at load", T, f"process.exit(0);\n{GOOD}", "error snippet"),
    ("exit in a call", T, "function f() { process.exit(0); }", "error snippet"),
    ("reallyExit", T, "function f() { process.reallyExit(0); }", "error snippet"),
    ("abort", T, "function f() { process.abort(); }", "error snippet"),
    ("kills itself", T, "function f() { process.kill(process.pid, 'SIGKILL'); }", "error snippet"),
    ("returns undefined", f"{ASSERT}{MARKER}function test_a() {{ assert.equal(f(2).length, 1); }}", "function f() {}",
     "error program"),
    # wrong programs
    ("exit in the program", f"{T}process.exit(0);", GOOD, "error program"),
    ("missing helper", T, "function f(x) { return helper(x); }", "error program"),
    ("missing assert", T.replace(ASSERT, ""), GOOD, "error program"),
    ("relative module", T, f"const _ = require('./util');\n{GOOD}", "error program"),
    ("stand-in without method", f"const db = {{}};\n{T}", "function f(x) { return db.get(x); }", "error program"),
    ("stand-in class without method", METHOD, "f(x) { return this.add(x); }", "error program"),
    ("redefined later", f"{T}function f(x) {{ return x + 1; }}", BAD, "not_exercised"),
    ("assigned later", f"{T}f = (x) => x + 1;", BAD, "not_exercised"),
    ("not called", f"{ASSERT}{MARKER}function test_a() {{ assert.equal(1, 1); }}", GOOD, "not_exercised"),
    ("generator as test", T.replace("function test_b", "function* test_b"), GOOD, "refused"),
    ("statement joins before", JOINS, "(function () { globalThis.f = (x) => x; })()", "refused"),
    ("statement joins after", f"{ASSERT}{MARKER}(0);function test_a() {{ assert.ok(f(1)); }}", "const f = (x) => x",
     "refused"),
    ("top-level return", T, "return 5;", "refused"),
    ("same constant", T, f"const assert = require('assert');\n{GOOD}", "error program"),
    ("framework", f"const test = require('node:test');\n{TITLES}", GOOD, "refused"),
    ("equal titles", TITLES.replace("[2]", "(1)"), GOOD, "refused"),
    ("cases in a loop", LOOP, GOOD, "refused"),
    ("comparison", T.replace("assert.strictEqual(f(2), 3)", "f(2) === 3"), GOOD, "refused"),
    ("case of the snippet", T, f"{GOOD}\nfunction test_a() {{}}", "refused"),
    ("closes the scope", T, "} " + GOOD + " {", "refused snippet"),
    ("JSX in the program", f"{T}const x = <a/>;", GOOD, "refused"),
    # not code, or code that cannot run here
    ("open comment", T, f"{GOOD}\n/*", "refused snippet"),
    ("open template", T, f"{GOOD}\nconst t = `", "refused snippet"),
    ("no code", T, "this is not code at all", "refused snippet"),
    ("empty", T, "// nothing", "refused snippet"),
    ("TypeScript", T, "function f(x: number): number { return x + 1; }", "refused dependency"),
    ("JSX", T, "const f = (x) => <div>{x}</div>;", "refused dependency"),
    ("decorator", T, f"{GOOD}\n@f class A {{}}", "refused dependency"),
    ("missing package", T, f"const _ = require('lodash');\n{GOOD}", "error dependency"),
    ("missing package in a module", ESM, f"import _ from '@a/b/c';\n{GOOD}", "error dependency"),
    ("missing addon", T, f"const _ = require('./build/x.node');\n{GOOD}", "error dependency"),
    ("browser", T, "function f(x) { return document.title; }", "error dependency"),
    ("newer name", T, "function f(x) { return Temporal.Now; }", "error dependency"),
    ("reserved word", T, "function f(x) { let let = 1; }", "error dependency"),
    # attacks
    ("patches assert", T, f"require('assert').strictEqual = () => {{}};\n{BAD}",
     "failed snippet require('assert').strictEqual"),
    ("patches assert in a call", T, "function f(x) { require('assert').strictEqual = () => {}; return 0; }",
     "failed snippet require('assert').strictEqual"),
    ("patches built-ins", T, f"{PATCHES}\n{BAD}", f"failed snippet {PATCHED}"),
    ("patches promises", ASYNC,
     f"Promise.prototype.then = function (g) {{ g(3); }};\nPromise.prototype.constructor = 0;\n{BAD}",
     "error program Promise.prototype.constructor Promise.prototype.then"),
    ("patches a method", INCLUDES, f"Array.prototype.includes = () => true;\n{BAD}", "passed Array.prototype.includes"),
    ("patches through an alias", INCLUDES, f"const p = Array.prototype; p.includes = () => true;\n{BAD}",
     "passed Array.prototype"),
    ("patches a helper", HELPER, f"check = () => {{}};\n{BAD}", "passed check"),
    ("patches a renamed object", INCLUDES, f"const {{ prototype: p }} = Array; p.includes = () => true;\n{BAD}",
     "passed Array prototype"),
    ("patches through this", INCLUDES, f"(function () {{ this.Array.prototype.includes = () => true; }})();\n{BAD}",
     "passed this.Array.prototype.includes"),
    ("defines a property", INCLUDES,
     f"Object.defineProperty([].constructor.prototype, 'includes', {{ value: () => true }});\n{BAD}",
     "passed [].constructor.prototype"),
    ("shadows require", f"{MARKER}{T.replace(MARKER, '').replace('node:', '')}",
     f"function require() {{ return {{ strictEqual() {{}} }}; }}\n{BAD}", "passed require"),
    ("replaces a module", f"{MARKER}{T.replace(MARKER, '').replace('node:', '')}",
     f"require.cache.assert = {{ exports: {{ strictEqual() {{}} }} }};\n{BAD}", "failed snippet require.cache.assert"),
    ("settles twice", TWICE, "const f = () => ({ then(next) { next(); next(); } });", "failed snippet"),
    ("replaces Error", TITLES,
     f"Error = function () {{ this.stack = 'at program.js:9:9'; }}; test('adds (1)', () => {{}});\n{BAD}",
     "failed snippet Error"),
    ("escapes its targets", HELPER, f"ch\\u0065ck = () => {{}};\n{BAD}", "passed ch\\u0065ck"),
    ("redeclares a helper", HELPER, f"var check = () => {{}};\n{BAD}", "passed check"),
    ("patches in a pattern", HELPER, f"({{ check }} = {{ check() {{}} }});\n{BAD}", "passed check"),
    ("patches in a list", INCLUDES, f"[Array.prototype.includes] = [() => 1];\n{BAD}",
     "passed Array.prototype.includes"),
    ("patches a class", INCLUDES, f"const A = [].constructor; {PATCH}\n{BAD}", "passed A.prototype.includes"),
    ("patches a value", INCLUDES, f"const g = (A) => {{ {PATCH} }}; g(Array);\n{BAD}",
     "passed A.prototype.includes Array"),
    ("patches super", INCLUDES, f"class A extends Array {{ static {{ super.{PATCH[2:]} }} }}\n{BAD}",
     "passed super.prototype.includes"),
    ("evaluates a patch", HELPER, f"eval('check = () => {{}}');\n{BAD}", "passed eval"),
    ("evaluates code", INCLUDES, f"Function('Array.prototype.includes = () => 1')();\n{BAD}", "passed Function"),
    ("creates code", INCLUDES, f"f.constructor('Array.prototype.includes = () => 1')();\n{BAD}",
     "passed f.constructor"),
    ("patches a module", UTIL, f"require('util').isDeepStrictEqual = () => 1;\n{BAD}",
     "passed require('util').isDeepStrictEqual"),
    ("patches an import", UTIL, f"const v = require('util');\nv.isDeepStrictEqual = () => 1;\n{BAD}",
     "passed v.isDeepStrictEqual"),
    ("declares assert", T.replace(ASSERT, ""), f"const assert = {{ strictEqual() {{}} }};\n{BAD}", "passed assert"),
    ("replaces a case", T, f"test_a = () => {{}}; test_b = () => {{}};\n{BAD}", "refused"),
    ("registers its own case", TITLES, f"test('adds (1)', () => {{}}); it('adds [2]', () => {{}});\n{BAD}",
     "failed snippet"),
    ("exports cases", ESM, f"export const __cases = {{ test_a: () => () => {{}} }};\n{BAD}", "error program"),
    ("replaces test", TITLES, f"globalThis.test = () => {{}};\n{BAD}", "failed snippet globalThis.test"),
    ("swallows in a domain", LATE, DOMAIN, "passed node:domain"),
    ("swallows late errors", LATE, SWALLOWS, "passed removeAllListeners unhandledRejection"),
    ("writes to the report", T, f"require('fs').writeSync(3, 'x\\tcase\\ttest_a\\tpassed\\n');\n{BAD}",
     "error snippet"),
    ("closes the report", T, f"require('fs').closeSync(3);\n{BAD}", "error snippet closeSync"),
    ("forges its stack", T, "function f(x) { const e = new Error(); e.stack = 'at program.js:4:1'; throw e; }",
     "error program"),
    ("hides its stack", T, f"Error.prepareStackTrace = () => [];\n{BAD}",
     "failed snippet Error.prepareStackTrace prepareStackTrace"),
    ("enters by itself", T, f"{BAD}\nfunction g() {{ __enterSnippet(); }}", "failed snippet __enterSnippet"),
    ("writes to the parent's report", T,
     PARENT.format("fs.writeSync(fs.openSync(`/proc/${process.ppid}/fd/3`, 'w'), 'z')"), "failed snippet /proc"),
    ("kills the parent", T, PARENT.format("process.kill(process.ppid, 9)"), "failed snippet"),
    ("reads the heap", T, HEAP, "failed snippet node:v8"),
    ("reads its memory", T, MEMORY, "failed snippet /proc"),
]  # fmt: skip

# The snippet in the program `TYPED`, and the status.
TYPESCRIPT_PROGRAMS = [
    ("export function f<T extends number>(x: T): number { return (x as number) + 1; }", "passed"),
    ("interface A { a: number }\nfunction f(x: number, y?: A): number { return x! + 1; }", "passed"),
    ("abstract class A { abstract g(): void; f(x: number) { return x + 1; } }\nclass B extends A { g(): void {} }\n"
     "const f = (x: number) => new B().f(x);", "passed"),
    ("declare enum E { A }\ndeclare namespace N { let x: any }\nconst f = <T,>(x: T) => (x as any) + 1;", "passed"),
    ("import type { A } from 'a';\nfunction f(x: string): any;\nfunction f(x: any): any { return x + 1; }", "passed"),
    ("const f = (x: number): number => x;", "failed snippet"),
]  # fmt: skip
