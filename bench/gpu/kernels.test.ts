import t from 'tap';
import { kernels, SHAPES } from './kernels.ts';

t.test('kernels of every shape are built from the operations as they are', async t => {
  for (const [name, shape] of Object.entries(SHAPES)) {
    const all = kernels(shape!);
    t.equal(new Set(all.map(kernel => kernel.name)).size, all.length, `${name}: a name each`);
  }
});
