import { parentPort, workerData } from 'node:worker_threads';
import { tokenizerFromFiles } from '../../models/tokenizer/load.ts';
import { type EncoderReply, type EncoderRequest, encodeUpTo } from './prompt-encoder.ts';

/** Tokenizes the texts that are posted, one after the other, with the tokenizer of the files that the thread was given. */
const tokenizer = tokenizerFromFiles(workerData as { readonly [name: string]: string }, 'the tokenizer');

parentPort?.on('message', ({ text, most }: EncoderRequest) => {
  try {
    const found = encodeUpTo(tokenizer, text, most);
    const ids = found === undefined ? null : Int32Array.from(found);
    parentPort!.postMessage({ ids } satisfies EncoderReply, ids ? [ids.buffer] : []);
  } catch (error) {
    parentPort!.postMessage({ error: (error as Error).message } satisfies EncoderReply);
  }
});
