// A tiny runner: runs the program as a function of `emit`, which writes a signed record, and of the job's `fields`.
const fs = require('fs'), crypto = require('crypto');
const data = fs.readFileSync(0), fields = [];
for (let at = 0; at < data.length;) {
  const end = at + 4 + data.readUInt32BE(at);
  fields.push(data.toString('utf8', at + 4, end));
  at = end;
}
const prefix = (bytes) => Buffer.concat([Buffer.from([bytes.length >> 24, bytes.length >> 16, bytes.length >> 8, bytes.length]), bytes]);
const key = fields.shift();
let number = 0n;
function emit(kind, name = '', outcome = '', type = '', message = '') {
  const content = Buffer.concat([kind, name, outcome, type, message].map((text) => prefix(Buffer.from(text))));
  const count = Buffer.alloc(8);
  count.writeBigUInt64BE(number++);
  const tag = crypto.createHmac('sha256', key).update(count).update(content).digest().subarray(0, 16);
  fs.writeSync(3, prefix(Buffer.concat([tag, content])));
}
process.on('SIGUSR1', () => {});
process.on('exit', (code) => code || emit('end'));
new Function('emit', 'fields', 'require', fields[3])(emit, fields, require);
