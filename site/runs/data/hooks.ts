import { createContext } from 'preact';
import { useContext, useEffect, useState } from 'preact/hooks';
import { useWork } from '../../components/store.ts';
import type { Query } from './exported-source.ts';
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
  /** Query of the value: the previous one while the reply to the current one is pending. */
  readonly answered?: Query;
  readonly error?: string;
}

/** Requests data whenever the query changes; the old value stays, with its query, until the new one arrives. */
export function useData<T>(name: string | undefined, query: Query = {}): Loaded<T> {
  const source = useSource();
  const read = async (): Promise<Loaded<T>> =>
    name === undefined ? {} : { value: await source.get<T>(name, query), answered: query };
  const { value = {}, error } = useWork(read, [source, `${name} ${JSON.stringify(query)}`]);
  return error ? { error: error.message } : value;
}

/** A run that is followed while the component is mounted, with these metrics. */
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

/**
 * Reads the metrics that a view shows.
 * @returns the reason why some could not be read, for the panel that lacks them
 */
export function useMetrics(store: RunStore, names: readonly string[]): string | undefined {
  useEffect(() => {
    if (store.detail) void store.want(names);
  }, [store, names.join(','), store.detail !== undefined]);
  return store.problemOf(names);
}
