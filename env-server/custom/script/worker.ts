import { parentPort, workerData } from 'node:worker_threads';
import { remembered } from '../../../shared/remembered.ts';
import { JsonOutOfBounds, jsonLimits, readAnswer, readValue } from '../json-limits.ts';
import {
  LimitReached,
  loadEngine,
  Sandbox,
  ScriptFault,
  type WorkerReply,
  type WorkerRequest,
  type WorkerSetup,
} from './sandbox.ts';

/** Runs scripts for the pool, one request at a time. Any unforeseen error ends the worker; the pool starts another. */
const port = parentPort;
if (!port) throw new Error('this module runs in a worker of the pool');
const { limits, engineCode } = workerData as WorkerSetup;
const valueLimits = jsonLimits(limits.valueBytes);
const engine = await loadEngine(engineCode);
const sources = new Map<number, string>();
const sandboxes = new Map<number, Sandbox>();

port.on('message', (message: WorkerRequest) => port.postMessage(answer(message)));
port.postMessage('ready');

function answer({ script, source, forget, request }: WorkerRequest): WorkerReply {
  if (forget !== undefined) {
    sources.delete(forget);
    discard(forget);
  }
  if (source !== undefined) sources.set(script, source);
  try {
    const sandbox = remembered(
      sandboxes,
      script,
      () => new Sandbox(engine, sources.get(script) as string, limits),
    );
    const text =
      request === undefined
        ? JSON.stringify({ valid_actions: sandbox.hasValidActions })
        : plain(sandbox.call(request));
    return { ok: true, text };
  } catch (error) {
    if (error instanceof ScriptFault || error instanceof JsonOutOfBounds)
      return { ok: false, fault: error.message };
    if (!(error instanceof LimitReached)) throw error;
    // The script may have left the sandbox in any shape.
    discard(script);
    return { ok: false, limit: error.limit };
  }
}

/**
 * The state and the result of a call as JSON text within the limits.
 * @throws JsonOutOfBounds
 */
function plain(text: string): string {
  const end = text.indexOf('\n');
  const state = readValue(text.slice(0, end), '/state', valueLimits);
  const result = readAnswer(text.slice(end + 1), valueLimits);
  return `${JSON.stringify(state)}\n${JSON.stringify(result)}`;
}

function discard(script: number): void {
  sandboxes.get(script)?.dispose();
  sandboxes.delete(script);
}
