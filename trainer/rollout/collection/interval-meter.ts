import type { Agent } from '../agents/agent.ts';

/** Measures the share of time in which something is in progress; overlapping intervals count once. */
export class IntervalMeter {
  readonly #now: () => number;
  #open = 0;
  #since = 0;
  #busy = 0;
  #from: number;

  /** @param now a monotonic clock, in any unit */
  constructor(now: () => number = () => performance.now()) {
    this.#now = now;
    this.#from = now();
  }

  begin(): void {
    if (this.#open++ === 0) this.#since = this.#now();
  }

  end(): void {
    if (--this.#open === 0) this.#busy += this.#now() - this.#since;
  }

  async during<T>(work: () => Promise<T>): Promise<T> {
    this.begin();
    try {
      return await work();
    } finally {
      this.end();
    }
  }

  /** Share of the time since the last call in which anything was in progress; starts the next interval. */
  takeShare(): number {
    const now = this.#now();
    const running = this.#open > 0 ? now - this.#since : 0;
    const share = now > this.#from ? (this.#busy + running) / (now - this.#from) : 0;
    this.#busy = 0;
    this.#since = now;
    this.#from = now;
    return share;
  }
}

/** The agent, with its answering time measured. */
export function meteredAgent(agent: Agent, meter: IntervalMeter): Agent {
  return {
    respond: turn => meter.during(() => agent.respond(turn)),
    release: sequenceId => agent.release(sequenceId),
  };
}
