import t from 'tap';
import { loadRunSettings } from '../../trainer/config/load.ts';
import { collapsePage, type Outcome } from './report.ts';
import { CONFIG, LEARNS, SHARED, VARIANTS, WARM } from './variants.ts';

t.test('every variant is a run that the trainer takes, and variants differ', async t => {
  t.ok(loadRunSettings(CONFIG, [...SHARED, ...WARM]).warm_start);
  const settings = VARIANTS.map(variant => {
    const { loss, algorithm, seed } = loadRunSettings(CONFIG, [...SHARED, ...LEARNS, ...variant.settings]);
    return `${loss.entropy_coefficient} ${algorithm.filter.strategy} ${seed}`;
  });
  t.equal(new Set(settings).size, VARIANTS.length, settings.join());
});

t.test('the page compares the first measurement with the mean of the last third', async t => {
  const shares = [0.9, 0.8, 0.7, 0.6, 0.4, 0.2];
  const measurements = shares.map((share, i) => ({
    step: i + 1,
    share,
    club: 10 * share,
    retrieval: share,
    entropy: 2 - share,
    valid: 1,
    spread: 0.5,
    success: 0.5,
  }));
  const run: Outcome = {
    name: 'high entropy bonus',
    iterations: 6,
    measurements,
    early: [{ prompt: 'Baker or Racer', response: '<think>Baker Racer</think>' }],
    late: [{ prompt: 'Clerk or Explorer', response: '<think>so it\nis</think>' }],
  };
  const page = collapsePage([run]);
  t.match(
    page,
    '| high entropy bonus | 6 | 0.90 → 0.30 | 9.00 → 3.00 | 0.90 → 0.30 | 1.10 → 1.70 | 1.00 → 1.00 | 0.50 → 0.50 | 0.50 → 0.50 |',
  );
  t.match(page, 'Baker or Racer: <think>Baker Racer</think>\nClerk or Explorer: <think>so it is</think>\n');
});
