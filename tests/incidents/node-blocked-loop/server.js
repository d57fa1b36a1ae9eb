// A server that hashes passwords synchronously, in the thread of its event loop, and logs how long that takes.
const crypto = require('crypto');
const fs = require('fs');
const http = require('http');

const log = fs.openSync(process.argv[3], 'a');

function hashPassword() {
  return crypto.pbkdf2Sync('secret', 'salt', 150000, 64, 'sha512').toString('hex');
}

function logIn() {
  const begin = process.hrtime.bigint();
  const hash = hashPassword();
  fs.writeSync(log, `hashPassword ${Number(process.hrtime.bigint() - begin) / 1e9}\n`);
  return hash;
}

http.createServer((request, response) => response.end(logIn()))
  .listen(process.argv[2], () => console.log('ready'));
