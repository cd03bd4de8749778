import t from 'tap';
import type { RunRow } from '../server/reader/runs-table.ts';
import { healthCards } from './health.ts';

t.test('a run without a readable status is not called healthy', t => {
  const row = { state: 'unknown', validations: [], run: { tags: [] } } as unknown as RunRow;
  const steps = { x: [1, 2, 3], y: [0.5, 0.5, 0.5] };
  const cards = healthCards(row, name => (name === 'actor/grad_norm' ? steps : { x: [], y: [] }), 4, 0, 'go');
  t.same(
    cards.map(({ level, title }) => [level, title]),
    [['warn', 'Its state is unknown']],
  );
  const known = { ...row, state: 'finished' } as unknown as RunRow;
  const healthy = healthCards(
    known,
    name => (name === 'actor/grad_norm' ? steps : { x: [], y: [] }),
    4,
    0,
    'go',
  );
  t.match(healthy[0], { title: 'Training is healthy' });
  t.end();
});
