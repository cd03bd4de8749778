import t from 'tap';
import { locate } from './register-view.ts';

const value = {
  title: 'a "quoted" \\ text, with } and ]',
  states: { 'near/bank': { 'a~b': [1, { deep: true }, []], empty: {} }, far: null },
  list: [[-1.5e3, 'x'], 'y'],
};

t.test('every value is found by its pointer, however the text is laid out', t => {
  for (const text of [
    JSON.stringify(value),
    JSON.stringify(value, null, 2),
    ` \n${JSON.stringify(value, null, '\t')}\n`,
  ]) {
    const visit = (part: unknown, pointer: string): void => {
      const { start, end } = locate(text, pointer);
      t.same(JSON.parse(text.slice(start, end)), part, pointer);
      if (typeof part !== 'object' || part === null) return;
      for (const [key, inner] of Object.entries(part)) {
        visit(inner, `${pointer}/${key.replaceAll('~', '~0').replaceAll('/', '~1')}`);
      }
    };
    visit(value, '');
  }
  t.end();
});

t.test('a missing value is located at its parent', t => {
  const text = JSON.stringify(value);
  const { start, end } = locate(text, '/states/far/text');
  t.equal(text.slice(start, end), 'null');
  t.same(locate(text, '/nothing'), { start: 0, end: text.length });
  t.end();
});
