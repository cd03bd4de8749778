import fs from 'node:fs';
import { syncBuiltinESMExports } from 'node:module';

/** Preloaded into a trainer: it is halted, as by SIGSTOP, when it has written the metrics of this step. */
const step = Number(process.env.HALT_AT_STEP);
const { appendFileSync } = fs;
fs.appendFileSync = (file, text, options) => {
  appendFileSync(file, text, options);
  if (!String(file).endsWith('metrics.jsonl') || text === '') return;
  const row = JSON.parse(String(text));
  if ('train/success' in row && row.step === step) process.kill(process.pid, 'SIGSTOP');
};
syncBuiltinESMExports();
