import t from 'tap';
import { type AnyEnvironment, observationSpaces } from '../environments/core/environment.ts';
import { countdown } from '../environments/countdown/countdown.ts';
import { begin } from './wrapped.test-data.ts';

t.test('the text takes the chosen form, the other forms stay', async t => {
  const play = await begin([{ name: 'observation_format', options: { format: 'coord' } }]);
  t.equal(play.see(), play.see('coord'));
  t.equal(play.see('grid'), 'P__G\nO___');
});

t.test('structured is an object, and so says the space', async t => {
  const play = await begin([{ name: 'observation_format', options: { format: 'structured' } }]);
  t.match(play.see(), { player: [0, 0] });
  t.same(play.see(), play.see('structured'));
  const { text } = observationSpaces(play.environment, play.config);
  t.equal(text.type, 'Dict');
});

t.test('a form that the environment lacks is refused', async t => {
  const environment = countdown as AnyEnvironment;
  await t.rejects(
    begin([{ name: 'observation_format', options: { format: 'grid' } }], {
      environment,
      config: {},
      options: {},
    }),
    /has no grid form; it has text, structured/,
  );
});
