import t from 'tap';
import type { Schemas } from './operations.ts';
import {
  Availability,
  ConnectionFailed,
  classify,
  DEFAULT_RETRY,
  ReplyTimeout,
  retryDelay,
  retrying,
  ServerProblem,
  ServerUnavailable,
  type WaitEvent,
  whoIsAway,
  whoIsBack,
} from './retry.ts';

const NAME = 'http://server';
const FAST = { baseMs: 1, maxDelayMs: 2, patienceMs: 60_000, attempts: 3, probeMs: 1 };
const IDLE = new AbortController().signal;

const problem = (status: number, retryable: boolean, retryAfter?: number, code = 'internal'): ServerProblem =>
  new ServerProblem(NAME, 'step', {
    type: '',
    title: '',
    status,
    detail: 'detail',
    code,
    retryable,
    trace_id: '',
    retry_after_s: retryAfter,
  } as Schemas['Problem']);

/** Fails with each of the errors in turn, then succeeds. */
function failing(errors: readonly Error[]): { attempt: () => Promise<string>; calls: () => number } {
  let calls = 0;
  return {
    attempt: async () => {
      const error = errors[calls++];
      if (error) throw error;
      return 'done';
    },
    calls: () => calls,
  };
}

t.test('a server cannot ask for more than the patience, or for something that is no number', t => {
  const delay = (retryAfter: unknown) => retryDelay(problem(500, true, retryAfter as number), 1, FAST, 0.5);
  t.equal(delay(1e9), FAST.patienceMs);
  t.equal(delay(30), 30_000);
  for (const wrong of [-1, 'soon', null, {}, Number.NaN]) t.equal(delay(wrong), delay(undefined), `${wrong}`);
  t.end();
});

t.test('failures fall into three kinds', async t => {
  t.equal(classify(new ConnectionFailed(NAME, 'refused')), 'away');
  for (const status of [429, 502, 503]) t.equal(classify(problem(status, true)), 'away');
  t.equal(classify(new ReplyTimeout(NAME, 'step', 1)), 'lost');
  t.equal(classify(problem(504, true)), 'lost');
  t.equal(classify(problem(500, false)), 'final');
  t.equal(classify(problem(502, false, undefined, 'remote_failed')), 'final', 'its episode is over');
  t.equal(classify(problem(502, true, undefined, 'remote_unavailable')), 'away');
  t.equal(classify(problem(422, false)), 'final');
  t.equal(classify(new TypeError('a fault of ours')), 'final');
});

t.test(
  'waiting names the service behind an environment, or the server, by which one does not answer',
  async t => {
    const service = problem(502, true, undefined, 'remote_unavailable');
    t.equal(whoIsAway(NAME, service), `the service behind an environment of ${NAME} does not answer`);
    t.match(
      new ServerUnavailable(NAME, 1000, service).message,
      /^the service behind an environment of http:\/\/server was not available for 1\.0 s: /,
    );
    t.equal(whoIsAway(NAME, problem(503, true)), `environment server ${NAME} takes no such requests now`);
    const connection = new ConnectionFailed(NAME, 'refused');
    t.equal(whoIsAway(NAME, connection), `environment server ${NAME} does not answer`);
    t.equal(whoIsBack(NAME, service), `the service behind an environment of ${NAME} answers again`);
    t.equal(whoIsBack(NAME, connection), `environment server ${NAME} is back`);
    t.match(new ServerUnavailable(NAME, 1000, connection).message, /^http:\/\/server was not available/);
  },
);

t.test('delays double, are drawn below a ceiling and respect what the server asks', async t => {
  const policy = { ...DEFAULT_RETRY, baseMs: 100, maxDelayMs: 1000 };
  const error = new ConnectionFailed(NAME, 'refused');
  t.same(
    [1, 2, 3, 4, 5, 6].map(attempt => retryDelay(error, attempt, policy, 1)),
    [100, 200, 400, 800, 1000, 1000],
  );
  t.equal(retryDelay(error, 3, policy, 0.25), 100);
  t.equal(retryDelay(problem(429, true, 7), 1, policy, 0.5), 7000);
});

t.test('a server that is away is waited for, and the wait is reported once', async t => {
  const waits: WaitEvent[] = [];
  let back = 0;
  const availability = new Availability(NAME, {
    onWaiting: event => waits.push(event),
    onBack: () => back++,
  });
  const { attempt, calls } = failing([new ConnectionFailed(NAME, 'refused'), problem(503, true)]);
  const both = [
    retrying(NAME, attempt, FAST, availability, IDLE),
    retrying(NAME, failing([new ConnectionFailed(NAME, 'refused')]).attempt, FAST, availability, IDLE),
  ];
  t.same(await Promise.all(both), ['done', 'done']);
  t.equal(calls(), 3);
  t.equal(waits.length, 1);
  t.equal(waits[0].server, NAME);
  t.ok(back >= 1);
  t.notOk(availability.away);
});

t.test('a service that is to be tried again in a minute is asked, and its wait reported, sooner', async t => {
  const { attempt } = failing([problem(502, true, 60, 'remote_unavailable')]);
  const began = performance.now();
  t.equal(await retrying(NAME, attempt, FAST, new Availability(NAME, {}), IDLE), 'done');
  t.ok(performance.now() - began < 30_000);
});

t.test('patience ends', async t => {
  const policy = { ...FAST, patienceMs: 10 };
  const always = async (): Promise<never> => {
    throw new ConnectionFailed(NAME, 'refused');
  };
  const promise = retrying(NAME, always, policy, new Availability(NAME, {}), IDLE);
  const error = (await promise.catch(e => e)) as ServerUnavailable;
  t.ok(error instanceof ServerUnavailable);
  t.match(error.message, /http:\/\/server was not available for .* s: http:\/\/server: refused/);
});

t.test('lost requests are repeated a few times, final failures never', async t => {
  const timeout = new ReplyTimeout(NAME, 'step', 1);
  const lost = failing([timeout, timeout, timeout, timeout]);
  await t.rejects(
    retrying(NAME, lost.attempt, FAST, new Availability(NAME, {}), IDLE),
    /did not answer step/,
  );
  t.equal(lost.calls(), FAST.attempts);
  const final = failing([problem(409, false)]);
  await t.rejects(
    retrying(NAME, final.attempt, FAST, new Availability(NAME, {}), IDLE),
    /409 internal: detail/,
  );
  t.equal(final.calls(), 1);
});

t.test('waiting can be ended', async t => {
  const controller = new AbortController();
  const always = async (): Promise<never> => {
    throw new ConnectionFailed(NAME, 'refused');
  };
  const slow = { ...FAST, baseMs: 1e6, maxDelayMs: 1e6 };
  const availability = new Availability(NAME, { onWaiting: () => controller.abort(new Error('enough')) });
  await t.rejects(retrying(NAME, always, slow, availability, controller.signal), /enough/);
});
