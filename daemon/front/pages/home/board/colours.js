/** Colours of the style for canvases: asked of the browser again when the page changes between light and dark. */

const colourNames = [
  'text',
  'faint',
  'line',
  'prefill',
  'decode',
  'free',
  'cached',
  'shared',
  ...Array.from({ length: 8 }, (_, i) => `owner${i}`),
];

let known = null;
document.addEventListener('colours', () => {
  known = null;
});

/** By name, as text that a canvas takes. */
export function colours() {
  if (known !== null) return known;
  const probe = document.createElement('span');
  probe.hidden = true;
  document.body.append(probe);
  const style = getComputedStyle(probe);
  known = {};
  for (const name of colourNames) {
    probe.style.setProperty('color', `var(--${name})`);
    known[name] = style.color;
  }
  probe.remove();
  return known;
}

/** The context of a canvas that fills its box, sharp on every screen; and its size in CSS pixels. */
export function canvasOf(canvas) {
  const { clientWidth: width, clientHeight: height } = canvas;
  const ratio = devicePixelRatio || 1;
  if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
  }
  const context = canvas.getContext('2d');
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, width, height);
  return { context, width, height };
}
