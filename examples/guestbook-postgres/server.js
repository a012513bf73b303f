// The guestbook: a page, and an API that keeps its entries in PostgreSQL.
import { readFile } from "node:fs/promises";
import { createServer } from "node:http";
import pg from "pg";

const { PORT, HOST } = process.env;
const db = new pg.Pool({ max: 10 }); // PGHOST and the others come from the environment
db.on("error", (err) => console.error(`an idle connection broke: ${err.message}`)); // the pool makes another

const page = await readFile("index.html");
const limit = 8 << 10;

async function body(req) {
  let text = "";
  for await (const chunk of req) {
    text += chunk;
    if (text.length > limit) throw new Error("too large");
  }
  return JSON.parse(text);
}

function json(res, status, value) {
  res.writeHead(status, { "Content-Type": "application/json" });
  res.end(JSON.stringify(value));
}

async function sign(req, res) {
  const entry = await body(req).catch(() => null);
  const name = String(entry?.name ?? "").trim().slice(0, 40);
  const text = String(entry?.text ?? "").trim().slice(0, 500);
  if (!name || !text) return json(res, 422, { detail: "name and text are required" });
  const { rows } = await db.query("INSERT INTO entries (name, text) VALUES ($1, $2) RETURNING name, text, at", [name, text]);
  json(res, 201, rows[0]);
}

async function answer(req, res) {
  switch (`${req.method} ${new URL(req.url, "http://web").pathname}`) {
    case "GET /":
      res.writeHead(200, { "Content-Type": "text/html; charset=utf-8" });
      return res.end(page);
    case "GET /healthz":
      await db.query("SELECT 1");
      return json(res, 200, { ok: true });
    case "GET /entries":
      return json(res, 200, (await db.query("SELECT name, text, at FROM entries ORDER BY id DESC LIMIT 100")).rows);
    case "POST /entries":
      return sign(req, res);
  }
  json(res, 404, { detail: "there is nothing here" });
}

const server = createServer((req, res) => {
  answer(req, res).catch((err) => {
    console.error(err);
    if (!res.headersSent) json(res, 500, { detail: "the guestbook is out of order" });
  });
});
server.listen(Number(PORT), HOST, () => console.log(`listening on ${HOST}:${PORT}`));
process.on("SIGTERM", () => server.close(() => db.end().then(() => process.exit(0))));
