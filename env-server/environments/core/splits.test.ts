import t from 'tap';
import { Random } from '../../../shared/random.ts';
import { createRegistry } from '../registry.ts';
import { resolveConfig, resolveOptions } from './settings.ts';
import { isInSplit, splitOf } from './splits.ts';

/** Levels drawn of each part. */
const LEVELS = 60;

t.test('levels fall into the parts in the proportion 8 : 1 : 1', async t => {
  const counts = { train: 0, validation: 0, test: 0 };
  for (let i = 0; i < 20_000; i++) counts[splitOf(`level ${i}`)]++;
  t.ok(Math.abs(counts.train - 16_000) < 250, String(counts.train));
  t.ok(Math.abs(counts.validation - 2000) < 200, String(counts.validation));
  t.ok(Math.abs(counts.test - 2000) < 200, String(counts.test));
});

t.test('a level is in one part, and in any', async t => {
  const unneeded = () => {
    throw new Error('its text is needed only where there is a choice');
  };
  t.ok(isInSplit(unneeded, 'any'));
  for (let i = 0; i < 100; i++) {
    const level = `level ${i}`;
    t.equal(
      (['train', 'validation', 'test'] as const).filter(split => isInSplit(() => level, split)).length,
      1,
    );
  }
  t.equal(splitOf('#P_XO#'), 'train', 'the same on every machine');
});

t.test('no environment shows a level of one part in another', async t => {
  for (const environment of createRegistry().list()) {
    const { id, configSchema, tags } = environment.spec;
    // Where not all is seen, different levels may begin alike.
    const form = tags.includes('partial observation') ? 'structured' : 'text';
    const choices = (configSchema as { properties?: { split?: { anyOf?: { const: string }[] } } }).properties
      ?.split?.anyOf;
    if (!choices) continue;
    const partOf = new Map<string, string>();
    for (const { const: split } of choices.filter(choice => choice.const !== 'any')) {
      const config = resolveConfig(environment, { split });
      for (let seed = 0; seed < LEVELS; seed++) {
        const options = resolveOptions(environment);
        const state = await environment.reset(config, Random.fromSeed(seed), options);
        const level = environment.levelKey?.(state) ?? JSON.stringify(environment.observe(state, form));
        const other = partOf.get(level) ?? split;
        if (other !== split) t.fail(`${id}: a level of ${split} is one of ${other}, too: ${level}`);
        partOf.set(level, split);
        await environment.dispose?.(state);
      }
    }
    t.ok(partOf.size > choices.length, `${id}: ${partOf.size} levels`);
  }
});
