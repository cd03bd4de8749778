import t from 'tap';
import { countdown } from '../environments/countdown/countdown.ts';
import type { AnyEnvironment } from '../environments/environment.ts';
import { begin } from './wrapped.test-data.ts';

t.test('the text takes the chosen form, the other forms stay', async t => {
  const play = await begin([{ name: 'observation_format', options: { format: 'coord' } }]);
  t.equal(play.see(), play.see('coord'));
  t.equal(play.see('grid'), 'P__G\nO___');
});

t.test('structured is written as JSON', async t => {
  const play = await begin([{ name: 'observation_format', options: { format: 'structured' } }]);
  t.same(JSON.parse(play.see() as string), play.see('structured'));
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
