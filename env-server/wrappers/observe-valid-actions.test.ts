import t from 'tap';
import { bandit } from '../environments/bandit/bandit.ts';
import { type AnyEnvironment, observationSpaces } from '../environments/core/environment.ts';
import { resolveConfig } from '../environments/core/settings.ts';
import { countdown } from '../environments/countdown/countdown.ts';
import { begin } from './wrapped.test-data.ts';

const WRAPPERS = [{ name: 'observe_valid_actions' }];

t.test('adds the actions that are valid now', async t => {
  const options = { low: 'Cook', high: 'Diver', first: 'low' };
  const play = await begin(WRAPPERS, { environment: bandit as AnyEnvironment, config: {}, options });
  t.equal(play.see(), 'Cook or Diver\nValid actions: Cook, Diver');
  t.match(play.see('structured'), { valid_actions: ['Cook', 'Diver'] });
  await play.step('Cook');
  t.equal(play.see(), 'Cook paid 0.1\nValid actions: none');
});

t.test('texts that are JSON actions are written as JSON', async t => {
  const plain = bandit as AnyEnvironment;
  const environment: AnyEnvironment = {
    ...plain,
    spec: { ...plain.spec, actionSpace: { type: 'Json', schema: { enum: ['stop', { go: 1 }] } } },
    validActions: () => ['stop', { go: 1 }],
  };
  const options = { low: 'Cook', high: 'Diver', first: 'low' };
  const play = await begin(WRAPPERS, { environment, config: {}, options });
  t.match(play.see('structured'), { valid_actions: ['"stop"', '{"go":1}'] });
});

t.test('without valid actions the wrapper lists all names of a discrete space', async t => {
  t.equal((await begin(WRAPPERS)).see(), 'P__G\nO___\nValid actions: Left, Down, Right, Up');
});

t.test('refuses an environment that lists none', async t => {
  const environment = countdown as AnyEnvironment;
  await t.rejects(begin(WRAPPERS, { environment, config: {}, options: {} }), /does not list/);
});

t.test('the observation space has room for the list', async t => {
  const bare = await begin([]);
  const play = await begin([{ name: 'observe_valid_actions' }]);
  const lengthOf = ({ environment }: typeof play) => {
    const { text } = observationSpaces(environment, resolveConfig(environment, {}));
    return text.type === 'Text' ? text.maxLength : 0;
  };
  t.ok(lengthOf(play) - lengthOf(bare) >= String(play.see()).length - String(bare.see()).length);
});
