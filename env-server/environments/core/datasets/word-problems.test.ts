import t from 'tap';
import { Random } from '../../../../shared/random.ts';
import { drawWordProblem } from './word-problems.ts';

t.test('the worked steps compute rightly and end in the answer', async t => {
  const rng = Random.fromSeed(11);
  let checked = 0;
  for (let count = 0; count < 2000; count++) {
    const { question, steps, answer } = drawWordProblem(rng, 'any');
    if (!Number.isInteger(answer) || answer < 0) t.fail(`${question} ${answer}`);
    const numbers = steps.match(/\d+(?:\.\d+)?/g)?.map(Number) ?? [];
    if (!numbers.includes(answer)) t.fail(`${answer} is not in: ${steps}`);
    for (const [, left, result] of steps.matchAll(/((?:\d+|[-+*/() ])+)= (\d+)/g)) {
      const value = Number(new Function(`return ${left}`)());
      if (value !== Number(result)) t.fail(`${left}= ${result} in: ${steps}`);
      checked++;
    }
  }
  t.ok(checked > 2000, `${checked} equations`);
});
