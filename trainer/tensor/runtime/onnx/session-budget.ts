import type { Graph } from '../../graph/tensor.ts';

/** Memory of a session for each node of its graph, values of a run aside: kernels, names, types. Measured on training graphs. */
const NODE_BYTES = 10_240;

/** Something with a session that can do without it for a while. */
export interface SessionHolder {
  readonly busy: boolean;
  suspend(): Promise<void>;
}

/** Shares a budget of memory among sessions: what was used longest ago is given up first. */
export class SessionBudget {
  readonly #budget: number;
  /** Bytes by holder, in the order of their last use. */
  readonly #holders = new Map<SessionHolder, number>();
  #total = 0;

  constructor(budgetBytes: number) {
    this.#budget = budgetBytes;
  }

  /** Notes a use; a session that alone exceeds the budget is kept. */
  async use(holder: SessionHolder, bytes: number): Promise<void> {
    this.leave(holder);
    this.#holders.set(holder, bytes);
    this.#total += bytes;
    if (this.#total <= this.#budget) return;
    for (const other of [...this.#holders.keys()]) {
      if (this.#total <= this.#budget) break;
      if (other === holder || other.busy) continue;
      this.leave(other);
      await other.suspend();
    }
  }

  leave(holder: SessionHolder): void {
    this.#total -= this.#holders.get(holder) ?? 0;
    this.#holders.delete(holder);
  }
}

/** About how many bytes a session of the graph takes between runs. */
export function sessionBytes({ nodes }: Pick<Graph, 'nodes'>): number {
  return NODE_BYTES * nodes.length;
}
