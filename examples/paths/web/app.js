// The API is on this page's own origin, below api/.
const list = document.getElementById('notes');

async function show() {
  const notes = await (await fetch('api/notes')).json();
  list.replaceChildren(...notes.map((text) => Object.assign(document.createElement('li'), { textContent: text })));
}

document.forms[0].addEventListener('submit', async (event) => {
  event.preventDefault();
  await fetch('api/notes', { method: 'POST', body: event.target.text.value });
  event.target.reset();
  show();
});

show();
