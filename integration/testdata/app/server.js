// A service with a route for everything that the tests ask of one. It has no
// packages, so that building it takes no time.
const http = require('http');
const fs = require('fs');
const path = require('path');
const crypto = require('crypto');

const routes = {
  '/': (req, res) => {
    res.setHeader('Generation', process.env.GENERATION);
    res.end(`hello from ${process.env.SERVICE_NAME}`);
  },
  '/pid': (req, res) => res.end(`${process.pid} ${process.hrtime.bigint()}`),
  '/env': (req, res) => json(res, process.env),
  '/request': async (req, res) => json(res, {
    method: req.method, url: req.url, headers: req.headers, raw: req.rawHeaders, body: await text(req),
  }),
  // The size and digest of a body, read as it comes.
  '/digest': (req, res) => {
    const hash = crypto.createHash('sha256');
    let size = 0;
    req.on('data', (d) => { hash.update(d); size += d.length; });
    req.on('end', () => json(res, { size, sha256: hash.digest('hex') }));
  },
  // Sends back each piece of the body when it comes.
  '/echo': (req, res) => { res.writeHead(200); res.flushHeaders(); req.pipe(res); },
  '/bytes': (req, res, q) => {
    const chunk = Buffer.alloc(64 << 10, 'x');
    let left = Number(q.get('n'));
    res.on('close', () => { if (left > 0) gone++; });
    const more = () => {
      while (left > 0) {
        const piece = chunk.subarray(0, Math.min(left, chunk.length));
        left -= piece.length;
        if (!res.write(piece)) return res.once('drain', more);
      }
      res.end();
    };
    more();
  },
  '/status': (req, res, q) => { res.writeHead(Number(q.get('code')), { 'X-From': 'service' }); res.end('told to'); },
  // An event as soon as /tick is asked for, so that no clock is involved.
  '/sse': (req, res) => {
    res.writeHead(200, { 'Content-Type': 'text/event-stream' });
    res.write('data: open\n\n');
    listeners.add(res);
    res.on('close', () => { listeners.delete(res); gone++; });
  },
  '/tick': (req, res, q) => { for (const l of listeners) l.write(`data: ${q.get('data')}\n\n`); res.end(); },
  '/gone': (req, res) => json(res, { gone, open: listeners.size }),
  // Holds its answer until /release is asked for.
  '/hold': (req, res) => { held.push(res); },
  '/held': (req, res) => json(res, held.length),
  '/release': (req, res) => { for (const r of held.splice(0)) r.end('released'); res.end(); },
  '/log': (req, res, q) => {
    for (let i = Number(q.get('from')); i < Number(q.get('to')); i++) console.log(`line ${i}`);
    res.end();
  },
  '/write': async (req, res, q) => {
    fs.writeFileSync(path.join(process.env.DATA_DIR, q.get('name')), await text(req));
    res.end();
  },
  '/read': (req, res, q) => res.end(fs.readFileSync(path.join(process.env.DATA_DIR, q.get('name')))),
  '/fetch': async (req, res, q) => {
    try {
      const answer = await fetch(q.get('url'), { signal: AbortSignal.timeout(5000) });
      res.end(await answer.text());
    } catch (err) {
      res.writeHead(599);
      res.end(String(err.cause || err));
    }
  },
  '/stop-listening': (req, res) => { res.end('bye', () => { server.close(); server.closeAllConnections(); keepAlive(); }); },
  '/drop': (req, res) => req.socket.destroy(),
};

const listeners = new Set();
const held = [];
let gone = 0;
const keepAlive = () => setInterval(() => {}, 1 << 30);
const json = (res, value) => { res.setHeader('Content-Type', 'application/json'); res.end(JSON.stringify(value)); };
const text = async (req) => { let all = ''; for await (const d of req) all += d; return all; };

const server = http.createServer((req, res) => {
  const url = new URL(req.url, 'http://any');
  const route = routes[url.pathname];
  if (!route) { res.writeHead(404); return res.end('the service has no such page'); }
  route(req, res, url.searchParams);
});

// A WebSocket that sends back short text messages.
server.on('upgrade', (req, socket) => {
  const accept = crypto.createHash('sha1')
    .update(req.headers['sec-websocket-key'] + '258EAFA5-E914-47DA-95CA-C5AB0DC85B11').digest('base64');
  socket.write(`HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: ${accept}\r\n\r\n`);
  socket.on('error', () => {});
  let buffer = Buffer.alloc(0);
  socket.on('data', (d) => {
    buffer = Buffer.concat([buffer, d]);
    while (buffer.length >= 6) {
      const opcode = buffer[0] & 15;
      const length = buffer[1] & 127;
      if (buffer.length < 6 + length) return;
      const mask = buffer.subarray(2, 6);
      const payload = Buffer.from(buffer.subarray(6, 6 + length).map((b, i) => b ^ mask[i % 4]));
      buffer = buffer.subarray(6 + length);
      socket.write(Buffer.concat([Buffer.from([0x80 | opcode, length]), payload]));
      if (opcode === 8) return socket.end();
    }
  });
});

process.on('SIGTERM', () => process.exit(0));
console.log(`${process.env.SERVICE_NAME} starts`);
server.listen(Number(process.env.PORT), '0.0.0.0');
