import type { ComponentType } from 'preact';
import { useEffect, useState } from 'preact/hooks';
import { html } from '../../components/html.ts';
import type { Address } from '../address.ts';
import { Status } from './parts.ts';

interface LazyProps {
  readonly load: () => Promise<unknown>;
  readonly address: Address;
}

/** A view that loads its scripts when it is first shown. */
export function Lazy({ load, address }: LazyProps) {
  const [loaded, setLoaded] = useState<{ readonly view?: ComponentType<object>; readonly error?: string }>(
    {},
  );
  useEffect(() => {
    load().then(
      view => setLoaded({ view: view as ComponentType<object> }),
      (error: Error) => setLoaded({ error: error.message }),
    );
  }, [load]);
  const { view, error } = loaded;
  return view ? html`<${view} address=${address} />` : html`<${Status} error=${error} loading=${!error} />`;
}
