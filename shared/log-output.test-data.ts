/** Logs four MiB in lines, answers each message with a line on the channel, and ends when the channel closes. */

import { outliveReaders } from './log-output.ts';
import { outputLog } from './log-text.ts';

outliveReaders();
const log = outputLog('info');
const text = 'x'.repeat(2 ** 10);
console.log('begun');
process.on('message', () => {
  for (let i = 0; i < 2 ** 12; i++) log.info(text);
  process.send!('logged');
});
process.once('disconnect', () => console.log('ending'));
