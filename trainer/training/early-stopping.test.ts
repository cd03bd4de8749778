import t from 'tap';
import { initialState, type WatchState } from './checkpoint.ts';
import { watchIteration, watchValidation } from './early-stopping.ts';

const rules = {
  empty_batches: 5,
  std_share: 0.1,
  std_iterations: 10,
  success_floor: 0.01,
  success_validations: 5,
};
const fresh = initialState(0).watch;

/** Iteration, from 1, at which a run with these numbers stops; undefined when it never does. */
function stopsAt(iterations: readonly { kept?: number; std?: number }[]) {
  let watch: WatchState = fresh;
  for (const [i, { kept = 1, std }] of iterations.entries()) {
    const verdict = watchIteration(watch, rules, kept, std);
    if (verdict.stop) return { iteration: i + 1, type: verdict.stop.type };
    watch = verdict.watch;
  }
  return undefined;
}

t.test('five empty batches in a row stop, four and one more later do not', async t => {
  const empty = { kept: 0 };
  t.same(stopsAt([empty, empty, empty, empty, empty]), { iteration: 5, type: 'empty_batches' });
  t.equal(stopsAt([empty, empty, empty, empty, {}, empty, empty, empty, empty]), undefined);
});

t.test('a spread under a tenth of the first ten for ten iterations stops', async t => {
  const at = (std: number, times: number) => Array.from({ length: times }, () => ({ std }));
  t.same(stopsAt([...at(1, 10), ...at(0.09, 10)]), { iteration: 20, type: 'low_std' });
  t.equal(stopsAt([...at(1, 10), ...at(0.09, 9), ...at(0.11, 1), ...at(0.09, 9)]), undefined);
  t.equal(stopsAt([...at(0, 40)]), undefined, 'groups that never differed are not watched');
  t.equal(stopsAt(Array.from({ length: 40 }, () => ({}))), undefined, 'groups of one have no spread');
});

t.test('success under a percent five validations running stops', async t => {
  let watch: WatchState = fresh;
  const types = [0, 0, 0, 0, 0.02, 0, 0, 0, 0, 0.009].map(success => {
    const verdict = watchValidation(watch, rules, success);
    watch = verdict.watch;
    return verdict.stop?.type;
  });
  t.same(types, [...new Array(9).fill(undefined), 'low_success']);
  t.equal(
    watchValidation({ ...fresh, lowValidations: 9 }, { ...rules, success_validations: 0 }, 0).stop,
    undefined,
  );
});
