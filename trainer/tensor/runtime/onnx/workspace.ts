import { type Graph, sizeOf } from '../../graph/tensor.ts';

/** Share of a graph's intermediate values that is alive at once, measured on training graphs. */
const ALIVE_SHARE = 0.5;
const ELEMENT_BYTES = 4;
/** Operations whose result shares the memory of its operand. */
const FREE_OPERATIONS = new Set(['input', 'parameter', 'constant', 'reshape', 'stopGradient']);

/** Something that keeps memory between its uses and can do without for a while. */
export interface WorkspaceUser {
  readonly busy: boolean;
  suspend(): Promise<void>;
}

/** Shares a budget of memory among tenants: who was used longest ago gives up first. */
export class Workspace {
  readonly #budget: number;
  /** Bytes by tenant, in the order of their last use. */
  readonly #tenants = new Map<WorkspaceUser, number>();
  #total = 0;

  constructor(budgetBytes: number) {
    this.#budget = budgetBytes;
  }

  /** Notes a use; a tenant that alone exceeds the budget still gets what it needs. */
  async use(tenant: WorkspaceUser, bytes: number): Promise<void> {
    this.leave(tenant);
    this.#tenants.set(tenant, bytes);
    this.#total += bytes;
    if (this.#total <= this.#budget) return;
    for (const other of [...this.#tenants.keys()]) {
      if (this.#total <= this.#budget) break;
      if (other === tenant || other.busy) continue;
      this.leave(other);
      await other.suspend();
    }
  }

  leave(tenant: WorkspaceUser): void {
    this.#total -= this.#tenants.get(tenant) ?? 0;
    this.#tenants.delete(tenant);
  }
}

/** About how many bytes of intermediate values a session of the graph keeps between runs. */
export function workspaceOf(graph: Graph): number {
  const values = graph.nodes.filter(node => !FREE_OPERATIONS.has(node.operation));
  return ALIVE_SHARE * ELEMENT_BYTES * values.reduce((total, node) => total + sizeOf(node.shape), 0);
}
