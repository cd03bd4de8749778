import t from 'tap';
import type { Json } from '../../shared/json.ts';
import { serveHttp } from '../../test/local-server.test-data.ts';
import { EndpointScorer } from '../policy/endpoint-scorer.ts';
import { startServer } from '../serve/serve.test-data.ts';
import { latestCheckpoint } from './run-folder/checkpoint.ts';
import { MAX_MS, tinyRuns, trainingRows, weightsOf } from './runs.test-data.ts';

t.test(
  'a student approaches a teacher behind an endpoint, as one in a folder',
  { timeout: MAX_MS },
  async t => {
    const { train } = await tinyRuns(t);
    const untrained = {
      training: { steps: 0 },
      seed: 5,
      policy: { value_head: false, initializer_range: 0.5 },
    };
    const teacher = latestCheckpoint(await train('teacher', untrained))!.policy;
    const server = await startServer(t, teacher, { policy: { workers: 1, maxSequenceLength: 100 } });
    const student = (reference: Json): Json => ({
      policy: { value_head: false, ...(reference as object) },
      rollout: { env_groups: 8 },
      algorithm: {
        advantage: 'reinforce_pp',
        gamma: 0,
        whiten: false,
        reward_scale: 0,
        kl_in_reward: { estimator: 'k1', coefficient: 1 },
      },
      loss: { entropy_coefficient: 0 },
      optimizer: { learning_rate: 1e-2, weight_decay: 0 },
      training: { steps: 8 },
    });
    const remote = await train(
      'remote',
      student({ reference_endpoint: { url: `${server.url}/v1`, model: 'base' } }),
    );
    const local = await train('local', student({ reference: teacher }));
    // The advantage of a token is log π_teacher − log π: its mean is the reverse KL's negative.
    const distances = (run: typeof remote) => trainingRows(run).map(row => -row['critic/advantages/mean']);
    const [first, ...later] = distances(remote);
    const last = (later.at(-1)! + later.at(-2)!) / 2;
    t.ok(last < 0.6 * first, `${[first, ...later]}`);
    t.ok(Math.abs(first - distances(local)[0]) < 1e-4, 'the endpoint scores as the folder does');
    t.notOk(weightsOf(local).equals(weightsOf(await train('begun', { training: { steps: 0 } }))));
  },
);

t.test('an endpoint that fails, or gives no log-probabilities of prompts, is named', async t => {
  const answers: [number, unknown][] = [];
  let asked = 0;
  const { url } = await serveHttp(t, (_request, reply) => {
    asked++;
    const [status, body] = answers.shift() ?? [500, {}];
    reply.writeHead(status).end(JSON.stringify(body));
  });
  const scorer = new EndpointScorer({
    url: `${url}/v1`,
    model: 'm',
    concurrency: 1,
    attempts: 2,
    timeoutMs: 60_000,
  });
  t.teardown(() => scorer.close());
  const sequence = { tokenIds: Int32Array.of(1, 2, 3), lossMask: Uint8Array.of(0, 1, 1) };
  const give = (token_logprobs: unknown) => ({ choices: [{ logprobs: { token_logprobs } }] });
  const refused = async (answer: [number, unknown], message: RegExp) => {
    answers.push(answer);
    await t.rejects(scorer.score([sequence]), message);
  };
  answers.push([503, {}], [200, give([null, -1, -2, -9])]);
  t.same(Array.from((await scorer.score([sequence]))[0].logProbs), [0, -1, -2]);
  t.equal(asked, 2, 'what may pass is tried again');
  await refused([400, { error: 'no echo' }], /policy\.reference_endpoint: .*status 400: .*no echo/);
  await refused([200, give([null, -1])], /gave 2 log-probabilities of a prompt of 3 tokens/);
  await refused([200, { choices: [{}] }], /gave no log-probabilities/);
  await refused([200, give([null, 'x', -1])], /token 1 has the log-probability x/);
  t.throws(() => scorer.score([sequence], { temperature: 0.5 }), /at temperature 1, not at 0\.5/);
  await t.rejects(scorer.score([{ ...sequence, grammar: 'answer' }]), /grammar answer/);
});
