// Runs each file of migrations/ that the database has not seen yet, in order. A file and the
// note that it ran are one transaction. The old generation still serves meanwhile, so a
// migration must leave what that one uses.
import { readdir, readFile } from "node:fs/promises";
import pg from "pg";

const db = new pg.Client(); // PGHOST and the others come from the environment
await db.connect();
await db.query("CREATE TABLE IF NOT EXISTS migrations (name text PRIMARY KEY)");
const { rows } = await db.query("SELECT name FROM migrations");
const done = new Set(rows.map((row) => row.name));
for (const name of (await readdir("migrations")).sort()) {
  if (done.has(name)) continue;
  await db.query("BEGIN");
  await db.query(await readFile(`migrations/${name}`, "utf8"));
  await db.query("INSERT INTO migrations VALUES ($1)", [name]);
  await db.query("COMMIT");
  console.log(`migrated: ${name}`);
}
await db.end();
