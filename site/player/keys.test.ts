import t from 'tap';
import { keyOf, keyOfSwipe, keysFor } from './keys.ts';

const namesOf = (actions: string[]) => keysFor(actions).map(key => key?.name);

t.test('directions take the arrows, turns of a cube their letters, the rest digits', t => {
  t.same(namesOf(['Left', 'Down', 'Right', 'Up']), ['ArrowLeft', 'ArrowDown', 'ArrowRight', 'ArrowUp']);
  t.same(namesOf(['north', 'take', 'south', 'drop']), ['ArrowUp', '1', 'ArrowDown', '2']);
  t.same(namesOf(['U', "U'", 'F']), ['u', 'Shift+u', 'f']);
  t.same(namesOf(['Swim', 'Ferry']), ['1', '2']);
  t.same(namesOf(['up', 'north']), ['1', '2'], 'no key means two things');
  t.same(namesOf(['a', 'A']), ['1', '2']);
  const many = namesOf(Array.from({ length: 12 }, (_, index) => `action ${index}`));
  t.same(many.slice(8), ['9', '0', undefined, undefined]);
  t.end();
});

t.test('a pressed key has the name that an action has', t => {
  const press = (key: string, held: Partial<KeyboardEvent> = {}) =>
    keyOf({ key, shiftKey: false, ctrlKey: false, altKey: false, metaKey: false, ...held });
  t.equal(press('ArrowUp'), 'ArrowUp');
  t.equal(press('u'), 'u');
  t.equal(press('U'), 'u', 'with caps lock');
  t.equal(press('U', { shiftKey: true }), 'Shift+u');
  t.equal(press('r', { ctrlKey: true }), undefined);
  t.end();
});

t.test('a swipe means the arrow of its direction; a tap and a slanting move mean nothing', t => {
  t.equal(keyOfSwipe(60, 10), 'ArrowRight');
  t.equal(keyOfSwipe(-60, 10), 'ArrowLeft');
  t.equal(keyOfSwipe(-10, -60), 'ArrowUp');
  t.equal(keyOfSwipe(0, 24), 'ArrowDown');
  t.equal(keyOfSwipe(3, -2), undefined);
  t.equal(keyOfSwipe(50, 45), undefined);
  t.end();
});
