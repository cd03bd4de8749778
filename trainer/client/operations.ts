import type { components } from '../../openapi/schema.d.ts';

/** Types of the server's wire contract. */
export type Schemas = components['schemas'];

interface OperationResults {
  readonly create: Schemas['CreatedSession'];
  readonly get: Schemas['SessionDetail'];
  readonly list: Schemas['SessionPage'];
  readonly reset: Schemas['Session'];
  readonly step: Schemas['StepResult'];
  readonly render: Schemas['Rendering'];
  readonly snapshot: Schemas['Snapshot'];
  readonly restore: Schemas['Session'];
  readonly clone: Schemas['ClonedSessions'];
  readonly trajectory: Schemas['Trajectory'];
  readonly reference: Schemas['ReferencePlan'];
  readonly valid_actions: Schemas['ValidActions'];
  readonly close: null;
  readonly list_environments: Schemas['EnvironmentList'];
  readonly get_environment: Schemas['Environment'];
  readonly describe_environment: Schemas['Environment'];
}

/** Name of an operation, `op` of frames and batch items. */
export type Operation = keyof OperationResults;
export type OperationResult<O extends Operation> = OperationResults[O];

type Item = Schemas['BatchItem'];
/** Input of an operation: its path, query and body in one flat object. */
export type OperationInput<O extends Operation> = Omit<Extract<Item, { op: O }>, 'op' | 'request_key'>;

/** One operation for a server. The key makes repeating it harmless. */
export interface Request<O extends Operation = Operation> {
  readonly op: O;
  readonly input: OperationInput<O>;
  readonly key?: string;
}

/** Operations that change something; each such request carries a key, so that a retry never acts twice. */
const KEYED: ReadonlySet<Operation> = new Set(['create', 'reset', 'step', 'snapshot', 'restore', 'clone']);

export function needsKey(op: Operation): boolean {
  return KEYED.has(op);
}

/**
 * Requests as the items of a batch, in JSON without the brackets.
 * @throws RangeError for an input that is nested too deep to be written
 */
export function itemsOf(requests: readonly Request[]): string {
  try {
    return requests.map(request => JSON.stringify(toItem(request))).join(',');
  } catch (error) {
    if (!(error instanceof RangeError)) throw error;
    throw new RangeError('a request is nested too deep to be sent', { cause: error });
  }
}

/** A request in the form of frames and batches. */
function toItem(request: Request): Item {
  const { op, input, key } = request;
  return (key === undefined ? { op, ...input } : { op, ...input, request_key: key }) as Item;
}

interface Route {
  readonly method: 'GET' | 'POST' | 'DELETE';
  /** Path with `{name}` for an input of that name. */
  readonly path: string;
}

/** The REST route of each operation. */
export const ROUTES: { readonly [O in Operation]: Route } = {
  create: { method: 'POST', path: '/v1/sessions' },
  get: { method: 'GET', path: '/v1/sessions/{session_id}' },
  list: { method: 'GET', path: '/v1/sessions' },
  reset: { method: 'POST', path: '/v1/sessions/{session_id}/reset' },
  step: { method: 'POST', path: '/v1/sessions/{session_id}/step' },
  render: { method: 'GET', path: '/v1/sessions/{session_id}/render' },
  snapshot: { method: 'POST', path: '/v1/sessions/{session_id}/snapshot' },
  restore: { method: 'POST', path: '/v1/sessions/{session_id}/restore' },
  clone: { method: 'POST', path: '/v1/sessions/{session_id}/clone' },
  trajectory: { method: 'GET', path: '/v1/sessions/{session_id}/trajectory' },
  reference: { method: 'POST', path: '/v1/sessions/{session_id}/reference' },
  valid_actions: { method: 'GET', path: '/v1/sessions/{session_id}/valid-actions' },
  close: { method: 'DELETE', path: '/v1/sessions/{session_id}' },
  list_environments: { method: 'GET', path: '/v1/envs' },
  get_environment: { method: 'GET', path: '/v1/envs/{env_id}' },
  describe_environment: { method: 'POST', path: '/v1/envs/{env_id}/describe' },
};
