import { createServer, type Server, type Socket } from 'node:net';

/** Takes connections and passes each on. */
export interface ConnectionReceiver {
  readonly index: number;
  /** Passes a connection to the worker, which says `taken` under its number when it has it. */
  pass(number: number, socket: Socket): void;
}

interface PassedConnection {
  readonly socket: Socket;
  readonly index: number;
}

/**
 * Holds the port and hands its connections to the workers in turn. A connection is kept open here until its worker has
 * it: where that ends before, the client is told by a reset, and tries again.
 */
export class Connections {
  readonly #server: Server;
  #receivers: readonly ConnectionReceiver[] = [];
  #turn = 0;
  #number = 0;
  /** Came while there was no worker. */
  #waiting: Socket[] = [];
  readonly #passed = new Map<number, PassedConnection>();

  constructor() {
    this.#server = createServer({ pauseOnConnect: true, noDelay: true }, socket => {
      socket.on('error', () => socket.destroy());
      this.#distribute(socket);
    });
  }

  /**
   * @returns the port, where `port` is 0 a free one
   * @throws Error of the system, e.g. `EADDRINUSE`
   */
  async listen(host: string, port: number): Promise<number> {
    await new Promise<void>((resolve, reject) => {
      this.#server.once('error', reject);
      this.#server.listen({ host, port }, resolve);
    });
    this.#server.removeAllListeners('error');
    const address = this.#server.address();
    return typeof address === 'object' && address ? address.port : port;
  }

  close(): void {
    this.#server.close();
  }

  add(receiver: ConnectionReceiver): void {
    this.#receivers = [...this.#receivers, receiver];
    const waiting = this.#waiting;
    this.#waiting = [];
    for (const socket of waiting) this.#distribute(socket);
  }

  /** A worker takes no more; what it was passed and has not taken is gone. */
  remove(index: number): void {
    this.#receivers = this.#receivers.filter(receiver => receiver.index !== index);
    for (const [number, passed] of this.#passed) if (passed.index === index) this.taken(number);
  }

  /** A worker has a connection, which it alone holds from now on. */
  taken(number: number): void {
    this.#passed.get(number)?.socket.destroy();
    this.#passed.delete(number);
  }

  #distribute(socket: Socket): void {
    if (this.#receivers.length === 0) {
      this.#waiting.push(socket);
      return;
    }
    this.#turn = (this.#turn + 1) % this.#receivers.length;
    const receiver = this.#receivers[this.#turn];
    const number = ++this.#number;
    this.#passed.set(number, { socket, index: receiver.index });
    receiver.pass(number, socket);
  }
}
