import t from 'tap';
import type { Json } from '../../shared/json.ts';
import { bandit } from '../environments/bandit/bandit.ts';
import {
  type AnyEnvironment,
  type ObservationFormat,
  observationSpaces,
} from '../environments/core/environment.ts';
import { whyOutside } from '../environments/core/spaces.ts';
import { frozenLake } from '../environments/frozenlake/frozenlake.ts';
import { begin } from './wrapped.test-data.ts';

const NAMES = ['history', 'observe_valid_actions', 'auto_reset', 'record', 'sticky_actions'];
const PLAYS: readonly [environment: AnyEnvironment, action: Json][] = [
  [frozenLake as AnyEnvironment, 'Right'],
  [bandit as AnyEnvironment, 'nobody'],
];

t.test('observations lie in the spaces of their wrappers', async t => {
  for (const [environment, action] of PLAYS) {
    for (const wrappers of [...NAMES.map(name => [{ name }]), NAMES.slice(0, 2).map(name => ({ name }))]) {
      const play = await begin(wrappers, { environment, config: {}, options: {} });
      const spaces = observationSpaces(play.environment, play.config);
      for (let step = 0; step < 4; step++) {
        for (const form of ['text', 'structured'] as const satisfies readonly ObservationFormat[]) {
          const outside = whyOutside(spaces[form], play.see(form));
          t.equal(outside, undefined, `${wrappers.map(({ name }) => name)} ${form}, step ${step}`);
        }
        await play.step(action);
      }
    }
  }
});

t.test('a longer text has a longer space', async t => {
  const play = await begin([{ name: 'history', options: { turns: 5 } }]);
  const [before, after] = [frozenLake as AnyEnvironment, play.environment].map(
    environment => observationSpaces(environment, play.config).text,
  );
  if (before.type !== 'Text' || after.type !== 'Text') return t.fail('both are text');
  t.ok(after.maxLength > 5 * before.maxLength);
  t.ok(after.charset?.includes('√'));
});
