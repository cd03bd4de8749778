import t from 'tap';
import { fill } from './fill.ts';

t.test('placeholders are filled and lines without a value left out', async t => {
  t.equal(fill(['a {x}', 'b {y} {x}', '', 'c'], { x: 1, y: undefined }), 'a 1\n\nc');
  t.equal(fill(['{x}'], { x: '{y} $&' }), '{y} $&', 'values are not templates');
  t.throws(() => fill(['{z}'], { x: 1 }), /no value for \{z\}.*there are: x/);
});
