// The kernel of JavaScript and TypeScript contexts, for Node.js 18 or later. The protocol is in README.md.
// Started as: node KERNEL CELLS (javascript | typescript)
//
// Cells are evaluated by V8's own REPL mode, reached through an inspector session in this process: `await` works at the top,
// `let`, `const` and classes persist and may be declared again. What that mode does not know is rewritten first: import
// declarations, dynamic imports, and types.

'use strict';

const fs = require('node:fs');
const inspector = require('node:inspector');
const nodeModule = require('node:module');
const path = require('node:path');
const util = require('node:util');
const vm = require('node:vm');

// What a mark may hold; more goes to the cell's file. See README.md.
const INLINE_MAX = 3000;
// Longest text of a single form of a value. Longer is cut and says so.
const TEXT_MAX = 1 << 20;
// Longest stack of an error.
const STACK_MAX = 64 << 10;
// What one cell may show in all. The rest is left out, with a word on standard error.
const SHOWN_BYTES_MAX = 24 << 20;
const SHOWN_MAX = 256;
const RECORD_MAX = 15 << 20;

const [cells, language] = process.argv.slice(2);
process.argv.length = 1;

// Private descriptors for the protocol; the user's standard input is empty.
const source = fs.openSync('/proc/self/fd/0', 'r');
const outputs = [fs.openSync('/proc/self/fd/1', 'w'), fs.openSync('/proc/self/fd/2', 'w')];
fs.closeSync(0);
fs.openSync('/dev/null', 'r');

class ExitRequest {
  constructor(code) {
    this.code = code;
  }
}

class Interrupt extends Error {
  constructor() {
    super('the cell was interrupted');
    this.name = 'Interrupt';
    this.stack = `Interrupt: ${this.message}`;
  }
}

// The cell that runs, or null.
let cell = null;
let count = 0;

function writeAll(fd, data) {
  for (let done = 0; done < data.length; ) {
    try {
      done += fs.writeSync(fd, data, done);
    } catch (error) {
      if (error.code !== 'EAGAIN') throw error;
    }
  }
}

function mark(id, body, both) {
  const data = Buffer.from(`\x1e${id} ${body}\n`);
  for (const fd of both ? outputs : outputs.slice(0, 1)) writeAll(fd, data);
}

// JSON in ASCII, so that no byte of it can be cut or mistaken.
function json(value) {
  return JSON.stringify(value).replace(/[\u007f-\uffff]/g, (char) => {
    const code = char.charCodeAt(0);
    return '\\u' + code.toString(16).padStart(4, '0');
  });
}

function wellFormed(text) {
  return text.replace(/[\ud800-\udbff](?![\udc00-\udfff])|(?<![\ud800-\udbff])[\udc00-\udfff]/g, '\ufffd');
}

function record(value) {
  const text = json(value);
  if (text.length <= INLINE_MAX) {
    mark(cell.id, `+ ${text}`, false);
    return;
  }
  if (cell.file === null) cell.file = fs.openSync(path.join(cells, `${cell.id}.out`), 'wx', 0o600);
  writeAll(cell.file, Buffer.from(text));
  mark(cell.id, `@ ${cell.written} ${text.length}`, false);
  cell.written += text.length;
}

function show(forms, main) {
  if (cell === null) return;
  const data = {};
  let size = 0;
  for (const [mime, form] of Object.entries(forms)) {
    data[mime] = wellFormed(form);
    size += mime.length + data[mime].length;
  }
  if (size > RECORD_MAX || cell.shown >= SHOWN_MAX || cell.shownBytes + size > SHOWN_BYTES_MAX) {
    process.stderr.write(`a result of ${size} bytes was left out: too large or too many\n`);
    return;
  }
  cell.shown += 1;
  cell.shownBytes += size;
  record({ display: { main, data } });
}

function cut(text) {
  if (text.length <= TEXT_MAX) return text;
  return `${text.slice(0, TEXT_MAX)}\n... (${text.length - TEXT_MAX} more characters)`;
}

function isPlain(value) {
  if (Array.isArray(value)) return true;
  const prototype = Object.getPrototypeOf(value);
  return prototype === Object.prototype || prototype === null;
}

const displaySymbol = Symbol.for('Jupyter.display');

// Every form in which a value can be shown.
async function formsOf(value) {
  const forms = {};
  if (value !== null && typeof value === 'object') {
    try {
      if (typeof value[displaySymbol] === 'function') {
        for (const [mime, form] of Object.entries(await value[displaySymbol]())) {
          if (form instanceof Uint8Array) forms[mime] = Buffer.from(form).toString('base64');
          else forms[mime] = typeof form === 'string' ? form : JSON.stringify(form);
        }
      } else if (isPlain(value)) {
        const text = JSON.stringify(value);
        if (text !== undefined && text.length <= TEXT_MAX) forms['application/json'] = text;
      }
    } catch {
      // A value without this form has others.
    }
  }
  if (!('text/plain' in forms)) forms['text/plain'] = cut(util.inspect(value));
  return forms;
}

// An error without the frames of this file and of the inspector that called it.
function storyOf(error) {
  if (!(error instanceof Error) && !util.types.isNativeError(error)) {
    const text = util.inspect(error);
    return { name: 'Error', value: typeof error === 'string' ? error : text, traceback: `Uncaught ${text}` };
  }
  const lines = String(error.stack || error).split('\n');
  const kept = lines.filter(
    (line) => !(/^\s+at /.test(line) && (line.includes(__filename) || /node:(inspector|vm|internal)|evalmachine\./.test(line)))
  );
  let traceback = kept.join('\n');
  if (error.cause !== undefined) traceback += `\n  [cause]: ${util.inspect(error.cause)}`;
  return {
    name: wellFormed(String(error.name)),
    value: wellFormed(cut(String(error.message))),
    traceback: wellFormed(traceback.slice(0, STACK_MAX)),
  };
}

// Where code, strings, templates, comments and regular expressions are: a copy of the text in which all but code is blank.
function codeOnly(text) {
  const out = text.split('');
  const blank = (from, to) => {
    for (let at = from; at < to; at++) if (out[at] !== '\n') out[at] = ' ';
  };
  const depths = [];
  let at = 0;
  let last = '';
  const template = () => {
    const from = at;
    while (at < text.length) {
      if (text[at] === '\\') at += 2;
      else if (text[at] === '`') {
        at += 1;
        break;
      } else if (text.startsWith('${', at)) {
        at += 2;
        depths.push(0);
        break;
      } else at += 1;
    }
    blank(from, Math.min(at, text.length));
  };
  while (at < text.length) {
    const char = text[at];
    const from = at;
    if (text.startsWith('//', at)) {
      while (at < text.length && text[at] !== '\n') at += 1;
      blank(from, at);
    } else if (text.startsWith('/*', at)) {
      const end = text.indexOf('*/', at + 2);
      at = end < 0 ? text.length : end + 2;
      blank(from, at);
    } else if (char === '"' || char === "'") {
      at += 1;
      while (at < text.length && text[at] !== char && text[at] !== '\n') at += text[at] === '\\' ? 2 : 1;
      at += 1;
      blank(from + 1, Math.min(at - 1, text.length));
      last = char;
    } else if (char === '`') {
      at += 1;
      blank(from, at);
      template();
      last = char;
    } else if (char === '/' && !/[\w$)\]}"'`]/.test(last)) {
      at += 1;
      for (let set = false; at < text.length && text[at] !== '\n' && (set || text[at] !== '/'); at += 1) {
        if (text[at] === '\\') at += 1;
        else if (text[at] === '[') set = true;
        else if (text[at] === ']') set = false;
      }
      at += 1;
      blank(from, Math.min(at, text.length));
      last = '/)';
    } else {
      if (depths.length > 0) {
        if (char === '{') depths[depths.length - 1] += 1;
        if (char === '}') {
          if (depths[depths.length - 1] === 0) {
            depths.pop();
            at += 1;
            blank(from, at);
            template();
            last = '`';
            continue;
          }
          depths[depths.length - 1] -= 1;
        }
      }
      if (!/\s/.test(char)) last = char;
      at += 1;
    }
  }
  return out.join('');
}

// Import declarations become awaited dynamic imports; dynamic imports go through a function of ours; `export` goes.
function withoutModuleSyntax(text) {
  const code = codeOnly(text);
  const edits = [];
  const from = String.raw`(?:[\w$*\s{},]+?\s+from\s*)?`;
  const declaration = new RegExp(String.raw`(^|[;\n])([ \t]*)import\b\s*(${from})(['"])`, 'g');
  for (let found; (found = declaration.exec(code)) !== null; ) {
    const start = found.index + found[1].length;
    const quote = found.index + found[0].length - 1;
    const close = code.indexOf(found[4], quote + 1);
    if (close < 0) continue;
    let end = close + 1;
    const attributes = /^\s*(?:with|assert)\s*(\{[^}]*\})/.exec(code.slice(end));
    let options = '';
    if (attributes) {
      const at = end + attributes[0].length - attributes[1].length;
      options = `, { with: ${text.slice(at, end + attributes[0].length)} }`;
      end += attributes[0].length;
    }
    const names = code.slice(start + found[2].length + 'import'.length, quote).replace(/\bfrom\s*$/, '').trim();
    const imported = `await __pandastack_import__(${text.slice(quote, close + 1)}${options})`;
    edits.push({ start, end, text: imports(names, imported) });
    declaration.lastIndex = end;
  }
  const dynamic = /(^|[^.\w$#])import(\s*)(?=\()/g;
  for (let found; (found = dynamic.exec(code)) !== null; ) {
    const start = found.index + found[1].length;
    edits.push({ start, end: start + 'import'.length, text: '__pandastack_import__' });
  }
  const exported = /(^|[;\n])([ \t]*)export\s+(default\s+)?(?=(?:async|function|class|const|let|var)\b)/g;
  for (let found; (found = exported.exec(code)) !== null; ) {
    const start = found.index + found[1].length + found[2].length;
    edits.push({ start, end: found.index + found[0].length, text: '' });
  }
  const empty = /(^|[;\n])([ \t]*)export\s*\{\s*\}\s*;?/g;
  for (let found; (found = empty.exec(code)) !== null; ) {
    edits.push({ start: found.index + found[1].length, end: found.index + found[0].length, text: '' });
  }
  edits.sort((one, other) => other.start - one.start);
  for (const edit of edits) text = text.slice(0, edit.start) + edit.text + text.slice(edit.end);
  return text;
}

function imports(names, imported) {
  if (names === '') return imported;
  const parts = /^([\w$]+)?\s*,?\s*(?:\*\s*as\s+([\w$]+)|\{([\s\S]*)\})?$/.exec(names);
  if (parts === null) return `const ${names} = ${imported}`;
  const wanted = [];
  if (parts[1]) wanted.push(`default: ${parts[1]}`);
  if (parts[3]) wanted.push(parts[3].replace(/\bas\b/g, ':').trim().replace(/,$/, ''));
  if (parts[2]) {
    const rest = wanted.length > 0 ? `; const { ${wanted.join(', ')} } = ${parts[2]}` : '';
    return `const ${parts[2]} = ${imported}${rest}`;
  }
  return `const { ${wanted.filter(Boolean).join(', ')} } = ${imported}`;
}

// Removes types, with what is there: the typescript package of the project or of the system, or Node's own stripping.
let typescript;

function withoutTypes(text) {
  if (typescript === undefined) typescript = findTypescript();
  if (typescript !== null) {
    const newer = Number.parseInt(typescript.version, 10) >= 5;
    const { outputText, diagnostics } = typescript.transpileModule(text, {
      fileName: 'cell.ts',
      reportDiagnostics: true,
      compilerOptions: {
        target: typescript.ScriptTarget.ES2022,
        module: typescript.ModuleKind.ESNext,
        isolatedModules: true,
        experimentalDecorators: true,
        // Imports stay, even if only a later cell uses them.
        ...(newer ? { verbatimModuleSyntax: true } : { preserveValueImports: true }),
      },
    });
    const wrong = (diagnostics || []).filter((found) => found.file !== undefined && found.category === 1);
    if (wrong.length > 0) {
      throw new SyntaxError(typescript.formatDiagnostics(wrong.slice(0, 5), {
        getCanonicalFileName: (name) => name,
        getCurrentDirectory: () => '',
        getNewLine: () => '\n',
      }).trimEnd());
    }
    return outputText;
  }
  if (typeof nodeModule.stripTypeScriptTypes === 'function') return nodeModule.stripTypeScriptTypes(text);
  throw new Error('TypeScript needs the `typescript` package (npm install -g typescript) or Node.js 22.13 or later');
}

function findTypescript() {
  const prefix = path.dirname(path.dirname(process.execPath));
  const places = [
    path.join(process.cwd(), 'node_modules'),
    path.join(prefix, 'lib/node_modules'),
    '/usr/local/lib/node_modules',
    '/usr/lib/node_modules',
    '/usr/share/nodejs',
  ];
  const find = nodeModule.createRequire(path.join(process.cwd(), 'cell.js'));
  try {
    return find('typescript');
  } catch {
    // Not of this project.
  }
  for (const place of places) {
    try {
      return require(path.join(place, 'typescript'));
    } catch {
      // Not there.
    }
  }
  return null;
}

// What cells see.
const session = new inspector.Session();
session.connect();

const hidden = (name, value) =>
  Object.defineProperty(globalThis, name, { value, configurable: true, enumerable: false, writable: true });
const base = path.join(process.cwd(), 'cell.js');
hidden('require', nodeModule.createRequire(base));
hidden('module', { exports: {}, filename: base, id: '.', paths: nodeModule._nodeModulePaths(process.cwd()) });
hidden('exports', globalThis.module.exports);
hidden('__filename', base);
hidden('__dirname', process.cwd());
hidden('display', async (...values) => {
  for (const value of values) show(await formsOf(value), false);
});
// Relative names are relative to the working directory, as in a script there.
hidden('__pandastack_import__', (name, options) => {
  const text = String(name);
  const { pathToFileURL } = require('node:url');
  const here = /^\.{0,2}\//.test(text) ? new URL(text, pathToFileURL(base)).href : resolved(text);
  return options === undefined ? import(here) : import(here, options);
});

// A package of the working directory; what is not found there is left to the loader.
function resolved(name) {
  if (nodeModule.builtinModules.includes(name.replace(/^node:/, ''))) return name;
  if (/^[a-z]+:/.test(name)) return name;
  try {
    return require('node:url').pathToFileURL(globalThis.require.resolve(name)).href;
  } catch {
    return name;
  }
}

process.exit = (code) => {
  throw new ExitRequest(code === undefined ? process.exitCode || 0 : Number(code) || 0);
};

// Written at once and without a stream's own bookkeeping: an interrupt that ends a cell inside of it would leave the stream
// waiting for ever for a write to finish.
for (const [stream, fd] of [[process.stdout, 1], [process.stderr, 2]]) {
  stream.setMaxListeners(0);
  stream.write = (data, encoding, callback) => {
    const bytes = typeof data === 'string' ? Buffer.from(data, typeof encoding === 'string' ? encoding : 'utf8') : data;
    writeAll(fd, bytes);
    const done = typeof encoding === 'function' ? encoding : callback;
    if (typeof done === 'function') process.nextTick(done);
    return true;
  };
}

// Holds the value that a cell came to, on its way out of the inspector.
let carried;
const carryName = '__pandastack_carry__';
hidden(carryName, (value) => {
  carried = value;
});

// A promise and the functions that settle it. Made apart, so that user code is not called from inside a constructor.
function promised() {
  const parts = {};
  parts.promise = new Promise((resolve, reject) => Object.assign(parts, { resolve, reject }));
  return parts;
}

function post(method, parameters) {
  const { promise, resolve, reject } = promised();
  session.post(method, parameters, (error, result) => (error ? reject(error) : resolve(result)));
  return promise;
}

async function valueOf(remote) {
  if ('value' in remote) return remote.value;
  if ('unserializableValue' in remote) {
    const text = remote.unserializableValue;
    return text.endsWith('n') ? BigInt(text.slice(0, -1)) : text === '-0' ? -0 : Number(text);
  }
  if (remote.type === 'undefined' || remote.objectId === undefined) return undefined;
  carried = undefined;
  await post('Runtime.callFunctionOn', {
    objectId: remote.objectId,
    functionDeclaration: `function () { globalThis.${carryName}(this); }`,
  });
  const value = carried;
  carried = undefined;
  // Strings come as values; a symbol arrives boxed.
  return remote.type === 'symbol' ? value.valueOf() : value;
}

let evaluation = null;
hidden('__pandastack_evaluate__', () => {
  evaluation.answer = post('Runtime.evaluate', {
    expression: evaluation.code,
    replMode: true,
    awaitPromise: true,
    generatePreview: false,
  });
});

// What a cell came to: resolves to its value, rejects with what it raised. An interrupt ends it either way.
async function evaluate(text) {
  evaluation = { code: `${text}\n//# sourceURL=cell-${count}`, answer: null };
  const { promise: interrupted, reject } = promised();
  cell.interrupt = () => reject(new Interrupt());
  cell.raise = reject;
  interrupted.catch(() => {});
  try {
    // An endless loop is broken here; what waits is given up below.
    vm.runInThisContext('globalThis.__pandastack_evaluate__()', { breakOnSigint: true });
  } catch (error) {
    throw error.code === 'ERR_SCRIPT_EXECUTION_INTERRUPTED' ? new Interrupt() : error;
  }
  const answer = await Promise.race([evaluation.answer, interrupted]);
  if (answer.exceptionDetails) {
    const remote = answer.exceptionDetails.exception || answer.result;
    throw await valueOf(remote);
  }
  return valueOf(answer.result);
}

async function run(id, text) {
  count += 1;
  if (cell !== null) throw new Error('cells run one at a time');
  cell = { id, file: null, written: 0, shown: 0, shownBytes: 0, interrupt: null, raise: null };
  mark(id, '(', true);
  let exit = 0;
  try {
    let code = language === 'typescript' ? withoutTypes(text) : text;
    code = withoutModuleSyntax(code);
    // An object literal is meant where a block makes no sense.
    if (/^\s*\{/.test(code) && /\}\s*$/.test(code) && parses(`(${code}\n)`)) code = `(${code}\n)`;
    const value = await evaluate(code);
    if (value !== undefined) {
      hidden('_', value);
      show(await formsOf(value), true);
    }
  } catch (error) {
    if (error instanceof ExitRequest) exit = error.code & 0xff;
    else {
      exit = error instanceof Interrupt ? 130 : 1;
      try {
        record({ error: storyOf(error) });
      } catch (second) {
        record({ error: { name: 'Error', value: 'not printable', traceback: String(second) } });
      }
    }
  }
  mark(id, `) ${exit} ${count}`, true);
  if (cell.file !== null) fs.closeSync(cell.file);
  cell = null;
}

function parses(code) {
  try {
    new vm.Script(code);
    return true;
  } catch {
    return false;
  }
}

process.on('SIGINT', () => {
  if (cell !== null && cell.interrupt !== null) cell.interrupt();
});
// What callbacks raise ends the cell that runs; between cells it is only told.
const raised = (error) => {
  if (cell !== null && cell.raise !== null) cell.raise(error);
  else if (!(error instanceof ExitRequest)) process.stderr.write(`Uncaught ${util.inspect(error)}\n`);
};
process.on('uncaughtException', raised);
process.on('unhandledRejection', raised);

let buffer = '';
let previous = null;
let queue = Promise.resolve();

function take(line) {
  const found = /^run ([0-9a-f]{16})$/.exec(line);
  if (found === null) return;
  const id = found[1];
  queue = queue.then(async () => {
    let text;
    try {
      text = fs.readFileSync(path.join(cells, id), 'utf8');
    } catch {
      return; // Withdrawn.
    }
    if (previous !== null) {
      for (const name of [previous, `${previous}.out`]) fs.rmSync(path.join(cells, name), { force: true });
    }
    previous = id;
    await run(id, text);
  });
}

const lines = fs.createReadStream(null, { fd: source, encoding: 'latin1', highWaterMark: 4096 });
lines.on('data', (data) => {
  buffer += data;
  for (let end; (end = buffer.indexOf('\n')) >= 0; ) {
    take(buffer.slice(0, end));
    buffer = buffer.slice(end + 1);
  }
});
lines.on('end', () => process.reallyExit(0));
lines.on('error', () => process.reallyExit(1));
