import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import t from 'tap';
import { Client } from 'undici';
import { lacksPython, PYTHON } from '../../test/python.test-data.ts';

const SERVICE = fileURLToPath(new URL('higher_lower.py', import.meta.url));
const ROUNDS = 5;
const STEPS = 21;
const MAX_STEP_MS = 10;

t.test('a step of the example service takes less than 10 ms', { skip: lacksPython() }, async t => {
  const service = spawn(PYTHON, [SERVICE, '--port', '0'], { stdio: ['ignore', 'pipe', 'inherit'] });
  t.teardown(() => service.kill());
  const [line] = await once(createInterface({ input: service.stdout }), 'line');
  const client = new Client(String(line).replace('listening on ', ''));
  t.teardown(() => client.destroy());
  const ask = async (path: string, body: object) => {
    const reply = await client.request({ method: 'POST', path, body: JSON.stringify(body) });
    t.equal(reply.statusCode, 200);
    return reply.body.json();
  };

  const medians: number[] = [];
  for (let round = 0; round < ROUNDS; round++) {
    await ask('/reset', { session_id: 's', seed: 7, config: { sides: 6 } });
    const times: number[] = [];
    for (let step = 1; step <= STEPS; step++) {
      const began = performance.now();
      const reply = await ask('/step', { session_id: 's', step, action: 'Higher' });
      times.push(performance.now() - began);
      t.match(reply, { observation: { text: String } });
    }
    medians.push(times.sort((a, b) => a - b)[(STEPS - 1) / 2]);
  }
  // A busy machine may slow down a round; two segments would slow down each of them.
  t.ok(Math.min(...medians) < MAX_STEP_MS, `medians of ${medians.map(ms => ms.toFixed(1)).join(', ')} ms`);
  t.same(await ask('/close', { session_id: 's' }), {});
});
