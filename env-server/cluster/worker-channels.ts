import { rmSync } from 'node:fs';
import { createServer, type Server, type Socket } from 'node:net';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import type { MaybePromise } from '../environments/core/maybe-promise.ts';
import type { OperationInput } from '../operations/declaration.ts';
import { problemOf } from '../operations/dispatch/problem-of.ts';
import type { SiblingWorkers, WorkerTopic } from '../operations/dispatch/sibling-workers.ts';
import { WrittenResult } from '../operations/dispatch/written-result.ts';
import type { Operation } from '../operations/operation.ts';
import { type Lane, scheduler } from '../scheduling/fair-scheduler.ts';
import { MAX_PROCESSES, type WorkerPlacement } from '../sessions/placement.ts';
import type { Principal, Scope } from '../sessions/principal.ts';
import { IpcChannel, RESULT } from './ipc-channel.ts';
import { LineWriter, readLines } from './lines.ts';
import { problemText } from './problem-text.ts';

const OPERATION = 'operation';
const POLL_MS = 5;

/** What a process is asked to run for another. */
export interface ForwardedOperation {
  readonly operation: string;
  readonly principal: Principal;
  /** Differs from request to request of all processes. */
  readonly request: number;
  readonly input: OperationInput;
}

/** Answers of one process to the others. */
export interface WorkerRequestHandlers {
  /** Runs an operation whose input was checked, and gives its result as JSON text. */
  operation(asked: ForwardedOperation): MaybePromise<string>;
  /** Gives what is asked about, as a value that JSON can hold. */
  topic(topic: WorkerTopic, payload: unknown): MaybePromise<unknown>;
  /** Lets a reply leave when what was done before it is kept as the settings say. */
  deliver(reply: () => void): void;
  /** Is told of what was thrown, before it is told to the other process without its cause. */
  failed(error: unknown): void;
}

/** Connects a process with the others that serve together with it: each listens on a Unix socket in a folder of theirs. */
export class WorkerChannels implements SiblingWorkers {
  readonly placement: WorkerPlacement;
  readonly #folder: string;
  readonly #channels: readonly (IpcChannel | undefined)[];
  readonly #sockets = new Set<Socket>();
  #server: Server | undefined;

  constructor(folder: string, placement: WorkerPlacement) {
    this.#folder = folder;
    this.placement = placement;
    this.#channels = Array.from({ length: placement.count }, (_, index) =>
      index === placement.index ? undefined : new IpcChannel(this.#pathOf(index)),
    );
  }

  #pathOf(index: number): string {
    return join(this.#folder, `${index}.sock`);
  }

  async perform(
    index: number,
    { name, scopes }: Principal,
    request: number,
    operation: Operation,
    input: OperationInput,
  ): Promise<WrittenResult> {
    // Below zero, unlike those that began over there.
    const foreign = -(request * MAX_PROCESSES + this.placement.index + 1);
    const lane = scheduler.current;
    const from = lane ? [lane.client, lane.number] : [];
    const payload = JSON.stringify([operation.name, name, [...scopes], foreign, input, ...from]);
    return new WrittenResult(await this.#channel(index).ask(OPERATION, payload));
  }

  askAll(topic: WorkerTopic, payload: unknown): Promise<unknown>[] {
    const text = JSON.stringify(payload);
    return this.#channels.flatMap(channel => (channel ? [channel.ask(topic, text).then(JSON.parse)] : []));
  }

  async ask(index: number, topic: WorkerTopic, payload: unknown): Promise<unknown> {
    return JSON.parse(await this.#channel(index).ask(topic, JSON.stringify(payload)));
  }

  #channel(index: number): IpcChannel {
    const channel = this.#channels[index];
    if (!channel) throw new Error(`process ${this.placement.index} has no link to ${index}`);
    return channel;
  }

  /** Begins to answer the others. */
  async listen(answers: WorkerRequestHandlers): Promise<void> {
    const server = createServer(socket => {
      this.#sockets.add(socket);
      socket.on('close', () => this.#sockets.delete(socket));
      socket.on('error', () => socket.destroy());
      const writer = new LineWriter(socket);
      const lanes = new ForwardedLanes();
      readLines(socket, line => this.#answer(line, answers, writer, lanes));
    });
    await new Promise<void>((resolve, reject) => {
      server.once('error', reject);
      // A process that was killed leaves its own behind.
      const path = this.#pathOf(this.placement.index);
      rmSync(path, { force: true });
      server.listen(path, resolve);
    });
    this.#server = server;
  }

  /**
   * Waits until all that was asked of others is answered.
   * @returns how much of it is not, after so long
   */
  async settle(graceMs: number): Promise<number> {
    const end = performance.now() + graceMs;
    const waiting = () => this.#channels.reduce((sum, channel) => sum + (channel?.waiting ?? 0), 0);
    while (waiting() > 0 && performance.now() < end) await delay(POLL_MS);
    return waiting();
  }

  /** Hangs up when everything written has left. */
  async close(): Promise<void> {
    for (const channel of this.#channels) channel?.close();
    const server = this.#server;
    if (!server) return;
    const left = [...this.#sockets].map(socket => new Promise<void>(resolve => socket.end(resolve)));
    server.close();
    await Promise.all(left);
    for (const socket of this.#sockets) socket.destroy();
  }

  #answer(line: string, answers: WorkerRequestHandlers, writer: LineWriter, lanes: ForwardedLanes): void {
    const space = line.indexOf(' ');
    const number = line.slice(0, space);
    const next = line.indexOf(' ', space + 1);
    const topic = line.slice(space + 1, next);
    const succeed = (text: string) => answers.deliver(() => writer.write(`${number} ${RESULT} ${text}`));
    const fail = (error: unknown) => {
      answers.failed(error);
      answers.deliver(() => writer.write(`${number} - ${problemText(problemOf(error))}`));
    };
    const given: unknown = JSON.parse(line.slice(next + 1));
    lanes.of(topic, given).run(() => {
      try {
        const text = this.#answerTo(topic, given, answers);
        if (text instanceof Promise) text.then(succeed, fail);
        else succeed(text);
      } catch (error) {
        fail(error);
      }
    });
  }

  #answerTo(topic: string, given: unknown, answers: WorkerRequestHandlers): MaybePromise<string> {
    if (topic === OPERATION) {
      const [operation, name, scopes, request, input] = given as [
        string,
        string,
        Scope[],
        number,
        OperationInput,
      ];
      const principal = { name, scopes: new Set(scopes) };
      return answers.operation({ operation, principal, request, input });
    }
    const answer = answers.topic(topic as WorkerTopic, given);
    return answer instanceof Promise ? answer.then(toText) : toText(answer);
  }
}

/** Connections of another process for which it has asked, remembered up to so many. */
const MAX_LANES = 10_000;

/** Gives what another process asks for the turns of the connection over there. */
class ForwardedLanes {
  readonly #lanes = new Map<string, Lane>();
  readonly #others = scheduler.lane('other processes');

  of(topic: string, given: unknown): Lane {
    if (topic !== OPERATION) return this.#others;
    const [client, number] = (given as unknown[]).slice(-2);
    if (typeof client !== 'string') return this.#others;
    const key = `${client} ${number}`;
    let lane = this.#lanes.get(key);
    if (!lane) {
      lane = scheduler.lane(client);
      if (this.#lanes.size >= MAX_LANES) this.#lanes.clear();
      this.#lanes.set(key, lane);
    }
    return lane;
  }
}

const toText = (value: unknown): string => JSON.stringify(value ?? null);
