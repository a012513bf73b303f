// A receiver for Berth's webhooks. It accepts only events with a valid signature.
'use strict';

const { createHmac, timingSafeEqual } = require('node:crypto');
const http = require('node:http');

const tolerance = 300; // seconds between the sender's clock and ours
const maxBody = 1 << 20;
const secret = process.env.WEBHOOK_SECRET;

if (!secret) {
  console.error('set WEBHOOK_SECRET to the webhook_secret that Berth returned');
  process.exit(1);
}

// verify checks a header of the form t=<unix seconds>,v1=<hex>.
function verify(header, body) {
  const fields = Object.fromEntries(header.split(',').map((part) => part.split('=', 2)));
  if (!/^\d+$/.test(fields.t) || Math.abs(Date.now() / 1000 - Number(fields.t)) > tolerance) {
    return false;
  }
  const expected = createHmac('sha256', secret).update(`${fields.t}.`).update(body).digest();
  const given = Buffer.from(fields.v1 ?? '', 'hex');
  return given.length === expected.length && timingSafeEqual(given, expected);
}

async function receive(req) {
  const chunks = []; // raw, because the signature covers these bytes
  let size = 0;
  for await (const chunk of req) {
    size += chunk.length;
    if (size > maxBody) return 413;
    chunks.push(chunk);
  }
  const body = Buffer.concat(chunks);
  if (!verify(req.headers['x-service-signature'] ?? '', body)) return 401;
  const event = JSON.parse(body);
  console.log(`accepted ${event.id} ${event.type} of ${event.stack_id}`);
  return 204;
}

http.createServer(async (req, res) => {
  try {
    res.statusCode = req.method === 'POST' ? await receive(req) : 405;
  } catch {
    res.statusCode = 400;
  }
  res.end();
}).listen(process.env.PORT);
