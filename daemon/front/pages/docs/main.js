/**
 * The page at /docs: reads /openapi.json and /openrpc.json and shows every route and method, to read and to try. One page without parts
 * from elsewhere; the address behind # says what is shown, so that links and the browser's back work.
 */

import { byId } from '../shared/dom.js';
import { themeSwitch } from '../shared/theme.js';
import { getDocuments, httpEntries, NeedsToken, rpcEntries, session } from './documents.js';
import { sideList } from './list.js';
import { entryView, failedView, homeView, lockedView, missingView } from './view.js';

const main = byId('main');
let documents = null;
let entries = [];
const side = sideList();

function show(node) {
  main.replaceChildren(node);
  window.scrollTo(0, 0);
}

/** Shows what the address names. */
function route(focus) {
  if (documents === null) return;
  const at = decodeURIComponent(location.hash.replace(/^#\/?/, ''));
  const entry = entries.find(({ id }) => id === at);
  if (entry !== undefined) show(entryView(entry, askForToken));
  else show(at === '' ? homeView(documents, entries) : missingView(at));
  document.title = `${entry?.title ?? 'inferd'} · inferd`;
  side.mark(entry);
  openSide(false);
  if (focus) main.focus({ preventScroll: true });
}

function askForToken() {
  byId('token-box').hidden = false;
  byId('token').focus();
}

async function load() {
  try {
    documents = await getDocuments();
  } catch (error) {
    if (error instanceof NeedsToken) {
      show(lockedView());
      if (session.token !== '') main.querySelector('.lead').prepend('This token was refused. ');
      askForToken();
    } else show(failedView(error));
    return;
  }
  const { openapi, openrpc } = documents;
  byId('version').textContent = openapi.info.version;
  byId('token-box').hidden = (openapi.security ?? []).length === 0;
  entries = [...httpEntries(openapi), ...rpcEntries(openrpc)];
  side.fill(entries);
  route(false);
}

function useToken() {
  session.token = byId('token').value.trim();
  void load();
}

/** The list, which is folded away where the window is narrow. */
function openSide(open) {
  byId('side').classList.toggle('open', open);
  byId('menu').setAttribute('aria-expanded', String(open));
}

byId('token-use').addEventListener('click', useToken);
byId('token').addEventListener('keydown', (event) => {
  if (event.key === 'Enter') useToken();
});
byId('menu').addEventListener('click', () => {
  openSide(!byId('side').classList.contains('open'));
  if (byId('side').classList.contains('open')) byId('filter').focus();
});
document.addEventListener('keydown', (event) => {
  const typing = event.target instanceof Element && event.target.closest('input, textarea, select') !== null;
  if (event.key !== '/' || typing || event.ctrlKey || event.metaKey || event.altKey) return;
  event.preventDefault();
  openSide(true);
  byId('filter').focus();
});
document.querySelector('.skip').addEventListener('click', (event) => {
  event.preventDefault(); // the address says what is shown
  main.focus();
});
window.addEventListener('hashchange', () => route(true));
themeSwitch(byId('theme'));
void load();
