import { useEffect, useRef, useState } from 'preact/hooks';
import type { GroupsRow } from '../../../shared/run-folder/run-files.ts';
import { type Loaded, useSource } from './hooks.ts';
import type { RunStore } from './run-store.ts';

/** Iterations that stay in memory, at least as many as the server sends at once; a page may be open for days. */
const MAX_ROWS = 512;

type Rows = readonly GroupsRow[];

/** The groups of a run's iterations. A new step requests only its groups. */
export function useGroups(store: RunStore): Loaded<Rows> {
  const source = useSource();
  const [loaded, setLoaded] = useState<Loaded<Rows>>({});
  const kept = useRef<{ readonly of: string; readonly rows: Rows }>({ of: '', rows: [] });
  const of = `${store.id} ${store.replaced}`;
  useEffect(() => {
    let current = true;
    const known = kept.current.of === of ? kept.current.rows : [];
    source.get<Rows>('groups', { id: store.id, after: known.at(-1)?.step }).then(
      rows => {
        if (!current) return;
        kept.current = { of, rows: thinned([...known, ...rows]) };
        setLoaded({ value: kept.current.rows });
      },
      (error: Error) => current && setLoaded({ error: error.message }),
    );
    return () => {
      current = false;
    };
  }, [source, of, store.detail?.row.step]);
  return loaded;
}

/** Drops every second row of too many; the last one stays. */
function thinned(rows: Rows): Rows {
  if (rows.length <= MAX_ROWS) return rows;
  return rows.filter((_, i) => (rows.length - 1 - i) % 2 === 0);
}
