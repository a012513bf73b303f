// Adds to the pages: times in the reader's time zone, live updates, details opened by
// the link that leads to them, and copy buttons. The pages work without it.
'use strict';

const localTime = new Intl.DateTimeFormat(undefined, { dateStyle: 'medium', timeStyle: 'short' });

// localise converts the times below an element to the reader's time zone.
function localise(root) {
  for (const time of root.querySelectorAll('time[datetime]')) {
    time.title = time.textContent;
    time.textContent = localTime.format(new Date(time.dateTime));
  }
}

// replace exchanges an element's content and keeps the focus where it was.
function replace(element, html) {
  const focused = element.contains(document.activeElement) ? document.activeElement.id : '';
  element.innerHTML = html;
  localise(element);
  if (focused) document.getElementById(focused)?.focus();
}

const mostLogNodes = 2000;

// leadTo sets where the link to older lines leads: '' if there are none.
function leadTo(older) {
  const link = document.getElementById('log-older');
  link.hidden = !older;
  if (older) link.href = older;
}

// addLines appends to the log, and keeps it scrolled to its end if it was there. The link
// to older lines leads to what comes before the first line that is shown.
function addLines(log, { html, anew, older = '' }) {
  const atEnd = log.scrollTop + log.clientHeight >= log.scrollHeight - 4;
  if (anew) {
    log.textContent = '';
    leadTo(older);
  }
  if (html) {
    const batch = document.createElement('span');
    batch.dataset.older = older;
    batch.innerHTML = html;
    log.append(batch);
  }
  while (log.childNodes.length > mostLogNodes) {
    log.firstChild.remove();
    leadTo(log.firstChild.dataset.older);
  }
  if (atEnd || anew) log.scrollTop = log.scrollHeight;
}

// follow reads the page's stream while the page is visible: browsers allow few
// connections to one site over all its tabs.
function follow(address) {
  let source = null;
  const open = () => {
    source = new EventSource(address);
    source.addEventListener('part', (event) => {
      const { id, html } = JSON.parse(event.data);
      const element = document.getElementById(id);
      if (element) replace(element, html);
    });
    source.addEventListener('log', (event) => addLines(document.getElementById('log'), JSON.parse(event.data)));
    source.addEventListener('go', (event) => location.assign(JSON.parse(event.data)));
  };
  const close = () => { source?.close(); source = null; };
  const turn = () => {
    if (document.hidden) close();
    else if (!source || source.readyState === EventSource.CLOSED) open();
  };
  document.addEventListener('visibilitychange', turn);
  addEventListener('pagehide', close);
  addEventListener('pageshow', turn);
  turn();
}

// addCopyButtons adds a button to each element with data-copy, if the browser lets
// pages copy.
function addCopyButtons() {
  if (!navigator.clipboard) return;
  for (const text of document.querySelectorAll('[data-copy]')) {
    const button = document.createElement('button');
    button.type = 'button';
    button.className = 'quiet slim';
    button.textContent = 'Copy';
    button.addEventListener('click', async () => {
      await navigator.clipboard.writeText(text.textContent);
      button.textContent = 'Copied';
    });
    text.after(button);
  }
}

// unfold opens the details element that the address points to.
function unfold() {
  const target = document.getElementById(location.hash.slice(1));
  if (target instanceof HTMLDetailsElement) target.open = true;
}

addEventListener('hashchange', unfold);
unfold();
localise(document);
addCopyButtons();
const log = document.getElementById('log');
if (log && !('top' in log.dataset)) log.scrollTop = log.scrollHeight;
const stream = document.querySelector('[data-stream]');
if (stream) follow(stream.dataset.stream);
