import { createContext } from 'preact';
import { useContext, useEffect, useState } from 'preact/hooks';
import type { Query } from './query.ts';
import { RunStore } from './run-store.ts';
import type { Source } from './source.ts';

export const SourceContext = createContext<Source | undefined>(undefined);

/** Data source of this page. */
export function useSource(): Source {
  return useContext(SourceContext)!;
}

/** State of a request. */
export interface Loaded<T> {
  readonly value?: T;
  /** Query of the value: the one before the last while the reply to the last is pending. */
  readonly answered?: Query;
  readonly error?: string;
}

/** Asks for data whenever the query changes; what was there stays until the new is, with the query that it answers. */
export function useData<T>(name: string | undefined, query: Query = {}): Loaded<T> {
  const source = useSource();
  const [loaded, setLoaded] = useState<Loaded<T>>({});
  const key = `${name} ${JSON.stringify(query)}`;
  // The key contains name and query.
  useEffect(() => {
    if (name === undefined) return setLoaded({});
    let current = true;
    source.get<T>(name, query).then(
      value => current && setLoaded({ value, answered: query }),
      (error: Error) => current && setLoaded({ error: error.message }),
    );
    return () => {
      current = false;
    };
  }, [source, key]);
  return loaded;
}

/** A run that is followed while the component is there, with these metrics. */
export function useRun(id: string): RunStore {
  const source = useSource();
  const [store, setStore] = useState(() => new RunStore(source, id));
  const [, redraw] = useState(0);
  useEffect(() => {
    const own = store.id === id ? store : new RunStore(source, id);
    if (own !== store) setStore(own);
    const forget = own.listen(() => redraw(version => version + 1));
    void own.open();
    return () => {
      forget();
      own.close();
    };
  }, [source, id]);
  return store;
}

/** Reads the metrics of a run that a view shows. @returns why some could not be read, for the panel that lacks them */
export function useMetrics(store: RunStore, names: readonly string[]): string | undefined {
  useEffect(() => {
    if (store.detail) void store.want(names);
  }, [store, names.join(','), store.detail !== undefined]);
  return store.problemOf(names);
}
