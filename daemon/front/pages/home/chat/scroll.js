/** Keeps the end of a growing box in view, until the reader scrolls up; and again when they come back to the end. */

/** How near to the end still counts as there, px. */
const NEAR = 48;

export function followEnd(box) {
  let follows = true;
  box.addEventListener('scroll', () => {
    follows = box.scrollHeight - box.scrollTop - box.clientHeight < NEAR;
  });
  return {
    /** Something was added: to be called once a frame, in the same one, so that the end is never seen below the edge. */
    grown() {
      if (follows) box.scrollTop = box.scrollHeight;
    },
    /** To the end, wherever the reader was. */
    toEnd() {
      follows = true;
      box.scrollTop = box.scrollHeight;
    },
  };
}
