// The guestbook's API. Entries are lines of JSON in $DATA_DIR, and every open page
// is notified of new ones.
import { appendFile, readFile } from "node:fs/promises";
import path from "node:path";
import express from "express";

const { PORT, HOST, DATA_DIR, WEB_ORIGIN } = process.env;
const book = path.join(DATA_DIR, "entries.jsonl");
const listeners = new Set();

async function entries() {
  const text = await readFile(book, "utf8").catch((err) => {
    if (err.code === "ENOENT") return "";
    throw err;
  });
  return text.split("\n").filter(Boolean).map((line) => JSON.parse(line));
}

const app = express();
app.disable("x-powered-by");
app.use(express.json({ limit: "8kb" }));
app.use((req, res, next) => {
  res.set("Access-Control-Allow-Origin", WEB_ORIGIN);
  res.set("Access-Control-Allow-Headers", "Content-Type");
  next();
});

app.get("/healthz", (req, res) => res.json({ ok: true }));
app.options("/entries", (req, res) => res.sendStatus(204));
app.get("/entries", async (req, res) => res.json(await entries()));

app.post("/entries", async (req, res) => {
  const name = String(req.body?.name ?? "").trim().slice(0, 40);
  const text = String(req.body?.text ?? "").trim().slice(0, 500);
  if (!name || !text) return res.status(422).json({ detail: "name and text are required" });
  const entry = { name, text, at: new Date().toISOString() };
  await appendFile(book, JSON.stringify(entry) + "\n");
  console.log(`${name} signed the guestbook`);
  for (const listener of listeners) listener.write(`data: ${JSON.stringify(entry)}\n\n`);
  res.status(201).json(entry);
});

app.get("/live", (req, res) => {
  res.set({ "Content-Type": "text/event-stream", "Cache-Control": "no-store" });
  res.flushHeaders();
  listeners.add(res);
  req.on("close", () => listeners.delete(res));
});

const server = app.listen(Number(PORT), HOST, () => console.log(`listening on ${HOST}:${PORT}`));
process.on("SIGTERM", () => {
  for (const listener of listeners) listener.end();
  server.close(() => process.exit(0));
});
