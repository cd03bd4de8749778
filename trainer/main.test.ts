import { execFile } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import t from 'tap';
import { parse } from 'yaml';
import { VERSION } from '../shared/program.ts';
import { evaluate } from './commands/evaluate/evaluate.ts';
import { train } from './commands/train/train.ts';

const main = fileURLToPath(new URL('./main.ts', import.meta.url));
const config = fileURLToPath(new URL('../configs/quickstart.yaml', import.meta.url));

/** Runs the command line to its end. */
const ragen = (...args: string[]) =>
  new Promise<{ status: number; out: string; err: string }>(resolve => {
    execFile(process.execPath, [main, ...args], (error, out, err) =>
      resolve({ status: error ? Number(error.code) : 0, out, err }),
    );
  });

t.test('--version says the version', async t => {
  t.match(await ragen('--version'), { status: 0, out: `${VERSION}\n` });
});

t.test('help names the commands there are', async t => {
  const { status, out } = await ragen('--help');
  t.equal(status, 0);
  t.same(
    [...out.matchAll(/^ {2}([\w-]+) .*(?:\[|<).*$/gm)].map(match => match[1]),
    [
      'init',
      'train',
      'verify-run',
      'rescore',
      'demonstrations',
      'sft',
      'merge-lora',
      'push',
      'serve',
      'sweep',
      'dashboard',
      'view',
      'evaluate',
      'diagnose',
      'help',
    ],
  );
});

t.test('each command that plays or learns has --log-level, which refuses other words', async t => {
  const { out } = await ragen('train', '--help');
  t.match(
    out.replace(/\s+/g, ' '),
    /--log-level <level> .*choices: "silent", "error", "warn", "info", "debug"/,
  );
  const { status, err } = await ragen('evaluate', config, '--log-level', 'loud');
  t.equal(status, 1);
  t.match(err, /'loud' is invalid/);
});

t.test('a dry run prints the settings as resolved, overrides included', async t => {
  const { status, out } = await ragen('train', config, '--dry-run', 'seed=7', 'training.steps=3');
  t.equal(status, 0);
  t.match(parse(out), { seed: 7, training: { steps: 3 }, train_tags: ['FrozenLake'], policy: { layers: 2 } });
});

t.test('wrong settings and commands are refused with what would be right', async t => {
  const refused = async (...args: string[]) => {
    const { status, err } = await ragen(...args);
    t.equal(status, 1, args.join(' '));
    return err;
  };
  t.match(
    await refused('train', config, 'trainng.steps=3'),
    /`trainng`: unknown key, did you mean `training`/,
  );
  t.match(await refused('sft', config, 'warm_start=null'), /has no `warm_start`/);
  for (const port of ['abc', '65536', '-1', '80.5', '']) {
    t.match(
      await refused('dashboard', '--port', port),
      `'--port <port>' argument '${port}' is invalid. Expected an integer from 0 to 65535`,
    );
  }
  t.match(await refused('serve', 'x', '--max-streams', '0'), /Expected an integer of at least 1/);
  const unknown = await refused('export');
  t.match(unknown, /unknown command 'export'[\s\S]*\(npm run trainer -- --help lists the commands\)/);
  t.ok(unknown.split('\n').length < 6, 'one hint, not the whole help');
});

t.test('missing files and policies are refused with what would be right', async t => {
  await t.rejects(train('nowhere.yaml', [], {}), /nowhere\.yaml: no such config file/);
  await t.rejects(train(undefined, [], {}), /needs a config file, e\.g\. ragen:quickstart, or --resume/);
  await t.rejects(train(undefined, [], { resume: t.testdir() }), /holds no run/);
  const policy = ['checkpoint'];
  await t.rejects(
    evaluate(config, [], { policy, attempts: 1 }),
    /there is no checkpoint; give a run folder, name a model with policy\.init=<folder>, or a player with --policy/,
  );
  await t.rejects(evaluate('nowhere', [], { policy, attempts: 1 }), /does not exist/);
});
