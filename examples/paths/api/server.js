// The API answers at /notes, at its own URL and below /api of the page's URL.
const fs = require('fs');
const http = require('http');
const path = require('path');

const file = path.join(process.env.DATA_DIR, 'notes.json');
const notes = fs.existsSync(file) ? JSON.parse(fs.readFileSync(file)) : [];

http.createServer(async (req, res) => {
  if (req.url !== '/notes') {
    res.writeHead(404).end();
    return;
  }
  if (req.method === 'POST') {
    let text = '';
    for await (const part of req) text += part;
    notes.push(text.slice(0, 200));
    fs.writeFileSync(file, JSON.stringify(notes));
  }
  res.setHeader('Content-Type', 'application/json');
  res.end(JSON.stringify(notes));
}).listen(process.env.PORT);
