// Runs the cases of a JavaScript or TypeScript program in Node and reports their outcomes.
//
// The host passes this file to `node -e`, followed by `types` for TypeScript. The job comes from standard input: the
// run's key, the path of the command, the working folder, the path of the environment, the program, the number of cases,
// the cases, and options as pairs. Each field is preceded by its length. Records go to descriptor 3 in the format of
// `child.py`, signed with HMAC-SHA256.
//
// Everything that decides a verdict is looked up before the program loads, because the program can change any object.
// Code that runs later avoids `await`, iteration and array methods, which use objects that the program can change.
//
// In a sentinel run, each function of the snippet calls `__enterSnippet` first, which records the entry and throws.
(() => {
  'use strict';
  const fs = require('node:fs');
  const assert = require('node:assert');
  const Module = require('node:module');
  const vm = require('node:vm');
  const path = require('node:path');
  const { hash, webcrypto } = require('node:crypto');
  const { isPromise } = require('node:util').types;
  const { pathToFileURL } = require('node:url');
  const { process, Error, Uint8Array: Bytes, setImmediate: schedule, setTimeout: startTimer } = globalThis;
  const { apply } = Reflect;
  const { writeSync } = fs;
  const { AssertionError } = assert;
  const { reallyExit, getActiveResourcesInfo: listResources } = process;
  const { then } = Promise.prototype;
  const { exec } = RegExp.prototype;
  const { slice, indexOf } = String.prototype;
  const { encodeInto } = TextEncoder.prototype;
  const encoder = new TextEncoder();
  const asText = String;

  const MAX_TEXT = 2000, MAX_FRAMES = 40, MAX_WAITS = 200, WAIT = 5;
  const FRAME = /^\s+at (?:(?:async )?(.*?) \()?(?:file:\/\/)?(?:[^()]*\/)?program\.[mc]?[jt]s:(\d+):\d+\)?$/;
  const LOCATION = /program\.[mc]?[jt]s:(\d+)/;
  const CASE_FUNCTION = /^test_[$\p{ID_Continue}]*$/u;

  if (process.argv[1] === 'types') Module.stripTypeScriptTypes('let x: any;');  // loads a compiler
  process.on('SIGUSR1', () => {});  // otherwise, the signal opens the inspector
  const job = readJob();
  const emit = makeReporter(job.key);
  const { cases, options } = job;
  const first = +options.first_line, last = +options.last_line;
  const mode = options.sentinel || '';
  const tests = Object.create(null);
  let source = '', running = '', isLoading = true, hasEntered = false, waits = 0, idle = 0, problem;

  prepareProcess();
  lockAsserts();
  process.on('uncaughtException', fail);
  process.on('unhandledRejection', fail);
  if (mode) emit('sentinel', '', '', '', '');
  settle(load, (loaded) => runCases(options.module ? loaded.__cases : loaded));

  // The key is read apart from the other fields, so that no other buffer and no string contains it.
  function readJob() {
    const head = Buffer.alloc(4), key = new Bytes(64), fields = [];
    fs.readSync(0, head);
    fs.readSync(0, key, 0, head.readUInt32BE());
    const data = fs.readFileSync(0);
    for (let at = 0, size; at < data.length; at += 4 + size) {
      size = data.readUInt32BE(at);
      fields.push(data.toString('utf8', at + 4, at + 4 + size));
    }
    const [command, work, environment, program, count, ...rest] = fields;
    const cases = rest.splice(0, +count), options = Object.create(null);
    while (rest.length) options[rest.shift()] = rest.shift();
    return { key, command, work, environment, program, cases, options };
  }

  // Returns the function that writes records. The key exists only in buffers, which heap snapshots do not contain.
  function makeReporter(key) {
    const inner = new Bytes(64), outer = new Bytes(96), field = new Bytes(3 * MAX_TEXT), content = new Bytes(1 << 18);
    for (let i = 0; i < 64; i++) { inner[i] = key[i] ^ 0x36; outer[i] = key[i] ^ 0x5c; key[i] = 0; }
    let number = 0, size = 0;

    function put(value) {
      const { written } = apply(encodeInto, encoder, [apply(slice, value, [0, MAX_TEXT]), field]);
      putNumber(content, size, written);
      for (let i = 0; i < written; i++) content[size + 4 + i] = field[i];
      size += 4 + written;
    }

    return function emit(kind, name, outcome, type, message, frames) {
      size = 0;
      put(kind); put(name); put(outcome); put(type); put(message);
      for (let i = 0; frames && i < frames.length; i++) { put('program.js'); put(frames[i].line); put(frames[i].name); }
      const signed = new Bytes(72 + size);
      for (let i = 0; i < 64; i++) signed[i] = inner[i];
      putNumber(signed, 68, number++);
      for (let i = 0; i < size; i++) signed[72 + i] = content[i];
      copy(hash('sha256', signed, 'buffer'), outer, 64, 32);
      const record = new Bytes(20 + size);
      putNumber(record, 0, 16 + size);
      copy(hash('sha256', outer, 'buffer'), record, 4, 16);
      copy(content, record, 20, size);
      for (let at = 0; at < 20 + size;) at += writeSync(3, record, at, 20 + size - at);
    };
  }

  function putNumber(bytes, at, value) {
    for (let i = 0; i < 4; i++) bytes[at + i] = value >>> (24 - 8 * i);
  }

  function copy(from, to, at, count) {
    for (let i = 0; i < count; i++) to[at + i] = from[i];
  }

  function prepareProcess() {
    process.execPath = job.command;
    process.argv = [job.command, 'program.js'];
    process.execArgv = [];
    // `node -e` has global variables that programs in files lack
    for (const name of Object.getOwnPropertyNames(globalThis)) {
      const isModule = Module.builtinModules.includes(name.replace('node:', '')) || name.startsWith('node:');
      if (isModule && name !== 'process' && name !== 'console' && name !== 'crypto') delete globalThis[name];
    }
    for (const name of ['require', 'module', 'exports', '__filename', '__dirname']) delete globalThis[name];
    Object.defineProperties(globalThis, { crypto: { value: webcrypto }, __enterSnippet: { value: enterSnippet } });
    Error.stackTraceLimit = MAX_FRAMES;
    for (const name of ['exit', 'reallyExit']) {
      const original = process[name];
      process[name] = function (code) {
        stop(`process.${name}(${asText(code ?? '')}) was called`);
        apply(original, process, [code]);
      };
    }
    Object.assign(globalThis, { test: registerCase, it: registerCase, describe: (_, body) => { body(); } });
  }

  // A program can add functions to `assert` but cannot replace those that exist.
  function lockAsserts() {
    for (const owner of [assert, assert.strict, AssertionError, AssertionError.prototype]) {
      for (const key of Reflect.ownKeys(owner)) {
        const { configurable, value } = Object.getOwnPropertyDescriptor(owner, key);
        if (configurable) Object.defineProperty(owner, key, value ? { configurable: false, writable: false } : { configurable: false });
      }
    }
  }

  function load() {
    source = job.program;
    if (options.types) source = Module.stripTypeScriptTypes(source);  // keeps the positions of all other code
    if (options.strict) source = `'use strict';${source}`;
    const names = cases.filter((name) => apply(exec, CASE_FUNCTION, [name]));
    const table = `{__proto__:null,${names.map((name) => `${name}:()=>${name}`)}};`;
    const folder = options.module || job.environment ? makeFolder() : job.work;
    return options.module ? loadModule(folder, table) : loadScript(folder, table);
  }

  // Calls a function and waits until its result is settled. An error goes to `fail`.
  function settle(run, next) {
    let isSettled = false;  // a thenable may call its callbacks several times
    const resolve = (value) => { if (!isSettled) { isSettled = true; next(value); } };
    const reject = (error) => { if (!isSettled) { fail(error); resolve(); } };
    try {
      const result = run();
      if (isPromise(result)) apply(then, result, [resolve, reject]);
      else if (result && typeof result.then === 'function') result.then(resolve, reject);
      else resolve(result);
    } catch (error) { reject(error); }
  }

  // Makes a folder next to the packages of the environment, because `import` has no search path.
  function makeFolder() {
    let folder;
    try { folder = fs.mkdtempSync('/dev/shm/program-'); } catch { folder = fs.mkdtempSync(path.join(job.work, 'program-')); }
    if (job.environment) fs.symlinkSync(path.join(job.environment, 'node_modules'), path.join(folder, 'node_modules'));
    return folder;
  }

  function loadScript(folder, table) {
    const file = path.join(folder, 'program.js');
    const module = Object.assign(new Module(file), { filename: file, paths: Module._nodeModulePaths(folder) });
    const require = makeRequire(file);
    const names = ['exports', 'require', 'module', '__filename', '__dirname'];
    const run = vm.compileFunction(`${source}\n;return ${table}`, names, {
      filename: file,
      importModuleDynamically: vm.constants.USE_MAIN_CONTEXT_DEFAULT_LOADER,
    });
    return apply(run, module.exports, [module.exports, require, module, file, folder]);
  }

  // An entry of the real cache could replace `assert`.
  function makeRequire(file) {
    return Object.assign(Module.createRequire(file), { cache: Object.create(null) });
  }

  // Modules come from files.
  function loadModule(folder, table) {
    const file = path.join(folder, 'program.mjs');
    // bundlers accept modules that mix `import` and `require`
    Object.assign(globalThis, { require: makeRequire(file), module: { exports: {} }, exports: {} });
    fs.writeFileSync(file, `${source}\n;export const __cases = ${table}`);
    return import(pathToFileURL(file));
  }

  // Registers the cases that are functions.
  function registerFunctions(table) {
    for (let i = 0; i < cases.length; i++) {
      const find = table[cases[i]];
      if (!find || tests[cases[i]]) continue;
      try {
        const test = find();
        if (typeof test === 'function') tests[cases[i]] = test;
      } catch { /* it does not exist, so it does not run */ }
    }
  }

  // Registers a case with a title. Ignores calls from the snippet.
  function registerCase(title, test) {
    const frames = getFrames(new Error());
    const isOwn = isLoading && frames.length > 0 && !isOfSnippet(frames[frames.length - 1].line);
    if (isOwn && typeof test === 'function' && !tests[title]) tests[title] = test;
  }

  function isOfSnippet(line) {
    return first <= line && line <= last;
  }

  function enterSnippet() {
    if (!mode) return;
    const error = new Error('the snippet was entered');
    if (isLoading && mode !== 'eager') {
      const frames = getFrames(error);
      if (frames.length && isOfSnippet(frames[0].line)) return;  // the snippet is being loaded
    }
    if (!hasEntered) emit('entered', running, '', '', '');
    hasEntered = true;
    throw error;
  }

  // Returns the program's frames, innermost last.
  function getFrames(error) {
    let stack = '';
    try { stack = error.stack; } catch { /* has no frames */ }
    if (typeof stack !== 'string') return [];
    const lines = [];
    let from = 0, match;
    for (let to = 0; to <= stack.length && lines.length < MAX_FRAMES; to++) {
      if (to < stack.length && stack[to] !== '\n') continue;
      match = apply(exec, FRAME, [apply(slice, stack, [from, to])]);
      if (match) lines[lines.length] = { line: match[2], name: match[1] || '' };
      from = to + 1;
    }
    if (!lines.length && (match = apply(exec, LOCATION, [stack]))) lines[0] = { line: match[1], name: '' };
    for (let i = 0, j = lines.length - 1; i < j; i++, j--) { const line = lines[i]; lines[i] = lines[j]; lines[j] = line; }
    return lines;
  }

  function read(get) {
    try { return asText(get()); } catch { return '<no text>'; }
  }

  function report(kind, name, error) {
    const isObject = error !== null && typeof error === 'object';
    const outcome = kind === 'case' && isObject && error instanceof AssertionError ? 'failed' : 'error';
    const type = isObject ? read(() => error.name ?? 'object') : 'thrown value';
    let message = read(() => (isObject ? error.message ?? '' : error));
    const end = apply(indexOf, message, ['\nRequire stack']);  // contains paths
    if (end > 0) message = apply(slice, message, [0, end]);
    emit(kind, name, outcome, type, message, isObject ? getFrames(error) : []);
  }

  // Records why the program ends the process, with the frames of the call.
  function stop(message) {
    const error = new Error(message);
    error.name = 'ProcessExit';
    if (isLoading) report('load', '', error);
    else if (running) report('case', running, error);
  }

  // Handles an error that no code caught.
  function fail(error) {
    if (isLoading) { report('load', '', error); finish(); }
    problem ??= { error };
  }

  function runCases(functions) {
    registerFunctions(functions);
    isLoading = false;
    let next = 0;

    function start() {
      while (next < cases.length && !tests[cases[next]]) next++;
      if (next === cases.length) return finish();
      running = cases[next++];
      hasEntered = false;
      problem = undefined;
      idle = countResources();
      emit('start', running, '', '', '');
      settle(tests[running], wait);
    }

    // Rejections that nothing handles are reported before the next macrotask. Timers and requests that the case has
    // started get some time, because it may not await them.
    function wait() {
      const check = () => {
        if (!problem && countResources() > idle && waits++ < MAX_WAITS) startTimer(check, WAIT);
        else end();
      };
      schedule(check);
    }

    function end() {
      if (problem) report('case', running, problem.error);
      else emit('case', running, 'passed', '', '');
      running = '';
      start();
    }

    start();
  }

  function countResources() {
    return apply(listResources, process, []).length;
  }

  function finish() {
    emit('end', '', '', '', '');
    apply(reallyExit, process, [0]);
  }
})();
