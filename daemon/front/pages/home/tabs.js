/**
 * The parts of the page, one shown at a time: the address behind # parts it, so that links and the browser's back work. Left and right
 * go from tab to tab, as in every tab list.
 */
import { byId } from '../shared/dom.js';

const parts = ['chat', 'board', 'requests', 'models'];

/** `views`: by name, each with `show(rest)` (what stands behind the name in the address) and `hide()`. Shows the one of the address. */
export function startTabs(views) {
  let shown = null;
  const tab = (name) => byId(`tab-${name}`);

  function route() {
    const [asked = '', ...rest] = decodeURIComponent(location.hash.replace(/^#\/?/, '')).split('/');
    const name = parts.includes(asked) ? asked : 'chat';
    if (shown !== null && shown !== name) views[shown].hide();
    for (const other of parts) {
      byId(other).hidden = other !== name;
      tab(other).setAttribute('aria-selected', String(other === name));
      tab(other).tabIndex = other === name ? 0 : -1;
    }
    shown = name;
    document.title = `${tab(name).textContent} · inferd`;
    views[name].show(rest.join('/'));
  }

  for (const name of parts) tab(name).addEventListener('click', () => (location.hash = `#/${name}`));
  byId('tabs').addEventListener('keydown', ({ key }) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[key];
    if (step === undefined) return;
    const next = parts[(parts.indexOf(shown) + step + parts.length) % parts.length];
    location.hash = `#/${next}`;
    tab(next).focus();
  });
  window.addEventListener('hashchange', route);
  route();
}
