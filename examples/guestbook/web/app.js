// The guestbook's page. It loads the entries, shows new ones live, and posts the
// visitor's own.
const api = document.querySelector("meta[name=api]").content;
const list = document.querySelector("ol");
const form = document.querySelector("form");
const status = document.querySelector("[role=status]");
const shown = new Set();

function show({ name, text, at }) {
  const key = at + name;
  if (shown.has(key)) return;
  shown.add(key);
  const item = document.createElement("li");
  const said = document.createElement("p");
  said.textContent = text;
  const by = document.createElement("time");
  by.dateTime = at;
  by.textContent = `${name}, ${new Date(at).toLocaleString()}`;
  item.append(said, by);
  list.prepend(item);
}

async function load() {
  const res = await fetch(`${api}/entries`);
  for (const entry of await res.json()) show(entry);
}

form.addEventListener("submit", async (event) => {
  event.preventDefault();
  status.textContent = "";
  const res = await fetch(`${api}/entries`, {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify(Object.fromEntries(new FormData(form))),
  });
  const answer = await res.json();
  if (!res.ok) {
    status.textContent = answer.detail;
    return;
  }
  show(answer);
  form.elements.text.value = "";
});

new EventSource(`${api}/live`).onmessage = (event) => show(JSON.parse(event.data));
await load();
