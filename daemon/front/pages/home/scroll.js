/** Keeps the end of a growing box in view, until the reader scrolls up; and again when they come back to the end. */

/** How near to the end still counts as there, px. */
const NEAR = 48;

export function followEnd(box) {
  let follows = true;
  let asked = false;
  box.addEventListener('scroll', () => {
    follows = box.scrollHeight - box.scrollTop - box.clientHeight < NEAR;
  });
  return {
    /** Something was added. */
    grown() {
      if (!follows || asked) return;
      asked = true;
      requestAnimationFrame(() => {
        asked = false;
        if (follows) box.scrollTop = box.scrollHeight;
      });
    },
    /** To the end, wherever the reader was. */
    toEnd() {
      follows = true;
      box.scrollTop = box.scrollHeight;
    },
  };
}
