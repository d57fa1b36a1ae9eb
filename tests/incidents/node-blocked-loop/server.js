// A server that hashes passwords synchronously, in the thread of its event loop.
const crypto = require('crypto');
const http = require('http');

function hashPassword() {
  return crypto.pbkdf2Sync('secret', 'salt', 150000, 64, 'sha512').toString('hex');
}

http.createServer((request, response) => response.end(hashPassword()))
  .listen(process.argv[2], () => console.log('ready'));
