import { once } from 'node:events';
import type { Test } from 'tap';
import { WebSocket } from 'ws';
import type { JsonObject } from '../../shared/json.ts';
import type { Body } from '../../test/app.test-data.ts';
import type { ServerProcess } from '../../test/process.test-data.ts';

/** Process ids of the workers, by their places. */
export function pidsOf({ lines }: ServerProcess): Map<number, number> {
  const starts = lines.filter(line => line.includes('"worker_pid"')).map(line => JSON.parse(line));
  return new Map(starts.map(({ worker, worker_pid }) => [worker, worker_pid]));
}

/** A WebSocket to whichever worker the kernel chooses. @param take told of every reply */
export async function dial(t: Test, { origin }: ServerProcess, take?: (reply: Body) => void) {
  const socket = new WebSocket(`${origin.replace('http', 'ws')}/v1/ws`);
  t.teardown(() => socket.terminate());
  const replies = new Map<number, Body>();
  socket.on('message', text => {
    const reply = JSON.parse(text.toString());
    replies.set(reply.id, reply);
    take?.(reply);
  });
  await once(socket, 'open');
  let frames = 0;
  return {
    /** Sends frames and gives their replies in the order of the frames. */
    async ask(...asked: JsonObject[]): Promise<Body[]> {
      const ids = asked.map(frame => {
        socket.send(JSON.stringify({ id: ++frames, ...frame }));
        return frames;
      });
      while (ids.some(id => !replies.has(id))) await once(socket, 'message');
      return ids.map(id => replies.get(id)!);
    },
  };
}
