/**
 * A pretrained chat model follows the commands of docs/how-to/pretrained-models.md: `npm run bench:chat-model -- --seeds 0,1,2`.
 * The model is made here: 2 million weights, pretrained by `sft --data` on everyday chats. Then, for each task and seed, `sft` on
 * demonstrations, `train` of an adapter, `evaluate`, `serve` of the adapter, `evaluate --policy endpoint`, and PEFT
 * loads the adapter where RAGEN_PYTHON has torch, transformers and peft. Each is a separate process; the same command continues
 * where it was stopped. After each finished seed it writes docs/results/data/chat-model.json and docs/results/chat-model.md.
 *
 * `--tasks` names some of bench/chat-model/tasks.ts, `--runs` is the folder of runs and `--out` that of page and data.
 * `--help` prints this.
 */
import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { chatModelPage, type StoryData } from './chat-model/page.ts';
import { tellStory } from './chat-model/story.ts';
import { TASKS } from './chat-model/tasks.ts';
import { ROOT } from './claims/run-trainer.ts';
import { scriptFlags } from './flags.ts';
import { ServerProcess } from './server-process.ts';

const { values: flags } = scriptFlags(import.meta.filename, {
  options: {
    seeds: { type: 'string', default: '0,1,2' },
    tasks: { type: 'string', default: TASKS.map(({ tag }) => tag).join(',') },
    runs: { type: 'string', default: 'runs' },
    /** Output folder of page and data. */
    out: { type: 'string', default: ROOT },
  },
});
const seeds = flags.seeds.split(',').map(text => {
  if (/^\d+$/.test(text)) return Number(text);
  throw new RangeError(`--seeds are whole numbers from 0 with commas between them, got ${flags.seeds}`);
});
const tasks = flags.tasks.split(',').map(name => {
  const task = TASKS.find(({ tag }) => tag === name);
  if (task) return task;
  throw new RangeError(`--tasks ${name}: there are ${TASKS.map(({ tag }) => tag).join(', ')}`);
});

const folder = resolve(flags.runs, 'chat-model');
mkdirSync(folder, { recursive: true });
const file = join(flags.out, 'docs/results/data/chat-model.json');
const server = new ServerProcess([]);
try {
  await server.start();
  const place = { folder, server: server.origin, tokenizer: join(ROOT, 'test/golden/models/qwen2-tiny') };
  for (const task of tasks) {
    for (const seed of seeds) {
      const row = await tellStory(task, seed, place, text =>
        console.log(`${task.tag}, seed ${seed}: ${text}`),
      );
      const old = existsSync(file) ? (JSON.parse(readFileSync(file, 'utf8')) as StoryData).rows : [];
      const others = old.filter(other => other.task !== task.tag || other.seed !== seed);
      const rows = [...others, row].sort((a, b) => a.task.localeCompare(b.task) || a.seed - b.seed);
      write({ rows });
    }
  }
} finally {
  await server.end('SIGTERM');
}

function write(data: StoryData): void {
  mkdirSync(join(file, '..'), { recursive: true });
  writeFileSync(file, `${JSON.stringify(data, null, 2)}\n`);
  writeFileSync(join(flags.out, 'docs/results/chat-model.md'), chatModelPage(data));
}
