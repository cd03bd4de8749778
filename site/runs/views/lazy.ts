import type { ComponentType } from 'preact';
import { useLayoutEffect, useState } from 'preact/hooks';
import { html } from '../../components/html.ts';
import type { Address } from '../address.ts';
import { Status } from './parts.ts';

/** Loads the scripts of a view, and returns the view. */
export type Load<Props> = () => Promise<(props: Props) => unknown>;

/** Views that are loaded, by how. */
const loaded = new Map<unknown, unknown>();

interface LazyView<Props> {
  /** Undefined until its scripts have come. */
  readonly view?: ComponentType<Props>;
  /** Why they cannot be loaded. */
  readonly error?: string;
}

/** A view that loads its scripts when it is first shown. */
export function useLazy<Props>(load: Load<Props>): LazyView<Props> {
  const [failure, setFailure] = useState<{ readonly of?: unknown; readonly message?: string }>({});
  const [, redraw] = useState(0);
  useLayoutEffect(() => {
    if (loaded.has(load)) return;
    load().then(
      view => {
        loaded.set(load, view);
        redraw(version => version + 1);
      },
      (error: Error) => setFailure({ of: load, message: error.message }),
    );
  }, [load]);
  return {
    view: loaded.get(load) as ComponentType<Props> | undefined,
    error: failure.of === load ? failure.message : undefined,
  };
}

interface LazyProps {
  readonly load: Load<{ readonly address: Address }>;
  readonly address: Address;
}

/** A view of several runs that loads its scripts when it is first shown. */
export function Lazy({ load, address }: LazyProps) {
  const { view, error } = useLazy(load);
  return view ? html`<${view} address=${address} />` : html`<${Status} error=${error} loading=${!error} />`;
}
