/** The colours of the page: those that the system asks for, or light, or dark; a button goes through the three. Kept nowhere. */

const themes = ['auto', 'light', 'dark'];

function setTheme(button, theme) {
  document.documentElement.dataset.theme = theme;
  button.textContent = { auto: '◐', light: '☀', dark: '☾' }[theme];
  button.setAttribute('aria-label', `Colours: ${theme}`);
  button.title = `Colours: ${theme}`;
  document.dispatchEvent(new Event('colours'));
}

/** Lets `button` switch; `document` is told by the event `colours`. */
export function themeSwitch(button) {
  setTheme(button, 'auto');
  button.addEventListener('click', () => {
    setTheme(button, themes[(themes.indexOf(document.documentElement.dataset.theme) + 1) % themes.length]);
  });
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => document.dispatchEvent(new Event('colours')));
}
