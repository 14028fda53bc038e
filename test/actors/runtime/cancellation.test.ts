import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Cancellation } from '../../../actors/runtime/cancellation.js';

test('whoever listens hears of a cancellation once, and whoever left does not', () => {
  const cancellation = new Cancellation();
  const heard: string[] = [];
  const leaver = (): void => void heard.push('left before');
  cancellation.listen(() => {
    heard.push('first');
    cancellation.cancel();
  });
  cancellation.listen(leaver);
  cancellation.listen(() => heard.push('last'));
  cancellation.unlisten(leaver);
  assert.equal(cancellation.cancelled, false);
  cancellation.cancel();
  cancellation.cancel();
  assert.equal(cancellation.cancelled, true);
  assert.deepEqual(heard, ['first', 'last']);
});

test('a listener that comes after the cancellation is not called', () => {
  const cancellation = new Cancellation();
  cancellation.cancel();
  cancellation.listen(() => assert.fail('called'));
  cancellation.cancel();
});
