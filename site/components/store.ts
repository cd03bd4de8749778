import { useEffect, useLayoutEffect, useReducer, useState } from 'preact/hooks';

/** State that only a pure reducer changes; dispatches `change` when it has changed. */
export class Store<State, Action> extends EventTarget {
  readonly #reduce: (state: State, action: Action) => State;
  #state: State;

  constructor(reduce: (state: State, action: Action) => State, state: State) {
    super();
    this.#reduce = reduce;
    this.#state = state;
  }

  get state(): State {
    return this.#state;
  }

  dispatch(action: Action): void {
    const next = this.#reduce(this.#state, action);
    if (next === this.#state) return;
    this.#state = next;
    this.dispatchEvent(new Event('change'));
  }
}

/** Adds listeners to the window. @returns removes them */
export function listen(
  listeners: { readonly [type in keyof WindowEventMap]?: (event: WindowEventMap[type]) => void },
  options?: AddEventListenerOptions,
): () => void {
  const all = Object.entries(listeners) as [type: string, listener: EventListener][];
  for (const [type, listener] of all) addEventListener(type, listener, options);
  return () => {
    for (const [type, listener] of all) removeEventListener(type, listener, options);
  };
}

/** Renders a component again whenever a target dispatches an event. */
export function useEvent(target: EventTarget, type: string): void {
  const [, redraw] = useReducer((count: number) => count + 1, 0);
  useLayoutEffect(() => {
    target.addEventListener(type, redraw);
    return () => target.removeEventListener(type, redraw);
  }, [target, type]);
}

/** State of a store; the component is rendered again with every change. */
export function useStore<State, Action>(store: Store<State, Action>): State {
  const { state } = store;
  const [, redraw] = useReducer((count: number) => count + 1, 0);
  useLayoutEffect(() => {
    store.addEventListener('change', redraw);
    // A child's effect may have changed it meanwhile.
    if (store.state !== state) redraw(undefined);
    return () => store.removeEventListener('change', redraw);
  }, [store]);
  return state;
}

/** The outcome of work: nothing at first, and its value or its error later. */
export interface Outcome<T> {
  readonly value?: T;
  readonly error?: Error;
}

/**
 * Does work when a component is mounted and whenever the inputs change. The outcome stays until that of the next work
 * is there; work that others have followed is ignored.
 */
export function useWork<T>(work: () => Promise<T>, inputs: readonly unknown[]): Outcome<T> {
  const [outcome, setOutcome] = useState<Outcome<T>>({});
  useEffect(() => {
    let isCurrent = true;
    work().then(
      value => isCurrent && setOutcome({ value }),
      (error: Error) => isCurrent && setOutcome({ error }),
    );
    return () => {
      isCurrent = false;
    };
  }, inputs);
  return outcome;
}

let ids = 0;

/** A unique element id. The ids of `useId` repeat where a page has several roots, as the playground has. */
export function useUniqueId(): string {
  return useState(() => `e${++ids}`)[0];
}
